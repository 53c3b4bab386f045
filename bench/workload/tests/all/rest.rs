//! Operations of the REST workload: URLs of its traces, in given shares, by distributions over
//! their lines.

use serval_model::{
    Operation, OperationKind, Outcome, Reply, Status,
    properties::{Faults, Properties, Reader},
};
use serval_workload::{
    Last, Place, Rng, Step, Workload,
    core::{Circumstances, Phase},
    rest::{RestWorkload, properties::PROPERTIES},
};
use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write,
    path::{Path, PathBuf},
};

const RUN: Circumstances = Circumstances {
    phase: Phase::Run,
    clients: 2,
    operations: Some(10_000),
    time: None,
    target: None,
    resume: false,
    batches: true,
    share: serval_model::Share::WHOLE,
};
const LOAD: Circumstances = Circumstances { phase: Phase::Load, ..RUN };

/// Files by path.
type Folder = BTreeMap<PathBuf, Vec<u8>>;

/// Traces: `a` of 100 URLs, `b` of 3, `c` of 2.
fn traces() -> Folder {
    let mut a = String::new();
    (0..100).for_each(|n| writeln!(a, "a/{n}").unwrap());
    let files = [("a", a.as_str()), ("b", "b/0\r\nb/1\r\nb/2"), ("c", "a/1\nc/1\n")];
    files.map(|(name, text)| (name.into(), text.into())).into()
}

fn open(folder: &Folder, text: &str, facts: &Circumstances) -> Result<RestWorkload, Faults> {
    let mut properties = Properties::new();
    properties.load(text.as_bytes(), Path::new("test")).unwrap();
    let mut reader = Reader::new(&properties);
    let workload = RestWorkload::open(&mut reader, facts, folder);
    reader.finish()?;
    Ok(workload.expect("no faults, so a workload"))
}

/// Returns kind, URL and body of the operations of a client. All operations have this
/// outcome.
fn asked(
    workload: &RestWorkload,
    seed: u64,
    count: usize,
    outcome: &Outcome,
) -> Vec<(OperationKind, String, Vec<u8>)> {
    let place = Place { index: 0, count: 1, units: Some(count as u64), seed };
    let mut client = workload.client(place, Rng::stream(seed, 0));
    let mut operation = Operation::new("t");
    let mut all = Vec::new();
    while all.len() < count {
        let more = match client.step(Last::Begin, &mut operation) {
            Step::Issue { more } => more,
            Step::Stop => break,
            other => panic!("{other:?}"),
        };
        let data = operation.record.get("data").unwrap_or_default().to_vec();
        assert_eq!(operation.record.len(), usize::from(!data.is_empty()));
        assert!(operation.fields.is_all());
        all.push((operation.kind, operation.key.clone(), data));
        if more {
            match client.step(Last::Outcome(outcome, &mut Reply::new()), &mut operation) {
                Step::End(end) if end.stop => break,
                Step::End(end) => assert_eq!(end.ok, outcome.is_ok()),
                other => panic!("{other:?}"),
            }
        }
    }
    all
}

const MIX: &str = "readproportion=0.4\nupdateproportion=0.3\ninsertproportion=0.2\ndeleteproportion=0.1\n\
                   url.trace.read=a\nurl.trace.update=b\nurl.trace.insert=c\nurl.trace.delete=b\n";

#[test]
fn shares_urls_and_bodies_are_as_configured() {
    let folder = traces();
    let workload = open(&folder, &format!("{MIX}fieldlength=10"), &RUN).unwrap();
    let all = asked(&workload, 1, 100_000, &Outcome::OK);
    for (kind, share, prefixes) in [
        (OperationKind::Read, 0.4, &["a/"][..]),
        (OperationKind::Update, 0.3, &["b/"]),
        (OperationKind::Insert, 0.2, &["a/1", "c/1"]),
        (OperationKind::Delete, 0.1, &["b/"]),
    ] {
        let of: Vec<_> = all.iter().filter(|(k, ..)| *k == kind).collect();
        assert!((of.len() as f64 / 1e5 - share).abs() < 0.01, "{kind:?}: {}", of.len());
        let writes = matches!(kind, OperationKind::Update | OperationKind::Insert);
        for (_, url, body) in of {
            assert!(prefixes.iter().any(|prefix| url.starts_with(prefix)), "{kind:?} {url}");
            assert_eq!(body.len(), if writes { 10 } else { 0 });
        }
    }
    assert_eq!(workload.schema().fields, ["data"]);
    let demands: Vec<String> = workload.demands().into_iter().map(|demand| demand.because).collect();
    assert_eq!(
        demands,
        ["readproportion=0.4", "updateproportion=0.3", "insertproportion=0.2", "deleteproportion=0.1"]
    );
    assert_eq!(workload.units(), None);
}

#[test]
fn equal_seeds_give_equal_requests_and_different_seeds_different_ones() {
    let folder = traces();
    for distribution in ["uniform", "zipfian", "exactzipfian", "hotspot", "exponential", "sequential"] {
        let text = format!("{MIX}requestdistribution={distribution}\nfieldlengthdistribution=zipfian");
        let ask = |seed| asked(&open(&folder, &text, &RUN).unwrap(), seed, 1000, &Outcome::OK);
        assert_eq!(ask(7), ask(7), "{distribution}");
        assert_ne!(ask(7), ask(8), "{distribution}");
    }
}

/// Returns how often each line of `a` is read.
fn counts(text: &str) -> Vec<f64> {
    let folder = traces();
    let text = format!("updateproportion=0\nurl.trace.read=a\n{text}");
    let all = asked(&open(&folder, &text, &RUN).unwrap(), 3, 200_000, &Outcome::OK);
    let mut counts: HashMap<String, f64> = HashMap::new();
    all.iter().for_each(|(_, url, _)| *counts.entry(url.clone()).or_default() += 1.0 / 2e5);
    (0..100).map(|n| counts.get(&format!("a/{n}")).copied().unwrap_or(0.0)).collect()
}

#[test]
fn distributions_choose_lines_in_file_order() {
    let near = |share: f64, expected: f64| (share - expected).abs() < 0.005;
    let uniform = counts("");
    assert!(uniform.iter().all(|share| near(*share, 0.01)), "{uniform:?}");
    // 1/zeta(100, s) for the first line, and 2^-s of it for the second.
    let zeta = |s: f64| (1..=100).map(|k| f64::from(k).powf(-s)).sum::<f64>();
    for (distribution, exponent) in
        [("zipfian", 0.99), ("zipfian", 0.5), ("exactzipfian", 0.99), ("exactzipfian", 2.0)]
    {
        let text = format!("requestdistribution={distribution}\nreadzipfconstant={exponent}");
        let shares = counts(&text);
        for (line, share) in shares.iter().take(2).enumerate() {
            let expected = (line as f64 + 1.0).powf(-exponent) / zeta(exponent);
            assert!(near(*share, expected), "{text} {line}: {share} {expected}");
        }
        assert!(shares[0] > shares[10] && shares[10] > shares[90], "{text}");
    }
    let hot = counts("requestdistribution=hotspot\nhotspotdatafraction=0.1\nhotspotopnfraction=0.9");
    assert!(near(hot[..10].iter().sum(), 0.9));
    let exponential =
        counts("requestdistribution=exponential\nexponential.percentile=90\nexponential.frac=0.1");
    assert!(near(exponential[..10].iter().sum(), 0.9), "{exponential:?}");
    // Half of the draws would be after the last line; all are within.
    let wide = counts("requestdistribution=exponential\nexponential.percentile=50\nexponential.frac=1");
    assert!(near(wide.iter().sum(), 1.0));
    let first = counts("readrecordcount=4\nrequestdistribution=sequential");
    assert!(first[..4].iter().all(|share| near(*share, 0.25)), "{first:?}");
    let own = counts("requestdistribution=latest\nreadrequestdistribution=uniform\nreadrecordcount=1000");
    assert!(near(own[99], 0.01));
}

#[test]
fn sequential_is_the_trace_for_all_clients_together() {
    let folder = traces();
    let text = "updateproportion=0\nurl.trace.read=b\nrequestdistribution=sequential";
    let workload = open(&folder, text, &RUN).unwrap();
    let urls = |seed, count| {
        let all = asked(&workload, seed, count, &Outcome::OK);
        all.into_iter().map(|(_, url, _)| url).collect::<Vec<_>>()
    };
    assert_eq!(urls(1, 2), ["b/0", "b/1"]);
    assert_eq!(urls(2, 3), ["b/2", "b/0", "b/1"]);
}

#[test]
fn sizes_are_by_distribution() {
    let mut folder = traces();
    folder.insert("sizes".into(), b"BlockSize\t10\n0\t0\n1\t1\n2\t1\n".into());
    let sizes = |text: &str| {
        let text = format!("readproportion=0\nupdateproportion=1\nurl.trace.update=b\n{text}");
        let all = asked(&open(&folder, &text, &RUN).unwrap(), 5, 20_000, &Outcome::OK);
        let mut sizes: Vec<usize> = all.into_iter().map(|(_, _, body)| body.len()).collect();
        sizes.sort_unstable();
        sizes
    };
    assert_eq!(sizes("fieldlength=7").first(), sizes("fieldlength=7").last());
    let uniform = sizes("fieldlengthdistribution=uniform\nminfieldlength=5\nfieldlength=9");
    assert_eq!((uniform[0], uniform[19_999]), (5, 9));
    let histogram = sizes("fieldlengthdistribution=exacthistogram\nfieldlengthhistogram=sizes");
    assert_eq!((histogram[0], histogram[19_999]), (20, 30));
    // From 1 for any minfieldlength, as in YCSB.
    let steep = sizes("fieldlengthdistribution=zipfian\nfieldlength=1000\nminfieldlength=500");
    let flat = sizes("fieldlengthdistribution=zipfian\nfieldlength=1000\ninsertsizezipfconstant=0");
    assert_eq!(steep[0], 1);
    assert!(steep[10_000] < 60 && (450..550).contains(&flat[10_000]), "{} {}", steep[10_000], flat[10_000]);
}

#[test]
fn a_load_inserts_each_requested_url_once() {
    let folder = traces();
    let text = "readproportion=0.5\nupdateproportion=0.3\ninsertproportion=0.1\ndeleteproportion=0.1\n\
                url.trace.read=b\nurl.trace.update=c\nurl.trace.delete=b\nurl.trace.insert=a\n";
    let workload = open(&folder, text, &LOAD).unwrap();
    assert_eq!(workload.units(), Some(5));
    assert_eq!(
        workload.demands().iter().map(|demand| demand.kind).collect::<Vec<_>>(),
        [OperationKind::Insert]
    );
    let all = asked(&workload, 1, 100, &Outcome::OK);
    assert_eq!(
        all.iter().map(|(_, url, _)| url.as_str()).collect::<Vec<_>>(),
        ["b/0", "b/1", "b/2", "a/1", "c/1"]
    );
    assert!(all.iter().all(|(kind, _, body)| *kind == OperationKind::Insert && body.len() == 100));
    // A body depends on seed and number.
    assert_eq!(all, asked(&open(&folder, text, &LOAD).unwrap(), 1, 100, &Outcome::OK));
    // A failure stops the client by default.
    let failure = Outcome::failed(Status::Error, "x");
    assert_eq!(asked(&open(&folder, text, &LOAD).unwrap(), 1, 100, &failure).len(), 1);
    let going = format!("{text}core_workload_insertion_keep_going_on_error=true");
    assert_eq!(asked(&open(&folder, &going, &LOAD).unwrap(), 1, 100, &failure).len(), 5);
}

#[test]
fn faults_are_reported_together_with_file_and_line() {
    let mut folder = traces();
    folder.insert("bad".into(), b"x\ny z\n".into());
    let text = "readproportion=0.5\nupdateproportion=0.5\ninsertproportion=0.1\ndeleteproportion=0.1\n\
                scanproportion=0.1\nreadmodifywriteproportion=0.1\n\
                url.trace.read=bad\nurl.trace.update=none\nurl.trace.insert=b\nurl.trace.delete=b\n\
                requestdistribution=latest\ninsertrequestdistribution=zipfian\ninsertzipfconstant=1.5\n\
                deleterequestdistribution=exponential\nexponential.frac=1000\ndeleterecordcount=0\n\
                fieldlength=2000000000000\n";
    let problem = open(&folder, text, &RUN).unwrap_err().to_string();
    for words in [
        "bad:2: a URL cannot have ' '",
        "none: cannot be read",
        "requestdistribution=latest: a trace has no latest URL",
        "insertzipfconstant=1.5",
        "exponential.frac=1000",
        "deleterecordcount=0",
        "scanproportion=0.1",
        "readmodifywriteproportion=0.1",
        "fieldlength=2000000000000",
    ] {
        assert!(problem.contains(words), "{words}: {problem}");
    }
    let nothing = open(&folder, "readproportion=0\nupdateproportion=0", &RUN).unwrap_err().to_string();
    assert!(nothing.contains("nothing to do") && nothing.contains("deleteproportion"), "{nothing}");
    let unused = "readproportion=0\nupdateproportion=0\ninsertproportion=1\nurl.trace.insert=b";
    assert!(open(&folder, unused, &RUN).is_ok(), "unused traces are not opened");
    let load = open(&folder, unused, &LOAD).unwrap_err().to_string();
    assert!(load.contains("nothing to load"), "{load}");
}

#[test]
fn every_property_has_a_description() {
    for property in PROPERTIES.properties {
        assert!(!property.meaning.is_empty(), "{}", property.name);
    }
}
