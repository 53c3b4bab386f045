//! Certificates and credentials of servers and clients.
//!
//! A server has one [`PresentSecrets`], which its sockets, its connections to other servers and its
//! directory share. A reload replaces all secrets at once; only handshakes read them. A client has a
//! [`ClientFiles`], which reads its files for each new connection. `docs/yesquel/commands.md` has the
//! rules.

mod client_files;
mod credentials;
mod error;
mod present;
mod read_file;
mod secret_files;
pub mod tls;

pub use client_files::{ClientFiles, ServerEncryption};
pub use credentials::{CREDENTIALS_MAX, Credentials};
pub use error::SecretsError;
pub use present::{ConnectionSecrets, PeerSecrets, PresentSecrets, PresentedSecrets, Secrets};
pub use read_file::SECRET_FILE_BYTES_MAX;
pub use secret_files::{CertificateFiles, SecretFiles};
