//! Metrics for Prometheus at `/metrics`, in the OpenMetrics text format, or in Prometheus' older
//! format if the request accepts only plain text.

use super::{
    background::Background,
    host_and_port,
    totals::{BOUNDS_NS, Family, LiveTotals, SeriesValue},
};
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
use std::{
    convert::Infallible,
    fmt::{self, Write},
    io,
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    str::FromStr,
    sync::{Arc, Mutex},
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

/// A number as both formats have it: never with an exponent, always with a point.
fn decimal(number: f64) -> String {
    let text = number.to_string();
    if text.contains('.') || !number.is_finite() { text } else { format!("{text}.0") }
}

fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

/// Formats the families in the OpenMetrics format, or in the older one: there a family has the name of its samples, an
/// info is a gauge, and there is no UNIT and no EOF.
pub(super) fn text(families: &[Family], older: bool) -> String {
    let mut out = String::new();
    for Family { name, help, seconds, samples } in families {
        let Some((_, first)) = samples.first() else { continue };
        let name = format!("{name}{}", if *seconds { "_seconds" } else { "" });
        let (kind, end) = match first {
            SeriesValue::Counter(_) => ("counter", "_total"),
            SeriesValue::Gauge(_) => ("gauge", ""),
            SeriesValue::Histogram(_) => ("histogram", ""),
            SeriesValue::Info if older => ("gauge", "_info"),
            SeriesValue::Info => ("info", "_info"),
        };
        let family = if older { format!("{name}{end}") } else { name.clone() };
        let _ = writeln!(out, "# HELP {family} {help}\n# TYPE {family} {kind}");
        if *seconds && !older {
            let _ = writeln!(out, "# UNIT {family} seconds");
        }
        for (labels, value) in samples {
            let label = |(name, text): &(&str, String)| format!("{name}=\"{}\"", escaped(text));
            let labels: Vec<String> = labels.iter().map(label).collect();
            sample(&mut out, &name, end, &labels, value);
        }
    }
    if !older {
        out.push_str("# EOF\n");
    }
    out
}

fn sample(out: &mut String, name: &str, end: &str, labels: &[String], value: &SeriesValue) {
    let mut line = |end: &str, bound: Option<String>, value: String| {
        let labels: Vec<String> = bound.into_iter().chain(labels.iter().cloned()).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(out, "{name}{end}{labels} {value}");
    };
    match value {
        SeriesValue::Counter(number) | SeriesValue::Gauge(number) => line(end, None, decimal(*number)),
        SeriesValue::Info => line(end, None, "1".to_owned()),
        SeriesValue::Histogram(counts) => {
            line("_sum", None, decimal(counts.sum_s));
            line("_count", None, counts.count.to_string());
            let bounds = BOUNDS_NS.iter().map(|ns| decimal(*ns as f64 / 1e9)).chain(["+Inf".to_owned()]);
            let mut up_to = 0;
            for (bound, count) in bounds.zip(counts.buckets) {
                up_to += count;
                line("_bucket", Some(format!("le=\"{bound}\"")), up_to.to_string());
            }
        }
    }
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

impl fmt::Display for ScrapeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&host_and_port(&self.host, self.port))
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
    let older = wants_older(request);
    let mut response = of(StatusCode::OK, text(&totals.families(), older));
    let kind = HeaderValue::from_static(if older { OLDER } else { TEXT });
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
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
    _thread: Background<oneshot::Sender<()>>,
}

impl Serving {
    /// Its address.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
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
        Failure::usage(format!("--prometheus {address}: metrics cannot be served there: {error}"))
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
    let serve = move || drop(runtime.block_on(ended));
    let thread = Background::start("serval-metrics", end, serve).map_err(failed)?;
    Ok(Serving { addresses, _thread: thread })
}

#[cfg(test)]
mod tests {
    use super::{super::totals::BucketCounts, *};

    fn family(
        name: &'static str,
        seconds: bool,
        labels: &[(&'static str, &str)],
        value: SeriesValue,
    ) -> Family {
        let labels = labels.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        Family { name, help: "Some  help", seconds, samples: vec![(labels, value)] }
    }

    #[test]
    fn in_the_older_form_families_are_called_as_their_samples() {
        let families = [
            family("a", true, &[], SeriesValue::Counter(1.5)),
            family("step", false, &[("step", "a \"b\"\n\\")], SeriesValue::Info),
            family("n", false, &[], SeriesValue::Gauge(12_000.0)),
            Family { samples: Vec::new(), ..family("none", false, &[], SeriesValue::Info) },
        ];
        let step = r#"step_info{step="a \"b\"\n\\"} 1"#;
        let open = format!(
            "# HELP a_seconds Some  help\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1.5\n\
             # HELP step Some  help\n# TYPE step info\n{step}\n\
             # HELP n Some  help\n# TYPE n gauge\nn 12000.0\n# EOF\n"
        );
        assert_eq!(text(&families, false), open);
        let older = format!(
            "# HELP a_seconds_total Some  help\n# TYPE a_seconds_total counter\na_seconds_total 1.5\n\
             # HELP step_info Some  help\n# TYPE step_info gauge\n{step}\n\
             # HELP n Some  help\n# TYPE n gauge\nn 12000.0\n"
        );
        assert_eq!(text(&families, true), older);
    }

    #[test]
    fn buckets_add_up_and_have_their_bounds_in_seconds() {
        let buckets = std::array::from_fn(|nth| u64::from(nth < 2));
        let counts = SeriesValue::Histogram(BucketCounts { buckets, count: 2, sum_s: 3.5e-6 });
        let text = text(&[family("t", true, &[("part", "load")], counts)], true);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..6],
            [
                "# HELP t_seconds Some  help",
                "# TYPE t_seconds histogram",
                "t_seconds_sum{part=\"load\"} 0.0000035",
                "t_seconds_count{part=\"load\"} 2",
                "t_seconds_bucket{le=\"0.000001\",part=\"load\"} 1",
                "t_seconds_bucket{le=\"0.0000025\",part=\"load\"} 2",
            ]
        );
        assert_eq!(lines.len(), 4 + BOUNDS_NS.len() + 1);
        assert_eq!(lines[lines.len() - 2], "t_seconds_bucket{le=\"10.0\",part=\"load\"} 2");
        assert_eq!(lines[lines.len() - 1], "t_seconds_bucket{le=\"+Inf\",part=\"load\"} 2");
    }
}
