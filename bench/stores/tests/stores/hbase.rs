//! HBase, behind its Java driver: the suite, the layout, buffered writes, and
//! error messages.
//!
//! `cargo xtask test` starts the server, builds the driver and names them in the
//! environment; without them these tests are ignored.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serval_conformance::{
    Differences, EventLoop, Executor, InsertExisting, Subject, fields, properties, schema, silent, variable,
};
use serval_driver::{Driver, DriverClient, serve};
use serval_model::{
    Client, FieldSelection, Outcome, Purpose, Record, Reply, Status, Store, properties::Properties,
};
use serval_stores::{Opener, hbase::Hbase};
use std::{
    os::unix::net::UnixListener,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

const TABLE: &str = serval_conformance::TABLE;

/// Addresses of HBase's ZooKeeper and of the driver, and a namespace that no other
/// test uses.
struct Place {
    host: String,
    port: String,
    driver: String,
    namespace: String,
}

impl Place {
    fn new() -> Option<Place> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let (address, driver) = (variable("SERVAL_TEST_HBASE")?, variable("SERVAL_TEST_HBASE_DRIVER")?);
        let (host, port) = address.rsplit_once(':').unwrap();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("stores_{}_{number}", std::process::id());
        Some(Place { host: host.into(), port: port.into(), driver, namespace })
    }

    fn settings<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let mut settings = vec![
            ("hbase.zookeeper.quorum", self.host.as_str()),
            ("hbase.zookeeper.property.clientPort", &self.port),
            ("hbase.driver", &self.driver),
            ("hbase.namespace", &self.namespace),
            // Tests are short, so start-up time matters.
            ("java.args", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx256m"),
        ];
        settings.extend(more);
        settings
    }

    fn store(&self, more: &[(&str, &str)]) -> Driver {
        Hbase::open(&properties(&self.settings(more))).unwrap()
    }

    /// Runs a command by HBase's own client and returns its output.
    fn by_hand(&self, verb: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("ByHand.java");
        std::fs::write(&source, BY_HAND).unwrap();
        let output = Command::new("java")
            .args(["-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp"])
            .arg(format!("{}/lib/*", self.driver))
            .arg(source)
            .args([&self.host, &self.port, &self.namespace, verb])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// A program that writes and reads like YCSB's binding, without Serval.
const BY_HAND: &str = r#"
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.*;
import org.apache.hadoop.hbase.client.*;
import org.apache.hadoop.hbase.util.Bytes;

public class ByHand {
  public static void main(String[] a) throws Exception {
    Configuration configuration = HBaseConfiguration.create();
    configuration.set("hbase.zookeeper.quorum", a[0]);
    configuration.set("hbase.zookeeper.property.clientPort", a[1]);
    TableName name = TableName.valueOf(a[2], "usertable");
    byte[] family = Bytes.toBytes("family");
    try (Connection connection = ConnectionFactory.createConnection(configuration);
        Admin admin = connection.getAdmin(); Table table = connection.getTable(name)) {
      switch (a[3]) {
        case "write" -> table.put(new Put(Bytes.toBytes("user1"))
            .addColumn(family, Bytes.toBytes("field0"), Bytes.toBytes("zero"))
            .addColumn(family, Bytes.toBytes("field1"), Bytes.toBytes("one")));
        case "list" -> {
          try (ResultScanner scanner = table.getScanner(new Scan())) {
            for (Result result : scanner) {
              for (Cell cell : result.rawCells()) {
                System.out.println(Bytes.toString(result.getRow()) + " " + Bytes.toString(CellUtil.cloneFamily(cell)) + ":"
                    + Bytes.toString(CellUtil.cloneQualifier(cell)) + "=" + Bytes.toString(CellUtil.cloneValue(cell)));
              }
            }
          }
        }
        case "regions" -> {
          for (byte[] key : connection.getRegionLocator(name).getStartKeys()) {
            System.out.println(Bytes.toString(key));
          }
        }
        case "drop" -> {
          admin.disableTable(name);
          admin.deleteTable(name);
        }
        default -> throw new IllegalArgumentException(a[3]);
      }
    }
  }
}
"#;

/// HBase's semantics: a put is an upsert, and a delete does not check for the record.
fn differences() -> Differences {
    Differences {
        update_missing_is_not_found: !serval_stores::hbase::INFO.updates_insert,
        delete_missing_is_not_found: false,
        insert_existing: InsertExisting::Merged,
        empty_records: false,
        ..Differences::default()
    }
}

/// The suite deletes a record and writes it again immediately.
const ORDERED: (&str, &str) = ("hbase.newversionbehavior", "true");

fn subject() -> Option<Subject<Driver, EventLoop>> {
    Some(Subject::new(Place::new()?.store(&[ORDERED]), EventLoop, differences()))
}

serval_conformance::suite! { subject:
    values_are_returned_byte_for_byte,
    keys_may_be_any_text,
    a_read_returns_the_requested_fields,
    a_record_may_have_some_fields_only,
    an_update_leaves_the_other_fields,
    missing_records_are_not_found,
    an_update_of_a_missing_record,
    an_insert_of_an_existing_key,
    a_deleted_record_is_missing,
    a_record_without_fields,
    a_scan_starts_at_its_key_and_stops_at_its_limit,
    a_scan_returns_the_requested_fields,
    a_batch_is_written,
    a_failed_batch_stops_at_the_failure,
    the_next_client_reads_earlier_writes,
    any_sequence_of_operations_agrees_with_a_map,
}

/// The case of several event loops. A driver process supports one, so each loop gets
/// its own process through a socket.
fn served() -> Option<Subject<Driver, EventLoop>> {
    let place = Place::new()?;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (input, opener) = (stream.unwrap(), Opener(serval_stores::find("hbase2").unwrap()));
            let output = input.try_clone().unwrap();
            std::thread::spawn(move || serve::serve(&opener, &Properties::new(), input, output, |_| {}));
        }
    });
    let settings = place.settings(&[ORDERED, ("driver.socket", socket.to_str().unwrap())]);
    let store = Driver::open(&properties(&settings)).unwrap();
    Some(Subject::new(store, EventLoop, differences()).keeping(folder))
}

serval_conformance::suite! { served: concurrent_clients_lose_no_writes }

fn record(pairs: &[(&str, &[u8])]) -> Record {
    pairs.iter().map(|(name, value)| (*name, *value)).collect()
}

/// Returns the value of field0, or the status of a failure.
async fn field0(client: &mut DriverClient, key: &str) -> Result<Vec<u8>, Status> {
    let mut reply = Reply::new();
    let outcome = client.read(TABLE, key, &FieldSelection::default(), &mut reply).await;
    if !outcome.is_ok() {
        return Err(outcome.status);
    }
    let found = reply.records()[0].iter().find(|(name, _)| *name == "field0");
    Ok(found.unwrap().1.to_vec())
}

#[test]
#[ignore = "needs SERVAL_TEST_HBASE SERVAL_TEST_HBASE_DRIVER"]
fn serval_and_ycsb_read_each_others_records() {
    let Some(place) = Place::new() else { return };
    let store = place.store(&[("hbase.regions", "3")]);
    let subject = Subject::new(store, EventLoop, differences());
    subject.with_client(async |client| {
        assert_eq!(
            client.insert("user2", &fields([("field0", b"null"), ("field3", b"drei")])).await,
            Outcome::OK
        );
    });
    place.by_hand("write");
    subject.with_another_client(1, async |client| {
        let expected = fields([("field0", b"zero"), ("field1", b"one")]);
        assert_eq!(client.read("user1", &[]).await, Some(expected));
    });
    assert_eq!(
        place.by_hand("list"),
        "user1 family:field0=zero\nuser1 family:field1=one\nuser2 family:field0=null\nuser2 family:field3=drei\n"
    );
    // The split points in YCSB's documentation.
    assert_eq!(place.by_hand("regions"), "\nuser3999\nuser6999\n");
}

/// Runs two clients of a store that is prepared for a load.
fn with_two<T>(store: &Driver, case: impl AsyncFnOnce(&mut DriverClient, &mut DriverClient) -> T) -> T {
    store.prepare(&schema(), Purpose::Load).unwrap();
    EventLoop.run(async {
        let local = store.local().unwrap();
        let mut first = store.connect(&local, 0).await.unwrap();
        let mut second = store.connect(&local, 1).await.unwrap();
        let result = case(&mut first, &mut second).await;
        second.close().await;
        result
    })
}

/// Returns the next flush: outcome, number of writes, and number of lost writes.
fn flush(client: &mut DriverClient) -> (Outcome, u64, u64) {
    let flush = client.flushed().unwrap();
    assert!(flush.took_ns > 0 && flush.ago_ns < 60_000_000_000, "{flush:?}");
    (flush.outcome, flush.writes, flush.lost)
}

#[test]
#[ignore = "needs SERVAL_TEST_HBASE SERVAL_TEST_HBASE_DRIVER"]
fn a_buffered_write_is_visible_after_its_client_closes() {
    let Some(place) = Place::new() else { return };
    let store = place.store(&[("clientbuffering", "true")]);
    with_two(&store, async |writer, reader| {
        for key in ["a", "b"] {
            assert_eq!(writer.insert(TABLE, key, &record(&[("field0", b"v")])).await, Outcome::OK);
            assert_eq!(field0(reader, key).await, Err(Status::NotFound));
        }
        assert_eq!(writer.flushed(), None);
        assert_eq!(writer.close().await, Outcome::OK);
        assert_eq!(flush(writer), (Outcome::OK, 2, 0));
        for key in ["a", "b"] {
            assert_eq!(field0(reader, key).await, Ok(b"v".to_vec()));
        }
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_HBASE SERVAL_TEST_HBASE_DRIVER"]
fn a_buffer_is_flushed_when_full_or_old() {
    let Some(place) = Place::new() else { return };
    for setting in [("writebuffersize", "1000B"), ("writebuffer.latency", "100")] {
        let size = if setting.0 == "writebuffersize" {
            ("clientbuffering", "true")
        } else {
            ("writebuffer.size", "1MB")
        };
        let store = place.store(&[size, setting]);
        with_two(&store, async |writer, reader| {
            let key = setting.0;
            let deadline = Instant::now() + Duration::from_secs(30);
            let value = [b'v'; 500];
            assert_eq!(writer.update(TABLE, key, &record(&[("field0", &value)])).await, Outcome::OK);
            if setting.0 == "writebuffersize" {
                for key in ["c", "d", "e"] {
                    assert_eq!(writer.insert(TABLE, key, &record(&[("field0", &value)])).await, Outcome::OK);
                }
                // The second write exceeds 1000 bytes.
                assert_eq!(flush(writer), (Outcome::OK, 2, 0));
            }
            while field0(reader, key).await.is_err() {
                assert!(Instant::now() < deadline, "{setting:?}");
            }
            if setting.0 == "writebuffer.latency" {
                // The next answer reports the flush.
                let key = FieldSelection::default();
                while writer.flushed().is_none() {
                    writer.read(TABLE, "c", &key, &mut Reply::new()).await;
                    assert!(Instant::now() < deadline);
                }
            }
            assert_eq!(writer.close().await, Outcome::OK);
        });
    }
}

#[test]
#[ignore = "needs SERVAL_TEST_HBASE SERVAL_TEST_HBASE_DRIVER"]
fn a_failed_buffered_write_is_a_failure_of_the_flush() {
    let Some(place) = Place::new() else { return };
    let settings = [("clientbuffering", "true"), ("hbase.timeout", "5s")];
    let store = place.store(&settings);
    with_two(&store, async |writer, _| {
        for key in ["a", "b", "c"] {
            assert_eq!(writer.insert(TABLE, key, &record(&[("field0", b"v")])).await, Outcome::OK);
        }
        place.by_hand("drop");
        assert_eq!(writer.close().await, Outcome::OK);
        let (outcome, writes, lost) = flush(writer);
        assert!(!outcome.is_ok() && outcome.message.is_some(), "{outcome:?}");
        assert_eq!((writes, lost), (3, 3));
    });
    drop(store);
    let store = place.store(&[settings[0], settings[1], ("hbase.writebufferlatency", "100")]);
    with_two(&store, async |writer, _| {
        place.by_hand("drop");
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut key = 0;
        let failed = 'told: loop {
            let outcome = writer.insert(TABLE, &format!("k{key}"), &record(&[("field0", b"v")])).await;
            assert_eq!(outcome, Outcome::OK);
            // A flush may be empty because an earlier one has sent its writes.
            while let Some(flush) = writer.flushed() {
                if !flush.outcome.is_ok() {
                    break 'told flush;
                }
            }
            key += 1;
            assert!(Instant::now() < deadline, "no flush was reported after {key} writes");
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert!(!failed.outcome.is_ok() && failed.lost > 0, "{failed:?}");
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_HBASE SERVAL_TEST_HBASE_DRIVER"]
fn empty_keys_and_keys_and_values_that_are_too_long_are_bad_requests() {
    let Some(place) = Place::new() else { return };
    let store = place.store(&[]);
    with_two(&store, async |client, _| {
        let long = "k".repeat(40_000);
        let huge = vec![0; 11 << 20];
        for (key, value) in [("k", huge.as_slice()), (&long, b"v"), ("", b"v")] {
            let outcome = client.insert(TABLE, key, &record(&[("field0", value)])).await;
            assert_eq!(outcome.status, Status::BadRequest, "{outcome:?}");
        }
        assert_eq!(client.insert(TABLE, "k", &record(&[("field0", b"v")])).await, Outcome::OK);
        client.close().await;
    });
}

#[test]
#[ignore = "needs SERVAL_TEST_HBASE SERVAL_TEST_HBASE_DRIVER"]
fn missing_tables_and_families_are_reported_before_a_run() {
    let Some(place) = Place::new() else { return };
    let (_listener, silent) = silent();
    let silent = silent.rsplit_once(':').unwrap().1;
    for (more, purpose, words) in [
        (&[][..], Purpose::Run, &["there is no table", "a load makes it"][..]),
        (&[("hbase.create", "false")], Purpose::Load, &["there is no table", "hbase.create=false"]),
        (
            &[("hbase.zookeeper.property.clientPort", "1")],
            Purpose::Run,
            &["refused", "hbase.zookeeper.property.clientPort"],
        ),
        (&[("hbase.zookeeper.quorum", "no-such-host.invalid")], Purpose::Run, &["the name is not known"]),
        (
            &[("hbase.zookeeper.property.clientPort", silent), ("hbase.connecttimeout", "1s")],
            Purpose::Run,
            &["within 1000 ms (hbase.connecttimeout)"],
        ),
        (
            &[("zookeeper.znode.parent", "/nowhere"), ("hbase.connecttimeout", "2s")],
            Purpose::Run,
            &["/nowhere", "zookeeper.znode.parent"],
        ),
    ] {
        let error = place.store(more).prepare(&schema(), purpose).unwrap_err().to_string();
        for part in words {
            assert!(error.contains(part), "'{part}' is not in: {error}");
        }
    }
    place.store(&[]).prepare(&schema(), Purpose::Load).unwrap();
    let error =
        place.store(&[("columnfamily", "f")]).prepare(&schema(), Purpose::Run).unwrap_err().to_string();
    assert!(error.contains("no column family 'f'") && error.contains("it has: family"), "{error}");
}

#[test]
fn impossible_settings_are_refused_together() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        ("hbase.driver", folder.path().to_str().unwrap()),
        ("java.program", "/nowhere/java"),
        ("durability", "MAYBE"),
        ("hbase.regions", "0"),
        ("columnfamily", "a:b"),
        ("hbase.timeout", "2m"),
        ("hbase.connecttimeout", "0"),
        ("hbase.scanfiltervalue", "xyz"),
        ("hbase.site", "/nowhere/hbase-site.xml"),
        ("hbase.writebufferlatency", "1us"),
        ("writebuffer.latency", "2ms"),
        ("clientbuffering", "false"),
        ("writebuffer.size", "1KB"),
        ("principal", "serval"),
    ];
    let problem = Hbase::open(&properties(&settings)).unwrap_err().to_string();
    for (name, _) in settings {
        assert!(problem.contains(name), "'{name}' is not in: {problem}");
    }
    assert!(problem.contains("serval-hbase-driver.jar"), "{problem}");
}
