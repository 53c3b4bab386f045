//! Metrics sent to an OpenTelemetry collector, by OTLP over HTTP.
//!
//! The messages are made here and not by OpenTelemetry's SDK, for that counts
//! single times, each once more, and has no way in for what is counted.

use super::{
    Warn,
    totals::{BOUNDS_NS, Family, Sample, Totals, Value},
};
use crate::{failure::Failure, locked};
use http_body_util::Full;
use hyper::{
    Request, StatusCode, Uri,
    body::Bytes,
    client::conn::http1,
    header::{CONTENT_TYPE, HOST, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
        ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point,
    },
    resource::v1::Resource,
};
use prost::Message;
use std::{
    sync::{
        Arc, Mutex,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

/// The path of metrics below a collector's address.
const PATH: &str = "/v1/metrics";

/// How often, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// Time between messages.
    pub(super) every: Duration,
    /// Longest time of one.
    pub(super) limit: Duration,
    /// Longest time of the last, for which the end of the process waits.
    pub(super) last_limit: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let (every, limit) = (Duration::from_secs(5), Duration::from_secs(5));
        Times { every, limit, last_limit: Duration::from_secs(1) }
    }
}

fn attributes<'a>(pairs: impl IntoIterator<Item = &'a (&'static str, String)>) -> Vec<KeyValue> {
    let value = |text: &String| AnyValue { value: Some(any_value::Value::StringValue(text.clone())) };
    let pairs = pairs.into_iter();
    pairs
        .map(|(key, text)| KeyValue {
            key: (*key).to_owned(),
            value: Some(value(text)),
            ..Default::default()
        })
        .collect()
}

/// Nanoseconds since 1970 as the messages have them.
fn unix_ns(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn metric(family: &Family, start: u64, now: u64) -> Metric {
    let cumulative = AggregationTemporality::Cumulative.into();
    let number = |(labels, value): &Sample| {
        let (Value::Counter(number) | Value::Gauge(number)) = value else {
            return number_of(labels, 1.0, now);
        };
        let start_time_unix_nano = if let Value::Counter(_) = value { start } else { 0 };
        NumberDataPoint { start_time_unix_nano, ..number_of(labels, *number, now) }
    };
    let numbers = || family.samples.iter().map(number).collect();
    let data = match family.samples.first().map(|(_, value)| value) {
        Some(Value::Counter(_)) => {
            Data::Sum(Sum { data_points: numbers(), aggregation_temporality: cumulative, is_monotonic: true })
        }
        Some(Value::Histogram(_)) => {
            let points = family.samples.iter().filter_map(|(labels, value)| match value {
                Value::Histogram(counts) => Some(HistogramDataPoint {
                    attributes: attributes(labels),
                    start_time_unix_nano: start,
                    time_unix_nano: now,
                    count: counts.count,
                    sum: Some(counts.sum_s),
                    bucket_counts: counts.buckets.to_vec(),
                    explicit_bounds: BOUNDS_NS.iter().map(|ns| *ns as f64 / 1e9).collect(),
                    ..Default::default()
                }),
                _ => None,
            });
            Data::Histogram(Histogram { data_points: points.collect(), aggregation_temporality: cumulative })
        }
        _ => Data::Gauge(Gauge { data_points: numbers() }),
    };
    Metric {
        name: family.name.to_owned(),
        description: family.help.to_owned(),
        unit: if family.seconds { "s".to_owned() } else { String::new() },
        data: Some(data),
        ..Default::default()
    }
}

fn number_of(labels: &[(&'static str, String)], number: f64, now: u64) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(labels),
        time_unix_nano: now,
        value: Some(number_data_point::Value::AsDouble(number)),
        ..Default::default()
    }
}

/// The message of what is known now.
fn message(families: &[Family], start: u64, now: u64) -> Vec<u8> {
    let version = || env!("CARGO_PKG_VERSION").to_owned();
    let resource = [
        ("service.name", "serval".to_owned()),
        ("service.version", version()),
        ("process.pid", std::process::id().to_string()),
    ];
    let scope = InstrumentationScope { name: "serval".to_owned(), version: version(), ..Default::default() };
    let metrics = families.iter().map(|family| metric(family, start, now)).collect();
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource { attributes: attributes(&resource), ..Default::default() }),
            scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics, ..Default::default() }],
            ..Default::default()
        }],
    };
    request.encode_to_vec()
}

/// Where a collector is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Collector {
    host: String,
    port: u16,
    path: String,
}

impl Collector {
    fn parse(url: &str) -> Result<Collector, Failure> {
        let wrong = |what: &str| {
            Failure::usage(format!("--otlp: {what}: write http://HOST:PORT, such as http://127.0.0.1:4318"))
        };
        let uri: Uri = url.parse().map_err(|error| wrong(&format!("this is no address ({error})")))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(wrong(
                    "encrypted connections are not made: send to a collector of this machine, which passes it on",
                ));
            }
            _ => return Err(wrong("the address has to begin with http://")),
        }
        let authority = uri.authority().ok_or_else(|| wrong("the address has no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("the address must have no password"));
        }
        let host = uri.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let base = uri.path().trim_end_matches('/');
        let path = if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") };
        Ok(Collector { host: host.to_owned(), port: uri.port_u16().unwrap_or(4318), path })
    }

    async fn post(&self, body: Vec<u8>) -> Result<(), String> {
        let stream = tokio::net::TcpStream::connect((self.host.as_str(), self.port));
        let stream = stream.await.map_err(|error| error.to_string())?;
        let connected = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = connected.map_err(|error| error.to_string())?;
        let connection = tokio::spawn(connection);
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let request = Request::post(&self.path)
            .header(HOST, format!("{host}:{}", self.port))
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header(USER_AGENT, concat!("serval/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        let response = sender.send_request(request).await;
        // What else it says is not read.
        connection.abort();
        match response {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) if response.status() == StatusCode::NOT_FOUND => {
                Err(format!("it knows no {} (404)", self.path))
            }
            Ok(response) => Err(format!("it answers {}", response.status())),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn send(&self, body: Vec<u8>, limit: Duration) -> Result<(), String> {
        let in_time = tokio::time::timeout(limit, self.post(body)).await;
        in_time.unwrap_or_else(|_| Err(format!("no answer in {} s", limit.as_secs_f64())))
    }
}

/// A thread that sends until this is dropped, and once more then.
pub(super) struct Sending {
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sending {
    /// Begins to send. A collector that is away is told of by `warn`, once.
    pub(super) fn begin(
        url: &str,
        totals: &Arc<Mutex<Totals>>,
        times: Times,
        warn: Warn,
    ) -> Result<Sending, Failure> {
        let collector = Collector::parse(url)?;
        let failed = |error: std::io::Error| Failure::usage(format!("--otlp: nothing can be sent: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (end, ended) = mpsc::channel::<()>();
        let totals = Arc::clone(totals);
        let start = unix_ns(SystemTime::now());
        let send = move || {
            let mut told = false;
            loop {
                let is_last = ended.recv_timeout(times.every) != Err(RecvTimeoutError::Timeout);
                // Copied, so that the conductor does not wait for a message.
                let now = locked(&totals).clone();
                let body = message(&now.families(), start, unix_ns(SystemTime::now()));
                let limit = if is_last { times.last_limit } else { times.limit };
                let sent = runtime.block_on(collector.send(body, limit));
                if let Err(error) = sent
                    && !std::mem::replace(&mut told, true)
                {
                    let Collector { host, port, .. } = &collector;
                    warn(&format!(
                        "the OpenTelemetry collector at {host}:{port} does not take metrics: {error}. The run goes on \
                         without; this is said once"
                    ));
                }
                if is_last {
                    // A host name that is still looked up is not waited for.
                    runtime.shutdown_background();
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("serval-otlp".to_owned()).spawn(send).map_err(failed)?;
        Ok(Sending { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::made_up, *};
    use std::{
        io::{BufRead, BufReader, Read, Write},
        net::TcpListener,
    };

    fn totals() -> Arc<Mutex<Totals>> {
        let mut totals = Totals::default();
        totals.step(&made_up::step(7), "redis", std::time::Instant::now());
        for second in 0..5 {
            totals.interval(&made_up::interval(second, 10_000, 7));
        }
        Arc::new(Mutex::new(totals))
    }

    /// Reads one request: its first line and its body.
    fn request(listener: &TcpListener, status: &str) -> (String, Vec<u8>) {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut first, mut length) = (String::new(), 0);
        reader.read_line(&mut first).unwrap();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = text.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).unwrap();
        (first.trim().to_owned(), body)
    }

    /// Times with which nothing is sent before the end.
    fn at_the_end() -> Times {
        Times { every: Duration::from_secs(3600), last_limit: Duration::from_secs(60), ..Times::default() }
    }

    #[test]
    fn a_collector_gets_what_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let warn = Box::new(|words: &str| panic!("{words}"));
        let sending = Sending::begin(&url, &totals(), at_the_end(), warn).unwrap();
        let served = thread::spawn(move || request(&listener, "200 OK"));
        drop(sending);
        let (first, body) = served.join().unwrap();
        assert_eq!(first, "POST /v1/metrics HTTP/1.1");
        let message = ExportMetricsServiceRequest::decode(body.as_slice()).unwrap();
        let metrics = &message.resource_metrics[0].scope_metrics[0].metrics;
        let named = |name: &str| metrics.iter().find(|metric| metric.name == name).unwrap();
        let Some(Data::Histogram(response)) = &named("serval_response").data else { panic!() };
        assert_eq!(named("serval_response").unit, "s");
        let counts: Vec<u64> = response.data_points.iter().map(|point| point.count).collect();
        // READ, UPDATE failed, UPDATE; measured, then warm-up.
        assert_eq!(counts, [10_000, 14, 9_986, 15_000, 21, 14_979]);
        for point in &response.data_points {
            assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
            assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        }
        let Some(Data::Sum(operations)) = &named("serval_operations").data else { panic!() };
        assert!(operations.is_monotonic && operations.data_points[0].start_time_unix_nano > 0);
        assert!(body.windows(19).any(|bytes| bytes == b"40 %, repeat 2 of 3"), "the step's words");
    }

    #[test]
    fn a_collector_that_is_away_is_told_of_once() {
        let (tell, told) = mpsc::channel();
        // Nobody listens there any more.
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let warn = Box::new(move |words: &str| tell.send(words.to_owned()).unwrap());
        let times = Times { every: Duration::from_millis(1), ..Times::default() };
        let sending = Sending::begin(&format!("http://{gone}"), &totals(), times, warn).unwrap();
        let words = told.recv().unwrap();
        assert!(words.contains(&gone.to_string()) && words.contains("goes on without"), "{words}");
        drop(sending);
        assert_eq!(told.try_iter().count(), 0);
    }

    #[test]
    fn a_collector_that_refuses_or_says_nothing_holds_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/base/", listener.local_addr().unwrap());
        let (tell, told) = mpsc::channel();
        let warn = |tell: mpsc::Sender<String>| -> Warn {
            Box::new(move |words: &str| tell.send(words.to_owned()).unwrap())
        };
        let sending = Sending::begin(&url, &totals(), at_the_end(), warn(tell.clone())).unwrap();
        let served = thread::spawn(move || (request(&listener, "503 Service Unavailable"), listener));
        drop(sending);
        let ((first, _), silent) = served.join().unwrap();
        assert_eq!(first, "POST /base/v1/metrics HTTP/1.1");
        assert!(told.recv().unwrap().contains("503"));
        // This one takes the connection and never answers.
        let times = Times { last_limit: Duration::from_millis(50), ..at_the_end() };
        drop(Sending::begin(&url, &totals(), times, warn(tell)).unwrap());
        assert!(told.recv().unwrap().contains("no answer in 0.05 s"));
        drop(silent);
    }

    #[test]
    fn addresses_of_collectors() {
        let parsed = |url: &str| Collector::parse(url).map(|c| (c.host, c.port, c.path));
        let is = |host: &str, port, path: &str| (host.to_owned(), port, path.to_owned());
        assert_eq!(parsed("http://localhost").unwrap(), is("localhost", 4318, "/v1/metrics"));
        assert_eq!(parsed("http://[::1]:80/a").unwrap(), is("::1", 80, "/a/v1/metrics"));
        assert_eq!(parsed("http://c:1/v1/metrics").unwrap(), is("c", 1, "/v1/metrics"));
        for (url, words) in [
            ("localhost:4318", "http://"),
            ("https://localhost:4318", "encrypted"),
            ("http://me:secret@localhost", "password"),
            ("http://", "no address"),
            ("ftp://x", "begin with http://"),
        ] {
            let message = parsed(url).unwrap_err().message;
            assert!(message.contains(words) && !message.contains("secret"), "{url}: {message}");
        }
    }
}
