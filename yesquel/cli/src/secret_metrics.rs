//! Metrics of certificates and credentials, for Prometheus.

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use std::fmt;
use yesquel::status::SecretsStatus;

/// Writes the metrics.
pub(crate) fn encode(status: &SecretsStatus, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let help = "Times that certificates and credentials were read again; a failure has changed nothing";
    let mut reloads = encoder.encode_descriptor("yesquel_secret_reloads", help, None, MetricType::Counter)?;
    for (result, count) in [("success", status.reloads), ("failure", status.failed_reloads)] {
        ConstCounter::new(count).encode(reloads.encode_family(&[("result", result)])?)?;
    }
    if let Some(expires_s) = status.certificate_expires_s {
        let gauge = ConstGauge::new(i64::try_from(expires_s).unwrap_or(i64::MAX));
        gauge.encode(encoder.encode_descriptor(
            "yesquel_certificate_expiry_timestamp_seconds",
            "Unix time at which the server's certificate, or one of its chain, expires",
            None,
            MetricType::Gauge,
        )?)?;
    }
    if status.admitted.is_empty() {
        return Ok(());
    }
    let mut admitted = encoder.encode_descriptor(
        "yesquel_admitted_connections",
        "Open connections, by role and by the line of the credential that has admitted them; 0: none is needed",
        None,
        MetricType::Gauge,
    )?;
    status.admitted.iter().try_for_each(|admitted_by| {
        let line = admitted_by.line.unwrap_or_default().to_string();
        let labels = [("role", admitted_by.role.name()), ("line", line.as_str())];
        let open = ConstGauge::new(i64::try_from(admitted_by.open).unwrap_or(i64::MAX));
        open.encode(admitted.encode_family(&labels)?)
    })
}
