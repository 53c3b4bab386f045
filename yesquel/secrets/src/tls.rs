//! TLS configurations from PEM files.

use crate::{SecretsError, read_file::read_file};
use rustls::{
    RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{path::Path, sync::Arc, time::Duration};
use x509_cert::{
    Certificate,
    der::{DateTime, Decode},
};

pub use rustls::{ClientConfig, ServerConfig};

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, SecretsError> {
    let parsed = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let found = parsed.map_err(|error| SecretsError::file(path, error))?;
    if found.is_empty() { Err(SecretsError::file(path, "it has no certificate (PEM)")) } else { Ok(found) }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Creates a server's configuration from its certificate chain and the key of the first
/// certificate.
pub fn server(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, SecretsError> {
    Ok(server_with_expiry(certificate, key)?.0)
}

/// Creates a server's configuration. Also returns when the first certificate of the chain to expire
/// does, in seconds of Unix time.
pub(crate) fn server_with_expiry(
    certificate: &Path,
    key: &Path,
) -> Result<(Arc<ServerConfig>, Option<u64>), SecretsError> {
    let read = || Ok((read_file(certificate)?, read_file(key)?));
    let (chain, secret) = read()?;
    match server_of(certificate, key, &chain, &secret) {
        // One of the files may have been replaced between the reads.
        Err(error) => match read()? {
            again if again == (chain, secret) => Err(error),
            (chain, secret) => server_of(certificate, key, &chain, &secret),
        },
        made => made,
    }
}

/// Creates a server's configuration from the contents of the files.
fn server_of(
    certificate: &Path,
    key: &Path,
    chain: &[u8],
    secret: &[u8],
) -> Result<(Arc<ServerConfig>, Option<u64>), SecretsError> {
    let chain = certificates(certificate, chain)?;
    let expires = chain.iter().filter_map(|certificate| expiry(certificate)).min();
    let wrong = |error: &dyn ToString| SecretsError::file(key, error.to_string());
    let secret = PrivateKeyDer::from_pem_slice(secret).map_err(|error| wrong(&error))?;
    let builder = rustls::ServerConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| wrong(&error))?;
    let config = builder.with_no_client_auth().with_single_cert(chain, secret);
    Ok((Arc::new(config.map_err(|error| wrong(&error))?), expires))
}

/// Returns the number of certificates in the content of a file.
pub fn count_certificates(pem: &[u8]) -> usize {
    CertificateDer::pem_slice_iter(pem).count()
}

/// Returns the date and time of a number of seconds of Unix time, as in RFC 3339.
pub fn date(unix_s: u64) -> String {
    // X.509 has no later one.
    let date = DateTime::from_unix_duration(Duration::from_secs(unix_s));
    date.map_or_else(|_| "after the year 9999".to_owned(), |date| date.to_string())
}

/// Returns the end of a certificate's validity, in seconds of Unix time.
fn expiry(certificate: &CertificateDer<'_>) -> Option<u64> {
    let parsed = Certificate::from_der(certificate).ok()?;
    Some(parsed.tbs_certificate.validity.not_after.to_unix_duration().as_secs())
}

/// Creates a client's configuration that trusts the certificates in the file, or, without one,
/// those that browsers trust.
pub fn client(signers: Option<&Path>) -> Result<Arc<ClientConfig>, SecretsError> {
    match signers {
        Some(path) => client_of(path, &read_file(path)?),
        None => {
            let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
            trusting(roots).map_err(|what| SecretsError { location: "TLS".to_owned(), what })
        }
    }
}

/// Creates a client's configuration that trusts the certificates in the content of a file.
pub(crate) fn client_of(path: &Path, pem: &[u8]) -> Result<Arc<ClientConfig>, SecretsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, pem)? {
        roots.add(certificate).map_err(|error| SecretsError::file(path, error))?;
    }
    trusting(roots).map_err(|what| SecretsError::file(path, what))
}

fn trusting(roots: RootCertStore) -> Result<Arc<ClientConfig>, String> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_key_must_be_that_of_the_certificate_and_the_expiry_is_read() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let make = |name: &str, year| {
            let mut parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
            parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
            let key = rcgen::KeyPair::generate().unwrap();
            let pem = parameters.self_signed(&key).unwrap().pem();
            fs::write(path(&format!("{name}.pem")), &pem).unwrap();
            fs::write(path(&format!("{name}.key")), key.serialize_pem()).unwrap();
            pem
        };
        // One has a UTCTime, the other a GeneralizedTime.
        let (first, second) = (make("a", 2030), make("b", 2051));
        let expires = |name: &str, key: &str| {
            server_with_expiry(&path(&format!("{name}.pem")), &path(&format!("{key}.key")))
        };
        assert_eq!(expires("a", "a").unwrap().1, Some(1_893_456_000));
        assert_eq!(expires("b", "b").unwrap().1, Some(2_556_144_000));
        assert_eq!(date(1_893_456_000), "2030-01-01T00:00:00Z");
        let error = expires("a", "b").unwrap_err();
        assert!(error.location.ends_with("b.key"), "{error}");
        // A bundle, and a chain that expires with its first certificate.
        fs::write(path("b.pem"), second.clone() + &first).unwrap();
        assert_eq!(expires("b", "b").unwrap().1, Some(1_893_456_000));
        assert!(client(Some(&path("b.pem"))).is_ok());
        assert_eq!(count_certificates((second.clone() + &first).as_bytes()), 2);
        fs::write(path("b.pem"), &second[..second.len() / 2]).unwrap();
        assert!(expires("b", "b").is_err() && client(Some(&path("b.pem"))).is_err());
    }
}
