//! The commands for SQL at a server that wants encryption and a credential.

use crate::program::Place;
use std::{fs, process::Output};
use yesquel::{Address, EngineSettings, ListenOptions, LogOptions, Server};

#[test]
fn shell_import_export_and_dump_take_credentials() {
    let place = Place::new();
    place.certify();
    fs::write(place.path("secret"), "sesame\n").unwrap();
    let listen = ListenOptions {
        addresses: vec![Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 }],
        tls: Some(yesquel::tls::server(&place.path("ca.pem"), &place.path("key.pem")).unwrap()),
        credential: Some(b"sesame"[..].into()),
        ..ListenOptions::default()
    };
    let server = Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap();
    let address = |options: &str| format!("yesquel://{}/shop?tls-ca=ca.pem{options}", server.addresses()[0]);
    let by_file = address("&credential-file=secret");
    place.prints(&["shell", &by_file, "CREATE TABLE t(a); INSERT INTO t VALUES(7)"]);
    place.prints(&["export", "--quiet", &by_file, "out.db"]);
    let output = place.prints(&["import", "--force", "--json", "out.db", &address("&credential=sesame")]);
    assert!(output.contains("credential=...") && !output.contains("sesame"), "{output}");
    assert!(place.prints(&["dump", &by_file]).contains("INSERT INTO t VALUES(7);"));
    // A file that holds it, and the environment, which an address goes before.
    fs::write(place.path("shop.db"), &by_file).unwrap();
    assert_eq!(place.prints(&["shell", "shop.db", "SELECT a FROM t"]), "7\n");
    let with = |address: &str, file: &str| -> Output {
        let mut command = place.program(&["shell", address, "SELECT a FROM t"]);
        command.env("YESQUEL_CREDENTIAL_FILE", place.path(file)).output().unwrap()
    };
    assert_eq!(with(&address(""), "secret").stdout, b"7\n");
    let output = with(&address("&credential=geheim"), "secret");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("rejects this credential") && !said.contains("geheim"), "{said}");
    assert!(with(&address(""), "absent").stderr.starts_with(b"error: "));
    let (status, said) = place.fails(&["shell", &address("&password=geheim"), "SELECT 1"]);
    assert!(status == 2 && said.contains("there is no such option"), "{said}");
}
