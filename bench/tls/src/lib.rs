//! Encrypted connections of what takes a rustls configuration: drivers of stores,
//! and what Serval sends itself.
//!
//! A crate and not a module of `serval-stores`: each store uses another part
//! of it, and a build may have any of them.

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

/// What is asked of a server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// That a signer we trust signed it and that it names the address.
    Full,
    /// That a signer we trust signed it, whatever it names.
    Signer,
    /// Nothing but that the server holds its key.
    Nothing,
}

/// What went wrong with the encryption of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFailure {
    /// The server's certificate is not as demanded.
    Certificate,
    /// The server ended the handshake, as it does where it wants another
    /// certificate of the client, or one at all.
    Alert,
    /// The server does not speak TLS, or none that the client does.
    Protocol,
}

impl TlsFailure {
    /// Finds rustls's error among an error and its causes.
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
            // Neither gives what it holds as its source.
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

/// Who a client says it is: a chain of certificates and the key of the first.
/// Some drivers want the files, some what they hold.
#[derive(Debug)]
pub struct ClientIdentity {
    /// The PEM file of the chain.
    pub certificate_file: PathBuf,
    /// The PEM file of the key.
    pub key_file: PathBuf,
    /// The client's certificate, then those between it and its signer.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key of the client's certificate.
    pub key: PrivateKeyDer<'static>,
}

// By hand, for a key has a method of its own to be copied.
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

/// The signers in a PEM file; without one, those that browsers trust.
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

/// The private key in a PEM file.
fn key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The certificates in a PEM file, of which there must be one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| format!("{}: {error}", path.display()))?;
    if found.is_empty() {
        return Err(format!("{}: has no certificate (PEM)", path.display()));
    }
    Ok(found)
}

/// The identity of a client, if the files of its certificate and key are named.
/// They are looked at here, so that what is wrong with them is told with their
/// properties and not by the first connection.
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
    // That the two belong together.
    let provider = rustls::crypto::ring::default_provider();
    if let Err(problem) = CertifiedKey::from_der(chain.clone(), secret.clone_key(), &provider) {
        reader.fault(key, format!("{}: {problem}", key_file.display()));
    }
    Some(ClientIdentity { certificate_file, key_file, chain, key: secret })
}

/// What a driver is to be handed.
pub fn config(
    roots: RootCertStore,
    demand: Demand,
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

/// What judges servers' certificates, for drivers that make the rest of the
/// configuration themselves.
pub fn verifier(roots: RootCertStore, demand: Demand) -> Result<Arc<Verifier>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let signed = signed.map_err(|error| error.to_string())?;
    Ok(Arc::new(Verifier { signed, demand, provider }))
}

/// Asks of a certificate what is demanded.
#[derive(Debug)]
pub struct Verifier {
    signed: Arc<WebPkiServerVerifier>,
    demand: Demand,
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
        if self.demand == Demand::Nothing {
            return Ok(ServerCertVerified::assertion());
        }
        match self.signed.verify_server_cert(certificate, between, name, ocsp, now) {
            // The name is looked at last, when all else is well.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.demand == Demand::Signer => Ok(ServerCertVerified::assertion()),
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
    fn the_encryption_s_failure_is_found_where_drivers_put_it() {
        let certificate = || Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let held = io::Error::new(io::ErrorKind::InvalidData, certificate());
        assert_eq!(TlsFailure::of(&held), Some(TlsFailure::Certificate));
        // As redis has it.
        let shared: Arc<dyn std::error::Error + Send + Sync> = Arc::new(held);
        assert_eq!(TlsFailure::of(&shared), Some(TlsFailure::Certificate));
        let alert = Error::AlertReceived(AlertDescription::CertificateRequired);
        assert_eq!(TlsFailure::of(&alert), Some(TlsFailure::Alert));
        let other = io::Error::other(Error::DecryptError);
        assert_eq!(TlsFailure::of(&other), Some(TlsFailure::Protocol));
        assert_eq!(TlsFailure::of(&io::Error::other("certificate")), None);
    }
}
