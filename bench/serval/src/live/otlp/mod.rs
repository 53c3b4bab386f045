//! Export of metrics to an OpenTelemetry collector, by OTLP over HTTP.
//!
//! The messages are built here because OpenTelemetry's SDK records single values and cannot take
//! existing histograms.

mod collector;

use super::{
    Warn,
    background::Background,
    totals::{BOUNDS_NS, Family, LiveTotals, SeriesSample, SeriesValue},
};
use crate::{failure::Failure, locked};
use collector::{Collector, OtlpEnvironment, resource};
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
    time::{Duration, SystemTime},
};

/// Interval and time limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExportTimes {
    /// Time between messages.
    pub(super) every: Duration,
    /// Time limit of a message.
    pub(super) limit: Duration,
    /// Time limit of the last message, which delays the end of the process.
    pub(super) last_limit: Duration,
}

impl Default for ExportTimes {
    fn default() -> Self {
        let (every, limit) = (Duration::from_secs(5), Duration::from_secs(5));
        ExportTimes { every, limit, last_limit: Duration::from_secs(1) }
    }
}

fn attributes<K: AsRef<str>>(pairs: &[(K, String)]) -> Vec<KeyValue> {
    let value = |text: &String| AnyValue { value: Some(any_value::Value::StringValue(text.clone())) };
    let pair = |(key, text): &(K, String)| KeyValue {
        key: key.as_ref().to_owned(),
        value: Some(value(text)),
        ..Default::default()
    };
    pairs.iter().map(pair).collect()
}

/// Nanoseconds since 1970, the unit of the messages.
fn unix_ns(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn metric(family: &Family, start: u64, now: u64) -> Metric {
    let cumulative = AggregationTemporality::Cumulative.into();
    let number = |(labels, value): &SeriesSample| {
        let (SeriesValue::Counter(number) | SeriesValue::Gauge(number)) = value else {
            return number_of(labels, 1.0, now);
        };
        let start_time_unix_nano = if let SeriesValue::Counter(_) = value { start } else { 0 };
        NumberDataPoint { start_time_unix_nano, ..number_of(labels, *number, now) }
    };
    let numbers = || family.samples.iter().map(number).collect();
    let data = match family.samples.first().map(|(_, value)| value) {
        Some(SeriesValue::Counter(_)) => {
            Data::Sum(Sum { data_points: numbers(), aggregation_temporality: cumulative, is_monotonic: true })
        }
        Some(SeriesValue::Histogram(_)) => {
            let points = family.samples.iter().filter_map(|(labels, value)| match value {
                SeriesValue::Histogram(counts) => Some(HistogramDataPoint {
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

/// Builds a message with the current values, for a process that `resource` describes.
fn message(families: &[Family], resource: &[(String, String)], start: u64, now: u64) -> Vec<u8> {
    let scope = InstrumentationScope {
        name: "serval".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Default::default()
    };
    let metrics = families.iter().map(|family| metric(family, start, now)).collect();
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource { attributes: attributes(resource), ..Default::default() }),
            scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics, ..Default::default() }],
            ..Default::default()
        }],
    };
    request.encode_to_vec()
}

/// A thread that sends until this is dropped, then a last time.
pub(super) type Sending = Background<mpsc::Sender<()>>;

/// Starts sending to a collector, or without a URL to that of the environment. `warn` reports
/// an unreachable collector once.
pub(super) fn begin(
    url: Option<&str>,
    totals: &Arc<Mutex<LiveTotals>>,
    times: ExportTimes,
    warn: Warn,
) -> Result<Sending, Failure> {
    begin_in(&OtlpEnvironment::of_process(), url, totals, times, warn)
}

fn begin_in(
    environment: &OtlpEnvironment<'_>,
    url: Option<&str>,
    totals: &Arc<Mutex<LiveTotals>>,
    times: ExportTimes,
    warn: Warn,
) -> Result<Sending, Failure> {
    let collector = Collector::find(url, environment)?;
    let resource = resource(environment)?;
    let failed = |error: std::io::Error| Failure::usage(format!("--otlp: nothing can be sent: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (end, ended) = mpsc::channel::<()>();
    let totals = Arc::clone(totals);
    let start = unix_ns(SystemTime::now());
    let send = move || {
        let mut is_reported = false;
        loop {
            let is_last = ended.recv_timeout(times.every) != Err(RecvTimeoutError::Timeout);
            // Copied, so that the conductor does not wait for a message.
            let now = locked(&totals).clone();
            let body = message(&now.families(), &resource, start, unix_ns(SystemTime::now()));
            let limit = if is_last { times.last_limit } else { times.limit };
            let sent = runtime.block_on(collector.send(body, limit));
            if let Err(error) = sent
                && !std::mem::replace(&mut is_reported, true)
            {
                warn(&format!(
                    "the OpenTelemetry collector at {collector} does not take metrics: {error}. The run goes on \
                     without; this is said once"
                ));
            }
            if is_last {
                // Do not wait for a pending DNS lookup.
                runtime.shutdown_background();
                return;
            }
        }
    };
    Background::start("serval-otlp", end, send).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::{super::sample_run, *};
    use std::{
        io::{BufRead, BufReader, Read, Write},
        net::TcpListener,
        thread,
    };
    use tokio_rustls::rustls::{self, ServerConfig, ServerConnection, StreamOwned, pki_types::PrivateKeyDer};

    fn totals() -> Arc<Mutex<LiveTotals>> {
        let mut totals = LiveTotals::default();
        totals.step(&sample_run::step(7), "redis", std::time::Instant::now());
        for second in 0..5 {
            totals.interval(&sample_run::interval(second, 10_000, 7));
        }
        Arc::new(Mutex::new(totals))
    }

    /// What a collector was sent.
    struct Sent {
        /// The first line.
        first: String,
        /// The headers, a line each, names in small letters.
        headers: Vec<String>,
        body: Vec<u8>,
    }

    /// Reads one request, and answers it.
    fn request(listener: &TcpListener, status: &str) -> Sent {
        answered(listener.accept().unwrap().0, status)
    }

    fn answered(stream: impl Read + Write, status: &str) -> Sent {
        let mut reader = BufReader::new(stream);
        let (mut lines, mut length) = (Vec::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            if let Some(text) = line.strip_prefix("content-length:") {
                length = text.trim().parse().unwrap();
            }
            lines.push(line.trim().to_owned());
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        reader.get_mut().write_all(answer.as_bytes()).unwrap();
        reader.get_mut().flush().unwrap();
        Sent { first: lines.remove(0), headers: lines, body }
    }

    /// Begins to send with these variables.
    fn begin(url: Option<&str>, variables: &[(&str, &str)], times: ExportTimes, warn: Warn) -> Sending {
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| (*text).to_owned())
        };
        begin_in(&OtlpEnvironment(&get), url, &totals(), times, warn)
            .unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Times with which nothing is sent before the end.
    fn at_the_end() -> ExportTimes {
        ExportTimes {
            every: Duration::from_secs(3600),
            last_limit: Duration::from_secs(60),
            ..ExportTimes::default()
        }
    }

    #[test]
    fn a_collector_gets_what_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let warn = Box::new(|words: &str| panic!("{words}"));
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a%20b"),
            ("OTEL_SERVICE_NAME", "nightly"),
        ];
        let sending = begin(None, &variables, at_the_end(), warn);
        let served = thread::spawn(move || request(&listener, "200 OK"));
        drop(sending);
        let Sent { first, headers, body } = served.join().unwrap();
        assert_eq!(first, "POST /v1/metrics HTTP/1.1");
        for line in ["x-team: a b", "content-type: application/x-protobuf"] {
            assert!(headers.iter().any(|header| header == line), "{line}: {headers:?}");
        }
        let message = ExportMetricsServiceRequest::decode(body.as_slice()).unwrap();
        let resource = message.resource_metrics[0].resource.as_ref().unwrap();
        let name = resource.attributes.iter().find(|pair| pair.key == "service.name").unwrap();
        let named = any_value::Value::StringValue("nightly".to_owned());
        assert_eq!(name.value.as_ref().unwrap().value, Some(named));
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
        let (tell, messages) = mpsc::channel();
        // The listener is closed.
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let warn = Box::new(move |words: &str| tell.send(words.to_owned()).unwrap());
        let times = ExportTimes { every: Duration::from_millis(1), ..ExportTimes::default() };
        let sending = begin(Some(&format!("http://{gone}")), &[], times, warn);
        let words = messages.recv().unwrap();
        assert!(words.contains(&gone.to_string()) && words.contains("goes on without"), "{words}");
        drop(sending);
        assert_eq!(messages.try_iter().count(), 0);
    }

    #[test]
    fn a_collector_that_refuses_or_says_nothing_holds_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/base/", listener.local_addr().unwrap());
        let (tell, messages) = mpsc::channel();
        let warn = |tell: mpsc::Sender<String>| -> Warn {
            Box::new(move |words: &str| tell.send(words.to_owned()).unwrap())
        };
        let sending = begin(Some(&url), &[], at_the_end(), warn(tell.clone()));
        let served = thread::spawn(move || (request(&listener, "503 Service Unavailable"), listener));
        drop(sending);
        let (Sent { first, .. }, silent) = served.join().unwrap();
        assert_eq!(first, "POST /base/v1/metrics HTTP/1.1");
        assert!(messages.recv().unwrap().contains("503"));
        // This one takes the connection and never answers.
        let times = ExportTimes { last_limit: Duration::from_millis(50), ..at_the_end() };
        drop(begin(Some(&url), &[], times, warn(tell)));
        assert!(messages.recv().unwrap().contains("no answer in 0.05 s"));
        drop(silent);
    }

    #[test]
    fn a_collector_that_encrypts_is_trusted_by_its_certificate_alone() {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("collector.pem");
        std::fs::write(&file, made.cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let chain = vec![made.cert.der().clone()];
        let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let open = |config: &Arc<ServerConfig>, listener: &TcpListener| {
            let server = ServerConnection::new(Arc::clone(config)).unwrap();
            StreamOwned::new(server, listener.accept().unwrap().0)
        };
        // No authority that browsers trust has signed it.
        let (tell, messages) = mpsc::channel();
        let warn = Box::new(move |words: &str| tell.send(words.to_owned()).unwrap());
        let sending = begin(Some(&url), &[], at_the_end(), warn);
        let (stranger, strangers) = (listener.try_clone().unwrap(), Arc::clone(&config));
        let served = thread::spawn(move || open(&strangers, &stranger).read(&mut [0]).is_err());
        drop(sending);
        assert!(served.join().unwrap(), "it was sent something");
        let words = messages.recv().unwrap();
        assert!(
            words.contains("UnknownIssuer") && words.contains("OTEL_EXPORTER_OTLP_CERTIFICATE"),
            "{words}"
        );
        // Now a variable names the authority.
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", file.to_str().unwrap()),
        ];
        let sending = begin(None, &variables, at_the_end(), Box::new(|words: &str| panic!("{words}")));
        let served = thread::spawn(move || answered(open(&config, &listener), "200 OK"));
        drop(sending);
        let Sent { first, headers, body } = served.join().unwrap();
        assert_eq!(first, "POST /v1/metrics HTTP/1.1");
        assert!(headers.iter().any(|line| line == "authorization: Bearer abc"), "{headers:?}");
        assert!(ExportMetricsServiceRequest::decode(body.as_slice()).is_ok());
    }
}
