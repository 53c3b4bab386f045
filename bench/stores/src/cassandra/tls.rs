//! Encrypted connections.

use super::{CA, CERTIFICATE, SSL, TLS_KEY, VERIFY};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use serval_model::properties::Reader;
use std::{path::Path, sync::Arc};

/// What is asked of a node's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Demand {
    /// That a signer we trust signed it and that it names the address.
    Full,
    /// That a signer we trust signed it, whatever it names.
    Signer,
    /// Nothing.
    Nothing,
}

/// The settings, if connections are to be encrypted; faults go to the reader.
pub(super) fn from_properties(reader: &mut Reader<'_>) -> Option<Arc<ClientConfig>> {
    let wanted = reader.flag(&SSL);
    let demand = match reader.choice(&VERIFY) {
        "full" => Demand::Full,
        "none" => Demand::Nothing,
        _ => Demand::Signer,
    };
    let (ca, certificate, key) = (reader.path(&CA), reader.path(&CERTIFICATE), reader.path(&TLS_KEY));
    let mut roots = RootCertStore::empty();
    match &ca {
        Some(path) => match certificates(path) {
            Ok(found) => {
                for certificate in found {
                    if let Err(error) = roots.add(certificate) {
                        reader.fault(&CA, format!("{}: {error}", path.display()));
                    }
                }
            }
            Err(problem) => reader.fault(&CA, problem),
        },
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let identity = match (&certificate, &key) {
        (Some(certificate), Some(key)) => {
            let found = certificates(certificate).map_err(|problem| reader.fault(&CERTIFICATE, problem));
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| {
                reader.fault(&TLS_KEY, format!("{}: {error}", key.display()));
            });
            found.ok().zip(key.ok())
        }
        (Some(_), None) => {
            reader.fault(&CERTIFICATE, "needs cassandra.tls_key too");
            None
        }
        (None, Some(_)) => {
            reader.fault(&TLS_KEY, "needs cassandra.tls_certificate too");
            None
        }
        (None, None) => None,
    };
    if !wanted {
        for property in [&CA, &CERTIFICATE, &TLS_KEY, &VERIFY] {
            if reader.given(property)
                && reader.properties().get(property.name).is_some()
                && property.default.is_none()
            {
                reader.fault(property, "needs cassandra.useSSL=true");
            }
        }
        return None;
    }
    match config(roots, demand, identity) {
        Ok(config) => Some(Arc::new(config)),
        Err(problem) => {
            reader.fault(&SSL, problem);
            None
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| format!("{}: {error}", path.display()))?;
    if found.is_empty() {
        return Err(format!("{}: has no certificate (PEM)", path.display()));
    }
    Ok(found)
}

fn config(
    roots: RootCertStore,
    demand: Demand,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // An empty store makes no verifier, and `none` needs none.
    let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let signed = signed.map_err(|error| error.to_string())?;
    let verifier = Arc::new(Verifier { signed, demand, provider: Arc::clone(&provider) });
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string()),
        None => Ok(builder.with_no_client_auth()),
    }
}

/// Asks of a certificate what the properties say.
#[derive(Debug)]
struct Verifier {
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
