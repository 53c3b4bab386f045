//! Help texts are made from the same tables as the parsers.

use crate::common::{folder, serval, workload, write};
use std::process::Stdio;

#[test]
fn no_arguments_show_how_to_start() {
    let ran = serval(folder().path(), "").expect(2);
    assert!(ran.stderr.contains("serval bench workloads/workloada"), "{}", ran.stderr);
    let help = serval(folder().path(), "--help").expect(0);
    assert!(help.stdout.contains("Exit status"), "{}", help.stdout);
}

#[test]
fn every_store_workload_and_property_is_explained() {
    let place = folder();
    let all = |what: &str| {
        let text = serval(place.path(), &format!("{what} --json")).expect(0).stdout;
        let list: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        list
    };
    for what in ["stores", "workloads"] {
        let list = all(what);
        assert!(list.len() >= 3);
        for item in list {
            let name = item["name"].as_str().unwrap();
            let text = serval(place.path(), &format!("{what} {name}")).expect(0).stdout;
            for property in item["properties"].as_array().unwrap() {
                assert!(text.contains(property["name"].as_str().unwrap()), "{what} {name}");
            }
        }
    }
    let properties = all("properties");
    assert!(properties.len() > 80, "{}", properties.len());
    for property in &properties {
        for part in ["name", "meaning", "values", "source"] {
            assert!(!property[part].as_str().unwrap().is_empty(), "{property}");
        }
    }
    let one = serval(place.path(), "properties recordcount").expect(0).stdout;
    assert!(one.contains("default 0") && one.contains("from YCSB") && one.contains("unit records"), "{one}");
    let many = serval(place.path(), "properties scan").expect(0).stdout;
    assert!(many.contains("maxscanlength") && many.contains("scanproportion"), "{many}");
    serval(place.path(), "properties nonsense").expect(2);
    serval(place.path(), "stores nonsense").expect(2);
    serval(place.path(), "workloads nonsense").expect(2);
}

/// An installed program has no repository next to it.
#[test]
fn a_ready_made_workload_is_printed_and_runs() {
    let place = folder();
    for name in ["workloada", "tsworkloada"] {
        let text = serval(place.path(), &format!("workloads {name}")).expect(0).stdout;
        assert_eq!(text, std::fs::read_to_string(workload(name)).unwrap());
    }
    let text = serval(place.path(), "workloads workloads/workloadc").expect(0).stdout;
    write(place.path(), "mine", &text);
    serval(place.path(), "run noop -P mine -p operationcount=10").expect(0);
    let json = serval(place.path(), "workloads workloadc --json").expect(0).stdout;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["text"], text);
}

#[test]
fn ycsbs_properties_have_ycsbs_defaults() {
    let text = serval(folder().path(), "properties --json").expect(0).stdout;
    let list: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let default = |name: &str| {
        let property =
            list.iter().find(|property| property["name"] == name).unwrap_or_else(|| panic!("{name}"));
        property["default"].as_str().unwrap_or("none").to_owned()
    };
    for (name, value) in [
        ("threadcount", "1"),
        ("target", "0"),
        ("operationcount", "0"),
        ("recordcount", "0"),
        ("insertstart", "0"),
        ("maxexecutiontime", "0"),
        ("status.interval", "10"),
        ("measurementtype", "hdrhistogram"),
        ("hdrhistogram.percentiles", "50,95,99"),
        ("hdrhistogram.fileoutput", "false"),
        ("histogram.buckets", "1000"),
        ("timeseries.granularity", "1000"),
        ("table", "usertable"),
        ("fieldcount", "10"),
        ("fieldlength", "100"),
        ("minfieldlength", "1"),
        ("fieldlengthdistribution", "constant"),
        ("fieldlengthhistogram", "hist.txt"),
        ("readallfields", "true"),
        ("readallfieldsbyname", "false"),
        ("writeallfields", "false"),
        ("dataintegrity", "false"),
        ("readproportion", "0.95"),
        ("updateproportion", "0.05"),
        ("requestdistribution", "uniform"),
        ("hotspotdatafraction", "0.2"),
        ("hotspotopnfraction", "0.8"),
        ("exponential.percentile", "95"),
        ("exponential.frac", "0.8571428571"),
        ("minscanlength", "1"),
        ("maxscanlength", "1000"),
        ("scanlengthdistribution", "uniform"),
        ("insertorder", "hashed"),
        ("zeropadding", "1"),
        ("core_workload_insertion_retry_limit", "0"),
        ("core_workload_insertion_retry_interval", "3"),
        ("core_workload_insertion_keep_going_on_error", "false"),
        ("fieldnameprefix", "field"),
        ("storageages", "10"),
        ("occupancy", "0.9"),
        ("timestampkey", "YCSBTS"),
        ("valuekey", "YCSBV"),
        ("timestampinterval", "60"),
        ("timestampunits", "SECONDS"),
        ("tagcount", "4"),
        ("redis.port", "6379"),
        ("reportlatencyforeacherror", "false"),
        ("dotransactions", "true"),
    ] {
        assert_eq!(default(name), value, "{name}");
    }
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = serval(folder().path(), &format!("completions {shell}")).expect(0).stdout;
        assert!(text.contains("serval") && text.contains("bench"), "{shell}");
    }
}

#[test]
fn completions_succeed_with_a_closed_pipe() {
    let mut command = crate::common::program();
    let mut child =
        command.args(["completions", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
