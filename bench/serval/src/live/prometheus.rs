//! Metrics for Prometheus at `/metrics`, in the OpenMetrics text format, or in Prometheus' older
//! format if the request accepts only plain text.

use super::totals::{BOUNDS_NS, BucketCounts, Family, LiveTotals, SeriesSample, SeriesValue};
use crate::{failure::Failure, locked};
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ACCEPT, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode},
    metrics::MetricType,
    registry::{Registry, Unit},
};
use std::{
    convert::Infallible,
    fmt, io,
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    str::FromStr,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::{Semaphore, oneshot};

/// Maximum number of concurrent connections: a few scrapers, and one that hangs.
const CONNECTIONS_MAX: usize = 8;
/// Time limit of a request with its response.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Maximum size of a request's head: hyper's minimum.
const REQUEST_MAX: usize = 8192;
/// Content type of the OpenMetrics format.
const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of the older format.
const OLDER: &str = "text/plain; version=0.0.4; charset=utf-8";

fn kind(value: &SeriesValue) -> MetricType {
    match value {
        SeriesValue::Counter(_) => MetricType::Counter,
        SeriesValue::Gauge(_) => MetricType::Gauge,
        SeriesValue::Histogram(_) => MetricType::Histogram,
        SeriesValue::Info => MetricType::Info,
    }
}

#[derive(Debug)]
struct Families(Vec<Family>);

fn histogram(encoder: &mut MetricEncoder<'_>, counts: &BucketCounts) -> fmt::Result {
    // The crate represents +Inf as the largest number.
    let bounds = BOUNDS_NS.iter().map(|ns| *ns as f64 / 1e9).chain([f64::MAX]);
    let buckets: Vec<(f64, u64)> = bounds.zip(counts.buckets).collect();
    encoder.encode_histogram::<NoLabelSet>(counts.sum_s, counts.count, &buckets, None)
}

/// The crate does not escape label values.
fn marked(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

fn value(encoder: &mut MetricEncoder<'_>, (labels, value): &SeriesSample) -> fmt::Result {
    let labels: Vec<_> = labels.iter().map(|(name, text)| (*name, marked(text))).collect();
    match value {
        SeriesValue::Info => encoder.encode_info(&labels),
        value if labels.is_empty() => number(encoder, value),
        value => number(&mut encoder.encode_family(&labels)?, value),
    }
}

fn number(encoder: &mut MetricEncoder<'_>, value: &SeriesValue) -> fmt::Result {
    match value {
        SeriesValue::Counter(number) => encoder.encode_counter::<NoLabelSet, _, f64>(number, None),
        SeriesValue::Gauge(number) => encoder.encode_gauge(number),
        SeriesValue::Histogram(counts) => histogram(encoder, counts),
        SeriesValue::Info => Ok(()),
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, help, seconds, samples } in &self.0 {
            let Some((_, first)) = samples.first() else { continue };
            let unit = seconds.then_some(&Unit::Seconds);
            let mut encoder = encoder.encode_descriptor(name, help, unit, kind(first))?;
            samples.iter().try_for_each(|sample| value(&mut encoder, sample))?;
        }
        Ok(())
    }
}

/// Formats the families in the OpenMetrics format.
pub(super) fn text(families: Vec<Family>) -> Result<String, fmt::Error> {
    let (mut registry, mut text) = (Registry::default(), String::new());
    registry.register_collector(Box::new(Families(families)));
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Converts OpenMetrics text to the older format: families have the names of their samples, an info
/// is a gauge, and there is no UNIT and no EOF.
fn older(text: &str) -> String {
    let (mut out, mut help) = (String::with_capacity(text.len()), None);
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("UNIT" | "EOF"), ..) => {}
            (Some("#"), Some("HELP"), Some(name), words) => help = Some((name, words.unwrap_or_default())),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (end, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    kind => ("", kind),
                };
                if let Some((of, words)) = help.take().filter(|(of, _)| *of == name) {
                    out.push_str(&format!("# HELP {of}{end} {words}\n"));
                }
                out.push_str(&format!("# TYPE {name}{end} {kind}\n"));
            }
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

/// Returns whether the request accepts plain text but not OpenMetrics.
fn wants_older(request: &Request<Incoming>) -> bool {
    let accepts = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let kinds = accepts.flat_map(|value| value.split(','));
    let kinds: Vec<&str> = kinds.map(|kind| kind.split(';').next().unwrap_or_default().trim()).collect();
    let among =
        |wanted: &[&str]| kinds.iter().any(|kind| wanted.iter().any(|w| kind.eq_ignore_ascii_case(w)));
    among(&["text/plain", "text/html", "text/*"]) && !among(&["application/openmetrics-text"])
}

/// Address on which metrics are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScrapeAddress {
    host: String,
    port: u16,
}

impl FromStr for ScrapeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ScrapeAddress, String> {
        let wrong = || format!("'{text}' is no address: write HOST:PORT, such as 127.0.0.1:9100");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        // An IPv6 address is in brackets.
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = !host.is_empty() && (bare.is_some() || !host.contains(':'));
        let port = port.parse().ok().filter(|_| is_host).ok_or_else(wrong)?;
        Ok(ScrapeAddress { host: bare.unwrap_or(host).to_owned(), port })
    }
}

impl ScrapeAddress {
    fn listen(&self) -> io::Result<Vec<TcpListener>> {
        let (mut listeners, mut absent) = (Vec::<TcpListener>::new(), None);
        let mut port = self.port;
        for mut found in (self.host.as_str(), self.port).to_socket_addrs()? {
            // All addresses of a name share the first one's free port.
            found.set_port(port);
            match TcpListener::bind(found) {
                Ok(listener) => {
                    listener.set_nonblocking(true)?;
                    port = listener.local_addr()?.port();
                    listeners.push(listener);
                }
                // A name may resolve to addresses that this machine does not have.
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => absent = Some(error),
                Err(error) => return Err(error),
            }
        }
        match (listeners.is_empty(), absent) {
            (false, _) => Ok(listeners),
            (true, Some(error)) => Err(error),
            (true, None) => Err(io::Error::other("the name stands for no address")),
        }
    }
}

fn answer(request: &Request<Incoming>, totals: &Mutex<LiveTotals>) -> Response<Full<Bytes>> {
    let of = |status: StatusCode, body: String| {
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        response
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) || request.uri().path() != "/metrics" {
        return of(StatusCode::NOT_FOUND, "metrics are at /metrics\n".to_owned());
    }
    // Copied, so that the conductor does not wait for the text.
    let totals = locked(totals).clone();
    match text(totals.families()) {
        Ok(text) => {
            let (text, kind) = if wants_older(request) { (older(&text), OLDER) } else { (text, TEXT) };
            let mut response = of(StatusCode::OK, text);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            response
        }
        Err(error) => of(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

/// Serves requests on a socket, each within a time limit, because connections are limited.
async fn answer_all(
    listener: tokio::net::TcpListener,
    totals: Arc<Mutex<LiveTotals>>,
    places: Arc<Semaphore>,
    limit: Duration,
) {
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            // Usually the process is out of descriptors: an immediate retry would fail again.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let totals = Arc::clone(&totals);
        tokio::spawn(async move {
            let answer = |request: Request<Incoming>| {
                let answer = answer(&request, &totals);
                async move { Ok::<_, Infallible>(answer) }
            };
            // Close the connection: an idle scraper must not occupy a slot.
            let mut http = http1::Builder::new();
            http.keep_alive(false).max_buf_size(REQUEST_MAX);
            let serving = http.serve_connection(TokioIo::new(stream), service_fn(answer));
            // A malformed or slow request gets no response.
            let _ = tokio::time::timeout(limit, serving).await;
            drop(place);
        });
    }
}

/// A thread that serves metrics until this is dropped.
pub(super) struct Serving {
    addresses: Vec<SocketAddr>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Its address.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts serving.
pub(super) fn serve(address: &ScrapeAddress, totals: &Arc<Mutex<LiveTotals>>) -> Result<Serving, Failure> {
    serve_within(address, totals, CONNECTIONS_MAX, REQUEST_TIME)
}

/// Same as [`serve`], with a connection limit and a request timeout.
pub(super) fn serve_within(
    address: &ScrapeAddress,
    totals: &Arc<Mutex<LiveTotals>>,
    places: usize,
    limit: Duration,
) -> Result<Serving, Failure> {
    let failed = |error: io::Error| {
        let ScrapeAddress { host, port } = address;
        Failure::usage(format!("--prometheus {host}:{port}: metrics cannot be served there: {error}"))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let listeners = address.listen().map_err(failed)?;
    let addresses =
        listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>().map_err(failed)?;
    let places = Arc::new(Semaphore::new(places));
    for listener in listeners {
        let _inside = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        runtime.spawn(answer_all(listener, Arc::clone(totals), Arc::clone(&places), limit));
    }
    let (end, ended) = oneshot::channel::<()>();
    let thread = thread::Builder::new().name("serval-metrics".to_owned());
    let thread = thread.spawn(move || drop(runtime.block_on(ended))).map_err(failed)?;
    Ok(Serving { addresses, end: Some(end), thread: Some(thread) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_form_calls_families_as_their_samples() {
        let open = "# HELP a_seconds CPU  time\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1.5\n\
                    # HELP step What\n# TYPE step info\nstep_info{step=\"# TYPE x info\"} 1\n\
                    # HELP t Times\n# TYPE t histogram\nt_bucket{le=\"+Inf\"} 2\n# EOF\n";
        let wanted = "# HELP a_seconds_total CPU  time\n# TYPE a_seconds_total counter\na_seconds_total 1.5\n\
                      # HELP step_info What\n# TYPE step_info gauge\nstep_info{step=\"# TYPE x info\"} 1\n\
                      # HELP t Times\n# TYPE t histogram\nt_bucket{le=\"+Inf\"} 2\n";
        assert_eq!(older(open), wanted);
    }
}
