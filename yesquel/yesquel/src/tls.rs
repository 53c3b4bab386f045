//! TLS configurations from PEM files.

use crate::Error;
use rustls::{
    RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{path::Path, sync::Arc};

pub use rustls::{ClientConfig, ServerConfig};

fn invalid(path: &Path, what: impl ToString) -> Error {
    Error::Location { location: path.display().to_string(), what: what.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| invalid(path, error))?;
    if found.is_empty() { Err(invalid(path, "it has no certificate (PEM)")) } else { Ok(found) }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Creates a server's configuration from its certificate chain and the key of the first
/// certificate.
pub fn server(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, Error> {
    let chain = certificates(certificate)?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| invalid(key, error))?;
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Error::Internal(error.to_string()))?;
    let config = builder.with_no_client_auth().with_single_cert(chain, secret);
    config.map(Arc::new).map_err(|error| invalid(key, error))
}

/// Creates a client's configuration that trusts the certificates in the file, or, without one,
/// those that browsers trust.
pub fn client(signers: Option<&Path>) -> Result<Arc<ClientConfig>, Error> {
    let mut roots = RootCertStore::empty();
    match signers {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| invalid(path, error))?;
            }
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Error::Internal(error.to_string()))?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}
