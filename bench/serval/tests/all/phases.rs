//! Multi-phase experiments as a user runs them: from a file, and from properties as in YCSB++.

use crate::common::{
    Ran, entries, folder,
    group::{LoggedProcess, wait_for_registered},
    program, serval, workload, write,
};
use rustix::process::Signal;
use serval_result::{
    document::{EndedBy, ResultDocument},
    experiment::{ExperimentDocument, ExperimentKind, PhaseEntry},
    note::Note,
};
use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

fn document(folder: &Path) -> ExperimentDocument {
    serde_json::from_slice(&std::fs::read(folder.join("experiment.json")).unwrap()).unwrap()
}

fn result(folder: &Path, phase: &PhaseEntry) -> ResultDocument {
    let path = folder.join(phase.folder.as_ref().unwrap()).join("result.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

const HEAD: &str = "version = 1\ntitle = \"Little\"\n[[stores]]\nname = \"memory\"\n[properties]\nrecordcount = 1000\n\
                    insertorder = \"uniform\"\ninsertrange = \"0..99999\"\nthreadcount = 2\n";

fn run_of(name: &str, more: &str) -> String {
    format!(
        "[[phases]]\nname = \"{name}\"\nkind = \"run\"\nworkload = \"{}\"\noperationcount = 2000\n{more}",
        workload("workloada")
    )
}

#[test]
fn phases_follow_each_other_on_one_axis() {
    let place = folder();
    let file = format!(
        "{HEAD}[[phases]]\nname = \"Load\"\nkind = \"load\"\n\
         [[phases]]\nname = \"Split\"\nkind = \"presplit\"\npartitions = 4\ncommand = \"cat; echo $SERVAL_STORE $SERVAL_TABLE $SERVAL_PHASE\"\n\
         {}[[phases]]\nkind = \"pause\"\ntime = \"100ms\"\n\
         [[phases]]\nname = \"Flag\"\nkind = \"wait\"\nevery = \"10ms\"\ncommand = \"test -e flag || {{ touch flag; exit 1; }}\"\n{}",
        run_of("First", "[phases.properties]\nlag.role = \"both\"\nlag.sample = 1\n"),
        run_of("Second", "[phases.properties]\nreadproportion = 1\nupdateproportion = 0\n"),
    );
    write(place.path(), "p.toml", &file);
    let shown = serval(place.path(), "experiment show p.toml").expect(0);
    assert!(shown.stdout.contains("division at 3 keys by: cat"), "{}", shown.stdout);
    let ran = serval(place.path(), "experiment run p.toml --out r").expect(0);
    assert!(ran.stdout.contains("6 Second"), "{}", ran.stdout);
    let out = place.path().join("r");
    let document = document(&out);
    assert!(document.complete && document.kind == ExperimentKind::Phases);
    let names: Vec<(&str, &str)> =
        document.phases.iter().map(|phase| (phase.name.as_str(), phase.kind.as_str())).collect();
    assert_eq!(
        names,
        [
            ("Load", "load"),
            ("Split", "presplit"),
            ("First", "run"),
            ("pause 4", "pause"),
            ("Flag", "wait"),
            ("Second", "run")
        ]
    );
    // Phases follow one another and do not overlap.
    for pair in document.phases.windows(2) {
        assert!(pair[0].start_s <= pair[0].end_s && pair[0].end_s <= pair[1].start_s, "{pair:?}");
    }
    let [load, split, first, pause, flag, second] = &document.phases[..] else { panic!() };
    assert_eq!(split.output, ["user25000", "user50000", "user75000", "memory usertable 2"]);
    assert_eq!(flag.attempts, Some(2));
    assert!(pause.end_s - pause.start_s >= 0.1);
    assert_eq!((load.operations, first.operations, second.operations), (Some(1000), Some(2000), Some(2000)));
    // Each phase has its own properties.
    let reads = |phase| {
        let document = result(&out, phase);
        document
            .metrics
            .iter()
            .filter(|metric| metric.name == "READ")
            .map(|m| m.ok.as_ref().unwrap().response.count)
            .sum::<u64>()
    };
    assert!(reads(first) < 1500 && reads(second) == 2000);
    for phase in [load, first, second] {
        let zero = phase.series_start_s.unwrap();
        assert!(phase.start_s <= zero && zero <= phase.end_s, "{phase:?}");
        assert!(entries(&out.join(phase.folder.as_ref().unwrap())).contains(&"report.html".to_owned()));
    }
    let csv = std::fs::read_to_string(out.join("phases.csv")).unwrap();
    let lag = std::fs::read_to_string(out.join("lag.csv")).unwrap();
    assert!(
        lag.lines().skip(1).all(|line| line.starts_with("First,")) && lag.contains("First,behind,,0,"),
        "{lag}"
    );
    serval(place.path(), "report r --csv series.csv --lag-csv lag.csv").expect(0);
    let made = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
    assert!(made("series.csv") == csv && made("lag.csv") == lag);
    let times = csv.lines().skip(1).map(|line| line.split(',').nth(3).unwrap().parse::<f64>().unwrap());
    assert!(times.clone().is_sorted_by(|a, b| a <= b), "{csv}");
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(report.contains("<h2>Phases</h2>") && report.contains("/report.html\">First</a>"));
}

#[test]
fn properties_define_phases_as_in_ycsb_plus_plus() {
    let place = folder();
    let words = format!(
        "run memory -P {} -p phases=3 -p recordcount=500 -p operationcount=700 -p phase1.load=yes -p phase2.load=no \
         -p phase2.operationcount=300 -p phase3.name=Last -p phase3.threadcount=2 --result r",
        workload("workloadb")
    );
    let ran = serval(place.path(), &words).expect(0);
    let document = document(&place.path().join("r"));
    let done: Vec<_> =
        document.phases.iter().map(|phase| (phase.kind.as_str(), phase.operations.unwrap())).collect();
    assert_eq!(done, [("load", 500), ("run", 300), ("run", 700)]);
    // YCSB's output for each phase.
    let overall = ran.stdout.matches("[OVERALL], Throughput").count();
    assert_eq!((overall, ran.stdout.matches("[PHASE], Name, Last").count()), (3, 1), "{}", ran.stdout);
    let other =
        serval(place.path(), "load memory -p phases=2 -p phase3.x=1 -p phase1.load=perhaps").expect(2);
    for part in ["there is no phase 3", "neither yes nor no"] {
        assert!(other.stderr.contains(part), "{}", other.stderr);
    }
    let elsewhere = serval(place.path(), &format!("bench {} -p phases=2", workload("workloada"))).expect(2);
    assert!(elsewhere.stderr.contains("only serval load"), "{}", elsewhere.stderr);
}

#[test]
fn faults_are_reported_before_the_first_phase() {
    let place = folder();
    let file = format!(
        "{HEAD}[[phases]]\nname = \"A\"\nkind = \"run\"\n[phases.properties]\nrecordcuont = 3\n\
         [[phases]]\nname = \"A\"\nkind = \"sleep\"\n[[phases]]\nkind = \"pause\"\n[[phases]]\nkind = \"command\"\nclients = [2]\n"
    );
    write(place.path(), "p.toml", &file);
    let ran = serval(place.path(), "experiment run p.toml --out r").expect(2);
    for part in
        ["p.toml:", "'sleep' is not one of load, run, pause", "how long is the pause", "command: is missing"]
    {
        assert!(ran.stderr.contains(part), "'{part}' is not in {}", ran.stderr);
    }
    let file = format!(
        "{HEAD}[[phases]]\nname = \"A\"\nkind = \"run\"\n[phases.properties]\nrecordcuont = 3\n\
         [[phases]]\nname = \"B\"\nkind = \"load\"\nclients = [2]\n\
         [[phases]]\nname = \"C\"\nkind = \"load\"\n[phases.properties]\n\"memory.shards\" = 3\n"
    );
    write(place.path(), "q.toml", &file);
    let ran = serval(place.path(), "experiment run q.toml --out r").expect(2);
    for part in ["recordcuont", "phase 'B' names client 2, but there are 1"] {
        assert!(ran.stderr.contains(part), "'{part}' is not in {}", ran.stderr);
    }
    // A file of a later version is shown, and refused for a run.
    let later = format!(
        "{HEAD}[[phases]]\nname = \"Format\"\nkind = \"bulk-format\"\n[[phases]]\nname = \"Split\"\nkind = \"presplit\"\npartitions = 3\n"
    );
    write(place.path(), "l.toml", &later);
    let shown = serval(place.path(), "experiment show l.toml").expect(0);
    assert!(shown.stdout.contains("not built yet"), "{}", shown.stdout);
    let ran = serval(place.path(), "experiment run l.toml --out r").expect(2);
    for part in ["phase 'Format': bulk-format is not built yet", "cannot divide a table of memory itself yet"]
    {
        assert!(ran.stderr.contains(part), "'{part}' is not in {}", ran.stderr);
    }
    assert!(!place.path().join("r").exists());
}

#[test]
fn settings_that_a_phase_would_ignore_are_refused() {
    let place = folder();
    let waiting = "kind = \"wait\"\ncommand = \"true\"";
    let cases = [
        (format!("{waiting}\ntime = \"5m\""), "time"),
        (format!("{waiting}\nclients = [1]"), "clients"),
        ("kind = \"command\"\ncommand = \"true\"\nclients = [1]".to_owned(), "clients"),
        ("kind = \"load\"\noperationcount = 5".to_owned(), "operationcount"),
        ("kind = \"load\"\nwarmup = \"5s\"".to_owned(), "warmup"),
    ];
    for (lines, key) in cases {
        write(place.path(), "p.toml", &format!("{HEAD}[[phases]]\n{lines}\n"));
        let ran = serval(place.path(), "experiment run p.toml --out r").expect(2);
        assert!(ran.stderr.contains(key) && ran.stderr.contains("has none"), "{lines}: {}", ran.stderr);
    }
    // Flags of groups count.
    write(place.path(), "p.toml", &format!("{HEAD}[[phases]]\nkind = \"load\"\n"));
    let ran = serval(place.path(), "experiment run p.toml --out r --agents 3").expect(2);
    assert!(ran.stderr.contains("each client of a group would have records of its own"), "{}", ran.stderr);
}

#[test]
fn a_failure_ends_an_experiment_which_resumes_from_there() {
    let place = folder();
    let file = format!(
        "version = 1\n[[stores]]\nname = \"sqlite\"\n[properties]\nrecordcount = 300\n[[phases]]\nname = \"Load\"\nkind = \"load\"\n\
         [[phases]]\nname = \"Ready\"\nkind = \"command\"\ncommand = \"echo looking; test -e ready\"\n{}",
        run_of("Run", "")
    );
    write(place.path(), "p.toml", &file);
    let failed = serval(place.path(), "experiment run p.toml --out r").expect(3);
    for part in ["phase 'Ready'", "exit status: 1; its last line: looking", "serval experiment resume r"] {
        assert!(failed.stderr.contains(part), "'{part}' is not in {}", failed.stderr);
    }
    let before = document(&place.path().join("r"));
    assert_eq!((before.phases.len(), before.complete), (1, false));
    let report = serval(place.path(), "report r").expect(0);
    assert!(report.stdout.contains("1 of 3 phases are done"), "{}", report.stdout);
    write(place.path(), "ready", "");
    let resumed = serval(place.path(), "experiment resume r").expect(0);
    assert!(resumed.stderr.contains("resumed: 1 phase done, 2 to do"), "{}", resumed.stderr);
    let after = document(&place.path().join("r"));
    assert_eq!((after.phases.len(), after.complete), (3, true));
    assert_eq!(after.phases[0], before.phases[0]);
    assert!(after.phases[1].start_s >= before.phases[0].end_s);
    // The state for resuming is removed.
    assert!(!place.path().join("r/stores").exists());
}

#[test]
fn an_incomplete_load_is_a_failure() {
    let place = folder();
    let many = "[phases.properties]\nrecordcount = 100000000\ninsertrange = \"0..999999999\"\n";
    let file = format!("{HEAD}[[phases]]\nname = \"Load\"\nkind = \"load\"\ntime = \"20ms\"\n{many}");
    write(place.path(), "p.toml", &file);
    let ran = serval(place.path(), "experiment run p.toml --out r").expect(1);
    let load = &document(&place.path().join("r")).phases[0];
    let Note::LoadIncomplete { missing } = load.notes[0] else { panic!("{load:#?}") };
    assert_eq!(missing, 100_000_000 - load.operations.unwrap());
    assert_eq!(load.notes.len(), load.warnings.len());
    assert!(ran.stdout.contains("! Load: the load is not complete: "), "{}", ran.stdout);
}

#[test]
fn settings_common_to_phases_are_printed_once() {
    let place = folder();
    let file = format!(
        "{HEAD}[[phases]]\nname = \"Load\"\nkind = \"load\"\n{}{}",
        run_of("First", "").replace("2000", "200"),
        run_of("Second", "").replace("2000", "300"),
    );
    write(place.path(), "p.toml", &file);
    let ran = serval(place.path(), "experiment run p.toml --out r").expect(0);
    let text: String = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let once = "First, Second: Only 200 to 300 operations were measured";
    assert_eq!((text.matches(once).count(), text.matches("were measured").count()), (1, 1), "{}", ran.stdout);
}

#[test]
fn a_scale_reduces_all_phases() {
    let place = folder();
    let file = format!(
        "{HEAD}[[phases]]\nkind = \"load\"\n[[phases]]\nkind = \"pause\"\ntime = \"5m\"\n[[phases]]\nkind = \"run\"\ntime = \"4m\"\n"
    );
    write(place.path(), "p.toml", &file);
    let shown = serval(place.path(), "experiment show p.toml --scale 100 --json").expect(0);
    let plan = serde_json::from_str::<serde_json::Value>(&shown.stdout).unwrap()["document"]["plan"]
        .as_str()
        .unwrap()
        .to_owned();
    for part in ["\"recordcount\" = \"10\"", "0..999", "time = \"3s\"", "\"maxexecutiontime\" = \"2400ms\""] {
        assert!(plan.contains(part), "'{part}' is not in {plan}");
    }
    // The scale applies to a workload's file and not to the command line.
    write(place.path(), "w", "recordcount=600\noperationcount=900\n");
    let file = format!(
        "{}[[phases]]\nkind = \"load\"\nworkload = \"w\"\n[[phases]]\nkind = \"run\"\nworkload = \"w\"\n",
        HEAD.replace("recordcount = 1000\n", "")
    );
    write(place.path(), "q.toml", &file);
    let words = "experiment run q.toml --scale 3 -p operationcount=90 --out r";
    serval(place.path(), words).expect(0);
    let document = document(&place.path().join("r"));
    let operations: Vec<Option<u64>> = document.phases.iter().map(|phase| phase.operations).collect();
    assert_eq!(operations, [Some(200), Some(90)]);
}

/// The second load finds the last record of the first, which cannot be inserted again.
#[test]
fn a_missing_record_is_reported_and_decides_the_exit_status() {
    let place = folder();
    let again = "insertstart = 9\ninsertcount = 2\n";
    let file = format!(
        "version = 1\ntitle = \"Twice\"\n[[stores]]\nname = \"sqlite\"\n[properties]\nsqlite.path = \"records.db\"\n\
         recordcount = 11\ncore_workload_insertion_keep_going_on_error = true\n\
         [[phases]]\nname = \"Load\"\nkind = \"load\"\n[phases.properties]\ninsertcount = 10\n\
         [[phases]]\nname = \"Again\"\nkind = \"load\"\n[phases.properties]\n{again}"
    );
    write(place.path(), "p.toml", &file);
    serval(place.path(), "experiment run p.toml --out r").expect(1);
    let phases = document(&place.path().join("r")).phases;
    let incomplete = |phase: &PhaseEntry| phase.notes.contains(&Note::LoadIncomplete { missing: 1 });
    assert_eq!(phases.iter().map(incomplete).collect::<Vec<_>>(), [false, true], "{phases:#?}");
    let is_incomplete = |phase: &PhaseEntry| {
        phase.warnings.iter().any(|warning| warning.contains("1 record was not inserted"))
    };
    assert_eq!(phases.iter().map(is_incomplete).collect::<Vec<_>>(), [false, true]);
    let shown = serval(place.path(), "report r").expect(0);
    assert!(
        shown.stdout.contains("Again: the load is not complete: 1 record was not inserted."),
        "{}",
        shown.stdout
    );
    let words = "load sqlite -p sqlite.path=records.db -p recordcount=11 -p insertstart=10 -p insertcount=1";
    let ran = serval(place.path(), words).expect(1);
    assert!(ran.stderr.contains("the load is not complete: 1 record was not inserted"), "{}", ran.stderr);
}

fn zookeeper() -> Option<String> {
    serval_conformance::variable("SERVAL_TEST_ZOOKEEPER")
}

fn agents(cluster: &str, root: &str, count: usize, more: &[&str]) -> Vec<Child> {
    let agent = |_| {
        let mut command = program();
        command.args(["agent", "--join", cluster, "--root", root, "--once"]).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    (0..count).map(agent).collect()
}

fn led(folder: &Path, cluster: &str, root: &str, file: &str) -> Ran {
    let mut command: Command = program();
    command.current_dir(folder).args(["experiment", "run", file, "--out", "r"]);
    command.args([
        "-p",
        &format!("coordination.zookeeper={cluster}"),
        "-p",
        &format!("coordination.root={root}"),
    ]);
    Ran::of(command.output().unwrap())
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn clients_of_a_group_pass_phases_together_each_with_its_own_share() {
    let Some(cluster) = zookeeper() else { return };
    let place = folder();
    // A store that all processes share.
    let database = place.path().join("shared.db");
    let file = format!(
        "version = 1\n[group]\nclients = 3\n[[stores]]\nname = \"sqlite\"\n[stores.properties]\nsqlite.path = {:?}\n\
         [properties]\nrecordcount = 600\n[[phases]]\nname = \"Load\"\nkind = \"load\"\n\
         [[phases]]\nname = \"Where\"\nkind = \"command\"\nat = \"clients\"\ncommand = \"echo $SERVAL_CLIENT\"\n\
         [[phases]]\nkind = \"pause\"\ntime = \"50ms\"\n{}[[phases.only]]\nclients = [3]\n[phases.only.properties]\n\
         readproportion = 1.0\nupdateproportion = 0.0\nthreadcount = 2\n",
        database.display().to_string(),
        run_of("Two", "clients = [1, 3]\n"),
    );
    write(place.path(), "p.toml", &file);
    let root = format!("serval-phases-{}", std::process::id());
    let agents = agents(&cluster, &root, 3, &["--allow-commands"]);
    led(place.path(), &cluster, &root, "p.toml").expect(0);
    for mut agent in agents {
        assert!(agent.wait().unwrap().success());
    }
    let out = place.path().join("r");
    let document = document(&out);
    let [load, place_of, _, two] = &document.phases[..] else { panic!("{document:?}") };
    let of = |phase| result(&out, phase).group.unwrap();
    let shares = |phase| {
        let clients = of(phase).clients;
        clients.iter().map(|client| (client.share.clone(), client.operations)).collect::<Vec<_>>()
    };
    let part = |share: &str, operations| (share.to_owned(), operations);
    assert_eq!(shares(load), [part("1/3", 200), part("2/3", 200), part("3/3", 200)]);
    let mut lines = place_of.output.clone();
    lines.sort();
    assert_eq!(lines, ["1: 1", "2: 2", "3: 3"]);
    // The second client takes no part, and the third only reads.
    assert_eq!(shares(two), [part("1/2", 1000), part("2/2", 1000)]);
    assert_eq!(of(two).clients.iter().map(|client| client.clients).collect::<Vec<_>>(), [1, 2]);
    let updates = result(&out, two).metrics.into_iter().find(|metric| metric.name == "UPDATE").unwrap();
    let updates = updates.ok.unwrap().response.count;
    assert!(updates > 300 && updates < 700, "{updates}");
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(report.contains("of each process"));
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn agents_run_programs_only_if_allowed() {
    let Some(cluster) = zookeeper() else { return };
    let place = folder();
    let file = "version = 1\n[group]\nclients = 2\n[[stores]]\nname = \"noop\"\n[[phases]]\nname = \"Where\"\nkind = \"command\"\n\
                at = \"clients\"\ncommand = \"touch been-there\"\n";
    write(place.path(), "p.toml", file);
    let root = format!("serval-phases-not-{}", std::process::id());
    let agents = agents(&cluster, &root, 2, &[]);
    let ran = led(place.path(), &cluster, &root, "p.toml");
    assert!(ran.status != 0 && ran.stderr.contains("--allow-commands"), "{}", ran.stderr);
    for mut agent in agents {
        agent.wait().unwrap();
    }
    assert_eq!(entries(place.path()), ["p.toml", "r"]);
}

#[test]
#[ignore = "needs SERVAL_TEST_ZOOKEEPER"]
fn the_part_of_a_phase_before_the_loss_of_a_client_is_kept_and_marked() {
    let Some(cluster) = zookeeper() else { return };
    let place = folder();
    let root = format!("serval-phases-lost-{}", std::process::id());
    let database = place.path().join("shared.db");
    let file = format!(
        "version = 1\n[group]\nclients = 2\nzookeeper = \"{cluster}\"\nroot = \"{root}\"\ntimeout = \"2s\"\n\
         [[stores]]\nname = \"sqlite\"\n[stores.properties]\nsqlite.path = {:?}\n[properties]\nrecordcount = 100\n[[phases]]\nname = \"Load\"\nkind = \"load\"\n\
         [[phases]]\nname = \"Slow\"\nkind = \"run\"\nworkload = \"{}\"\noperationcount = 200\n[phases.properties]\ntarget = 100\n",
        database.display().to_string(),
        workload("workloadc"),
    );
    write(place.path(), "p.toml", &file);
    let agent = || {
        let mut command = program();
        LoggedProcess::start(
            command.args(["agent", "--join", &cluster, "--root", &root]).stdout(Stdio::null()),
        )
    };
    let (stays, dies) = (agent(), agent());
    let mut command = program();
    command.current_dir(place.path()).args(["experiment", "run", "p.toml", "--out", "r", "--plain"]);
    let mut run = LoggedProcess::start(command.stdout(Stdio::null()));
    run.wait_for("begin sqlite, Slow");
    wait_for_registered(&cluster, &root, "1/start", 0);
    // The client freezes while the others work.
    dies.signal(Signal::STOP);
    let (status, heard) = run.end();
    assert_eq!(status, 3, "{heard:#?}");
    let out = place.path().join("r");
    let cut_off = document(&out);
    let [load, slow] = &cut_off.phases[..] else { panic!("{cut_off:#?}") };
    assert!(load.incomplete.is_none() && !cut_off.complete);
    assert!(slow.incomplete.as_ref().unwrap().contains("sends nothing any more"), "{slow:#?}");
    assert!(slow.operations.unwrap() > 0 && result(&out, slow).overall.ended_by == EndedBy::Failed);
    let report = serval(place.path(), "report r").expect(0).stdout;
    let words = report.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["1 of 2 phases are done", "Slow is incomplete: client", "Slow (incomplete)"] {
        assert!(words.contains(part), "'{part}' is not in {report}");
    }
    serval(place.path(), "report r --csv phases.csv").expect(0);
    let csv = std::fs::read_to_string(place.path().join("phases.csv")).unwrap();
    let marks = |name: &str| -> Vec<String> {
        let of = csv.lines().filter(|line| line.split(',').nth(1) == Some(name));
        of.map(|line| line.rsplit(',').next().unwrap().to_owned()).collect()
    };
    assert!(
        marks("Load").iter().all(|mark| mark == "false") && marks("Slow").iter().all(|mark| mark == "true")
    );
    // Resuming repeats the phase and replaces the first attempt.
    let comes = agent();
    serval(place.path(), "experiment resume r").expect(0);
    let whole = document(&out);
    assert!(whole.complete && whole.phases.len() == 2 && whole.phases[0] == cut_off.phases[0]);
    assert_eq!((whole.phases[1].incomplete.as_ref(), whole.phases[1].operations), (None, Some(200)));
    assert_eq!(entries(&out.join("runs")).len(), 2);
    for agent in [stays, comes] {
        agent.signal(Signal::TERM);
        assert_eq!(agent.end().0, 0);
    }
}

#[test]
fn stores_embedded_in_each_client_are_refused() {
    let place = folder();
    for (store, part) in [("sqlite", "set sqlite.path"), ("memory", "records of its own")] {
        let file = format!(
            "version = 1\n[group]\nclients = 2\nzookeeper = \"nowhere:1\"\n[[stores]]\nname = \"{store}\"\n\
             [properties]\nrecordcount = 100\n[[phases]]\nname = \"Load\"\nkind = \"load\"\n"
        );
        write(place.path(), "p.toml", &file);
        let ran = serval(place.path(), "experiment run p.toml --out r").expect(2);
        assert!(
            ran.stderr.contains(part) && ran.stderr.contains("a store that is a server"),
            "{}",
            ran.stderr
        );
    }
    let words = format!("load memory -P {} --clients 2 --coordination nowhere:1", workload("workloada"));
    let ran = serval(place.path(), &words).expect(2);
    assert!(ran.stderr.contains("records of its own"), "{}", ran.stderr);
    let words = words.replace("memory", "noop") + " -p recordcount=1";
    let ran = serval(place.path(), &words).expect(2);
    assert!(ran.stderr.contains("1 records cannot be divided among 2 processes"), "{}", ran.stderr);
    let words = format!(
        "run noop -P {} -p operationcount=1 --clients 2 --coordination nowhere:1",
        workload("workloada")
    );
    let ran = serval(place.path(), &words).expect(2);
    assert!(ran.stderr.contains("1 operations cannot be divided among 2 processes"), "{}", ran.stderr);
}
