//! Groups and snapshots of simulated machines.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use proptest::prelude::*;
use serval_watch::{MemoryReading, NotFound, Selection, Snapshot, SocketBytes, Sockets, System};
use std::{fs, os::unix::fs::symlink, path::Path};
use tempfile::TempDir;

/// The process in the role of Serval.
const OWN: u32 = 50;

#[derive(Clone, Default)]
struct Process {
    parent: u32,
    began: u64,
    own: u64,
    ended_children: u64,
    arguments: &'static [&'static str],
    /// For each thread, the ns that it ran and waited.
    threads: Vec<(u32, u64, u64)>,
    sockets: Vec<u32>,
    /// Kilobytes: resident, and proportional share.
    memory: (u64, u64),
}

fn write(root: &Path, pid: u32, process: &Process) {
    let folder = root.join(pid.to_string());
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("fd")).unwrap();
    fs::create_dir_all(folder.join("ns")).unwrap();
    let Process { parent, began, own, ended_children, arguments, threads, sockets, memory } = process;
    let stat = format!(
        "{pid} (a (b) c) S {parent} 1 1 0 -1 0 0 0 0 0 {own} 0 {ended_children} 0 20 0 1 0 {began} 0"
    );
    fs::write(folder.join("stat"), stat).unwrap();
    let line: String = arguments.iter().map(|argument| format!("{argument}\0")).collect();
    fs::write(folder.join("cmdline"), line).unwrap();
    fs::write(folder.join("status"), format!("VmRSS:\t{} kB\n", memory.0)).unwrap();
    fs::write(folder.join("smaps_rollup"), format!("Rss: {} kB\nPss: {} kB\n", memory.0, memory.1)).unwrap();
    for (thread, ran, waited) in threads {
        let folder = folder.join(format!("task/{thread}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("schedstat"), format!("{ran} {waited} 7\n")).unwrap();
    }
    symlink("net:[1]", folder.join("ns/net")).unwrap();
    symlink("/dev/null", folder.join("fd/0")).unwrap();
    for (index, socket) in sockets.iter().enumerate() {
        symlink(format!("socket:[{socket}]"), folder.join(format!("fd/{}", index + 3))).unwrap();
    }
}

/// Sockets 100 to 199, which have carried their number times 10 and times 3 bytes.
fn sockets() -> std::io::Result<Sockets> {
    let socket =
        |n: u32| SocketBytes { cookie: u64::from(n), sent: u64::from(n) * 10, received: u64::from(n) * 3 };
    Ok((100..200).map(|n| (n, socket(n))).collect())
}

fn refused() -> std::io::Result<Sockets> {
    Err(std::io::ErrorKind::PermissionDenied.into())
}

fn machine(processes: &[(u32, Process)]) -> (TempDir, System) {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), OWN, &Process { began: 5, parent: 40, ..Process::default() });
    for (pid, process) in processes {
        write(root.path(), *pid, process);
    }
    // Another entry of /proc.
    fs::create_dir(root.path().join("sys")).unwrap();
    let system = System::at(root.path(), sockets, OWN);
    (root, system)
}

fn command(part: &str) -> Selection {
    Selection::parse(part).unwrap()
}

fn server(arguments: &'static [&'static str]) -> Process {
    Process { parent: 1, began: 9, arguments, ..Process::default() }
}

#[test]
fn processes_are_found_by_command_line_except_for_the_watcher() {
    let (root, system) = machine(&[
        (7, server(&["/usr/bin/redis-server", "*:6379"])),
        (9, server(&["/usr/bin/redis-server", "*:6380"])),
        // The shell that started Serval, and another client.
        (40, Process { parent: 1, ..server(&["sh", "-c", "serval run -P x # redis-server"]) }),
        (60, server(&["serval", "run", "redis", "-p", "watch=redis-server"])),
        // A kernel thread has no command line.
        (2, server(&[])),
    ]);
    let found = system.find(&command("redis-server")).unwrap();
    assert_eq!(found.pids(), [7, 9]);
    assert_eq!(found.command(), ["/usr/bin/redis-server", "*:6379"]);
    assert_eq!(system.find(&command("redis-server *:6380")).unwrap().pids(), [9]);
    assert_eq!(system.find(&command("mysqld")), Err(NotFound::Command("mysqld".into())));
    assert_eq!(system.find(&command(" 9 ")).unwrap().pids(), [9]);
    assert_eq!(system.find(&command("8")), Err(NotFound::Process(8)));
    assert_eq!(Selection::parse("  "), None);
    fs::write(root.path().join("9/stat"), "no such thing").unwrap();
    assert_eq!(system.find(&command("9")), Err(NotFound::Process(9)));
}

#[test]
fn usage_is_the_difference_and_children_belong_to_it() {
    let before = Process {
        own: 1000,
        ended_children: 50,
        threads: vec![(7, 5, 1_000_000_000), (8, 5, 2_000_000_000)],
        sockets: vec![100, 101],
        memory: (300, 200),
        ..server(&["postgres"])
    };
    let child = Process { parent: 7, began: 30, own: 20, memory: (300, 100), ..Process::default() };
    let (root, system) = machine(&[(7, before.clone()), (70, child)]);
    let group = system.find(&command("postgres")).unwrap();
    let earlier = Snapshot::take(&system.look(), &group, MemoryReading::Leave);
    // Thread 8 has ended and 9 has begun. The child has ended after 30 more ticks,
    // and another has begun. The connection 101 is closed, 102 is new.
    let after = Process {
        own: 1100,
        ended_children: 100,
        threads: vec![(7, 5, 1_500_000_000), (9, 5, 250_000_000)],
        sockets: vec![100, 102],
        ..before
    };
    write(root.path(), 7, &after);
    fs::remove_dir_all(root.path().join("70")).unwrap();
    let child =
        Process { parent: 7, began: 60, own: 4, memory: (300, 10), sockets: vec![102], ..Process::default() };
    write(root.path(), 71, &child);
    let later = Snapshot::take(&system.look(), &group, MemoryReading::Read);
    let usage = later.since(&earlier);
    assert_eq!(usage.cpu_s, 1.34);
    assert_eq!(usage.run_queue_s, Some(0.75));
    // Two processes share memory: their shares are added.
    assert_eq!(usage.memory_bytes, Some((200 + 10) * 1024));
    // Connections open in both count once.
    assert_eq!((usage.sent_bytes, usage.received_bytes), (Some(1020), Some(306)));
    let alone = system.find(&command("71")).unwrap();
    assert_eq!(
        Snapshot::take(&system.look(), &alone, MemoryReading::Read).since(&earlier).memory_bytes,
        Some(300 * 1024)
    );
    // A child that its parent did not wait for reduces no count.
    write(root.path(), 7, &Process { ended_children: 0, ..after });
    assert_eq!(Snapshot::take(&system.look(), &group, MemoryReading::Leave).since(&earlier).cpu_s, 1.04);
}

#[test]
fn a_parent_process_may_be_watched() {
    let (root, system) = machine(&[(40, server(&["starter"]))]);
    let group = system.find(&command("40")).unwrap();
    let earlier = Snapshot::take(&system.look(), &group, MemoryReading::Leave);
    write(root.path(), OWN, &Process { began: 5, parent: 40, own: 77, ..Process::default() });
    assert_eq!(Snapshot::take(&system.look(), &group, MemoryReading::Leave).since(&earlier).cpu_s, 0.0);
    let own = system.own();
    let before = Snapshot::take(&system.look(), &own, MemoryReading::Leave);
    write(root.path(), OWN, &Process { began: 5, parent: 40, own: 80, ..Process::default() });
    assert_eq!(Snapshot::take(&system.look(), &own, MemoryReading::Leave).since(&before).cpu_s, 0.03);
}

#[test]
fn a_process_that_reuses_an_id_is_not_the_watched_one() {
    let (root, system) = machine(&[(7, Process { own: 500, ..server(&["etcd"]) })]);
    let group = system.find(&command("etcd")).unwrap();
    let earlier = Snapshot::take(&system.look(), &group, MemoryReading::Leave);
    write(root.path(), 7, &Process { began: 99, own: 800, ..server(&["etcd"]) });
    let later = Snapshot::take(&system.look(), &group, MemoryReading::Read);
    assert!(later.is_empty() && !earlier.is_empty());
    let usage = later.since(&earlier);
    assert_eq!((usage.cpu_s, usage.run_queue_s, usage.memory_bytes), (0.0, None, None));
}

#[test]
fn unknown_byte_counts_have_a_reason() {
    let process = Process { sockets: vec![100], ..server(&["x"]) };
    let (root, system) = machine(&[(7, process)]);
    let take = |system: &System| {
        let group = system.find(&command("7")).unwrap();
        let snapshot = Snapshot::take(&system.look(), &group, MemoryReading::Leave);
        assert_eq!(snapshot.since(&snapshot).sent_bytes, snapshot.no_bytes().is_none().then_some(0));
        snapshot.no_bytes().map(str::to_owned)
    };
    assert_eq!(take(&system), None);
    let refused = System::at(root.path(), refused, OWN);
    assert_eq!(take(&refused).unwrap(), "the kernel does not list its sockets (permission denied)");
    let net = root.path().join("7/ns/net");
    fs::remove_file(&net).unwrap();
    symlink("net:[2]", &net).unwrap();
    assert_eq!(take(&system).unwrap(), "process 7 has a network of its own, as containers have");
    fs::remove_dir_all(root.path().join("7/fd")).unwrap();
    assert!(take(&system).unwrap().starts_with("the descriptors of process 7 cannot be read"));
}

#[test]
fn machines_without_proc_files_do_not_panic() {
    let root = tempfile::tempdir().unwrap();
    let system = System::at(root.path(), refused, OWN);
    assert_eq!(system.machine(), None);
    let own = system.own();
    let snapshot = Snapshot::take(&system.look(), &own, MemoryReading::Read);
    assert!(snapshot.is_empty());
    assert_eq!(snapshot.since(&snapshot).cpu_s, 0.0);
    // A process that is its own ancestor.
    write(root.path(), OWN, &Process { parent: OWN, ..server(&["x"]) });
    assert!(system.find(&command("x")).is_err());
    assert_eq!(
        Snapshot::take(&system.look(), &system.own(), MemoryReading::Leave).threads_since(&snapshot),
        []
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]
    #[test]
    fn hostile_files_do_not_panic_and_counts_are_not_negative(
        texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 8),
        number: u64, other: u64,
    ) {
        let (root, system) = machine(&[(7, Process { own: number >> 1, threads: vec![(7, number, number)], ..server(&["x"]) })]);
        let group = system.find(&command("7")).unwrap();
        let earlier = Snapshot::take(&system.look(), &group, MemoryReading::Read);
        write(root.path(), 7, &Process { own: other >> 1, threads: vec![(7, other, other)], ..server(&["x"]) });
        let later = Snapshot::take(&system.look(), &group, MemoryReading::Read);
        let usage = later.since(&earlier);
        prop_assert!(usage.cpu_s >= 0.0 && usage.run_queue_s.unwrap() >= 0.0);
        prop_assert_eq!(usage.cpu_s, (other >> 1).saturating_sub(number >> 1) as f64 / 100.0);
        for share in later.threads_since(&earlier) {
            prop_assert!((0.0..=1.0).contains(&share.share));
        }
        let names = ["stat", "7/stat", "7/cmdline", "7/status", "7/smaps_rollup", "7/task/7/schedstat", "50/stat"];
        for (name, text) in names.iter().zip(&texts) {
            fs::write(root.path().join(name), text).unwrap();
            let _ = (system.machine(), system.find(&command("x")), system.own());
            let _ = Snapshot::take(&system.look(), &group, MemoryReading::Read).since(&earlier);
        }
    }
}
