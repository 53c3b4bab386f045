//! `serval sweep`, `serval max` and `serval experiment`, as a user runs them.

use crate::common::{entries, folder, program, serval, workload, write};
use serval_report::stored::read_experiment;
use serval_result::{
    experiment::{ExperimentDocument, RunKind},
    note::Note,
};
use std::{io::BufRead, path::Path, process::Stdio};

const QUICK: &str = "--time 80ms --warm-up 20ms --warm-up-max 0 --repeats 2 --clients 2 -p recordcount=500";

fn document(path: &Path) -> ExperimentDocument {
    read_experiment(&path.join("experiment.json")).unwrap().document
}

fn points(document: &ExperimentDocument) -> Vec<(usize, usize, u32)> {
    let runs = document.runs.iter().filter(|entry| entry.kind == RunKind::Point);
    let mut points: Vec<_> = runs.map(|entry| (entry.curve, entry.point, entry.repeat)).collect();
    points.sort_unstable();
    points
}

#[test]
fn a_sweep_of_two_stores_leaves_a_folder_with_a_report() {
    let place = folder();
    let words = format!(
        "sweep {} --store memory --store sqlite --points 50%,max,3000 {QUICK} --out r",
        workload("workloada")
    );
    let ran = serval(place.path(), &words).expect(0);
    let result = place.path().join("r");
    assert_eq!(
        entries(&result),
        [
            "experiment.json",
            "plots",
            "points.csv",
            "report.html",
            "runs",
            "state.json",
            "summary.txt",
            "trials.csv"
        ],
        "the stores' files are not kept"
    );
    let document = document(&result);
    // Runs of 80 ms often do not reach the throughput of another one of 80 ms.
    let is_usual = |note: &Note| matches!(note, Note::SaturationNotReached { .. });
    assert!(document.complete && document.notes.iter().all(is_usual), "{:?}", document.warnings);
    let command = |a: &str, b: &str| ran.stdout.contains(&format!("serval compare r:{a} r:{b}"));
    assert!(command("memory", "sqlite") != command("sqlite", "memory"), "{}", ran.stdout);
    assert_eq!(points(&document).len(), 12);
    assert!(document.curves.iter().all(|curve| curve.saturation.is_some()));
    assert!(ran.stdout.contains("memory") && ran.stdout.contains("sqlite"), "{}", ran.stdout);
    let page = std::fs::read_to_string(result.join("report.html")).unwrap();
    assert!(page.contains("workloada on memory, sqlite"));
    // The plan in the result is complete: it can be repeated from any folder.
    let plan = write(place.path(), "again.toml", &document.plan);
    let shown = serval(place.path(), &format!("experiment show {}", plan.display())).expect(0);
    assert!(shown.stdout.contains("12 runs, and about 2 of searching"), "{}", shown.stdout);
}

#[test]
fn a_killed_sweep_resumes_and_performs_each_run_once() {
    let place = folder();
    let mut command = program();
    command.current_dir(place.path()).args(["sweep", &workload("workloadd"), "--store", "sqlite", "--plain"]);
    command.args(QUICK.replace("80ms", "300ms").split_whitespace());
    command.args(["--points", "max,2000", "--out", "r"]);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    // The second point starts after the first has ended and is recorded.
    let (mut seen, mut begun) = (Vec::new(), 0);
    for line in stderr.lines().map_while(Result::ok) {
        begun += u32::from(line.contains("] begin") && line.contains(" of 2,"));
        seen.push(line);
        if begun == 2 {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let before = document(&place.path().join("r"));
    assert!(!before.complete && !points(&before).is_empty(), "{seen:?}");
    let other =
        serval(place.path(), &format!("sweep {} --store sqlite --out r --resume", workload("workloada")));
    assert!(other.expect(2).stderr.contains("the experiment there has another plan"));
    let began = format!(
        "sweep {} --store sqlite --plain {} --points max,2000 --out r --resume",
        workload("workloadd"),
        QUICK.replace("80ms", "300ms")
    );
    // Options of the command that contradict the stored plan are refused, by name and with both values.
    let seed = before.seed ^ 1;
    for (option, told) in [
        (format!("--seed {seed}"), format!("run.seed: stored {}, given {seed}", before.seed)),
        ("--order rising".to_owned(), "run.order: stored \"shuffled\", given \"rising\"".to_owned()),
    ] {
        let refused = serval(place.path(), &format!("{began} {option}")).expect(2);
        assert!(refused.stderr.contains(&told), "{told}\n{}", refused.stderr);
    }
    let ran = serval(place.path(), "experiment resume r").expect(0);
    let done = points(&before).len();
    let resumed = format!("resumed: {done} run{} done, {} to do", if done == 1 { "" } else { "s" }, 4 - done);
    assert!(ran.stderr.contains(&resumed), "{resumed}\n{}", ran.stderr);
    let after = document(&place.path().join("r"));
    assert!(after.complete, "{}", ran.stderr);
    assert_eq!(points(&after), [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)]);
    assert_eq!(after.runs[..before.runs.len()], before.runs[..]);
    assert!(after.runs.iter().all(|run| run.failed_per_s == 0.0), "{:?}", after.runs);
    // Also with the original command, although its seed was drawn.
    for command in ["experiment resume r", &began] {
        let again = serval(place.path(), command).expect(2);
        assert!(again.stderr.contains("is complete"), "{}", again.stderr);
    }
}

#[test]
fn the_highest_rate_is_reported_with_its_interval() {
    let place = folder();
    let words = format!(
        "max {} --store memory -p memory.delay=1ms --slo 'read.p99<1s' {QUICK} --out r",
        workload("workloadc")
    )
    .replace('\'', "");
    let ran = serval(place.path(), &words).expect(0);
    assert!(ran.stdout.contains("read.p99<1s: kept up to"), "{}", ran.stdout);
    let document = document(&place.path().join("r"));
    assert!(document.curves[0].highest.as_ref().unwrap().rate > 0.0);
}

#[test]
fn faults_are_reported_before_the_start() {
    let place = folder();
    let here = place.path();
    let file = workload("workloada");
    for (words, parts) in [
        (format!("sweep {file} --points 0 --state fresh --time 5x"), vec!["--points", "--state", "--time"]),
        (format!("max {file} --slo read.p99"), vec!["--slo", "has no '<'"]),
        (
            format!("max {file} --slo scan.p99<1ms"),
            vec!["the SLO names 'scan'", "its operations are read, update"],
        ),
        (
            format!("max {file} --slo reads.p99<1ms"),
            vec!["no operation of workloada", "did you mean 'read'?"],
        ),
        (format!("max {file} --slo p99<5"), vec!["5 has no unit; give one, as in p99<5ms"]),
        (format!("sweep {file} --clients 2 --coordination h:1"), vec!["how many processes", "(--agents N;"]),
        (format!("sweep {file} --agents 2"), vec!["through ZooKeeper", "--coordination HOST:PORT"]),
        (format!("sweep {file} --store memory --store memory"), vec!["'memory' twice"]),
        (
            format!("sweep {file} --store memory -p threadcount=4"),
            vec!["the file has it as clients in [run]"],
        ),
        (format!("sweep {file} --store memroy"), vec!["did you mean 'memory'?"]),
        (format!("sweep {file} --resume"), vec!["--resume needs --out"]),
        ("sweep none".into(), vec!["none", "cannot be read", "serval workloads workloada"]),
        ("experiment run none.toml".into(), vec!["none.toml", "cannot be read"]),
        ("experiment resume none".into(), vec!["none"]),
    ] {
        let ran = serval(here, &words).expect(2);
        for part in parts {
            assert!(
                ran.stderr.contains(part),
                "'{part}' is not in the message of '{words}':\n{}",
                ran.stderr
            );
        }
    }
    assert!(entries(here).is_empty(), "{:?}", entries(here));
}

#[test]
fn a_dry_run_prints_the_plan_and_runs_nothing() {
    let place = folder();
    let words = format!("sweep {} --store memory --store sqlite --dry-run", workload("workloade"));
    let ran = serval(place.path(), &words).expect(0);
    for part in ["48 runs", "14.3%, 28.6%", "records between runs: continue", "2,000 records in 2 loads"] {
        assert!(ran.stdout.contains(part), "'{part}' is not in\n{}", ran.stdout);
    }
    assert!(entries(place.path()).is_empty());
}

#[test]
fn every_ready_made_experiment_is_complete_and_names_its_figure() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let ran = serval(&folder, &format!("experiment show {} --json", path.display())).expect(0);
        let shown: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let document = &shown["document"];
        for field in ["title", "figure", "about", "saw"] {
            assert!(
                document[field].as_str().is_some_and(|text| text.len() > 10),
                "{}: {field}",
                path.display()
            );
        }
        assert!(shown["estimate"]["runs"].as_u64().unwrap() > 0);
        count += 1;
    }
    assert!(count >= 10, "{count}");
}

#[test]
fn a_ready_made_experiment_runs_on_the_chosen_stores() {
    let place = folder();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/range-size.toml");
    let words = format!(
        "experiment run {} --store memory --clients 1 --repeats 1 --time 50ms --warm-up 10ms --warm-up-max 0 \
         -p recordcount=300 --out r",
        file.canonicalize().unwrap().display()
    );
    serval(place.path(), &words).expect(0);
    let document = document(&place.path().join("r"));
    assert_eq!(document.curves.len(), 6);
    assert_eq!(document.axis.as_deref(), Some("records a range, on average"));
}
