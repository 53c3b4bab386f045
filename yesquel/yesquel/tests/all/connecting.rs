//! Failing connection attempts: when and how they are reported.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};
use yesquel::{
    Address, ConnectError, ConnectStep, EngineSettings, Error, ListenOptions, LogOptions, Server,
    SocketOptions, Store, tls::ClientConfig,
};

/// Fake server that accepts one connection.
fn stand_in<T: Send + 'static>(
    act: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (Address, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || act(listener.accept().unwrap().0));
    (Address::Tcp { host: "127.0.0.1".to_owned(), port }, thread)
}

fn encrypted() -> Option<Arc<ClientConfig>> {
    Some(yesquel::tls::client(None).unwrap())
}

fn connect(address: &Address, tls: Option<Arc<ClientConfig>>) -> ConnectError {
    match Store::connect(address, SocketOptions { tls, ..Default::default() }) {
        Err(Error::Connect(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_sends_slowly_does_not_extend_the_timeout() {
    const STEP: Duration = Duration::from_millis(50);
    // Possible beginnings of a greeting, and of an answer in TLS.
    let greeting = [&b"YESQUEL1"[..], &4096u32.to_le_bytes(), &[0; 200]].concat();
    let record = [&[0x16, 3, 3, 0x40, 0][..], &[2, 0, 0x3f, 0], &[0; 200]].concat();
    for (said, tls, waited_for) in
        [(greeting, None, ConnectStep::Greet), (record, encrypted(), ConnectStep::Encrypt)]
    {
        let (address, server) = stand_in(move |mut stream| {
            stream.set_read_timeout(Some(STEP)).unwrap();
            stream.set_nodelay(true).unwrap();
            let mut sent = 0;
            for byte in said {
                // Until the other side has disconnected, with its message unread or not.
                let is_over = stream.write_all(&[byte]).is_err()
                    || matches!(stream.read(&mut [0; 4096]), Ok(0))
                    || matches!(stream.take_error(), Ok(Some(_)));
                if is_over {
                    break;
                }
                sent += 1;
            }
            sent
        });
        let options = SocketOptions { tls, connect_timeout: STEP * 8, ..Default::default() };
        let error = Store::connect(&address, options).unwrap_err();
        let Error::Connect(ConnectError::Late { step, limit, .. }) = &error else { panic!("{error:?}") };
        assert_eq!((*step, *limit), (waited_for, STEP * 8));
        assert!(error.to_string().contains("took longer than 0.4 s"), "{error}");
        // The server noticed long before the end that the client had disconnected.
        let sent = server.join().unwrap();
        assert!(sent < 200, "{sent}");
    }
}

#[test]
fn the_likely_cause_of_a_failed_connection_is_named() {
    let ends = |_| ();
    let is_of_the_web = |mut stream: TcpStream| {
        assert_ne!(stream.read(&mut [0; 4096]).unwrap(), 0);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        // Until the client has disconnected.
        let _ = stream.read_to_end(&mut Vec::new());
    };

    let (address, server) = stand_in(ends);
    let error = connect(&address, encrypted());
    assert!(matches!(error, ConnectError::NotTls { .. }), "{error:?}");
    assert!(error.to_string().contains("closed the connection: it may speak no TLS"), "{error}");
    server.join().unwrap();

    let (address, server) = stand_in(is_of_the_web);
    let error = connect(&address, encrypted());
    assert!(matches!(error, ConnectError::NotTls { .. }), "{error:?}");
    assert!(error.to_string().contains("answered with something else"), "{error}");
    server.join().unwrap();

    let (address, server) = stand_in(is_of_the_web);
    let error = connect(&address, None);
    assert!(matches!(error, ConnectError::Foreign { .. }), "{error:?}");
    server.join().unwrap();

    let (address, server) = stand_in(ends);
    let error = connect(&address, None);
    assert!(matches!(error, ConnectError::Closed { .. }), "{error:?}");
    assert!(error.to_string().contains("want encryption (TLS), or be no Yesquel server"), "{error}");
    server.join().unwrap();

    let local = Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
    let listen = |tls| ListenOptions { addresses: vec![local.clone()], tls, ..ListenOptions::default() };
    let start =
        |listen| Server::start(None, EngineSettings::default(), LogOptions::default(), listen).unwrap();
    let server = start(listen(None));
    let error = connect(&server.addresses()[0], encrypted());
    assert!(matches!(error, ConnectError::NotTls { .. }), "{error:?}");

    let place = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (place.path().join("certificate.pem"), place.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let server = start(listen(Some(yesquel::tls::server(&certificate, &key).unwrap())));
    let error = connect(&server.addresses()[0], encrypted());
    assert!(matches!(error, ConnectError::Certificate { .. }), "{error:?}");
    let error = connect(&server.addresses()[0], None);
    assert!(matches!(error, ConnectError::WantsTls { .. }), "{error:?}");
}
