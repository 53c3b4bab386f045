//! What tests of stores behind servers need: where the server is, and a server
//! that says nothing.

use serval_model::properties::{Origin, Properties};
use std::net::TcpListener;

/// An environment variable by which `cargo xtask test` says where a server is;
/// without it says that the test is skipped.
pub fn variable(name: &str) -> Option<String> {
    match std::env::var(name) {
        Ok(value) => Some(value),
        Err(_) => panic!("{name} is not set: 'cargo xtask test' starts the server and sets it"),
    }
}

/// Properties as a command line gives them; of two of a name the last wins.
pub fn properties(settings: &[(&str, &str)]) -> Properties {
    let mut properties = Properties::new();
    for (name, value) in settings {
        properties.set(*name, *value, Origin::CommandLine("-p".into()));
    }
    properties
}

/// A server that takes connections and never answers, and its address.
pub fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}
