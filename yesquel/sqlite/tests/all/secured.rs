//! Servers with encryption and a credential, as addresses specify them.

use rusqlite::Connection;
use std::fs;
use tempfile::TempDir;
use yesquel::{Address, EngineSettings, ListenOptions, LogOptions, Server};

struct Place {
    _server: Server,
    port: u16,
    folder: TempDir,
}

impl Place {
    fn new() -> Place {
        assert!(yesquel_sqlite::is_linked());
        let folder = TempDir::new().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let (certificate, key) = (folder.path().join("ca.pem"), folder.path().join("key.pem"));
        fs::write(&certificate, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        fs::write(folder.path().join("secret"), "open & sesame\nof the shop\n").unwrap();
        fs::write(folder.path().join("wrong"), "sesame\n").unwrap();
        let local = Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
        let listen = ListenOptions {
            addresses: vec![local],
            tls: Some(yesquel::tls::server(&certificate, &key).unwrap()),
            credential: Some(b"open & sesame"[..].into()),
            ..ListenOptions::default()
        };
        let server = Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap();
        let Address::Tcp { port, .. } = server.addresses()[0] else { panic!("not a TCP address") };
        Place { _server: server, port, folder }
    }

    /// Returns an address; `DIR` in the options is the folder.
    fn address(&self, options: &str) -> String {
        let options = options.replace("DIR", self.folder.path().to_str().unwrap());
        format!("yesquel://127.0.0.1:{}/shop?{options}", self.port)
    }
}

/// As a plain address, and as a `file:` URI, whose options SQLite parses.
const FORMS: [&str; 2] = ["", "file:"];

#[test]
fn clients_with_the_credential_and_certificate_are_served() {
    let place = Place::new();
    let rights = [
        "tls-ca=DIR/ca.pem&credential-file=DIR/secret",
        "tls=yes&tls-ca=DIR/ca.pem&credential-file=DIR/secret&timeout=9000",
        "credential=open%20%26%20sesame&tls-ca=DIR/ca.pem&tls=yes",
    ];
    for (at, options) in rights.iter().enumerate() {
        for form in FORMS {
            let connection = Connection::open(format!("{form}{}", place.address(options))).unwrap();
            connection.execute_batch("CREATE TABLE IF NOT EXISTS t(a); INSERT INTO t VALUES(1)").unwrap();
            let list = "SELECT file FROM pragma_database_list";
            let shown: String = connection.query_row(list, [], |row| row.get(0)).unwrap();
            assert_eq!(shown, format!("yesquel://127.0.0.1:{}/shop", place.port));
        }
        let connection = Connection::open(place.address(options)).unwrap();
        let count: isize = connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(count as usize, 2 * (at + 1));
    }
    // A file with the address: paths in it are relative to it.
    let name = place.folder.path().join("shop.db");
    fs::write(&name, place.address("tls-ca=ca.pem&credential-file=./secret")).unwrap();
    let connection = Connection::open(name).unwrap();
    let count: isize = connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 6);
    // An open connection does not admit others.
    assert!(Connection::open(place.address("tls-ca=DIR/ca.pem&credential=geheim")).is_err());
}

#[test]
fn other_clients_are_refused_with_the_reason() {
    let place = Place::new();
    for (options, what) in [
        ("", "speaks TLS"),
        ("credential-file=DIR/secret", "speaks TLS"),
        ("tls=no&credential-file=DIR/secret", "speaks TLS"),
        ("tls=yes&credential-file=DIR/secret", "certificate is not trusted"),
        ("tls-ca=DIR/ca.pem", "credential"),
        ("tls-ca=DIR/ca.pem&credential-file=DIR/wrong", "rejects this credential"),
        ("tls-ca=DIR/ca.pem&credential=geheim", "rejects this credential"),
        ("tls-ca=DIR/ca.pem&credential-file=DIR/absent", "No such file"),
        ("tls-ca=DIR/absent&credential-file=DIR/secret", "absent"),
        ("tls-ca=DIR/secret&credential-file=DIR/secret", "no certificate"),
        ("tls=perhaps", "'yes' or 'no'"),
        ("tls-ca=DIR/ca.pem&user=me&credential=geheim", "there is no such option"),
    ] {
        for form in FORMS {
            let message =
                Connection::open(format!("{form}{}", place.address(options))).unwrap_err().to_string();
            assert!(message.contains(what), "{form} {options}: {message}");
            // Without the name at the start, which the caller adds.
            let said = message.rsplit_once(": ").map_or(&*message, |(said, _)| said);
            assert!(!said.contains("geheim"), "{message}");
        }
    }
    let folder = format!("yesquel:{}?tls=yes", place.folder.path().join("data").display());
    let message = Connection::open(folder).unwrap_err().to_string();
    assert!(message.contains("it is of servers"), "{message}");
}
