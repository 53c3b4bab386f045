//! Connection to a server, as commands name it.

use crate::failure::CliError;
use clap::Args;
use std::{path::PathBuf, sync::Arc, time::Duration};
use yesquel::{Addresses, ClientFiles, ConnectError, Denial, Role, ServerEncryption, SocketOptions, Store};

/// A server, and how it is asked.
#[derive(Debug, Args)]
pub(crate) struct ServerArguments {
    /// Server: host:port, host (port 7411), or the path of a Unix socket, with a `/` (./s1.sock);
    /// several of one cluster are separated by commas, and one that answers is enough
    #[arg(value_name = "ADDRESS")]
    addresses: Addresses,
    #[command(flatten)]
    options: ConnectArguments,
}

/// A server of which an operator changes the cluster.
#[derive(Debug, Args)]
pub(crate) struct OperatorArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// File whose first line is the credential that servers present to each other, which operators need
    #[arg(long, value_name = "FILE", env = "YESQUEL_PEER_CREDENTIAL_FILE")]
    peer_credential_file: Option<PathBuf>,
}

impl OperatorArguments {
    pub(crate) fn connect(&self) -> Result<Store, CliError> {
        let connected = self.server.connect_as(Role::Operator, self.peer_credential_file.as_ref());
        connected.map_err(|error| match error {
            CliError::Yesquel(error) if is_rejected(&error) => CliError::Operator(error),
            error => error,
        })
    }

    pub(crate) fn addresses(&self) -> &Addresses {
        self.server.addresses()
    }
}

/// Whether servers reject the credential.
fn is_rejected(error: &yesquel::Error) -> bool {
    let is_denied =
        |error: &ConnectError| matches!(error, ConnectError::Denied { denial: Denial::Credential, .. });
    match error {
        yesquel::Error::Connect(ConnectError::NoneAnswers(errors)) => errors.iter().any(is_denied),
        yesquel::Error::Connect(error) => is_denied(error),
        _ => false,
    }
}

#[derive(Debug, Args)]
struct ConnectArguments {
    /// Encrypt, and trust the certificates that browsers trust
    #[arg(long, global = true)]
    tls: bool,
    /// Encrypt, and trust certificates signed by one in this PEM file
    #[arg(long, value_name = "FILE", global = true)]
    tls_ca: Option<PathBuf>,
    /// File whose first line is the server's credential
    #[arg(long, value_name = "FILE", global = true, env = "YESQUEL_CREDENTIAL_FILE")]
    credential_file: Option<PathBuf>,
    /// Timeout for a connection, seconds, at most a day
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds,
        allow_negative_numbers = true, global = true)]
    connect_timeout: Duration,
}

/// Parses a positive number of seconds, a day at most.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    const MOST: f64 = 86_400.0;
    match text.parse::<f64>() {
        Err(_) => Err("it is no number of seconds".to_owned()),
        Ok(seconds) if seconds > MOST => Err(format!("it is more than {MOST} seconds, a day")),
        // NaN is not above zero either.
        Ok(seconds) => Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|time| !time.is_zero())
            .ok_or_else(|| "it must be above zero".to_owned()),
    }
}

impl ServerArguments {
    pub(crate) fn connect(&self) -> Result<Store, CliError> {
        self.connect_as(Role::Client, self.options.credential_file.as_ref())
    }

    /// Connects with the role of a server and the credential of servers.
    pub(crate) fn connect_as_peer(&self, credential_file: Option<&PathBuf>) -> Result<Store, CliError> {
        self.connect_as(Role::Peer, credential_file)
    }

    /// Connects with the credential of a role.
    fn connect_as(&self, role: Role, credential_file: Option<&PathBuf>) -> Result<Store, CliError> {
        let ConnectArguments { tls, tls_ca, connect_timeout, .. } = &self.options;
        let encryption = match tls_ca {
            Some(path) => ServerEncryption::SignedBy(path.clone()),
            None if *tls => ServerEncryption::Browsers,
            None => ServerEncryption::None,
        };
        let files = ClientFiles::open(&encryption, credential_file.map(PathBuf::as_path));
        let (secrets, connect_timeout) = (Some(Arc::new(files?) as _), *connect_timeout);
        let options = SocketOptions { secrets, role, connect_timeout, ..SocketOptions::default() };
        Ok(Store::connect_any(&self.addresses, options)?)
    }

    pub(crate) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Returns the address by which SQLite opens a database of the server, for reading; `None`: no
    /// address can have this name.
    pub(crate) fn database_address(&self, name: &str) -> Option<String> {
        let ConnectArguments { tls, tls_ca, credential_file, connect_timeout: _ } = &self.options;
        let escaped = |path: &PathBuf| path.display().to_string().replace('%', "%25").replace('&', "%26");
        let mut address = format!("yesquel://{}/{name}?mode=ro", self.addresses);
        if *tls {
            address += "&tls=yes";
        }
        for (option, path) in [("tls-ca", tls_ca), ("credential-file", credential_file)] {
            if let Some(path) = path {
                address += &format!("&{option}={}", escaped(path));
            }
        }
        (!name.contains(['/', '?'])).then_some(address)
    }
}
