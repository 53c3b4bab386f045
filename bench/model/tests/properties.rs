//! Precedence, typed reading with all faults at once, and unknown names.

use serval_model::properties::{
    Catalog, Kind, NameKind, Origin, Properties, Property, PropertyTable, Reader,
};
use std::{path::Path, time::Duration};

const RECORDS: Property = Property::ycsb("recordcount", Kind::COUNT, "records").default("0");
const PROPORTION: Property = Property::ycsb("readproportion", Kind::FRACTION, "reads").default("0.95");
const TIME: Property = Property::ycsb("maxexecutiontime", Kind::SECONDS, "time").default("0");
const ORDER: Property =
    Property::ycsb("insertorder", Kind::Choice(&["hashed", "ordered"]), "order").default("hashed");
const HOST: Property =
    Property::ycsb("redis.host", Kind::Text, "host").default("localhost").aliases(&["redis.address"]);
const DB: Property = Property::ycsb("db", Kind::Text, "store");
const ALL_FIELDS: Property = Property::ycsb("readallfields", Kind::Flag, "all fields").default("true");
const RESUME: Property = Property::serval("load.resume", Kind::Flag, "resume").default("true");
const PERCENTILES: Property =
    Property::ycsb("hdrhistogram.percentiles", Kind::Numbers, "percentiles").default("50");
const OLD: Property = Property::ignored("htrace.sampler", "there is no JVM");
const TABLE: PropertyTable = PropertyTable {
    heading: "t",
    properties: &[&RECORDS, &PROPORTION, &TIME, &ORDER, &HOST, &DB, &ALL_FIELDS, &RESUME, &PERCENTILES, &OLD],
};

fn command_line() -> Origin {
    Origin::CommandLine("-p".into())
}

#[test]
fn later_files_win_and_the_command_line_wins_in_any_order() {
    let mut properties = Properties::new();
    properties.set("recordcount", "3", command_line());
    properties.load(b"recordcount=1\ninsertorder=ordered\n", Path::new("a")).unwrap();
    properties.load(b"\ninsertorder=hashed\n", Path::new("b")).unwrap();
    assert_eq!(properties.get("recordcount").unwrap().value, "3");
    let order = properties.get("insertorder").unwrap();
    assert_eq!((order.value.as_str(), order.origin.to_string().as_str()), ("hashed", "b:2"));
    properties.set("recordcount", "4", command_line());
    assert_eq!(Reader::new(&properties).count(&RECORDS), 4);
}

#[test]
fn a_name_wins_over_its_alias_and_the_command_line_over_both() {
    let mut properties = Properties::new();
    properties.load(b"redis.address=x\nredis.host=y\n", Path::new("a")).unwrap();
    assert_eq!(Reader::new(&properties).text(&HOST), "y");
    properties.set("redis.address", "z", command_line());
    assert_eq!(Reader::new(&properties).text(&HOST), "z");
}

#[test]
fn every_fault_is_reported_with_its_place() {
    let mut properties = Properties::new();
    let file = b"recordcount=-5\nreadproportion=1.5\nmaxexecutiontime=10 parsecs\ninsertorder=hashd\n";
    properties.load(file, Path::new("w")).unwrap();
    let mut reader = Reader::new(&properties);
    assert_eq!(reader.count(&RECORDS), 0);
    assert_eq!(reader.number(&PROPORTION), 0.95);
    assert_eq!(reader.duration(&TIME), Duration::ZERO);
    assert_eq!(reader.choice(&ORDER), "hashed");
    let faults = reader.finish().unwrap_err();
    let text = faults.to_string();
    assert_eq!(faults.0.len(), 4, "{text}");
    for expected in ["w:1: recordcount=-5", "w:2:", "w:3:", "w:4:", "did you mean 'hashed'"] {
        assert!(text.contains(expected), "{expected} not in {text}");
    }
}

#[test]
fn units_and_javas_number_forms() {
    let mut properties = Properties::new();
    let file = b"recordcount=+1_000_000_000_000 \nreadproportion=0.5f\nmaxexecutiontime=10m\n";
    properties.load(file, Path::new("w")).unwrap();
    let mut reader = Reader::new(&properties);
    assert_eq!(reader.count(&RECORDS), 1_000_000_000_000);
    assert_eq!(reader.number(&PROPORTION), 0.5);
    assert_eq!(reader.duration(&TIME), Duration::from_secs(600));
    reader.finish().unwrap();
}

#[test]
fn flags_accept_the_words_that_ycsb_accepts() {
    let read = |property: &Property, value: &str| {
        let mut properties = Properties::new();
        properties.set(property.name, value, command_line());
        let mut reader = Reader::new(&properties);
        let flag = reader.flag(property);
        let found = properties.check_names(&Catalog::new([TABLE]), &[]);
        assert!(found.iter().all(|found| found.kind == NameKind::ReadAsFalse), "{found:?}");
        (reader.finish().map(|()| flag).map_err(|faults| faults.to_string()), found.len())
    };
    for (value, flag) in [("true", true), ("TRUE", true), ("false", false), (" False", false)] {
        assert_eq!(read(&ALL_FIELDS, value), (Ok(flag), 0), "{value}");
        assert_eq!(read(&RESUME, value), (Ok(flag), 0), "{value}");
    }
    for value in ["n", "no", "NO", "0", "off"] {
        assert_eq!(read(&ALL_FIELDS, value), (Ok(false), 0), "{value}");
    }
    // Boolean.parseBoolean: all but "true" is false.
    for value in ["y", "yes", "Yes", "1", "on"] {
        assert_eq!(read(&ALL_FIELDS, value), (Ok(false), 1), "{value}");
    }
    for value in ["tru", "ture", "", "2"] {
        assert!(read(&ALL_FIELDS, value).0.is_err(), "{value}");
    }
    // Serval's own flags accept only `true` and `false`.
    for value in ["y", "n", "yes", "no", "1", "0"] {
        let (read, warnings) = read(&RESUME, value);
        assert!(read.unwrap_err().contains("must be true or false") && warnings == 0, "{value}");
    }
}

#[test]
fn trailing_commas_of_a_list_are_dropped_as_in_java() {
    let read = |value: &str| {
        let mut properties = Properties::new();
        properties.set(PERCENTILES.name, value, command_line());
        let mut reader = Reader::new(&properties);
        let numbers = reader.numbers(&PERCENTILES);
        reader.finish().map(|()| numbers).map_err(|faults| faults.to_string())
    };
    assert_eq!(read("95,99,"), Ok(vec![95.0, 99.0]));
    assert_eq!(read("95, 99.9,,"), Ok(vec![95.0, 99.9]));
    assert_eq!(read(","), Ok(vec![]));
    for slip in ["", "95,,99", ",95", "p95"] {
        assert!(read(slip).is_err(), "{slip}");
    }
}

#[test]
fn a_name_near_a_known_one_is_a_slip_and_any_other_unknown() {
    let mut properties = Properties::new();
    let file = b"recordcuont=1\nmongodb.url=x\nrecordscount=2\nxy=1\nhtrace.sampler=1\nredis.hosts=1\n";
    properties.load(file, Path::new("w")).unwrap();
    let catalog = Catalog::new([TABLE]);
    let found = properties.check_names(&catalog, &["redis.hosts"]);
    let slips = found.iter().filter(|found| found.kind == NameKind::Slip);
    let slips: Vec<String> = slips.map(|found| found.fault.to_string()).collect();
    assert_eq!(
        slips,
        [
            "w:1: unknown property 'recordcuont': did you mean 'recordcount'?",
            "w:3: unknown property 'recordscount': did you mean 'recordcount'?",
        ]
    );
    let count = |kind| found.iter().filter(|found| found.kind == kind).count();
    assert_eq!((count(NameKind::Unknown), count(NameKind::Ignored)), (3, 1), "{found:?}");
}

#[test]
fn missing_and_malformed_files_are_reported_with_the_reason() {
    let mut properties = Properties::new();
    let missing = properties.load_file(Path::new("no/such/file")).unwrap_err().to_string();
    assert!(missing.contains("no/such/file") && missing.contains("cannot be read"), "{missing}");
    let folder = properties.load_file(Path::new("/")).unwrap_err().to_string();
    assert!(folder.contains("folder"), "{folder}");
    let bad = properties.load(b"a=1\nb=\\u1\n", Path::new("w")).unwrap_err().to_string();
    assert!(bad.starts_with("w:2: malformed escape"), "{bad}");
}
