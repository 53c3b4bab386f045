//! TLS settings.

use super::{CA, CERTIFICATE, SSL, TLS_KEY, VERIFY};
use rustls::ClientConfig;
use serval_model::properties::Reader;
use serval_tls::CertificateVerification;
use std::sync::Arc;

/// Reads the TLS settings, if TLS is on; reports faults to the reader.
pub(super) fn from_properties(reader: &mut Reader<'_>) -> Option<Arc<ClientConfig>> {
    let wanted = reader.flag(&SSL);
    let demand = match reader.choice(&VERIFY) {
        "full" => CertificateVerification::Full,
        "none" => CertificateVerification::Nothing,
        _ => CertificateVerification::Signer,
    };
    let (ca, certificate, key) = (reader.path(&CA), reader.path(&CERTIFICATE), reader.path(&TLS_KEY));
    let roots = serval_tls::roots(ca.as_deref()).map_err(|problem| reader.fault(&CA, problem));
    let identity = serval_tls::identity(reader, (&CERTIFICATE, certificate), (&TLS_KEY, key));
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
    match serval_tls::config(roots.ok()?, demand, identity) {
        Ok(config) => Some(Arc::new(config)),
        Err(problem) => {
            reader.fault(&SSL, problem);
            None
        }
    }
}
