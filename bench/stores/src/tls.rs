//! Encrypted connections of the drivers that take a rustls configuration.

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use std::{path::Path, sync::Arc};

/// What is asked of a server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Demand {
    /// That a signer we trust signed it and that it names the address.
    Full,
    /// That a signer we trust signed it, whatever it names.
    Signer,
    /// Nothing but that the server holds its key.
    Nothing,
}

/// A chain of certificates and the key of the first.
pub(crate) type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The signers in a PEM file; without one, those that browsers trust.
pub(crate) fn roots(path: Option<&Path>) -> Result<RootCertStore, String> {
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
pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The certificates in a PEM file, of which there must be one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| format!("{}: {error}", path.display()))?;
    if found.is_empty() {
        return Err(format!("{}: has no certificate (PEM)", path.display()));
    }
    Ok(found)
}

/// What a driver is to be handed.
pub(crate) fn config(
    roots: RootCertStore,
    demand: Demand,
    identity: Option<Identity>,
) -> Result<ClientConfig, String> {
    let verifier = verifier(roots, demand)?;
    let builder = ClientConfig::builder_with_provider(Arc::clone(&verifier.provider))
        .with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string()),
        None => Ok(builder.with_no_client_auth()),
    }
}

/// What judges servers' certificates, for drivers that make the rest of the
/// configuration themselves.
pub(crate) fn verifier(roots: RootCertStore, demand: Demand) -> Result<Arc<Verifier>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let signed = signed.map_err(|error| error.to_string())?;
    Ok(Arc::new(Verifier { signed, demand, provider }))
}

/// Asks of a certificate what is demanded.
#[derive(Debug)]
pub(crate) struct Verifier {
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
