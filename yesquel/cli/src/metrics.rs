//! Metrics for Prometheus, on a port of their own.

use crate::failure::Failure;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text::encode},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use std::{
    convert::Infallible,
    fmt,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};
use yesquel::{Server, status::Status};

/// Connections that are served at a time: there is one Prometheus, or two.
const CONNECTIONS_MAX: usize = 16;

const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a server tells of itself, as metrics.
#[derive(Debug)]
struct Metrics(Status);

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Metrics(status) = self;
        let mut gauge = |name: &str, help: &str, value: u64| {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        gauge("yesquel_uptime_milliseconds", "Since the server was started", status.uptime_ms)?;
        gauge("yesquel_memory_bytes", "Memory that nodes take", status.memory.bytes)?;
        if let Some(most) = status.memory.bytes_max {
            gauge("yesquel_memory_max_bytes", "Memory that nodes may take", most)?;
        }
        gauge(
            "yesquel_memory_checkpoint_bytes",
            "Memory of nodes that only a checkpoint has",
            status.memory.copies,
        )?;
        gauge("yesquel_log_records", "Records of the log", status.log.lsn)?;
        gauge("yesquel_log_synced_records", "Records of the log that are on disk", status.log.synced_lsn)?;
        gauge("yesquel_log_bytes", "Bytes of the log's files", status.log.bytes)?;
        if let Some(last) = status.log.checkpoint {
            gauge("yesquel_checkpoint_records", "Records of the log that the last checkpoint has", last.lsn)?;
            gauge("yesquel_checkpoint_bytes", "Bytes of the last checkpoint", last.bytes)?;
            gauge("yesquel_checkpoint_age_milliseconds", "Since the last checkpoint", last.age_ms)?;
        }
        gauge("yesquel_log_failed", "1: the disk has failed", status.log.failed.is_some().into())?;
        gauge("yesquel_connections", "Connections that are open", status.connections.open)?;
        gauge(
            "yesquel_connection_queued_most_bytes",
            "The most bytes of replies that ever waited for a connection",
            status.connections.queued_most,
        )?;
        let transactions = &status.transactions;
        gauge("yesquel_transactions_undecided", "Prepared and not decided", transactions.undecided)?;
        gauge("yesquel_leases", "Leases that are held", transactions.leases)?;
        gauge("yesquel_requests_waiting", "Requests that wait for one", transactions.waiting)?;
        gauge("yesquel_snapshots_held", "Connections that hold a snapshot", status.snapshots.holders)?;
        gauge(
            "yesquel_snapshot_oldest_milliseconds",
            "Age of the oldest snapshot that may be read",
            status.snapshots.oldest_age_ms,
        )?;
        let sum = |of: fn(&yesquel::status::TreeStatus) -> u64| status.trees.iter().map(of).sum();
        gauge("yesquel_trees", "Trees", status.trees.len() as u64)?;
        gauge("yesquel_leaves", "Leaves", sum(|tree| tree.leaves))?;
        gauge("yesquel_inner_nodes", "Inner nodes", sum(|tree| tree.inner))?;
        gauge("yesquel_cells", "Keys with a value", sum(|tree| tree.cells))?;
        gauge("yesquel_cell_bytes", "Bytes of keys and values", sum(|tree| tree.bytes))?;
        let mut counter = |name: &str, help: &str, value: u64| {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
        };
        counter("yesquel_connections_accepted", "Connections that were taken", status.connections.accepted)?;
        counter(
            "yesquel_connections_refused",
            "Connections that were not served, or were closed for what they did",
            status.connections.refused,
        )?;
        counter(
            "yesquel_connections_paused",
            "Times that a connection was read no further, for it had not taken its replies",
            status.connections.paused,
        )?;
        let requests = &status.requests;
        counter("yesquel_reads", "Requests that read", requests.reads)?;
        counter("yesquel_questions", "What they asked of nodes", requests.questions)?;
        counter("yesquel_commits", "Transactions of this server alone", requests.commits)?;
        counter("yesquel_prepares", "Votes for yes", requests.prepares)?;
        counter("yesquel_conflicts", "Refusals because another transaction was first", requests.conflicts)?;
        counter("yesquel_memory_refusals", "Requests refused for want of memory", status.memory.refused)?;
        counter(
            "yesquel_snapshots_cancelled",
            "Snapshots that were let go of for want of memory",
            status.snapshots.cancelled,
        )?;
        counter("yesquel_moved", "Refusals because a key had moved", requests.moved)?;
        counter("yesquel_waits", "Times that a request waited for a transaction's end", requests.waits)
    }
}

fn text(status: Status) -> Result<String, fmt::Error> {
    let (mut registry, mut text) = (Registry::default(), String::new());
    registry.register_collector(Box::new(Metrics(status)));
    encode(&mut text, &registry)?;
    Ok(text)
}

async fn answer(
    request: Request<Incoming>,
    server: Weak<Server>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let of = |status: StatusCode, body: String| {
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        response
    };
    if request.method() != Method::GET || request.uri().path() != "/metrics" {
        return Ok(of(StatusCode::NOT_FOUND, "metrics are at /metrics\n".to_owned()));
    }
    let Some(server) = server.upgrade() else {
        return Ok(of(StatusCode::SERVICE_UNAVAILABLE, "the server is ending\n".to_owned()));
    };
    Ok(match text(server.status()) {
        Ok(text) => {
            let mut response = of(StatusCode::OK, text);
            response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(TEXT));
            response
        }
        Err(error) => of(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    })
}

/// Serves metrics from a thread of its own, as long as the process lives.
pub(crate) fn serve(address: SocketAddr, server: &Arc<Server>) -> Result<(), Failure> {
    let failed = |error| Failure::Usage(format!("metrics cannot be served at {address}: {error}"));
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let own = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let server = Arc::downgrade(server);
    let serving = async move {
        let listener = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "metrics cannot be served"),
        };
        let places = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let server = server.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| answer(request, server.clone()));
                let mut connection = http1::Builder::new();
                connection.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(10));
                // Whoever asks badly has no answer.
                let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                drop(place);
            });
        }
    };
    let thread = thread::Builder::new().name("yesquel-metrics".to_owned());
    thread.spawn(move || runtime.block_on(serving)).map_err(failed)?;
    tracing::info!(address = %own, path = "/metrics", "metrics");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_becomes_text_that_prometheus_reads() {
        let status = Status {
            memory: yesquel::status::MemoryStatus { bytes: 512, ..Default::default() },
            log: yesquel::status::LogStatus {
                bytes: 4_096,
                checkpoint: Some(yesquel::status::CheckpointStatus { lsn: 9, bytes: 99, age_ms: 999 }),
                ..Default::default()
            },
            requests: yesquel::status::RequestStatus { commits: 7, ..Default::default() },
            ..Default::default()
        };
        let text = text(status).unwrap();
        assert!(text.contains("# TYPE yesquel_memory_bytes gauge\nyesquel_memory_bytes 512\n"), "{text}");
        assert!(text.contains("# TYPE yesquel_commits counter\nyesquel_commits_total 7\n"), "{text}");
        for line in [
            "log_bytes 4096",
            "checkpoint_records 9",
            "checkpoint_bytes 99",
            "checkpoint_age_milliseconds 999",
        ] {
            assert!(text.contains(&format!("\nyesquel_{line}\n")), "{text}");
        }
        assert!(!text.contains("memory_max") && text.ends_with("# EOF\n"), "{text}");
    }
}
