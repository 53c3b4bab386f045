//! YCSB's bindings, hosted by the Java driver: classes compiled by the tests against
//! YCSB's published core.
//!
//! `cargo xtask test` builds the driver and names its folder in the environment; without it these
//! tests are ignored.

use crate::common::{
    Ran, folder,
    group::LoggedProcess,
    process::{descendants, ended},
    program, workload, write,
};
use rustix::process::Signal;
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A binding that stores records, and fails in the ways that its properties
/// select.
const BINDING: &str = r#"
import java.util.*;
import java.util.concurrent.*;
import site.ycsb.*;

public class HashDB extends DB {
  private static final ConcurrentSkipListMap<String, Map<String, byte[]>> RECORDS = new ConcurrentSkipListMap<>();
  private String fail;
  private Thread thread;

  static {
    hang(Boolean.getBoolean("hash.hang"), "static");
  }

  /** As a store that does not answer. */
  private static void hang(boolean really, String where) {
    if (really) {
      System.out.println("hangs in " + where);
      java.util.concurrent.locks.LockSupport.park();
      hang(true, where);
    }
  }

  @Override
  public void init() throws DBException {
    fail = getProperties().getProperty("hash.fail", "");
    thread = Thread.currentThread();
    System.out.println("a line that must not reach the protocol");
    hang(fail.equals("hang in init"), "init");
    if (fail.equals("init")) {
      throw new DBException("no server at nowhere:1");
    }
  }

  @Override
  public void cleanup() throws DBException {
    if (Thread.currentThread() != thread) {
      throw new DBException("another thread");
    }
  }

  private static Map<String, byte[]> bytes(Map<String, ByteIterator> values) {
    Map<String, byte[]> bytes = new HashMap<>();
    values.forEach((name, value) -> bytes.put(name, value.toArray()));
    return bytes;
  }

  private static void put(Map<String, byte[]> record, Set<String> fields, Map<String, ByteIterator> into) {
    record.forEach((name, value) -> {
      if (fields == null || fields.contains(name)) {
        into.put(name, new ByteArrayByteIterator(value));
      }
    });
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    if (Thread.currentThread() != thread) {
      return Status.UNEXPECTED_STATE;
    }
    switch (fail) {
      case "throw": throw new IllegalStateException("out of luck");
      case "forbidden": return Status.FORBIDDEN;
      case "own": return new Status("LEASE_LOST", "the lease is over");
      case "exit": System.exit(7);
      case "hang in read": hang(true, "read");
      default:
    }
    Map<String, byte[]> record = RECORDS.get(key);
    if (record == null) {
      return Status.NOT_FOUND;
    }
    put(record, fields, result);
    return Status.OK;
  }

  @Override
  public Status scan(String table, String start, int count, Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    for (Map<String, byte[]> record : RECORDS.tailMap(start).values()) {
      if (result.size() == count) {
        break;
      }
      HashMap<String, ByteIterator> found = new HashMap<>();
      put(record, fields, found);
      result.add(found);
    }
    return Status.OK;
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    Map<String, byte[]> change = bytes(values);
    Map<String, byte[]> record = RECORDS.computeIfPresent(key, (k, old) -> {
      Map<String, byte[]> merged = new HashMap<>(old);
      merged.putAll(change);
      return merged;
    });
    return record == null ? Status.NOT_FOUND : Status.OK;
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    RECORDS.put(key, bytes(values));
    return fail.equals("batched") ? Status.BATCHED_OK : Status.OK;
  }

  @Override
  public Status delete(String table, String key) {
    return RECORDS.remove(key) == null ? Status.NOT_FOUND : Status.OK;
  }
}
"#;

/// Returns the driver's folder, and one with the compiled binding.
fn ready() -> Option<(PathBuf, tempfile::TempDir)> {
    let Some(driver) = std::env::var_os("SERVAL_TEST_JAVA_DRIVER").map(PathBuf::from) else {
        panic!("SERVAL_TEST_JAVA_DRIVER is not set: 'cargo xtask test' builds the driver and sets it");
    };
    let place = folder();
    let source = write(place.path(), "HashDB.java", BINDING);
    let compiled = Command::new("javac")
        .arg("-cp")
        .arg(driver.join("lib/*"))
        .arg("-d")
        .arg(place.path())
        .arg(source)
        .status()
        .unwrap();
    assert!(compiled.success());
    Some((driver, place))
}

/// Runs a command with the store java and arguments separated by spaces.
fn java(driver: &Path, place: &Path, command: &str, words: &str) -> Ran {
    let mut ran = program();
    ran.current_dir(place).args(command.split_whitespace()).args(words.split_whitespace());
    ran.arg("-p").arg(format!("java.driver={}", driver.display()));
    Ran::of(ran.output().unwrap())
}

#[test]
#[ignore = "needs SERVAL_TEST_JAVA_DRIVER"]
fn a_binding_is_called_as_ycsb_calls_it() {
    let Some((driver, place)) = ready() else { return };
    called_as_ycsb_calls_it(&driver, place.path(), "client");
}

#[test]
#[ignore = "needs SERVAL_TEST_JAVA_DRIVER"]
fn a_binding_is_called_as_ycsb_calls_it_by_a_shared_connection() {
    let Some((driver, place)) = ready() else { return };
    called_as_ycsb_calls_it(&driver, place.path(), "shared");
}

fn called_as_ycsb_calls_it(driver: &Path, place: &Path, connections: &str) {
    // Load and run in one process, which holds the records.
    let words = format!(
        "{} --store java --class HashDB --classpath . --records 200 --operations 2000 --warm-up 0 --threads 4 \
         -p dataintegrity=true -p driver.connections={connections} --json --out r",
        workload("workloadf")
    );
    let ran = java(driver, place, "bench", &words).expect(0);
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let metrics = document["metrics"].as_array().unwrap();
    let verify = metrics.iter().find(|metric| metric["name"] == "VERIFY").unwrap();
    assert_eq!(verify["statuses"]["OK"], 2000);
    assert_eq!(document["run"]["store_facts"]["class"], "HashDB");
    assert!(ran.stderr.contains("driver: a line that must not reach the protocol"), "{}", ran.stderr);
    let scans = format!(
        "{} --store java --class HashDB --classpath . --records 100 --operations 300 --warm-up 0 \
         -p driver.connections={connections} --out s",
        workload("workloade")
    );
    java(driver, place, "bench", &scans).expect(0);
}

#[test]
#[ignore = "needs SERVAL_TEST_JAVA_DRIVER"]
fn the_java_driver_follows_the_protocol() {
    let Some((driver, place)) = ready() else { return };
    let class_path = format!(".:{0}/serval-java-driver.jar:{0}/lib/*", driver.display());
    let mut check = program();
    check.current_dir(place.path()).args(["driver", "check", "-p", "java.class=HashDB", "--"]);
    check.args(["java", "-cp", &class_path, "serval.driver.Main", "ycsb"]);
    let ran = Ran::of(check.output().unwrap()).expect(0);
    assert!(
        !ran.stdout.contains("FAILED")
            && ran.stdout.contains("passed   concurrent clients with pipes of their own"),
        "{}",
        ran.stdout
    );
}

#[test]
#[ignore = "needs SERVAL_TEST_JAVA_DRIVER"]
fn results_and_exceptions_of_a_binding_are_reported() {
    let Some((driver, place)) = ready() else { return };
    let words = |fail: &str| {
        format!(
            "-P {} -db HashDB -cp . -p hash.fail={fail} -p operationcount=10 -p recordcount=10",
            workload("workloadc")
        )
    };
    let run = |fail: &str, connections: &str| {
        let words = format!("{} -p driver.connections={connections}", words(fail));
        java(&driver, place.path(), "run java", &words)
    };
    // Serval looks for a record before a run, which detects the failure already.
    for (fail, words) in [
        ("throw", "out of luck"),
        ("forbidden", "The operation is forbidden"),
        ("own", "LEASE_LOST: the lease is over"),
        ("init", "client 0 cannot be opened: no server at nowhere:1"),
        ("exit", "exit status: 7"),
    ] {
        for connections in ["client", "shared"] {
            let ran = run(fail, connections).expect(3);
            assert!(ran.stderr.contains(words), "'{words}' is not in: {}", ran.stderr);
        }
    }
    let load = java(&driver, place.path(), "load java", &words("batched")).expect(0);
    assert_eq!(load.value("[INSERT], Return=BATCHED_OK,"), 10.0);
}

#[test]
#[ignore = "needs SERVAL_TEST_JAVA_DRIVER"]
fn missing_parts_are_reported_before_the_start() {
    let Some((driver, place)) = ready() else { return };
    let file = workload("workloadc");
    let run = |words: &str| java(&driver, place.path(), "run java", &format!("-P {file} {words}"));
    let ran = run("").expect(2);
    assert!(ran.stderr.contains("java.class"), "{}", ran.stderr);
    let ran = run("-db HashDB -cp nowhere:. -p java.program=nothing").expect(2);
    assert!(
        ran.stderr.contains("there is no nowhere") && ran.stderr.contains("java.program=nothing"),
        "{}",
        ran.stderr
    );
    let ran = run("-db NoDB -cp .").expect(3);
    assert!(ran.stderr.contains("NoDB is not on the class path"), "{}", ran.stderr);
    let ran = run("-db java.lang.String -cp .").expect(3);
    assert!(ran.stderr.contains("does not extend site.ycsb.DB"), "{}", ran.stderr);
    let mut lost = program();
    lost.current_dir(place.path()).args(["run", "java", "-P", &file, "-db", "HashDB", "-p", "java.driver=."]);
    let ran = Ran::of(lost.output().unwrap()).expect(2);
    assert!(ran.stderr.contains("serval-java-driver.jar"), "{}", ran.stderr);
}

#[test]
#[ignore = "needs SERVAL_TEST_JAVA_DRIVER"]
fn a_driver_whose_store_does_not_answer_ends_when_serval_is_killed() {
    let Some((driver, place)) = ready() else { return };
    let start = |more: [&str; 2], connections: &str| {
        let mut command = program();
        command.current_dir(place.path()).args(["run", "java", "--class", "HashDB", "--classpath", "."]);
        command.args(["-P", &workload("workloadc"), "-p", &format!("java.driver={}", driver.display())]);
        command
            .args(["-p", "driver.grace=500ms", "-p", &format!("driver.connections={connections}")])
            .args(more);
        LoggedProcess::start(command.stdout(Stdio::null()))
    };
    // During the greeting, while clients connect, and during an operation.
    let mut runs = [
        start(["-p", "java.args=-Dhash.hang=true"], "client"),
        start(["-p", "hash.fail=hang in init"], "client"),
        start(["-p", "hash.fail=hang in init"], "shared"),
        start(["-p", "hash.fail=hang in read"], "client"),
    ];
    for run in &mut runs {
        run.wait_for("hangs in");
        let below = descendants(run.child.id());
        assert_eq!(below.len(), 1, "{below:?}");
        run.signal(Signal::KILL);
        below.iter().for_each(ended);
    }
}
