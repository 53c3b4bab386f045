//! The store `rest`: the suite with nginx (WebDAV, with a rewrite for POST) and
//! with a server of the tests, which also records requests byte for byte and
//! misbehaves in every way.
//!
//! `cargo xtask test` starts nginx and names it in the environment; without it those tests are
//! ignored.

#![cfg(feature = "rest")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "rest/server.rs"]
mod server;

use serval_conformance::{
    AcceptedValues, Differences, EventLoop, Executor, FaultyProxy, InsertExisting, Subject, properties,
    schema, silent, variable,
};
use serval_model::{Client, FieldSelection, Outcome, Purpose, Record, Reply, Status, Store};
use serval_stores::rest::{Rest, RestClient};
use server::{Service, scripted};

fn open(settings: &[(&str, &str)]) -> Result<Rest, String> {
    Rest::open(&properties(settings)).map_err(|faults| faults.to_string())
}

fn at(address: &str, settings: &[(&str, &str)]) -> Rest {
    let url = format!("http://{address}/");
    open(&[&[("rest.url", &*url)], settings].concat()).unwrap()
}

/// Runs a case with one client.
fn with_client<T>(store: &Rest, case: impl AsyncFnOnce(&mut RestClient) -> T) -> T {
    EventLoop.run(async { case(&mut store.connect(&(), 0).await.unwrap()).await })
}

async fn read(client: &mut RestClient, key: &str) -> (Outcome, Option<Record>) {
    let mut reply = Reply::new();
    let outcome = client.read("t", key, &FieldSelection::default(), &mut reply).await;
    (outcome, reply.records().first().cloned())
}

fn data(value: &[u8]) -> Record {
    Record::from_iter([("data", value)])
}

fn message(outcome: &Outcome) -> &str {
    outcome.message.as_deref().unwrap_or_default()
}

fn differences() -> Differences {
    Differences {
        insert_existing: InsertExisting::Replaced,
        values: AcceptedValues::Text,
        ..Differences::default()
    }
}

/// A service that supports merge patches.
mod patched {
    use super::*;

    fn subject() -> Subject<Rest, EventLoop> {
        let service = Service::start();
        let store = at(&service.address, &[("rest.layout", "json"), ("rest.update", "patch")]);
        Subject::new(store, EventLoop, differences()).keeping(service)
    }
    serval_conformance::suite!(subject);
}

/// nginx, whose records are files: names have 1 to 255 bytes, and parts of a record
/// cannot be written, so clients can lose each other's updates.
mod nginx {
    use super::*;

    fn subject() -> Option<Subject<Rest, EventLoop>> {
        let address = variable("SERVAL_TEST_REST")?;
        // Each case has its own folder, named after the test: the thread has its name.
        let case = std::thread::current().name().unwrap_or("case").replace("::", "-");
        let url = format!("http://{address}/{case}/");
        let store = open(&[("rest.url", &*url), ("rest.layout", "json"), ("rest.update", "merge")]);
        Some(Subject::new(store.unwrap(), EventLoop, differences()))
    }
    serval_conformance::suite! { subject:
        values_are_returned_byte_for_byte,
        a_read_returns_the_requested_fields,
        a_record_may_have_some_fields_only,
        an_update_leaves_the_other_fields,
        an_update_of_a_missing_record,
        an_insert_of_an_existing_key,
        a_deleted_record_is_missing,
        a_record_without_fields,
        a_batch_is_written,
        a_failed_batch_stops_at_the_failure,
        the_next_client_reads_earlier_writes,
        any_sequence_of_operations_agrees_with_a_map,
    }

    fn nginx(path: &str, settings: &[(&str, &str)]) -> Option<Rest> {
        let url = format!("http://{}/{path}", variable("SERVAL_TEST_REST")?);
        Some(open(&[&[("rest.url", &*url)], settings].concat()).unwrap())
    }

    #[test]
    #[ignore = "needs SERVAL_TEST_REST"]
    fn the_layout_of_records_and_refusals_of_nginx() {
        let Some(store) = nginx("data/", &[("rest.insert", "put")]) else { return };
        store.prepare(&schema(), Purpose::Run).unwrap();
        assert!(store.describe().iter().any(|(name, value)| name == "server" && value.contains("nginx")));
        let big = vec![b'x'; 3 << 20];
        with_client(&store, async |client| {
            let value = b"line\r\nand \xff\0 bytes";
            assert_eq!(client.insert("t", "a?x=1", &data(value)).await, Outcome::OK);
            assert_eq!(
                read(client, "a").await,
                (Outcome::OK, Some(Record::from_iter([("response", &value[..])])))
            );
            assert_eq!(client.update("t", "a", &data(b"")).await, Outcome::OK);
            assert_eq!(read(client, "a").await.1.unwrap().get("response"), Some(&b""[..]));
            assert_eq!(client.delete("t", "a").await, Outcome::OK);
            assert_eq!(client.delete("t", "a").await, Outcome::NOT_FOUND);
            assert_eq!(read(client, "a").await, (Outcome::NOT_FOUND, None));
            // The fixture's client_max_body_size.
            let outcome = client.update("t", "big", &data(&big)).await;
            assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
            assert!(message(&outcome).starts_with("HTTP 413"), "{outcome:?}");
            assert_eq!(client.update("t", "after", &data(b"x")).await, Outcome::OK);
            // A folder without an index.
            assert_eq!(read(client, "").await.0.status, Status::Forbidden);
        });
    }

    #[test]
    #[ignore = "needs SERVAL_TEST_REST"]
    fn an_unsupported_method_is_reported() {
        let Some(store) = nginx("methods/", &[("rest.update", "patch")]) else { return };
        with_client(&store, async |client| {
            let outcome = client.update("t", "a", &data(b"x")).await;
            assert_eq!(outcome.status, Status::NotImplemented, "{outcome:?}");
            assert!(message(&outcome).starts_with("HTTP 405 Method Not Allowed"), "{outcome:?}");
        });
    }

    #[test]
    #[ignore = "needs SERVAL_TEST_REST"]
    fn an_orderly_closed_connection_fails_no_operation() {
        // The fixture's keepalive_requests is 100.
        let Some(store) = nginx("kept/", &[]) else { return };
        with_client(&store, async |client| {
            for number in 0..350 {
                let outcome = client.insert("t", &format!("{}", number % 7), &data(b"x")).await;
                assert_eq!(outcome, Outcome::OK, "{number}");
            }
        });
    }

    #[test]
    #[ignore = "needs SERVAL_TEST_REST"]
    fn requests_of_a_lost_connection_are_not_repeated() {
        let Some(server) = variable("SERVAL_TEST_REST") else { return };
        let between = FaultyProxy::new(&server, b"PUT /lost/");
        let url = format!("http://{}/lost/", between.address);
        let store = open(&[("rest.url", &*url)]).unwrap();
        with_client(&store, async |client| {
            assert_eq!(client.update("t", "a", &data(b"1")).await, Outcome::OK);
            between.lose_the_next_answer();
            let outcome = client.update("t", "a", &data(b"2")).await;
            assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
            assert!(message(&outcome).starts_with("connection lost: "), "{outcome:?}");
            assert_eq!(between.asked(), 2);
            assert_eq!(read(client, "a").await.1.unwrap().get("response"), Some(&b"2"[..]));
            assert_eq!(between.asked(), 2);
        });
    }

    #[test]
    #[ignore = "needs SERVAL_TEST_REST"]
    fn operations_fail_while_a_server_is_down_and_succeed_after_its_return() {
        let Some(server) = variable("SERVAL_TEST_REST") else { return };
        let between = FaultyProxy::new(&server, b"PUT /away/");
        let url = format!("http://{}/away/", between.address);
        let store = open(&[("rest.url", &*url)]).unwrap();
        with_client(&store, async |client| {
            assert_eq!(client.update("t", "a", &data(b"0")).await, Outcome::OK);
            between.go_away_after(5, 2);
            let mut failed = 0;
            for number in 0..50 {
                let outcome = client.update("t", "a", &data(format!("{number}").as_bytes())).await;
                if !outcome.is_ok() {
                    assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
                    failed += 1;
                }
            }
            // The operation in flight, and those whose connections were refused.
            assert_eq!((failed, between.refused()), (3, 2));
            // The operation in flight was sent, and perhaps those on a connection that
            // was then closed; none was sent twice.
            assert!((49..=51).contains(&between.asked()), "{}", between.asked());
        });
    }

    #[test]
    #[ignore = "needs SERVAL_TEST_REST_SOCKET"]
    fn a_unix_socket_is_supported() {
        let Some(path) = variable("SERVAL_TEST_REST_SOCKET") else { return };
        let store = open(&[("rest.url", "http://anything/unix/"), ("rest.socket", &path)]).unwrap();
        store.prepare(&schema(), Purpose::Load).unwrap();
        with_client(&store, async |client| {
            assert_eq!(client.insert("t", "a", &data(b"x")).await, Outcome::OK);
            assert_eq!(client.delete("t", "a").await, Outcome::OK);
        });
        assert!(store.describe().iter().any(|(name, value)| name == "socket" && *value == path));
        let gone = open(&[("rest.socket", "/nowhere/at.all")]).unwrap();
        let error = gone.prepare(&schema(), Purpose::Load).unwrap_err().to_string();
        assert!(error.contains("rest.socket"), "{error}");
    }

    fn guarded(settings: &[(&str, &str)]) -> Option<Rest> {
        let url = format!("https://{}/", variable("SERVAL_TEST_REST_AUTH")?);
        Some(open(&[&[("rest.url", &*url)], settings].concat()).unwrap())
    }

    fn roots() -> String {
        std::env::var("SERVAL_TEST_REST_CERTIFICATE").unwrap_or_default()
    }

    #[test]
    #[ignore = "needs SERVAL_TEST_REST_AUTH SERVAL_TEST_REST_CERTIFICATE SERVAL_TEST_REST_PASSWORD"]
    fn right_credentials_and_certificates_are_accepted() {
        let password = std::env::var("SERVAL_TEST_REST_PASSWORD").unwrap_or_default();
        let roots = roots();
        for trust in [("rest.tls.roots", &*roots), ("rest.tls.insecure.accept.any.certificate", "true")] {
            let Some(store) = guarded(&[trust, ("rest.user", "serval"), ("rest.password", &password)]) else {
                return;
            };
            store.prepare(&schema(), Purpose::Run).unwrap();
            with_client(&store, async |client| {
                assert_eq!(client.insert("t", "a", &data(b"x")).await, Outcome::OK);
                assert_eq!(read(client, "a").await.0, Outcome::OK);
            });
            assert!(store.describe().contains(&("tls".to_owned(), "true".to_owned())));
        }
    }

    #[test]
    #[ignore = "needs SERVAL_TEST_REST SERVAL_TEST_REST_AUTH SERVAL_TEST_REST_CERTIFICATE"]
    fn wrong_credentials_and_certificates_are_refused() {
        let roots = roots();
        let any = ("rest.tls.insecure.accept.any.certificate", "true");
        for (settings, words) in [
            (&[][..], "rest.tls.roots"),
            (&[("rest.tls.roots", &*roots)][..], "asks for credentials: set rest.user"),
            (
                &[any, ("rest.user", "serval"), ("rest.password", "wrong")],
                "refuses the credentials: check rest.user",
            ),
            (&[any, ("rest.token", "wrong")], "refuses the credentials"),
        ] {
            let Some(store) = guarded(settings) else { return };
            let error = store.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("rest at https://"), "{error}");
        }
        // In a run it is an outcome.
        let Some(store) = guarded(&[any]) else { return };
        with_client(&store, async |client| {
            let outcome = read(client, "a").await.0;
            assert_eq!(outcome.status, Status::Forbidden, "{outcome:?}");
        });
        // TLS to a port without TLS.
        let Some(address) = variable("SERVAL_TEST_REST") else { return };
        let url = format!("https://{address}/");
        let error =
            open(&[("rest.url", &*url)]).unwrap().prepare(&schema(), Purpose::Run).unwrap_err().to_string();
        assert!(error.contains("http://"), "{error}");
    }
}

#[test]
fn requests_equal_those_of_ycsb() {
    let service = Service::start();
    let store = at(&service.address, &[]);
    with_client(&store, async |client| {
        assert_eq!(client.insert("t", "a/b?c=%20", &data(b"<x/>")).await, Outcome::OK);
        assert_eq!(client.update("t", "a/b?c=%20", &data(b"<y/>")).await, Outcome::OK);
        assert_eq!(read(client, "a/b?c=%20").await.1, Some(Record::from_iter([("response", &b"<y/>"[..])])));
        assert_eq!(client.delete("t", "a/b?c=%20").await, Outcome::OK);
    });
    let headers = format!(
        "accept: */*\r\ncontent-type: application/xml\r\nuser-agent: Mozilla/5.0\r\nhost: {}\r\n",
        service.address
    );
    let expected = [
        format!("POST /a/b?c=%20 HTTP/1.1\r\n{headers}content-length: 4\r\n\r\n<x/>"),
        format!("PUT /a/b?c=%20 HTTP/1.1\r\n{headers}content-length: 4\r\n\r\n<y/>"),
        format!("GET /a/b?c=%20 HTTP/1.1\r\n{headers}\r\n"),
        format!("DELETE /a/b?c=%20 HTTP/1.1\r\n{headers}\r\n"),
    ];
    assert_eq!(service.requests(), expected);
    assert_eq!(service.connections(), 1);
}

#[test]
fn requests_of_the_json_layout_and_of_all_settings() {
    let service = Service::start();
    let url = format!("http://{}/v1/", service.address);
    let settings = [
        ("url.prefix", &*url),
        ("rest.layout", "json"),
        ("rest.insert", "put"),
        ("rest.update", "merge"),
        ("headers", "X-One 1 x-two two Host example.org"),
        ("rest.user", "Aladdin"),
        ("rest.password", "open sesame"),
    ];
    let store = open(&settings).unwrap();
    let record = Record::from_iter([("a", &b"1"[..]), ("b", "\"ä\"".as_bytes())]);
    with_client(&store, async |client| {
        assert_eq!(client.insert("t", "user 1/ä", &record).await, Outcome::OK);
        assert_eq!(
            client.update("t", "user 1/ä", &Record::from_iter([("b", &b"2"[..]), ("c", b"3")])).await,
            Outcome::OK
        );
    });
    let headers = "x-one: 1\r\nx-two: two\r\nhost: example.org\r\nauthorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n";
    let expected = [
        format!(
            "PUT /v1/user%201%2F%C3%A4 HTTP/1.1\r\n{headers}content-length: 22\r\n\r\n{{\"a\":\"1\",\"b\":\"\\\"ä\\\"\"}}"
        ),
        format!("GET /v1/user%201%2F%C3%A4 HTTP/1.1\r\n{headers}\r\n"),
        format!(
            "PUT /v1/user%201%2F%C3%A4 HTTP/1.1\r\n{headers}content-length: 25\r\n\r\n{{\"a\":\"1\",\"b\":\"2\",\"c\":\"3\"}}"
        ),
    ];
    assert_eq!(service.requests(), expected);

    let service = Service::start();
    let patch =
        at(&service.address, &[("rest.layout", "json"), ("rest.update", "patch"), ("rest.token", "t0k")]);
    with_client(&patch, async |client| {
        assert_eq!(client.update("t", "a", &Record::new()).await, Outcome::NOT_FOUND);
    });
    let request = format!(
        "PATCH /a HTTP/1.1\r\naccept: application/json\r\ncontent-type: application/merge-patch+json\r\n\
         user-agent: serval\r\nauthorization: Bearer t0k\r\nhost: {}\r\ncontent-length: 2\r\n\r\n{{}}",
        service.address
    );
    assert_eq!(service.requests(), [request]);
}

#[test]
fn whole_urls_as_keys_go_to_their_servers() {
    let services = [Service::start(), Service::start()];
    let store = open(&[("rest.url", "")]).unwrap();
    store.prepare(&schema(), Purpose::Run).unwrap();
    with_client(&store, async |client| {
        for round in 0..3 {
            for service in &services {
                let url = format!("http://{}/x?{round}", service.address);
                assert_eq!(client.insert("t", &url, &data(b"x")).await, Outcome::OK);
            }
        }
        let outcome = read(client, "/relative").await.0;
        assert_eq!(outcome.status, Status::BadRequest);
        assert!(message(&outcome).contains("rest.url is empty"), "{outcome:?}");
    });
    for service in &services {
        assert_eq!((service.requests().len(), service.connections()), (3, 1));
    }
}

#[test]
fn an_invalid_request_is_a_bad_request_and_is_not_sent() {
    let service = Service::start();
    let store = at(&service.address, &[]);
    with_client(&store, async |client| {
        let outcome = client.insert("t", "k", &Record::from_iter([("field0", &b"x"[..])])).await;
        assert_eq!(outcome.status, Status::BadRequest);
        assert!(message(&outcome).contains("rest.layout=json"), "{outcome:?}");
        assert_eq!(read(client, "two words").await.0.status, Status::BadRequest);
    });
    let json = at(&service.address, &[("rest.layout", "json"), ("rest.update", "merge")]);
    with_client(&json, async |client| {
        let bytes = Record::from_iter([("a", &b"\xff"[..])]);
        assert_eq!(client.update("t", "k", &bytes).await.status, Status::BadRequest);
    });
    assert!(service.requests().is_empty());
}

/// Reads by a new client from a server with this answer.
fn answered(settings: &[(&str, &str)], answers: &[&'static [u8]]) -> Outcome {
    let address = scripted(&[answers]);
    with_client(&at(&address, settings), async |client| read(client, "k").await.0)
}

#[test]
fn fragmented_and_unusual_answers_are_read() {
    let chunked: &[&[u8]] =
        &[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n"];
    let without_length: &[&[u8]] = &[b"HTTP/1.0 200 OK\r\n\r\nab", b"cde"];
    let late: &[&[u8]] = &[b"HTTP/1.1 200 OK\r\nContent-", b"Length: 5\r\n\r\nab", b"cde"];
    for answers in [chunked, without_length, late] {
        let address = scripted(&[answers]);
        with_client(&at(&address, &[]), async |client| {
            let (outcome, record) = read(client, "k").await;
            assert_eq!(
                (outcome, record),
                (Outcome::OK, Some(Record::from_iter([("response", &b"abcde"[..])])))
            );
        });
    }
    let moved = answered(&[], &[b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n"]);
    assert_eq!(moved.status, Status::Error);
    assert!(message(&moved).contains("/there"), "{moved:?}");
    let down = answered(&[], &[b"HTTP/1.1 503 No\r\nContent-Length: 8\r\n\r\ntoo much"]);
    assert_eq!(down, Outcome::failed(Status::ServiceUnavailable, "HTTP 503 Service Unavailable: too much"));
    let foreign = answered(&[("rest.layout", "json")], &[b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1]"]);
    assert_eq!(foreign.status, Status::UnexpectedState);
}

#[test]
fn answers_that_are_too_long_or_not_http_are_failures() {
    let with_length: &[&[u8]] = &[b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n"];
    let without_length: &[&[u8]] = &[
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n",
        &[b'x'; 1000],
        b"\r\n1\r\ny\r\n0\r\n\r\n",
    ];
    let fits: &[&[u8]] = &[b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", &[b'x'; 1000]];
    let limit = &[("rest.response.max", "1000")];
    for answers in [with_length, without_length] {
        let outcome = answered(limit, answers);
        assert_eq!(outcome.status, Status::Error);
        assert!(message(&outcome).contains("more than 1000 bytes (rest.response.max)"), "{outcome:?}");
    }
    assert_eq!(answered(limit, fits), Outcome::OK);
    let nonsense = answered(&[], &[b"-ERR unknown command\r\n\r\n"]);
    assert_eq!(nonsense.status, Status::Error);
    assert!(message(&nonsense).contains("no HTTP/1.1"), "{nonsense:?}");
}

/// An answer that announces the end of its connection.
const LAST: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";

#[test]
fn a_connection_lost_during_an_operation_fails_only_that_operation() {
    // The first answer is empty, the second is truncated, the third is complete.
    let address = scripted(&[&[b""], &[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx"], &[OK, OK]]);
    with_client(&at(&address, &[]), async |client| {
        for _ in 0..2 {
            let outcome = read(client, "k").await.0;
            assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
            assert!(message(&outcome).starts_with("connection lost: "), "{outcome:?}");
        }
        assert_eq!(read(client, "k").await.0, Outcome::OK);
    });
}

#[test]
fn an_answer_before_the_end_of_the_request_does_not_delay_the_next() {
    let (address, _held) = server::hasty(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n", OK);
    with_client(&at(&address, &[]), async |client| {
        // More than socket buffers hold.
        let outcome = client.insert("t", "k", &data(&vec![b'x'; 32 << 20])).await;
        assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
        assert_eq!(read(client, "k").await.0, Outcome::OK);
    });
}

#[test]
fn a_connection_closed_between_operations_fails_no_operation() {
    let service = Service::start();
    with_client(&at(&service.address, &[]), async |client| {
        assert_eq!(client.insert("t", "k", &data(b"x")).await, Outcome::OK);
        for round in 2..5 {
            service.hang_up();
            // Lets the event loop process events.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            assert_eq!(read(client, "k").await.0, Outcome::OK);
            assert_eq!((service.requests().len(), service.connections()), (round, round));
        }
    });
}

#[test]
fn a_lost_server_is_retried_after_a_pause() {
    let service = Service::start();
    let store = at(&service.address, &[]);
    with_client(&store, async |client| {
        assert_eq!(client.insert("t", "k", &data(b"x")).await, Outcome::OK);
        let address = service.address.clone();
        drop(service);
        // The connection is lost, then no server listens, then one does again.
        assert_eq!(read(client, "k").await.0.status, Status::ServiceUnavailable);
        let start = std::time::Instant::now();
        for _ in 0..3 {
            let outcome = read(client, "k").await.0;
            assert_eq!(outcome.status, Status::ServiceUnavailable, "{outcome:?}");
            assert!(message(&outcome).contains("cannot connect"), "{outcome:?}");
        }
        assert!(start.elapsed().as_millis() >= 200, "{:?}", start.elapsed());
        let _back = Service::start_at(&address);
        assert_eq!(client.insert("t", "k", &data(b"y")).await, Outcome::OK);
        assert_eq!(read(client, "k").await.1.unwrap().get("response"), Some(&b"y"[..]));
    });
}

#[test]
fn operations_on_silent_servers_time_out() {
    let begun: &[&[u8]] = &[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx", server::FOR_EVER];
    let never: &[&[u8]] = &[server::FOR_EVER];
    for answers in [begun, never] {
        for (property, value) in
            [("rest.operation.timeout", "40ms"), ("rest.read.timeout", "40ms"), ("timeout.exec", "0.04")]
        {
            // The timer of the first operation also covers the second.
            let address = scripted(&[&[LAST], answers, &[OK]]);
            with_client(&at(&address, &[(property, value)]), async |client| {
                assert_eq!(read(client, "k").await.0, Outcome::OK);
                let start = std::time::Instant::now();
                let outcome = read(client, "k").await.0;
                assert_eq!(outcome.status, Status::Error, "{outcome:?}");
                let name = property.replace("timeout.exec", "rest.operation.timeout");
                assert!(
                    message(&outcome).contains(&format!("no answer within 40ms ({name})")),
                    "{outcome:?}"
                );
                assert!(start.elapsed().as_millis() >= 40);
                assert_eq!(read(client, "k").await.0, Outcome::OK);
            });
        }
    }
}

#[test]
fn refused_and_unanswered_connections_are_reported() {
    let (listener, address) = silent();
    let mute = at(&address, &[("rest.operation.timeout", "50ms")]);
    let error = mute.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    assert!(error.contains("rest.operation.timeout") && error.contains(&address), "{error}");
    let url = format!("https://{address}/");
    let mute = open(&[("rest.url", &*url), ("timeout.con", "0.05")]).unwrap();
    let error = mute.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    assert!(error.contains("rest.connect.timeout"), "{error}");
    drop(listener);
    let gone = at(&address, &[]);
    let early = gone.prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    assert!(early.contains("cannot connect") && early.contains("rest.url"), "{early}");
    let late = EventLoop.run(async { gone.connect(&(), 0).await.unwrap_err() }).to_string();
    assert_eq!(late, early);
}

#[test]
fn impossible_settings_are_refused_together() {
    let settings = [
        ("rest.url", "ftp://h/"),
        ("rest.layout", "xml"),
        ("rest.insert", "patch"),
        ("rest.update", "merge"),
        ("rest.headers", "a 1 Authorization x Content-Length 7 b\u{e9} 2 odd"),
        ("rest.user", "a:b"),
        ("rest.connect.timeout", "0"),
        ("rest.read.timeout", "x"),
        ("rest.operation.timeout", "-1"),
        ("rest.response.max", "much"),
        ("rest.tls.roots", "/nowhere.pem"),
        ("rest.tls.key", "/nowhere.pem"),
        ("rest.tls.insecure.accept.any.certificate", "perhaps"),
    ];
    let problem = open(&settings).unwrap_err();
    for (name, _) in settings {
        assert!(problem.contains(name), "{name}: {problem}");
    }
    for words in
        ["rest.token", "follows from the body", "no name of a header", "'odd' has no value", "rest.password"]
    {
        assert!(problem.contains(words), "{words}: {problem}");
    }
    let plain =
        open(&[("rest.tls.roots", "/nowhere.pem"), ("rest.layout", "json"), ("url.prefix", "http://h")]);
    assert!(plain.unwrap_err().contains("needs rest.url to begin with https://"));
    let both =
        open(&[("rest.user", "u"), ("rest.password", "hidden"), ("rest.token", "hidden")]).unwrap_err();
    assert!(both.contains("rest.token") && !both.contains("hidden"), "{both}");
    let empty = open(&[("rest.url", ""), ("rest.layout", "json")]).unwrap_err();
    assert!(empty.contains("must not be empty"), "{empty}");
}
