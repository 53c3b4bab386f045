//! Helpers for tests of stores behind servers.

use serval_model::properties::{Origin, Properties};
use std::net::TcpListener;

/// Returns an environment variable that `cargo xtask test` sets for a server. Panics if it
/// is not set.
pub fn variable(name: &str) -> Option<String> {
    match std::env::var(name) {
        Ok(value) => Some(value),
        Err(_) => panic!("{name} is not set: 'cargo xtask test' starts the server and sets it"),
    }
}

/// Returns properties as from a command line; the last of a name wins.
pub fn properties(settings: &[(&str, &str)]) -> Properties {
    let mut properties = Properties::new();
    for (name, value) in settings {
        properties.set(*name, *value, Origin::CommandLine("-p".into()));
    }
    properties
}

/// Starts a server that accepts connections and never answers. Returns its address too.
pub fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}
