//! TLS configurations for rustls, for the drivers of stores and for Serval's own
//! connections.
//!
//! A crate instead of a module of `serval-stores`, because each store uses another
//! part of it, and a build may contain any of the stores.

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    sign::CertifiedKey,
};
use serval_model::properties::{Property, Reader};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Verification of a server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateVerification {
    /// A trusted signer must have signed it, and it must name the server's address.
    Full,
    /// A trusted signer must have signed it; its names are ignored.
    Signer,
    /// The server must only hold its key.
    Nothing,
}

/// Kind of a TLS failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFailure {
    /// The server's certificate failed verification.
    Certificate,
    /// The server ended the handshake, for example because it requires a client
    /// certificate.
    Alert,
    /// The server does not speak TLS, or no version that the client speaks.
    Protocol,
}

impl TlsFailure {
    /// Finds rustls's error in an error's chain of causes.
    pub fn of(error: &(dyn std::error::Error + 'static)) -> Option<TlsFailure> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref::<Error>() {
                return Some(match error {
                    Error::InvalidCertificate(_) | Error::NoCertificatesPresented => TlsFailure::Certificate,
                    Error::AlertReceived(_) => TlsFailure::Alert,
                    _ => TlsFailure::Protocol,
                });
            }
            // Neither of these types returns its inner error as its source.
            next = if let Some(error) = error.downcast_ref::<io::Error>() {
                error.get_ref().map(|inner| inner as _)
            } else if let Some(error) = error.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>() {
                Some(&**error as _)
            } else {
                error.source()
            };
        }
        None
    }
}

/// A client's certificate chain and private key. Some drivers take the files,
/// others their contents.
#[derive(Debug)]
pub struct ClientIdentity {
    /// PEM file of the chain.
    pub certificate_file: PathBuf,
    /// PEM file of the key.
    pub key_file: PathBuf,
    /// The client's certificate, then the intermediate ones.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key of the client's certificate.
    pub key: PrivateKeyDer<'static>,
}

// Not derived: a key is copied by a method of its own.
impl Clone for ClientIdentity {
    fn clone(&self) -> Self {
        ClientIdentity {
            certificate_file: self.certificate_file.clone(),
            key_file: self.key_file.clone(),
            chain: self.chain.clone(),
            key: self.key.clone_key(),
        }
    }
}

/// Reads trusted roots from a PEM file; without a file, returns those that browsers trust.
pub fn roots(path: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match path {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    Ok(roots)
}

/// Reads the private key of a PEM file.
fn key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads the certificates of a PEM file, at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| format!("{}: {error}", path.display()))?;
    if found.is_empty() {
        return Err(format!("{}: has no certificate (PEM)", path.display()));
    }
    Ok(found)
}

/// Reads a client's identity, if the files of its certificate and key are given.
/// Reports faults of the files with their properties, before the first
/// connection.
pub fn identity(
    reader: &mut Reader<'_>,
    (certificate, certificate_file): (&'static Property, Option<PathBuf>),
    (key, key_file): (&'static Property, Option<PathBuf>),
) -> Option<ClientIdentity> {
    if certificate_file.is_some() != key_file.is_some() {
        reader.fault(certificate, format!("and {} need each other", key.name));
    }
    let (certificate_file, key_file) = (certificate_file?, key_file?);
    let chain = certificates(&certificate_file).map_err(|problem| reader.fault(certificate, problem));
    let secret = self::key(&key_file).map_err(|problem| reader.fault(key, problem));
    let (chain, secret) = (chain.ok()?, secret.ok()?);
    // The key must be the certificate's.
    let provider = rustls::crypto::ring::default_provider();
    if let Err(problem) = CertifiedKey::from_der(chain.clone(), secret.clone_key(), &provider) {
        reader.fault(key, format!("{}: {problem}", key_file.display()));
    }
    Some(ClientIdentity { certificate_file, key_file, chain, key: secret })
}

/// Returns a client configuration.
pub fn config(
    roots: RootCertStore,
    demand: CertificateVerification,
    identity: Option<ClientIdentity>,
) -> Result<ClientConfig, String> {
    let verifier = verifier(roots, demand)?;
    let builder = ClientConfig::builder_with_provider(Arc::clone(&verifier.provider))
        .with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    match identity {
        Some(ClientIdentity { chain, key, .. }) => {
            builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

/// Returns a verifier of servers' certificates, for drivers that make the rest of the
/// configuration themselves.
pub fn verifier(roots: RootCertStore, demand: CertificateVerification) -> Result<Arc<Verifier>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let signed = signed.map_err(|error| error.to_string())?;
    Ok(Arc::new(Verifier { signed, demand, provider }))
}

/// Verifies servers' certificates as a [`CertificateVerification`] says.
#[derive(Debug)]
pub struct Verifier {
    signed: Arc<WebPkiServerVerifier>,
    demand: CertificateVerification,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.demand == CertificateVerification::Nothing {
            return Ok(ServerCertVerified::assertion());
        }
        match self.signed.verify_server_cert(certificate, between, name, ocsp, now) {
            // rustls checks the name last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.demand == CertificateVerification::Signer => Ok(ServerCertVerified::assertion()),
            outcome => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::AlertDescription;

    #[test]
    fn a_tls_failure_is_found_in_the_errors_of_drivers() {
        let certificate = || Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let held = io::Error::new(io::ErrorKind::InvalidData, certificate());
        assert_eq!(TlsFailure::of(&held), Some(TlsFailure::Certificate));
        // As in redis.
        let shared: Arc<dyn std::error::Error + Send + Sync> = Arc::new(held);
        assert_eq!(TlsFailure::of(&shared), Some(TlsFailure::Certificate));
        let alert = Error::AlertReceived(AlertDescription::CertificateRequired);
        assert_eq!(TlsFailure::of(&alert), Some(TlsFailure::Alert));
        let other = io::Error::other(Error::DecryptError);
        assert_eq!(TlsFailure::of(&other), Some(TlsFailure::Protocol));
        assert_eq!(TlsFailure::of(&io::Error::other("certificate")), None);
    }
}
