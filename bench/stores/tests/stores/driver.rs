//! Stores behind the driver protocol: the suite, through a driver that serves
//! SQLite, and drivers that fail in every way.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serval_conformance::{Differences, EventLoop, Executor, Subject, properties, schema};
use serval_driver::{Driver, serve};
use serval_model::{
    Client, FieldSelection, OperationKind, Purpose, Reply, Status, Store, properties::Properties,
};
use serval_stores::Opener;
use std::{
    fs::File,
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
};

fn driver(settings: &[(&str, &str)]) -> Result<Driver, String> {
    Driver::open(&properties(settings)).map_err(|faults| faults.to_string())
}

/// Serves a store in this process on every connection to a socket.
fn serve_on(socket: &Path, store: &'static str) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (input, opener) = (stream.unwrap(), Opener(serval_stores::find(store).unwrap()));
            let output = input.try_clone().unwrap();
            std::thread::spawn(move || serve::serve(&opener, &Properties::new(), input, output, |_| {}));
        }
    });
}

fn subject() -> Subject<Driver, EventLoop> {
    let folder = tempfile::tempdir().unwrap();
    let (socket, file) = (folder.path().join("socket"), folder.path().join("data.db"));
    serve_on(&socket, "sqlite");
    let settings = [("driver.socket", socket.to_str().unwrap()), ("sqlite.path", file.to_str().unwrap())];
    let differences = Differences { atomic_batch: true, ..Differences::default() };
    Subject::new(driver(&settings).unwrap(), EventLoop, differences).keeping(folder)
}

serval_conformance::suite!(subject);

/// WELCOME of a store 'x' with all operations, and the answer to PREPARE, for the
/// shell's printf.
const WELCOME: &str = r"\020\000\000\000\001\001\000\001\000\000\000x\037\000\000\000\000\000\000\000";
const DONE: &str = r"\026\000\000\000\003\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000";

/// Returns a driver whose process is a shell script, with these time limits.
fn script_within(script: &str, timeout: &str, grace: &str) -> Driver {
    let command = format!("sh -c '{script}'");
    driver(&[("driver.command", &command), ("driver.timeout", timeout), ("driver.grace", grace)]).unwrap()
}

/// Returns a driver whose process is a shell script, with time limits that a busy
/// machine does not reach.
fn script(script: &str) -> Driver {
    script_within(script, "60s", "60s")
}

#[test]
fn the_answer_of_a_prepared_driver_is_well_formed() {
    let driver = script(&format!("printf \"{WELCOME}{DONE}\"; cat >/dev/null"));
    driver.prepare(&schema(), Purpose::Load).unwrap();
    assert!(driver.capabilities().contains(OperationKind::Scan));
    assert_eq!(driver.describe()[1], ("store".to_owned(), "x".to_owned()));
}

#[test]
fn a_driver_that_fails_to_start_is_reported_with_its_last_output() {
    let refused = r"\010\000\000\000\002\003\000\000\000bad";
    let version_2 = r"\020\000\000\000\001\002\000\001\000\000\000x\037\000\000\000\000\000\000\000";
    for (what, words) in [
        ("exit 3", &["closed the connection", "exit status: 3"][..]),
        ("echo alas >&2; exit 1", &["Its last words:\n  alas"]),
        ("no-such-program-at-all", &["not found", "127"]),
        (
            "echo hello, world",
            &["does not speak the driver protocol", "text instead of a frame: hello, world"],
        ),
        (&format!("printf \"{DONE}\"; cat"), &["a frame of the unexpected type 3"]),
        (&format!("printf \"{refused}\"; cat"), &["It refuses: bad"]),
        (&format!("printf \"{version_2}\"; cat"), &["protocol version 2; this Serval speaks version 1"]),
        (&format!("printf \"{WELCOME}\"; exit 0"), &["closed the connection"]),
    ] {
        let driver = script(what);
        let error = driver.prepare(&schema(), Purpose::Load).unwrap_err().to_string();
        for part in words {
            assert!(error.contains(part), "'{part}' is not in the error of '{what}': {error}");
        }
        // Again, without restarting it.
        assert!(driver.prepare(&schema(), Purpose::Load).is_err());
    }
}

#[test]
fn a_driver_that_does_not_answer_is_abandoned_after_the_timeout() {
    let driver = script_within("cat >/dev/null", "300ms", "200ms");
    let error = driver.prepare(&schema(), Purpose::Load).unwrap_err().to_string();
    assert!(
        error.contains("does not answer within 300ms (driver.timeout): a driver answers HELLO"),
        "{error}"
    );
    assert!(error.contains("needs a longer driver.timeout"), "{error}");
}

/// Returns a frame.
fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes(), body].concat()
}

/// Returns a RESULT with a status and a number of records without fields.
fn result(id: u32, status: u8, records: u32) -> Vec<u8> {
    let mut body = vec![3];
    body.extend(id.to_le_bytes());
    body.push(status);
    body.extend([0; 8]);
    body.extend([0; 4]);
    body.extend(records.to_le_bytes());
    (0..records).for_each(|_| body.extend([0; 4]));
    frame(&body)
}

/// The fourth answer of a peer; `None` closes the connection.
type Reply4 = fn() -> Option<Vec<u8>>;

/// Plays a driver on a socket: behaves until a client is open, and answers the next request
/// with `answer`.
fn peer(mut stream: UnixStream, answer: Reply4) {
    let welcome = frame(b"\x01\x01\x00\x01\x00\x00\x00x\x1f\x00\x00\x00\x00\x00\x00\x00");
    for reply in [Some(welcome), Some(result(0, 0, 0)), Some(result(0, 0, 0)), answer()] {
        let mut length = [0; 4];
        if stream.read_exact(&mut length).is_err() {
            return;
        }
        let mut body = vec![0; u32::from_le_bytes(length) as usize];
        stream.read_exact(&mut body).unwrap();
        let Some(reply) = reply else { return };
        stream.write_all(&reply).unwrap();
    }
    // Waits until Serval disconnects.
    let _ = stream.read(&mut [0; 16]);
}

#[test]
fn a_driver_that_fails_during_a_run_is_lost_with_the_reason() {
    let cases: [(Reply4, &[&str]); 6] = [
        (|| None, &["closed the connection"]),
        // Half a frame.
        (|| Some(result(0, 0, 0)[..9].to_vec()), &["sent nothing for 300ms", "with 1 request in flight"]),
        (|| Some(result(9, 0, 0)), &["does not speak the driver protocol", "an answer to request 9"]),
        (|| Some(result(0, 48, 0)), &["the unknown status 48"]),
        (|| Some(result(0, 0, 2)), &["2 records; 1 are allowed"]),
        (|| Some(frame(b"\x03\x00\x00\x00\x00\x00")), &["a truncated frame"]),
    ];
    for (answer, words) in cases {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                std::thread::spawn(move || peer(stream, answer));
            }
        });
        let settings = [("driver.socket", socket.to_str().unwrap()), ("driver.timeout", "300ms")];
        let driver = driver(&settings).unwrap();
        driver.prepare(&schema(), Purpose::Load).unwrap();
        let (outcome, lost) = EventLoop.run(async {
            let local = driver.local().unwrap();
            let mut client = driver.connect(&local, 0).await.unwrap();
            let outcome = client.read("t", "k", &FieldSelection::default(), &mut Reply::new()).await;
            (outcome, client.lost().unwrap().to_string())
        });
        assert_eq!(outcome.status, Status::ServiceUnavailable, "{words:?}");
        for part in words {
            assert!(lost.contains(part), "'{part}' is not in: {lost}");
        }
    }
}

/// Returns the body of the next frame from a pipe or socket.
fn asked(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length).ok()?;
    let mut body = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut body).unwrap();
    Some(body)
}

/// Plays a driver whose client has its own pipes. `work` gets their paths, and a function that
/// reports them as open.
fn peer_with_pipes(mut stream: UnixStream, work: fn(&str, &str, &mut dyn FnMut())) {
    let welcome = frame(b"\x01\x01\x00\x01\x00\x00\x00x\x5f\x00\x00\x00\x00\x00\x00\x00");
    for reply in [welcome, result(0, 0, 0)] {
        let Some(_) = asked(&mut stream) else { return };
        stream.write_all(&reply).unwrap();
    }
    // OPEN-APART: type, id, client, two texts.
    let Some(body) = asked(&mut stream) else { return };
    assert_eq!(body[0], 11);
    let text = |at: usize| {
        let length = u32::from_le_bytes(body[at..at + 4].try_into().unwrap()) as usize;
        std::str::from_utf8(&body[at + 4..at + 4 + length]).unwrap()
    };
    let (requests, answers) = (text(9), text(9 + 4 + text(9).len()));
    let id = u32::from_le_bytes(body[1..5].try_into().unwrap());
    let mut other = stream.try_clone().unwrap();
    work(requests, answers, &mut || other.write_all(&result(id, 0, 0)).unwrap());
    let _ = stream.read(&mut [0; 16]);
}

fn opened(requests: &str, answers: &str) -> (File, File) {
    (File::open(requests).unwrap(), File::options().write(true).open(answers).unwrap())
}

#[test]
fn a_client_may_have_its_own_pipes() {
    type Case = (fn(&str, &str, &mut dyn FnMut()), Result<Status, &'static str>);
    let cases: [Case; 5] = [
        (
            |requests, answers, open| {
                let (mut requests, mut answers) = opened(requests, answers);
                open();
                let read = asked(&mut requests).unwrap();
                assert_eq!(read[0], 5);
                answers.write_all(&result(0, 3, 0)).unwrap();
                assert_eq!(asked(&mut requests).unwrap()[0], 4);
                answers.write_all(&result(0, 0, 0)).unwrap();
                assert_eq!(asked(&mut requests), None);
            },
            Ok(Status::NotFound),
        ),
        // The driver reports success without opening the pipes.
        (|_, _, open| open(), Err("closed the connection")),
        (
            |requests, answers, open| {
                let mut ends = opened(requests, answers);
                open();
                asked(&mut ends.0);
            },
            Err("closed the connection"),
        ),
        (
            |requests, answers, open| {
                let mut ends = opened(requests, answers);
                open();
                asked(&mut ends.0);
                ends.1.write_all(&result(7, 0, 0)).unwrap();
                asked(&mut ends.0);
            },
            Err("an answer to request 7"),
        ),
        (
            |requests, answers, open| {
                let mut ends = opened(requests, answers);
                open();
                while asked(&mut ends.0).is_some() {}
            },
            Err("sent nothing for 300ms"),
        ),
    ];
    for (work, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                std::thread::spawn(move || peer_with_pipes(stream, work));
            }
        });
        let settings = [("driver.socket", socket.to_str().unwrap()), ("driver.timeout", "300ms")];
        let driver = driver(&settings).unwrap();
        driver.prepare(&schema(), Purpose::Load).unwrap();
        let (outcome, lost) = EventLoop.run(async {
            let local = driver.local().unwrap();
            let mut client = driver.connect(&local, 0).await.unwrap();
            let outcome = client.read("t", "k", &FieldSelection::default(), &mut Reply::new()).await;
            let lost = client.lost().map(|error| error.to_string());
            if lost.is_none() {
                assert!(client.close().await.is_ok());
            }
            (outcome, lost)
        });
        match expected {
            Ok(status) => assert_eq!((outcome.status, lost), (status, None)),
            Err(words) => {
                assert_eq!(outcome.status, Status::ServiceUnavailable, "{words}");
                assert!(
                    lost.as_ref().is_some_and(|lost| lost.contains(words)),
                    "'{words}' is not in: {lost:?}"
                );
            }
        }
    }
}

#[test]
fn a_driver_serves_one_loop_at_a_time() {
    let driver = script(&format!("printf \"{WELCOME}{DONE}\"; cat >/dev/null"));
    driver.prepare(&schema(), Purpose::Load).unwrap();
    assert_eq!(driver.event_loops_max(), 1);
    EventLoop.run(async {
        let first = driver.local().unwrap();
        let second = driver.local().unwrap_err().to_string();
        assert!(second.contains("one event loop"), "{second}");
        drop(first);
        driver.local().unwrap();
    });
}

#[test]
fn impossible_settings_are_refused_together() {
    let problem = driver(&[]).unwrap_err();
    assert!(problem.contains("driver.command"), "{problem}");
    let both = [("driver.command", "x"), ("driver.socket", "y"), ("driver.timeout", "1us")];
    let problem = driver(&both).unwrap_err();
    assert!(problem.contains("choose one") && problem.contains("driver.timeout"), "{problem}");
    let missing = driver(&[("driver.socket", "/nowhere/socket")]).unwrap();
    let error = missing.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    assert!(error.contains("/nowhere/socket") && error.contains("driver.socket"), "{error}");
}
