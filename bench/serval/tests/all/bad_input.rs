//! Errors in the input: the message says what failed, where, and what to do; the exit status is not
//! zero, no partial file stays, and nothing is overwritten.

use crate::common::{entries, folder, serval, workload, write};

/// Runs a command and expects an exit status and parts of the message, without a panic.
#[track_caller]
fn refused(place: &std::path::Path, words: &str, status: i32, parts: &[&str]) {
    let ran = serval(place, words).expect(status);
    for part in parts {
        assert!(ran.stderr.contains(part), "'{part}' is not in the message of '{words}':\n{}", ran.stderr);
    }
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
}

#[test]
fn invalid_files_and_lines_are_refused() {
    let place = folder();
    let here = place.path();
    write(here, "bad", "recordcount=10\nfieldlength=\\u12\nfieldcount=3\n");
    write(
        here,
        "slips",
        "recordcuont=10\nreadproportion=2\nworkload=site.ycsb.Nothing\nmeasurementtype=hdr\n",
    );
    refused(here, "load memory -P none", 2, &["none", "cannot be read"]);
    refused(here, "bench none", 2, &["none", "cannot be read", "'serval workloads workloada' prints"]);
    refused(here, "load memory -P .", 2, &["is a folder"]);
    refused(here, "load memory -P bad", 2, &["bad:2", "four hexadecimal digits"]);
    refused(
        here,
        "run memory -P slips",
        2,
        &[
            "slips:1",
            "did you mean 'recordcount'",
            "slips:2",
            "from 0 to 1",
            "slips:3",
            "slips:4",
            "hdrhistogram",
        ],
    );
    refused(here, "run memory -p recordcount", 2, &["write NAME=VALUE"]);
    refused(here, "run memroy", 2, &["did you mean 'memory'"]);
    refused(here, "run", 2, &["STORE"]);
    assert_eq!(entries(here), ["bad", "slips"]);
}

#[test]
fn impossible_settings_are_refused() {
    let place = folder();
    let here = place.path();
    refused(here, "run noop -p readproportion=0 -p updateproportion=0", 2, &["there is nothing to do"]);
    refused(here, "load memory", 2, &["recordcount"]);
    refused(
        here,
        "run noop -p recordcount=10 -p insertstart=5 -p insertcount=6",
        2,
        &["goes beyond recordcount"],
    );
    refused(
        here,
        "run noop -p recordcount=1 -p target.schedule=fast",
        2,
        &["target.schedule=fast", "1000 for 30s"],
    );
    refused(here, "run noop -p recordcount=1 -target 5 -p target.schedule=5", 2, &["choose one"]);
    refused(
        here,
        "run noop -p recordcount=1 -p warmup=5 -p warmup.max=2",
        2,
        &["warmup.max=2", "less than the shortest warm-up, warmup, which is 5s"],
    );
    write(here, "ramp", "recordcount=1\nwarmup.max=2\ntarget.schedule=ramp 1..2 for 5s\n");
    refused(here, "run noop -P ramp", 2, &["ramp:2", "needs a constant target", "set warmup alone"]);
    refused(here, "run noop -p recordcount=1 -threads 0", 2, &["threadcount=0"]);
    refused(
        here,
        "run noop -p recordcount=1 -p dataintegrity=true -p fieldlengthdistribution=uniform",
        2,
        &["constant"],
    );
    refused(here, "run noop -p recordcount=1 -p exporter=Nothing", 2, &["no such exporter"]);
    refused(
        here,
        "run redis -p redis.cluster=true -p redis.database=1 -p recordcount=1",
        2,
        &["redis.database=1"],
    );
}

#[test]
fn other_stores_properties_are_warnings_in_ycsbs_commands_and_errors_in_bench() {
    let place = folder();
    let here = place.path();
    write(
        here,
        "w",
        "recordcount=10\noperationcount=10\nvoldemort.url=tcp://x\ncluster.nodes=h\nhtrace.x=1\n",
    );
    let ran = serval(here, "load memory -P w").expect(0);
    assert_eq!(
        ran.stderr.lines().filter(|line| line.starts_with("warning: w:")).count(),
        3,
        "{}",
        ran.stderr
    );
    refused(here, "bench w", 2, &["unknown property 'voldemort.url'", "unknown property 'cluster.nodes'"]);
}

#[test]
fn unusable_stores_are_refused() {
    let place = folder();
    let here = place.path();
    let file = workload("workloadc");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    drop(silent);
    let unreachable = format!("run redis -P {file} -p redis.host=127.0.0.1 -p redis.port={port}");
    refused(here, &unreachable, 3, &["cannot connect", "redis.port"]);
    refused(here, &format!("run sqlite -P {file}"), 3, &["serval.db", "serval load sqlite"]);
    assert!(entries(here).is_empty(), "a run makes no database");
    write(here, "serval.db", "this is no database, only text that is long enough to be looked at closely");
    refused(here, &format!("run sqlite -P {file}"), 3, &["serval.db"]);
    refused(here, &format!("run memory -P {file}"), 3, &["one command"]);
    serval(here, &format!("load sqlite -P {file} -p sqlite.path=other.db -p insertorder=ordered")).expect(0);
    refused(
        here,
        &format!("run sqlite -P {file} -p sqlite.path=other.db"),
        3,
        &["there are no records", "insertorder"],
    );
    let table = format!("run sqlite -P {file} -p sqlite.path=other.db -p table=nothing");
    refused(here, &table, 3, &["nothing"]);
}

#[test]
fn results_are_complete_and_never_overwritten() {
    let place = folder();
    let here = place.path();
    let file = workload("workloadc");
    std::fs::create_dir(here.join("there")).unwrap();
    write(here, "there/precious", "x");
    refused(here, &format!("bench {file} --out there"), 4, &["exists already"]);
    refused(here, &format!("run noop -P {file} --result there"), 4, &["exists already"]);
    assert_eq!(entries(&here.join("there")), ["precious"]);
    write(here, "file", "x");
    refused(here, &format!("bench {file} --out file/inside"), 4, &["file"]);
    refused(here, &format!("run noop -P {file} -p exportfile=no/such/folder/x"), 4, &["exportfile"]);
    refused(here, &format!("bench {file} --store redis -p redis.port=1 --out new"), 3, &["cannot connect"]);
    let hdr = "-p hdrhistogram.fileoutput=true -p hdrhistogram.output.path=no/such/folder/";
    refused(here, &format!("run noop -P {file} {hdr}"), 4, &["hdrhistogram.output.path", "No such file"]);
    let raw = "-p measurementtype=raw -p measurement.raw.output_file=there";
    refused(here, &format!("run noop -P {file} {raw}"), 4, &["measurement.raw.output_file", "directory"]);
    refused(here, "report there", 2, &["there: there is no result.json and no experiment.json in it"]);
    refused(here, "run noop -p recordcount=1 -threads -1", 2, &["threadcount=-1"]);
    assert_eq!(entries(here), ["file", "there"]);
}

/// A failed output file does not lose the numbers of a long run.
#[test]
fn a_failed_write_at_the_end_keeps_the_numbers() {
    let place = folder();
    let here = place.path();
    // Opening succeeds, writing fails.
    let full = "run noop -p recordcount=10 -p operationcount=10 -p exportfile=/dev/full";
    let ran = serval(here, full).expect(4);
    assert!(ran.stderr.contains("exportfile=/dev/full: cannot be written: No space"), "{}", ran.stderr);
    assert_eq!(ran.value("[READ], Operations,"), ran.value("[READ], Return=OK,"));
    // A folder with the name of the log of updates.
    std::fs::create_dir(here.join("x-UPDATE.hdr")).unwrap();
    let words = "run noop -p recordcount=10 -p operationcount=1000 -p readproportion=0.5 -p updateproportion=0.5 \
                 -p hdrhistogram.fileoutput=true -p hdrhistogram.output.path=x- --result kept";
    let ran = serval(here, words).expect(4);
    assert!(ran.stderr.contains("x-UPDATE.hdr: cannot be written"), "{}", ran.stderr);
    assert!(ran.value("[UPDATE], Operations,") > 0.0);
    assert!(entries(&here.join("kept")).contains(&"result.json".to_owned()));
}

/// A full disk: a tmpfs of a few pages, if one can be mounted.
#[test]
#[ignore = "needs mount"]
fn a_full_disk_leaves_no_files() {
    let place = folder();
    let small = place.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let mut mount = std::process::Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=16k", "tmpfs"]).arg(&small);
    assert!(mount.status().unwrap().success(), "mounting a small tmpfs needs root");
    let file = workload("workloada");
    let words = format!("run noop -P {file} --result {}", small.join("result").display());
    let ran = serval(place.path(), &words);
    let left = entries(&small);
    let unmounted = std::process::Command::new("umount").arg(&small).status().unwrap();
    assert!(unmounted.success());
    let ran = ran.expect(4);
    assert!(ran.stderr.contains("No space left on device"), "{}", ran.stderr);
    assert!(left.is_empty(), "{left:?}");
}
