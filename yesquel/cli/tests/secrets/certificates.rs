//! Authorities and the certificates that they sign.

use crate::machine::own_host;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// A certificate of the own host and its key, PEM.
pub(crate) struct MadeCertificate {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// An authority that signs certificates of servers.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, name);
        Authority(CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap())
    }

    /// Returns its own certificate, PEM.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Makes a certificate that expires at the beginning of a year.
    pub(crate) fn certify(&self, year: i32) -> MadeCertificate {
        let mut parameters = CertificateParams::new(vec![own_host()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.0).unwrap().pem();
        MadeCertificate { certificate, key: key.serialize_pem() }
    }
}
