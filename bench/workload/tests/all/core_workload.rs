//! Operations of the core workload: the mix, existing keys, values, retries, resumed loads, and the
//! same stream for the same seed.

use serval_model::{
    Operation, OperationKind, Outcome, Reply, Status,
    properties::{Faults, Properties, Reader},
};
use serval_workload::{
    End, Last, Place, Rng, Step, Workload,
    core::{Circumstances, CoreWorkload, Phase},
};
use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
    time::Duration,
};

const RUN: Circumstances = Circumstances {
    phase: Phase::Run,
    clients: 1,
    operations: Some(10_000),
    time: None,
    target: None,
    resume: false,
    batches: true,
    share: serval_model::Share::WHOLE,
};
const LOAD: Circumstances = Circumstances { phase: Phase::Load, ..RUN };
const PLACE: Place = Place { index: 0, count: 1, units: None, seed: 1 };

fn open(text: &str, facts: &Circumstances) -> Result<CoreWorkload, Faults> {
    let mut properties = Properties::new();
    properties.load(text.as_bytes(), Path::new("test")).unwrap();
    let mut reader = Reader::new(&properties);
    let workload = CoreWorkload::open(&mut reader, facts, &BTreeMap::new());
    reader.finish()?;
    Ok(workload.unwrap())
}

/// Runs units of one client against a store on which everything succeeds, and
/// passes each operation to `each`.
fn drive(workload: &CoreWorkload, seed: u64, units: usize, mut each: impl FnMut(&Operation)) {
    let mut client = workload.client(PLACE, Rng::new(seed));
    let mut operation = Operation::new("usertable");
    let mut reply = Reply::new();
    for _ in 0..units {
        let mut step = client.step(Last::Begin, &mut operation);
        loop {
            match step {
                Step::Issue { more } => {
                    each(&operation);
                    if !more {
                        break;
                    }
                    step = client.step(Last::Outcome(&Outcome::OK, &mut reply), &mut operation);
                }
                Step::End(_) => break,
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn shares_are_divided_by_their_sum() {
    let workload = open(
        "recordcount=100\nreadproportion=0.2\nupdateproportion=0.1\ninsertproportion=0.1\nscanproportion=0.05\n\
         deleteproportion=0.05\n",
        &RUN,
    )
    .unwrap();
    let mut counts: BTreeMap<OperationKind, u32> = BTreeMap::new();
    drive(&workload, 3, 50_000, |operation| *counts.entry(operation.kind).or_default() += 1);
    let shares = [
        (OperationKind::Read, 0.4_f64),
        (OperationKind::Update, 0.2),
        (OperationKind::Insert, 0.2),
        (OperationKind::Scan, 0.1),
        (OperationKind::Delete, 0.1),
    ];
    for (kind, share) in shares {
        let expected = 50_000.0 * share;
        let sigma = (expected * (1.0 - share)).sqrt();
        assert!((f64::from(counts[&kind]) - expected).abs() < 5.0 * sigma, "{kind:?}: {}", counts[&kind]);
    }
    assert_eq!(workload.demands().len(), 5);
}

#[test]
fn every_distribution_chooses_existing_records_only() {
    for distribution in
        ["uniform", "zipfian", "latest", "hotspot", "sequential", "exponential", "exactzipfian"]
    {
        let text = format!(
            "recordcount=500\nreadproportion=0.9\nupdateproportion=0\ninsertproportion=0.1\ninsertorder=ordered\n\
             requestdistribution={distribution}\n"
        );
        let workload = open(&text, &RUN).unwrap();
        let mut there: HashSet<String> = (0..500).map(|n| workload.key(n)).collect();
        let mut next = 500;
        drive(&workload, 5, 5000, |operation| match operation.kind {
            OperationKind::Insert => {
                assert_eq!(operation.key, workload.key(next), "inserts go on after the last record");
                there.insert(operation.key.clone());
                next += 1;
            }
            _ => assert!(there.contains(&operation.key), "{distribution}: {}", operation.key),
        });
        assert!(next > 800, "{distribution}: {next}");
    }
}

#[test]
fn reads_and_writes_name_the_configured_fields() {
    let fields = |text: &str| {
        let text = format!("recordcount=10\nfieldcount=3\nreadproportion=0.5\nupdateproportion=0.5\n{text}");
        let workload = open(&text, &RUN).unwrap();
        let (mut read, mut written) = (HashSet::new(), HashSet::new());
        drive(&workload, 7, 200, |operation| {
            if operation.kind == OperationKind::Read {
                read.insert(operation.fields.iter().collect::<Vec<_>>().join(","));
            } else {
                written.insert(operation.record.iter().map(|(name, _)| name).collect::<Vec<_>>().join(","));
            }
        });
        let sorted = |set: HashSet<String>| {
            let mut all: Vec<_> = set.into_iter().collect();
            all.sort();
            all
        };
        (sorted(read), sorted(written))
    };
    let each = vec!["field0".to_owned(), "field1".into(), "field2".into()];
    let all = vec!["field0,field1,field2".to_owned()];
    assert_eq!(fields(""), (vec![String::new()], each.clone()));
    assert_eq!(fields("readallfields=false\nwriteallfields=true\n"), (each, all.clone()));
    assert_eq!(fields("readallfieldsbyname=true\n").0, all);
    assert_eq!(fields("dataintegrity=true\n").0, all);
}

#[test]
fn a_read_modify_write_is_a_read_and_an_update_of_one_record() {
    let workload =
        open("recordcount=10\nreadproportion=0\nupdateproportion=0\nreadmodifywriteproportion=1\n", &RUN)
            .unwrap();
    let mut seen = Vec::new();
    drive(&workload, 7, 100, |operation| {
        seen.push((operation.kind, operation.key.clone(), operation.record.len()))
    });
    assert_eq!(seen.len(), 200);
    for pair in seen.chunks(2) {
        assert_eq!((pair[0].0, pair[1].0), (OperationKind::Read, OperationKind::Update));
        assert_eq!(pair[0].1, pair[1].1);
        assert_eq!(pair[1].2, 1);
    }
}

#[test]
fn verification_distinguishes_right_wrong_and_missing_records() {
    let text = "recordcount=10\nreadproportion=1\nupdateproportion=0\ndataintegrity=true\nfieldcount=2\nfieldlength=50\n";
    let (run, load) = (open(text, &RUN).unwrap(), open(text, &LOAD).unwrap());
    let mut stored: BTreeMap<String, serval_model::Record> = BTreeMap::new();
    drive(&load, 1, 10, |operation| {
        stored.insert(operation.key.clone(), operation.record.clone());
    });
    let mut client = run.client(PLACE, Rng::new(1));
    let mut operation = Operation::new("usertable");
    let mut verified = |spoil: &dyn Fn(&mut Reply)| {
        assert_eq!(client.step(Last::Begin, &mut operation), Step::Issue { more: true });
        let mut reply = Reply::new();
        reply.begin_record();
        stored[&operation.key].iter().for_each(|(name, value)| reply.push(name, value));
        spoil(&mut reply);
        match client.step(Last::Outcome(&Outcome::OK, &mut reply), &mut operation) {
            Step::End(End { verified, ok, .. }) => (verified, ok),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(verified(&|_| {}), (Some(Status::Ok), true));
    assert_eq!(verified(&|reply| reply.push("field0", b"other")), (Some(Status::UnexpectedState), false));
    assert_eq!(verified(&Reply::clear), (Some(Status::Error), false));
}

#[test]
fn a_load_inserts_every_record_once_with_many_clients_and_in_batches() {
    for batch in [1, 7] {
        let text = format!("recordcount=1000\ninsertstart=100\ninsertcount=250\nbatchsize={batch}\n");
        let facts = Circumstances { clients: 3, ..LOAD };
        let workload = open(&text, &facts).unwrap();
        assert_eq!(workload.units(), Some(250));
        let (mut keys, mut operation) = (Vec::new(), Operation::new("t"));
        let mut reply = Reply::new();
        let shares = [84u64, 83, 83];
        let mut clients: Vec<_> = shares
            .into_iter()
            .enumerate()
            .map(|(index, units)| {
                (
                    workload.client(
                        Place { index, count: 3, units: Some(units), seed: 1 },
                        Rng::stream(1, index as u64),
                    ),
                    units,
                )
            })
            .collect();
        while clients.iter().any(|(_, left)| *left > 0) {
            for (client, left) in &mut clients {
                if *left == 0 {
                    continue;
                }
                assert_eq!(client.step(Last::Begin, &mut operation), Step::Issue { more: true });
                *left -= operation.units();
                if operation.batch().is_empty() {
                    keys.push(operation.key.clone());
                    assert_eq!(operation.record.len(), 10);
                    assert!(operation.record.iter().all(|(_, value)| value.len() == 100));
                } else {
                    keys.extend(operation.batch().iter().map(|(key, _)| key.clone()));
                }
                let step = client.step(Last::Outcome(&Outcome::OK, &mut reply), &mut operation);
                assert!(matches!(step, Step::End(End { ok: true, stop: false, .. })));
            }
        }
        keys.sort();
        let mut expected: Vec<_> = (100..350).map(|n| workload.key(n)).collect();
        expected.sort();
        assert_eq!(keys, expected);
    }
}

/// The client that inserts a record depends on chance; the record does not.
#[test]
fn the_records_of_a_load_follow_from_the_seed_and_not_from_its_clients() {
    let loaded = |clients: usize, batch: u64, seed: u64, turns: &[usize]| {
        let text =
            format!("recordcount=60\nfieldcount=2\nfieldlengthdistribution=uniform\nbatchsize={batch}\n");
        let workload = open(&text, &Circumstances { clients, ..LOAD }).unwrap();
        let place = |index| Place { index, count: clients, units: None, seed };
        let mut all: Vec<_> =
            (0..clients).map(|i| workload.client(place(i), Rng::stream(seed, i as u64))).collect();
        let mut operation = Operation::new("t");
        let mut records = BTreeMap::new();
        for turn in turns.iter().cycle() {
            if records.len() >= 60 {
                break;
            }
            all[*turn].step(Last::Begin, &mut operation);
            match operation.batch() {
                [] => records.extend([(operation.key.clone(), operation.record.clone())]),
                batch => records.extend(batch.iter().cloned()),
            }
        }
        records
    };
    let alone = loaded(1, 1, 1, &[0]);
    assert_eq!(alone, loaded(3, 1, 1, &[0, 1, 2]));
    assert_eq!(alone, loaded(3, 1, 1, &[2, 2, 0, 1, 0]));
    assert_eq!(alone, loaded(2, 6, 1, &[1, 0, 0]));
    assert_ne!(alone, loaded(1, 1, 2, &[0]));
}

#[test]
fn failed_inserts_are_retried_up_to_the_limit() {
    let text =
        "recordcount=10\ncore_workload_insertion_retry_limit=2\ncore_workload_insertion_retry_interval=1s\n";
    for keep_going in [false, true] {
        let text = format!("{text}core_workload_insertion_keep_going_on_error={keep_going}\n");
        let workload = open(&text, &LOAD).unwrap();
        let mut client = workload.client(PLACE, Rng::new(1));
        let mut operation = Operation::new("t");
        let (failed, mut reply) = (Outcome::error("full"), Reply::new());
        let mut step = client.step(Last::Begin, &mut operation);
        let key = operation.key.clone();
        for _ in 0..2 {
            assert_eq!(step, Step::Issue { more: true });
            let Step::Wait(pause) = client.step(Last::Outcome(&failed, &mut reply), &mut operation) else {
                panic!()
            };
            assert!((Duration::from_millis(800)..Duration::from_millis(1200)).contains(&pause), "{pause:?}");
            step = client.step(Last::Waited, &mut operation);
            assert_eq!(operation.key, key, "the same record again");
        }
        let end = client.step(Last::Outcome(&failed, &mut reply), &mut operation);
        assert!(matches!(end, Step::End(End { ok: false, stop, .. }) if stop != keep_going));
    }
}

#[test]
fn a_resumed_load_checks_every_record_and_inserts_missing_ones() {
    for batch in [1, 4] {
        let facts = Circumstances { resume: true, ..LOAD };
        let text = format!("recordcount=10\ninsertorder=ordered\nbatchsize={batch}\n");
        let workload = open(&text, &facts).unwrap();
        assert_eq!(workload.units(), Some(10));
        let mut client = workload.client(Place { units: Some(10), ..PLACE }, Rng::new(1));
        let (mut operation, mut reply) = (Operation::new("t"), Reply::new());
        let (mut inserted, mut checked, mut units) = (Vec::new(), 0, 0);
        // The first records exist, one far ahead of the others exists, and one in
        // the middle does not.
        let there = ["user0", "user1", "user3", "user8"];
        while units < 10 {
            let mut step = client.step(Last::Begin, &mut operation);
            while matches!(step, Step::Issue { more: true } | Step::Probe) {
                let mut outcome = Outcome::OK;
                if step == Step::Probe {
                    assert_eq!(operation.kind, OperationKind::Read);
                    assert_eq!(operation.fields.len(), 1);
                    checked += 1;
                    if !there.contains(&operation.key.as_str()) {
                        outcome = Outcome::NOT_FOUND;
                    }
                } else {
                    assert_eq!(operation.kind, OperationKind::Insert);
                    match operation.batch() {
                        [] => inserted.push(operation.key.clone()),
                        batch => inserted.extend(batch.iter().map(|(key, _)| key.clone())),
                    }
                }
                step = client.step(Last::Outcome(&outcome, &mut reply), &mut operation);
            }
            assert!(matches!(step, Step::End(End { ok: true, .. })));
            units += operation.units();
        }
        assert_eq!((checked, units), (10, 10), "batches of {batch}");
        assert_eq!(inserted, ["user2", "user4", "user5", "user6", "user7", "user9"]);
    }
}

#[test]
fn the_same_seed_gives_the_same_stream() {
    let text = "recordcount=1000\nreadproportion=0.4\nupdateproportion=0.2\ninsertproportion=0.1\nscanproportion=0.1\n\
                readmodifywriteproportion=0.2\nrequestdistribution=exactzipfian\nfieldlengthdistribution=uniform\n";
    let stream = |seed| {
        let workload = open(text, &RUN).unwrap();
        let mut all = Vec::new();
        drive(&workload, seed, 500, |operation| {
            all.push(format!(
                "{:?} {} {} {:?}",
                operation.kind, operation.key, operation.scan_length, operation.record
            ));
        });
        all
    };
    assert_eq!(stream(1), stream(1));
    assert_ne!(stream(1), stream(2));
}

/// The stream of a seed is guaranteed across versions and machines.
#[test]
fn the_stream_of_seed_1_equals_the_golden_stream() {
    let text = "recordcount=1000\nreadproportion=0.4\nupdateproportion=0.2\ninsertproportion=0.1\nscanproportion=0.1\n\
                readmodifywriteproportion=0.2\nrequestdistribution=exactzipfian\nfieldlength=12\nfieldcount=2\n";
    let stream = |more: &str| {
        let workload = open(&format!("{text}{more}"), &RUN).unwrap();
        let mut lines = String::new();
        drive(&workload, 1, 40, |operation| {
            let values: Vec<_> =
                operation.record.iter().map(|(n, v)| format!("{n}={}", String::from_utf8_lossy(v))).collect();
            let Operation { kind, key, scan_length, .. } = operation;
            lines += &format!("{} {key} {scan_length} {}\n", kind.name(), values.join(" "));
        });
        lines
    };
    assert_eq!(stream(""), include_str!("../stream_of_seed_1.txt"));
    assert_eq!(
        stream("fieldvalues=incompressible\n"),
        include_str!("../stream_of_seed_1_incompressible.txt")
    );
}

#[test]
fn all_faults_are_reported_together_with_their_properties() {
    let problem = open(
        "recordcount=10\ninsertstart=5\ninsertcount=6\nreadproportion=0\nupdateproportion=0\nminscanlength=5\n\
         maxscanlength=2\ndataintegrity=true\nfieldlengthdistribution=histogram\nzipfian.exponent=2\n",
        &RUN,
    )
    .unwrap_err()
    .to_string();
    for part in [
        "test:2: insertstart=5: insertstart + insertcount = 5 + 6 goes beyond recordcount = 10",
        "nothing to do",
        "minscanlength=5",
        "dataintegrity=true: needs fieldlengthdistribution=constant",
        "hist.txt: cannot be read",
        "set requestdistribution=exactzipfian",
    ] {
        assert!(problem.contains(part), "{part} is not in\n{problem}");
    }
    let problem = open("", &LOAD).unwrap_err().to_string();
    assert!(problem.contains("recordcount"), "{problem}");
    assert!(
        open("readproportion=1.5\nrecordcount=1\n", &RUN).unwrap_err().to_string().contains("from 0 to 1")
    );
}

#[test]
fn an_exhausted_key_range_is_reported() {
    let text = "recordcount=100\nreadproportion=0\nupdateproportion=0\ninsertproportion=1\nrequestdistribution=zipfian\n";
    let facts =
        Circumstances { operations: None, time: Some(Duration::from_secs(1)), target: Some(10.0), ..RUN };
    let workload = open(text, &facts).unwrap();
    drive(&workload, 1, 20, |_| {});
    assert!(workload.warnings().is_empty(), "laid out for 2 * 10/s * 1 s");
    drive(&workload, 1, 5, |_| {});
    let warnings = workload.warnings();
    assert!(warnings[0].contains("laid out for 20 inserts and there were 25"), "{warnings:?}");
}

#[test]
fn a_trillion_records_start_at_once() {
    for distribution in
        ["uniform", "zipfian", "latest", "hotspot", "sequential", "exponential", "exactzipfian"]
    {
        let text =
            format!("recordcount=1_000_000_000_000\nreadproportion=1\nrequestdistribution={distribution}\n");
        let workload = open(&text, &RUN).unwrap();
        let mut keys = HashSet::new();
        drive(&workload, 1, 100, |operation| {
            keys.insert(operation.key.clone());
        });
        assert!(keys.len() > 20, "{distribution}: {}", keys.len());
    }
}
