//! Metrics for Prometheus at `/metrics`, in OpenMetrics' text form, or in the older one for who asks
//! for plain text.

use super::totals::{BOUNDS_NS, Counts, Family, Sample, Totals, Value};
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

/// Connections that are served at once: a few who ask, and one that hangs.
const CONNECTIONS_MAX: usize = 8;
/// Time that a request and its answer may take.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Most bytes of a request's head: the least that hyper takes.
const REQUEST_MAX: usize = 8192;
/// What the answer is, in OpenMetrics' form.
const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The same in the form before that.
const OLDER: &str = "text/plain; version=0.0.4; charset=utf-8";

fn kind(value: &Value) -> MetricType {
    match value {
        Value::Counter(_) => MetricType::Counter,
        Value::Gauge(_) => MetricType::Gauge,
        Value::Histogram(_) => MetricType::Histogram,
        Value::Info => MetricType::Info,
    }
}

#[derive(Debug)]
struct Families(Vec<Family>);

fn histogram(encoder: &mut MetricEncoder<'_>, counts: &Counts) -> fmt::Result {
    // The crate's name for no bound is the largest number.
    let bounds = BOUNDS_NS.iter().map(|ns| *ns as f64 / 1e9).chain([f64::MAX]);
    let buckets: Vec<(f64, u64)> = bounds.zip(counts.buckets).collect();
    encoder.encode_histogram::<NoLabelSet>(counts.sum_s, counts.count, &buckets, None)
}

/// The crate writes labels as they are; quotes and the like are for us to mark.
fn marked(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

fn value(encoder: &mut MetricEncoder<'_>, (labels, value): &Sample) -> fmt::Result {
    let labels: Vec<_> = labels.iter().map(|(name, text)| (*name, marked(text))).collect();
    match value {
        Value::Info => encoder.encode_info(&labels),
        value if labels.is_empty() => number(encoder, value),
        value => number(&mut encoder.encode_family(&labels)?, value),
    }
}

fn number(encoder: &mut MetricEncoder<'_>, value: &Value) -> fmt::Result {
    match value {
        Value::Counter(number) => encoder.encode_counter::<NoLabelSet, _, f64>(number, None),
        Value::Gauge(number) => encoder.encode_gauge(number),
        Value::Histogram(counts) => histogram(encoder, counts),
        Value::Info => Ok(()),
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

/// The families as text.
pub(super) fn text(families: Vec<Family>) -> Result<String, fmt::Error> {
    let (mut registry, mut text) = (Registry::default(), String::new());
    registry.register_collector(Box::new(Families(families)));
    encode(&mut text, &registry)?;
    Ok(text)
}

/// OpenMetrics' text in the form before it: families are called as their samples are, an info is a gauge,
/// and there are neither units nor an end.
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

/// Whether plain text is asked for, and OpenMetrics' form is not.
fn wants_older(request: &Request<Incoming>) -> bool {
    let accepts = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let kinds = accepts.flat_map(|value| value.split(','));
    let kinds: Vec<&str> = kinds.map(|kind| kind.split(';').next().unwrap_or_default().trim()).collect();
    let among =
        |wanted: &[&str]| kinds.iter().any(|kind| wanted.iter().any(|w| kind.eq_ignore_ascii_case(w)));
    among(&["text/plain", "text/html", "text/*"]) && !among(&["application/openmetrics-text"])
}

/// Where metrics are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    host: String,
    port: u16,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let wrong = || format!("'{text}' is no address: write HOST:PORT, such as 127.0.0.1:9100");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        // A number of IPv6 stands in brackets.
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = !host.is_empty() && (bare.is_some() || !host.contains(':'));
        let port = port.parse().ok().filter(|_| is_host).ok_or_else(wrong)?;
        Ok(Address { host: bare.unwrap_or(host).to_owned(), port })
    }
}

impl Address {
    fn listen(&self) -> io::Result<Vec<TcpListener>> {
        let (mut listeners, mut absent) = (Vec::<TcpListener>::new(), None);
        let mut port = self.port;
        for mut found in (self.host.as_str(), self.port).to_socket_addrs()? {
            // All addresses of a name get the one port that was free.
            found.set_port(port);
            match TcpListener::bind(found) {
                Ok(listener) => {
                    listener.set_nonblocking(true)?;
                    port = listener.local_addr()?.port();
                    listeners.push(listener);
                }
                // A name may stand for addresses of which this machine has not all.
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

fn answer(request: &Request<Incoming>, totals: &Mutex<Totals>) -> Response<Full<Bytes>> {
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

/// Answers requests at a socket, each within a time: they have few places.
async fn answer_all(
    listener: tokio::net::TcpListener,
    totals: Arc<Mutex<Totals>>,
    places: Arc<Semaphore>,
    limit: Duration,
) {
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            // There are no descriptors left, mostly: tried again at once, it would fail again.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let totals = Arc::clone(&totals);
        tokio::spawn(async move {
            let answer = |request: Request<Incoming>| {
                let answer = answer(&request, &totals);
                async move { Ok::<_, Infallible>(answer) }
            };
            // Whoever comes back has a place again, and keeps none meanwhile.
            let mut http = http1::Builder::new();
            http.keep_alive(false).max_buf_size(REQUEST_MAX);
            let serving = http.serve_connection(TokioIo::new(stream), service_fn(answer));
            // Whoever asks badly, or is slow, has no answer.
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
    /// Where it listens.
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

/// Begins to serve.
pub(super) fn serve(address: &Address, totals: &Arc<Mutex<Totals>>) -> Result<Serving, Failure> {
    serve_within(address, totals, CONNECTIONS_MAX, REQUEST_TIME)
}

/// As [`serve`], with so many places, and so much time for a request.
pub(super) fn serve_within(
    address: &Address,
    totals: &Arc<Mutex<Totals>>,
    places: usize,
    limit: Duration,
) -> Result<Serving, Failure> {
    let failed = |error: io::Error| {
        let Address { host, port } = address;
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
