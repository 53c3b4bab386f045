//! Tests of all live views with real runs.

use super::{prometheus::serve_within, totals::LiveTotals, *};
use crate::interrupt;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serval_model::properties::{Origin, Properties};
use serval_plan::{
    PlanRequest,
    perform::{Performed, perform},
    session::{Session, open},
};
use serval_result::experiment::{Flag, RunKind};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
    process::{Command, ExitStatus},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

const PATIENCE: Duration = Duration::from_secs(60);

fn plan(phase: Phase, settings: &[(&str, &str)]) -> Plan {
    let mut properties = Properties::new();
    let settings = [("workload", "core"), ("recordcount", "1000"), ("readproportion", "0.5")]
        .into_iter()
        .chain([("updateproportion", "0.5"), ("threadcount", "2"), ("seed", "7")])
        .chain(settings.iter().copied());
    for (name, value) in settings {
        properties.set(name, value, Origin::CommandLine("test".into()));
    }
    let store = serval_stores::find("memory").unwrap();
    Plan::new(PlanRequest { properties, phase, store, strict: false })
        .unwrap_or_else(|faults| panic!("{faults}"))
}

fn run(plan: &Plan, session: &dyn Session, live: &mut Live, control: &Control) -> Performed {
    live.plan(plan);
    perform(plan, session, control, live, None, Vec::new()).unwrap_or_else(|error| panic!("{error}"))
}

/// Body of the response at an address.
fn scraped(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    body.to_owned()
}

type Labels = BTreeMap<String, String>;

/// Parses `name="value",...}` and returns the rest too.
fn labels(mut text: &str) -> (Labels, &str) {
    let mut all = Labels::new();
    loop {
        let (name, rest) = text.split_once("=\"").unwrap();
        let (mut value, mut rest) = (String::new(), rest.chars());
        loop {
            match rest.next().unwrap() {
                '"' => break,
                '\\' => value.push(match rest.next().unwrap() {
                    'n' => '\n',
                    c @ ('"' | '\\') => c,
                    c => panic!("\\{c}"),
                }),
                c => value.push(c),
            }
        }
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.is_empty(), "{name}");
        assert!(all.insert(name.to_owned(), value).is_none(), "{name} twice");
        text = rest.as_str();
        match text.split_at(1) {
            (",", more) => text = more,
            ("}", more) => return (all, more.strip_prefix(' ').unwrap()),
            _ => panic!("{text}"),
        }
    }
}

/// Reads OpenMetrics' text, strictly: all samples by name and labels.
fn parsed(text: &str) -> BTreeMap<(String, Labels), f64> {
    let mut all = BTreeMap::new();
    let (mut families, mut family, mut kind) = (BTreeSet::new(), String::new(), String::new());
    let body = text.strip_suffix("# EOF\n").unwrap();
    for line in body.lines() {
        if let Some(words) = line.strip_prefix("# ") {
            let parts: Vec<&str> = words.splitn(3, ' ').collect();
            match parts[0] {
                "HELP" => {
                    assert!(families.insert(parts[1].to_owned()), "{} is torn apart", parts[1]);
                    family = parts[1].to_owned();
                }
                "TYPE" => kind = parts[2].to_owned(),
                "UNIT" => assert!(family.ends_with(&format!("_{}", parts[2])), "{line}"),
                other => panic!("{other}"),
            }
            assert_eq!(parts[1], family, "{line}");
            continue;
        }
        let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
        let (labels, value) = match rest.split_at(1) {
            ("{", rest) => labels(rest),
            (_, value) => (Labels::new(), value),
        };
        let suffixes: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_sum", "_count", "_bucket"],
            "info" => &["_info"],
            other => panic!("{other}"),
        };
        assert!(suffixes.iter().any(|suffix| name == format!("{family}{suffix}")), "{kind}: {line}");
        assert_eq!(name.ends_with("_bucket"), labels.contains_key("le"), "{line}");
        let value: f64 = value.parse().unwrap();
        assert!(all.insert((name.to_owned(), labels), value).is_none(), "{line} twice");
    }
    // Buckets are cumulative, and the last has the total.
    let mut buckets: BTreeMap<(String, Labels), Vec<(f64, f64)>> = BTreeMap::new();
    for ((name, labels), value) in &all {
        let mut labels = labels.clone();
        if let Some(le) = labels.remove("le") {
            let le = if le == "+Inf" { f64::INFINITY } else { le.parse().unwrap() };
            let count = (name.replace("_bucket", "_count"), labels);
            buckets.entry(count).or_default().push((le, *value));
        }
    }
    for (count, mut buckets) in buckets {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{count:?}: {buckets:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, all[&count])), "{count:?}");
    }
    all
}

#[test]
fn what_prometheus_is_told_adds_up_to_the_results() {
    let args = LiveArgs { prometheus: Some("127.0.0.1:0".parse().unwrap()), ..LiveArgs::default() };
    let mut live = Live::of_runs(&args).unwrap();
    let address = live._prometheus.as_ref().unwrap().addresses()[0];
    let control = Control::default();
    // Half of the records are there, so that reads fail too.
    let load = plan(Phase::Load, &[("insertcount", "500")]);
    let session = open("memory", &load.properties).unwrap();
    let loaded = run(&load, &*session, &mut live, &control);
    let settings = [("operationcount", "3000"), ("target", "20000"), ("warmup", "50ms")];
    let ran = run(&plan(Phase::Run, &settings), &*session, &mut live, &control);
    let text = scraped(address);
    let all = parsed(&text);

    let mut checked = 0;
    for (part, document) in [("load", &loaded.document), ("measured", &ran.document)] {
        for metric in &document.metrics {
            let labels = |status: &str| -> Labels {
                let pairs = [("part", part), ("metric", &metric.name), ("status", status)];
                pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
            };
            let value = |name: &str, status: &str| {
                *all.get(&(name.to_owned(), labels(status)))
                    .unwrap_or_else(|| panic!("{name} {status}: {text}"))
            };
            for (status, count) in &metric.statuses {
                checked += count;
                for name in ["operations_total", "response_seconds_count", "service_seconds_count"] {
                    assert_eq!(value(&format!("serval_{name}"), status), *count as f64, "{name} {status}");
                }
            }
            if let Some(ok) = metric.ok.as_ref().filter(|_| metric.statuses.contains_key("OK")) {
                for (name, times) in [("response", &ok.response), ("service", &ok.service)] {
                    let sum = times.mean_ns * times.count as f64 / 1e9;
                    let sum_shown = value(&format!("serval_{name}_seconds_sum"), "OK");
                    assert!((sum_shown - sum).abs() <= sum * 1e-6, "{name}: {sum_shown} for {sum}");
                }
            }
        }
    }
    assert!(checked >= 3_500, "{checked}");
    assert!(ran.document.overall.failed > 0, "the test is to see failures");
    let measured = |name: &str| all[&(name.to_owned(), Labels::new())];
    assert!(measured("serval_lateness_seconds_count") > 0.0 && measured("serval_offered_load") > 0.0);
    assert!(measured("serval_client_cpu_seconds_total") > 0.0);
    assert_eq!(measured("serval_clients"), 0.0);
    let step = all.keys().find(|(name, _)| name == "serval_step_info").unwrap();
    assert_eq!(step.1["step"], "site.ycsb.workloads.CoreWorkload memory");
}

#[test]
fn what_is_not_true_between_runs_is_not_told() {
    let mut totals = LiveTotals::default();
    let names = |totals: &LiveTotals| -> Vec<&str> { totals.families().iter().map(|f| f.name).collect() };
    totals.step(&sample_run::step(7), "a \"b\" \\ c\nd", Instant::now());
    totals.interval(&sample_run::interval(4, 10_000, 0));
    totals.rate(10_000.0, Some(12_000.0));
    assert!(names(&totals).contains(&"serval_offered_load"));
    let all = parsed(&prometheus::text(&totals.families(), false));
    let of = |name: &str| all.keys().find(|(n, _)| n == name).unwrap();
    assert_eq!(of("serval_step_info").1["curve"], "a \"b\" \\ c\nd");
    assert_eq!(all[of("serval_runs_done")], 7.0);
    assert!(all[of("serval_remaining_seconds")] > 0.0);
    totals.between();
    assert!(!names(&totals).contains(&"serval_offered_load"));
    assert!(names(&totals).contains(&"serval_operations"));
}

#[test]
fn whoever_connects_and_says_nothing_hurts_nobody() {
    let totals = Arc::new(Mutex::new(LiveTotals::default()));
    let address = "127.0.0.1:0".parse().unwrap();
    let serving = serve_within(&address, &totals, 2, Duration::from_millis(50)).unwrap();
    let at = serving.addresses()[0];
    // More than the connection limit: some silent, one with half a request, one with too long a
    // request.
    let mut silent: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(at).unwrap()).collect();
    silent[0].write_all(b"GET /metrics HTTP/1.1\r\nHo").unwrap();
    let _ = silent[1].write_all(&[b'x'; 100_000]);
    let mut live = Live::of_runs(&LiveArgs::default()).unwrap();
    live.exports = true;
    live.totals = totals;
    let load = plan(Phase::Load, &[]);
    let session = open("memory", &load.properties).unwrap();
    let loaded = run(&load, &*session, &mut live, &Control::default());
    assert_eq!((loaded.document.overall.operations, loaded.document.overall.failed), (1000, 0));
    parsed(&scraped(at));
    for (request, status) in [("GET / HTTP/1.1", "404"), ("POST /metrics HTTP/1.1", "404")] {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("{request}\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
    drop(serving);
    assert!(TcpStream::connect(at).is_err(), "the port is closed");
}

#[test]
fn an_address_that_cannot_be_had_is_a_failure_of_usage() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = LiveArgs { prometheus: Some(address.parse().unwrap()), ..LiveArgs::default() };
    let failure = Live::of_runs(&args).map(|_| ()).unwrap_err();
    assert!(failure.message.contains(&format!("--prometheus {address}")), "{failure}");
    assert_eq!(failure.exit, crate::failure::Exit::Usage);
    for address in ["[::1]:9100", "localhost:0"] {
        assert_eq!(address.parse::<ScrapeAddress>().unwrap().to_string(), address);
    }
    for wrong in ["", "localhost", ":1", "::1", "host:", "host:70000"] {
        assert!(wrong.parse::<ScrapeAddress>().is_err(), "{wrong}");
    }
    #[cfg(not(feature = "opentelemetry"))]
    {
        let args = LiveArgs { otlp: Some(None), ..LiveArgs::default() };
        let failure = Live::of_runs(&args).map(|_| ()).unwrap_err();
        assert!(failure.message.contains("--features opentelemetry"), "{failure}");
    }
}

/// A small sweep of real runs on the store `memory`, until it is interrupted. The tests below drive
/// it, and a developer can watch it with `cargo test -p serval --bin serval a_small_sweep --
/// --ignored --nocapture`.
#[test]
#[ignore = "for a terminal, and without end"]
fn a_small_sweep() {
    if std::env::var_os("SERVAL_TEST_PTY").is_some() {
        // The terminal becomes this process's own.
        rustix::process::setsid().unwrap();
        rustix::process::ioctl_tiocsctty(std::io::stdin()).unwrap();
    }
    let time = std::env::var("SERVAL_TEST_TIME").unwrap_or("3s".into());
    let (control, unfinished) = interrupt::control();
    let mut live = Live::begin(&LiveArgs::default(), &control, &unfinished).unwrap();
    let mut document = sample_run::experiment();
    live.experiment(&document);
    live.note("this is a test, and its runs are short");
    let load = plan(Phase::Load, &[]);
    let session = open("memory", &load.properties).unwrap();
    live.step(&sample_run::load());
    run(&load, &*session, &mut live, &control);
    for done in 0.. {
        if control.interrupted() {
            break;
        }
        if std::env::var_os("SERVAL_TEST_PANIC").is_some() {
            panic!("as asked for");
        }
        let target = 2_000.0 * (1 + done % 12) as f64;
        let what = format!("{} %, repeat 1 of 1", 10 * (1 + done % 12));
        live.step(&ExperimentStep { what, target: Some(target), clients: 2, ..sample_run::step(done) });
        let settings = [("maxexecutiontime", time.as_str()), ("operationcount", "0"), ("warmup", "1s")];
        let settings: Vec<_> =
            settings.into_iter().chain([("target", target.to_string().leak() as &str)]).collect();
        let ran = run(&plan(Phase::Run, &settings), &*session, &mut live, &control);
        let mut entry = sample_run::entry(0, if done % 3 == 0 { vec![Flag::FewSamples] } else { vec![] });
        (entry.kind, entry.target) = (RunKind::Point, Some(target));
        entry.throughput = ran.document.overall.throughput;
        live.ended(&entry, &ran.document);
        document.runs.push(entry);
        live.experiment(&document);
    }
    if std::env::var_os("SERVAL_TEST_HANGS").is_some() {
        live.note("it hangs");
        loop {
            std::thread::park();
        }
    }
}

/// A user at the terminal of [`a_small_sweep`].
struct Terminal {
    child: std::process::Child,
    keys: File,
    shown: Receiver<Vec<u8>>,
    screen: String,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may be gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Terminal {
    fn open(environment: &[(&str, &str)]) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = rustix::termios::Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let side = || -> OwnedFd {
            let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
            rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).unwrap()
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "live::tests::a_small_sweep", "--ignored", "--nocapture"]);
        command.env("TERM", "xterm").env("SERVAL_TEST_PTY", "1").envs(environment.iter().copied());
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        // Close our copies with the command, or reading never ends.
        drop(command);
        let keys = File::from(master);
        let mut from = keys.try_clone().unwrap();
        let (tell, shown) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when the other side is closed.
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if tell.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal { child, keys, shown, screen: String::new() }
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    #[track_caller]
    fn sees(&mut self, text: &str) {
        assert!(self.sees_within(text, PATIENCE), "'{text}' is not shown: {:?}", self.screen);
    }

    /// Returns whether something is shown before this time without output.
    fn sees_within(&mut self, text: &str, silence: Duration) -> bool {
        loop {
            if let Some((_, behind)) = self.screen.split_once(text) {
                self.screen = behind.to_owned();
                return true;
            }
            match self.shown.recv_timeout(silence) {
                Ok(bytes) => self.screen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => return false,
            }
        }
    }

    /// Returns whether the terminal is in canonical mode, as it is before and after.
    fn is_cooked(&self) -> bool {
        let modes = rustix::termios::tcgetattr(&self.keys).unwrap().local_modes;
        modes.contains(rustix::termios::LocalModes::ICANON | rustix::termios::LocalModes::ECHO)
    }

    fn ends(mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        assert!(self.is_cooked(), "the terminal is not as it was");
        status
    }
}

const TAKEN: &str = "\u{1b}[?1049h";
const GIVEN_BACK: &str = "\u{1b}[?1049l";

#[test]
fn the_key_q_ends_cleanly_and_the_terminal_is_as_it_was() {
    let mut terminal = Terminal::open(&[("SERVAL_TEST_TIME", "1h")]);
    terminal.sees(TAKEN);
    terminal.sees("Update heavy");
    terminal.sees("READ");
    assert!(!terminal.is_cooked());
    terminal.types("q");
    terminal.sees(GIVEN_BACK);
    terminal.sees("note: this is a test");
    assert!(terminal.ends().success());
}

#[test]
fn a_panic_is_read_on_the_terminal_as_it_was() {
    let mut terminal = Terminal::open(&[("SERVAL_TEST_PANIC", "1")]);
    terminal.sees(TAKEN);
    terminal.sees(GIVEN_BACK);
    terminal.sees("as asked for");
    assert!(!terminal.ends().success());
}

#[test]
fn ctrl_c_is_what_the_signal_is_and_the_second_ends_at_once() {
    let mut terminal = Terminal::open(&[("SERVAL_TEST_TIME", "1h"), ("SERVAL_TEST_HANGS", "1")]);
    terminal.sees(TAKEN);
    terminal.sees("READ");
    let pid = rustix::process::Pid::from_child(&terminal.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    // The run ends, and the next step hangs.
    terminal.sees("it hangs");
    // Too soon after the first it counts as the first.
    loop {
        terminal.types("\u{3}");
        if terminal.sees_within(GIVEN_BACK, Duration::from_millis(100)) {
            break;
        }
    }
    assert_eq!(terminal.ends().code(), Some(130));
}

#[test]
fn a_terminal_that_hangs_up_ends_what_runs_in_it() {
    let mut terminal = Terminal::open(&[("SERVAL_TEST_TIME", "1h")]);
    terminal.sees(TAKEN);
    terminal.sees("READ");
    // The reader closes its side when its channel is closed, with the next frame; then the side is
    // closed.
    terminal.shown = channel().1;
    terminal.keys = File::open("/dev/null").unwrap();
    let pid = rustix::process::Pid::from_child(&terminal.child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    let (tell, ended) = channel();
    std::thread::spawn(move || {
        tell.send(rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()))
    });
    // If the command hangs, the test must not.
    assert!(ended.recv_timeout(PATIENCE).is_ok(), "it goes on without its terminal");
}
