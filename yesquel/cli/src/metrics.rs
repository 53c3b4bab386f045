//! Metrics for Prometheus, on a port of their own.

use crate::{commit_metrics, failure::CliError, secret_metrics};
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text::encode},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use std::{
    convert::Infallible,
    fmt, io,
    net::{TcpListener, ToSocketAddrs},
    str::FromStr,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};
use tokio::sync::Semaphore;
use yesquel::{Error, Server, status::ServerStatus};

/// Maximum number of connections: there are one or two Prometheus servers.
const CONNECTIONS_MAX: usize = 16;

/// Time limit of a connection.
const REQUEST_TIME: Duration = Duration::from_secs(5);

const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Metrics of a group.
#[derive(Debug)]
struct GroupMetrics(ServerStatus);

/// Metrics of what the groups of a machine share, from the status of one of them.
#[derive(Debug)]
struct MachineMetrics(ServerStatus);

impl Collector for GroupMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let GroupMetrics(status) = self;
        let mut gauge = |name: &str, help: &str, value: u64| {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
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
        gauge("yesquel_disk_full", "1: the disk is full", status.log.full.is_some().into())?;
        let full_ms = status.log.full.as_ref().map_or(0, |full| full.since_ms);
        gauge("yesquel_disk_full_milliseconds", "Since the disk became full; 0: it is not full", full_ms)?;
        let transactions = &status.transactions;
        gauge("yesquel_transactions_undecided", "Prepared and not decided", transactions.undecided)?;
        gauge(
            "yesquel_transaction_undecided_oldest_milliseconds",
            "Age of the oldest prepared transaction that is not decided",
            transactions.undecided_oldest_ms,
        )?;
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
        counter("yesquel_disks_full", "Times that the disk became full", status.log.full_count)?;
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
        counter("yesquel_waits", "Times that a request waited for a transaction's end", requests.waits)?;
        counter(
            "yesquel_recoveries",
            "Times that the other participants of a transaction were asked for their votes",
            requests.recoveries,
        )?;
        counter(
            "yesquel_wrong_group_replies",
            "Requests for another group, or with another epoch of the group",
            requests.wrong_group,
        )?;
        commit_metrics::encode(status, &mut encoder)
    }
}

impl Collector for MachineMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let MachineMetrics(status) = self;
        let mut gauge = |name: &str, help: &str, value: u64| {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        gauge("yesquel_uptime_milliseconds", "Since the server was started", status.uptime_ms)?;
        gauge("yesquel_connections", "Connections that are open", status.connections.open)?;
        gauge(
            "yesquel_connection_queued_most_bytes",
            "The most bytes of replies that ever waited for a connection",
            status.connections.queued_most,
        )?;
        gauge(
            "yesquel_connection_unfinished_bytes",
            "Bytes of messages of connections that have come in part",
            status.connections.unfinished,
        )?;
        gauge(
            "yesquel_not_serving",
            "1 if the server serves nothing because of its clock",
            status.peers.not_serving.is_some().into(),
        )?;
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
            "yesquel_connections_revoked",
            "Connections that were closed because their credential was removed",
            status.connections.revoked,
        )?;
        counter(
            "yesquel_connections_paused",
            "Times that a connection was read no further, for it had not taken its replies",
            status.connections.paused,
        )?;
        secret_metrics::encode(&status.secrets, &mut encoder)?;
        if status.peers.clocks.is_empty() {
            return Ok(());
        }
        let mut clocks = encoder.encode_descriptor(
            "yesquel_peer_clock_ahead_milliseconds",
            "How far the clock of another server is ahead of this one's",
            None,
            MetricType::Gauge,
        )?;
        for clock in &status.peers.clocks {
            let server = [("server", clock.server)];
            ConstGauge::new(clock.ahead_ms).encode(clocks.encode_family(&server)?)?;
        }
        let mut ages = encoder.encode_descriptor(
            "yesquel_peer_clock_age_milliseconds",
            "Time since the clock of another server was compared: it grows while that cannot be reached",
            None,
            MetricType::Gauge,
        )?;
        status.peers.clocks.iter().try_for_each(|clock| {
            let server = [("server", clock.server)];
            ConstGauge::new(clock.age_ms).encode(ages.encode_family(&server)?)
        })
    }
}

/// Last line of metrics.
const END: &str = "# EOF\n";

/// Returns the text of a registry, without its last line.
fn text_of(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    text.truncate(text.strip_suffix(END).map_or(text.len(), str::len));
    Ok(text)
}

/// Splits metrics into families: the comments of each, which name it, and its values.
fn families(text: &str) -> Vec<(&str, &str)> {
    let starts: Vec<usize> = text.match_indices("# HELP ").map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let families = starts.iter().zip(ends).filter_map(|(start, end)| text.get(*start..end));
    let values = |family: &str| {
        let comments = family.split_inclusive('\n').take_while(|line| line.starts_with('#'));
        comments.map(str::len).sum()
    };
    families.map(|family| family.split_at(values(family))).collect()
}

/// Returns the metrics of a machine with these groups. Those of several groups have the number of the
/// group as a label.
fn text(statuses: Vec<ServerStatus>) -> Result<String, fmt::Error> {
    let (mut machine, mut groups) = (Registry::default(), Vec::new());
    let is_alone = statuses.len() == 1;
    if let Some(status) = statuses.first() {
        machine.register_collector(Box::new(MachineMetrics(status.clone())));
    }
    for status in statuses {
        let label = ("group".into(), status.server.to_string().into());
        let mut registry = Registry::with_labels(std::iter::once(label).filter(|_| !is_alone));
        registry.register_collector(Box::new(GroupMetrics(status)));
        groups.push(text_of(&registry)?);
    }
    let mut text = text_of(&machine)?;
    // All values of a family are together. A group that has made no checkpoint has fewer families.
    let mut merged: Vec<(&str, String)> = Vec::new();
    for (comments, values) in groups.iter().flat_map(|group| families(group)) {
        match merged.iter_mut().find(|(known, _)| *known == comments) {
            Some((_, all)) => all.push_str(values),
            None => merged.push((comments, values.to_owned())),
        }
    }
    merged.iter().for_each(|(comments, values)| text.extend([*comments, values.as_str()]));
    Ok(text + END)
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
    Ok(match text(server.statuses()) {
        Ok(text) => {
            let mut response = of(StatusCode::OK, text);
            response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(TEXT));
            response
        }
        Err(error) => of(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    })
}

/// Address for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MetricsAddress {
    host: String,
    port: u16,
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<MetricsAddress, String> {
        let wrong = || format!("'{text}' is no address: write host:port, such as 127.0.0.1:9100");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        // IPv6 addresses are in brackets.
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = !host.is_empty() && (bare.is_some() || !host.contains(':'));
        let port = port.parse().ok().filter(|_| is_host).ok_or_else(wrong)?;
        Ok(MetricsAddress { host: bare.unwrap_or(host).to_owned(), port })
    }
}

impl MetricsAddress {
    /// Listens on the address, which must be a loopback one unless `is_public`.
    pub(crate) fn listen(&self, is_public: bool) -> Result<Vec<TcpListener>, CliError> {
        let MetricsAddress { host, port } = self;
        let failed = |what: String| {
            let location = format!("{host}:{port}");
            CliError::Yesquel(Error::Location { location, what: format!("no metrics there: {what}") })
        };
        let found = (host.as_str(), *port).to_socket_addrs().map_err(|error| failed(error.to_string()))?;
        let (mut listeners, mut absent) = (Vec::new(), None);
        for found in found {
            if !is_public && !found.ip().is_loopback() {
                return Err(failed(
                    "others could read them, unencrypted and without a credential; --metrics-public lets them"
                        .to_owned(),
                ));
            }
            match TcpListener::bind(found).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(listener)
            }) {
                Ok(listener) => listeners.push(listener),
                // A name may have addresses that this machine does not own.
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => absent = Some(error),
                Err(error) => return Err(failed(error.to_string())),
            }
        }
        match absent {
            Some(error) if listeners.is_empty() => Err(failed(error.to_string())),
            _ => Ok(listeners),
        }
    }
}

/// Serves requests of a listener, each within a time limit.
async fn answer_all(listener: TcpListener, server: Weak<Server>, places: Arc<Semaphore>, limit: Duration) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "metrics cannot be served"),
    };
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            // Mostly there are no file descriptors left: an immediate retry would fail again.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let server = server.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, server.clone()));
            // No keep-alive: every connection is closed after its answer.
            let serving =
                http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
            // Bad and slow requests get no answer.
            let _ = tokio::time::timeout(limit, serving).await;
            drop(place);
        });
    }
}

/// Serves metrics on a thread of its own, as long as the process lives.
pub(crate) fn serve(listeners: Vec<TcpListener>, server: &Arc<Server>) -> Result<(), CliError> {
    let failed = |error| CliError::Usage(format!("metrics cannot be served: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    for listener in listeners {
        let own = listener.local_addr().map_err(failed)?;
        tracing::info!(address = %own, path = "/metrics", "metrics");
        runtime.spawn(answer_all(listener, Arc::downgrade(server), Arc::clone(&places), REQUEST_TIME));
    }
    let thread = thread::Builder::new().name("yesquel-metrics".to_owned());
    thread.spawn(move || runtime.block_on(std::future::pending::<()>())).map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::TcpStream,
    };

    #[test]
    fn a_status_is_written_in_prometheus_format() {
        let status = ServerStatus {
            memory: yesquel::status::MemoryStatus { bytes: 512, ..Default::default() },
            log: yesquel::status::LogStatus {
                bytes: 4_096,
                checkpoint: Some(yesquel::status::CheckpointStatus { lsn: 9, bytes: 99, age_ms: 999 }),
                full: Some(yesquel::status::DiskFullStatus { since_ms: 7_000, ..Default::default() }),
                full_count: 3,
                ..Default::default()
            },
            requests: yesquel::status::RequestStatus { commits: 7, ..Default::default() },
            ..Default::default()
        };
        let text = text(vec![status]).unwrap();
        assert!(text.contains("# TYPE yesquel_memory_bytes gauge\nyesquel_memory_bytes 512\n"), "{text}");
        assert!(text.contains("# TYPE yesquel_commits counter\nyesquel_commits_total 7\n"), "{text}");
        for line in [
            "log_bytes 4096",
            "checkpoint_records 9",
            "checkpoint_bytes 99",
            "checkpoint_age_milliseconds 999",
            "disk_full 1",
            "disk_full_milliseconds 7000",
            "disks_full_total 3",
        ] {
            assert!(text.contains(&format!("\nyesquel_{line}\n")), "{text}");
        }
        assert!(!text.contains("memory_max") && text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn values_of_several_groups_are_together() {
        let status = |server| ServerStatus {
            server,
            log: yesquel::status::LogStatus { bytes: u64::from(server), ..Default::default() },
            connections: yesquel::status::ConnectionStatus { open: 5, ..Default::default() },
            ..Default::default()
        };
        let text = text([3, 8].map(status).to_vec()).unwrap();
        assert!(text.contains("# TYPE yesquel_log_bytes gauge\nyesquel_log_bytes{group=\"3\"} 3\nyesquel_log_bytes{group=\"8\"} 8\n# HELP "), "{text}");
        assert!(
            text.contains("\nyesquel_commit_messages_total{kind=\"decide\",group=\"8\"} 0\n")
                || text.contains("\nyesquel_commit_messages_total{group=\"8\",kind=\"decide\"} 0\n"),
            "{text}"
        );
        // One connection of a client serves all groups.
        assert!(text.contains("\nyesquel_connections 5\n"), "{text}");
        let types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        let unique: std::collections::BTreeSet<&&str> = types.iter().collect();
        assert_eq!(unique.len(), types.len(), "{text}");
        assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for (text, host, port) in
            [("localhost:1", "localhost", 1), ("[::1]:2", "::1", 2), ("127.0.0.1:0", "127.0.0.1", 0)]
        {
            assert_eq!(text.parse(), Ok(MetricsAddress { host: host.to_owned(), port }));
        }
        for wrong in ["", "localhost", ":1", "::1", "host:", "host:70000"] {
            assert!(wrong.parse::<MetricsAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn incomplete_requests_do_not_block_complete_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = |request: &[u8]| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            stream.write_all(request).unwrap();
            stream
        };
        let half: Vec<TcpStream> = (0..4).map(|_| connect(b"GET /metrics HTTP/1.1\r\nHost:")).collect();
        let mut whole = connect(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let places = Arc::new(Semaphore::new(2));
            let limit = Duration::from_millis(50);
            runtime.block_on(answer_all(listener, Weak::new(), places, limit));
        });
        let mut answer = String::new();
        whole.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        drop(half);
    }
}
