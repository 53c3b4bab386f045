//! The OpenTelemetry collector: its address, headers and connection, from the command line and
//! OpenTelemetry's standard environment variables.

use crate::{failure::Failure, live::host_and_port};
use http_body_util::Full;
use hyper::{
    HeaderMap, Request, StatusCode, Uri,
    body::Bytes,
    client::conn::http1,
    header::{
        CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING,
        USER_AGENT,
    },
};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use serval_tls::CertificateVerification;
use std::{fmt, io, path::Path, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{self, CertificateError, pki_types::ServerName},
};

/// Path of metrics below a collector's address.
const PATH: &str = "/v1/metrics";
/// Default URL of the collector, with OTLP's port.
const DEFAULT_URL: &str = "http://localhost:4318";

/// Name of the flag, for messages.
const FLAG: &str = "--otlp";
// A variable for metrics takes precedence over the one for all signals.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const METRICS_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
const CERTIFICATE: [&str; 2] = ["OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];
const PROTOCOL: [&str; 2] = ["OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const RESOURCE_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";

/// The environment variables. An empty variable counts as unset, as OpenTelemetry requires.
pub(super) struct OtlpEnvironment<'a>(pub(super) &'a dyn Fn(&str) -> Option<String>);

impl OtlpEnvironment<'static> {
    /// The environment of this process.
    pub(super) fn of_process() -> Self {
        // Invalid UTF-8 is rejected later, because of its replacement character.
        OtlpEnvironment(&|name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned()))
    }
}

impl OtlpEnvironment<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|text| !text.trim().is_empty())
    }

    /// Returns the first of these variables that is set, with its name.
    fn first(&self, names: [&'static str; 2]) -> Option<(&'static str, String)> {
        names.into_iter().find_map(|name| Some((name, self.get(name)?)))
    }

    /// `KEY=VALUE,KEY=VALUE`, both percent-encoded. Messages have no value, for
    /// it may be a secret.
    fn pairs(name: &str, text: &str) -> Result<Vec<(String, String)>, Failure> {
        let entries = text.split(',').enumerate().filter(|(_, entry)| !entry.trim().is_empty());
        entries
            .map(|(index, entry)| {
                let wrong = |what: &str| {
                    Failure::usage(format!("{name}: entry {} {what}: write KEY=VALUE,KEY=VALUE", index + 1))
                };
                let (key, value) = entry.split_once('=').ok_or_else(|| wrong("has no '='"))?;
                let decoded =
                    |text: &str| percent_decode_str(text.trim()).decode_utf8().map(|text| text.into_owned());
                match (decoded(key), decoded(value)) {
                    (Ok(key), _) if key.is_empty() => Err(wrong("has no key")),
                    (Ok(key), Ok(value)) => Ok((key, value)),
                    _ => Err(wrong("is not UTF-8 when its percent signs are decoded")),
                }
            })
            .collect()
    }
}

/// Returns the resource attributes: the service name and those of the environment.
pub(super) fn resource(environment: &OtlpEnvironment<'_>) -> Result<Vec<(String, String)>, Failure> {
    let mut all = vec![
        ("service.name".to_owned(), "serval".to_owned()),
        ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("process.pid".to_owned(), std::process::id().to_string()),
    ];
    let mut given = match environment.get(RESOURCE_ATTRIBUTES) {
        Some(text) => OtlpEnvironment::pairs(RESOURCE_ATTRIBUTES, &text)?,
        None => Vec::new(),
    };
    // The service name's own variable takes precedence.
    given.extend(environment.get(SERVICE_NAME).map(|name| ("service.name".to_owned(), name)));
    for (key, value) in given {
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => all.push((key, value)),
        }
    }
    Ok(all)
}

/// Destination of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CollectorAddress {
    https: bool,
    host: String,
    port: u16,
    path: String,
    /// `?` and the query, or empty. It may contain a secret.
    query: String,
}

impl CollectorAddress {
    /// Parses a URL. `origin` is the flag or variable that it is from; the path of metrics is
    /// appended unless the URL is `whole`.
    fn parse(origin: &str, url: &str, whole: bool) -> Result<CollectorAddress, Failure> {
        let wrong = |what: &str| {
            Failure::usage(format!(
                "{origin}: {what}: write http://HOST:PORT or https://HOST:PORT, such as {DEFAULT_URL}"
            ))
        };
        let uri: Uri = url.trim().parse().map_err(|error| wrong(&format!("this is no address ({error})")))?;
        let https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("the address has to begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("the address has no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong(&format!(
                "the address must have no password; {} takes credentials",
                HEADERS[1]
            )));
        }
        let host = uri.host().unwrap_or_default();
        // The parser omits an invalid port.
        let behind = authority.as_str().get(host.len()..).unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let base = uri.path().trim_end_matches('/');
        let path = match whole {
            true => uri.path().to_owned(),
            false if base.ends_with(PATH) => base.to_owned(),
            false => format!("{base}{PATH}"),
        };
        let port = match uri.port_u16() {
            Some(port) => port,
            None if !matches!(behind, "" | ":") => return Err(wrong("the port is no number up to 65535")),
            None if https => 443,
            None => 80,
        };
        let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
        Ok(CollectorAddress { https, host: host.to_owned(), port, path, query })
    }

    /// Returns the address from the command line, otherwise from the environment.
    fn find(url: Option<&str>, environment: &OtlpEnvironment<'_>) -> Result<CollectorAddress, Failure> {
        if let Some(url) = url {
            return CollectorAddress::parse(FLAG, url, false);
        }
        if let Some((name, protocol)) = environment.first(PROTOCOL)
            && protocol.trim() != "http/protobuf"
        {
            return Err(Failure::usage(format!(
                "{name}: Serval speaks http/protobuf and not '{}': say with --otlp URL where a collector takes that, \
                 mostly at port 4318",
                protocol.escape_debug()
            )));
        }
        match (environment.get(METRICS_ENDPOINT), environment.get(ENDPOINT)) {
            (Some(url), _) => CollectorAddress::parse(METRICS_ENDPOINT, &url, true),
            (None, Some(url)) => CollectorAddress::parse(ENDPOINT, &url, false),
            (None, None) => CollectorAddress::parse(FLAG, DEFAULT_URL, false),
        }
    }
}

impl fmt::Display for CollectorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&host_and_port(&self.host, self.port))
    }
}

/// Returns the additional headers of each message.
fn headers(environment: &OtlpEnvironment<'_>) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    let Some((variable, text)) = environment.first(HEADERS) else { return Ok(headers) };
    for (key, value) in OtlpEnvironment::pairs(variable, &text)? {
        let wrong = |what: &str| Failure::usage(format!("{variable}: '{}' {what}", key.escape_debug()));
        let name = HeaderName::try_from(&key).map_err(|_| wrong("is no name of an HTTP header"))?;
        if [CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING].contains(&name) {
            return Err(wrong("is a header that Serval sets itself: leave it out"));
        }
        let mut value =
            HeaderValue::try_from(value).map_err(|_| wrong("has a value that no HTTP header may have"))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

/// The TLS connector and the name that the certificate must have.
type Encryption = (TlsConnector, ServerName<'static>);

fn encryption(host: &str, environment: &OtlpEnvironment<'_>) -> Result<Encryption, Failure> {
    let (name, file) = environment.first(CERTIFICATE).unzip();
    let roots = serval_tls::roots(file.as_deref().map(Path::new))
        .map_err(|problem| Failure::usage(format!("{}: {problem}", name.unwrap_or(FLAG))))?;
    let failed = |problem: String| Failure::usage(format!("{FLAG}: {problem}"));
    let config = serval_tls::config(roots, CertificateVerification::Full, None).map_err(failed)?;
    let server = ServerName::try_from(host.to_owned());
    let server = server
        .map_err(|_| failed(format!("'{}' is no host that a certificate names", host.escape_debug())))?;
    Ok((TlsConnector::from(Arc::new(config)), server))
}

/// Returns the reason of a TLS failure.
fn refused(error: &io::Error) -> String {
    let own = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    let advice = match own {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            format!("; {} names the file of its signer's certificate (PEM)", CERTIFICATE[1])
        }
        _ => String::new(),
    };
    format!("the connection cannot be encrypted: {error}{advice}")
}

/// Collector of metrics.
#[derive(Clone)]
pub(super) struct Collector {
    address: CollectorAddress,
    headers: HeaderMap,
    encryption: Option<Encryption>,
}

impl Collector {
    /// Returns the collector from the command line, otherwise from the environment. Headers come
    /// from the environment.
    pub(super) fn find(url: Option<&str>, environment: &OtlpEnvironment<'_>) -> Result<Collector, Failure> {
        let address = CollectorAddress::find(url, environment)?;
        let encryption = address.https.then(|| encryption(&address.host, environment)).transpose()?;
        Ok(Collector { address, headers: headers(environment)?, encryption })
    }

    async fn post(&self, body: Vec<u8>) -> Result<(), String> {
        let stream = TcpStream::connect((self.address.host.as_str(), self.address.port));
        let stream = stream.await.map_err(|error| error.to_string())?;
        match &self.encryption {
            None => self.post_over(stream, body).await,
            Some((connector, server)) => {
                let stream = connector.connect(server.clone(), stream).await;
                self.post_over(stream.map_err(|error| refused(&error))?, body).await
            }
        }
    }

    async fn post_over<S>(&self, stream: S, body: Vec<u8>) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connected = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = connected.map_err(|error| error.to_string())?;
        let connection = tokio::spawn(connection);
        let CollectorAddress { path, query, .. } = &self.address;
        let mut request = Request::post(format!("{path}{query}"))
            .header(USER_AGENT, concat!("serval/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        let host = HeaderValue::try_from(self.address.to_string()).map_err(|error| error.to_string())?;
        headers.insert(HOST, host);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let response = sender.send_request(request).await;
        // The rest of the response is ignored.
        connection.abort();
        match response {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) if response.status() == StatusCode::NOT_FOUND => {
                Err(format!("it knows no {path} (404)"))
            }
            Ok(response)
                if [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&response.status()) =>
            {
                Err(format!("it answers {}; {} takes credentials", response.status(), HEADERS[1]))
            }
            Ok(response) => Err(format!("it answers {}", response.status())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Sends a message within a time limit.
    pub(super) async fn send(&self, body: Vec<u8>, limit: Duration) -> Result<(), String> {
        let in_time = tokio::time::timeout(limit, self.post(body)).await;
        in_time.unwrap_or_else(|_| Err(format!("no answer in {} s", limit.as_secs_f64())))
    }
}

impl fmt::Display for Collector {
    /// Its host and port.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Calls with an environment of these variables.
    fn with<T>(variables: &[(&str, &str)], call: impl FnOnce(&OtlpEnvironment<'_>) -> T) -> T {
        let all: HashMap<String, String> =
            variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        call(&OtlpEnvironment(&|name| all.get(name).cloned()))
    }

    /// What is wrong.
    fn fault<T>(outcome: Result<T, Failure>) -> String {
        outcome.err().map(|failure| failure.message).unwrap_or_default()
    }

    #[test]
    fn addresses_of_collectors() {
        let parsed = |url: &str| CollectorAddress::parse(FLAG, url, false);
        let is = |https, host: &str, port, path: &str, query: &str| CollectorAddress {
            https,
            host: host.to_owned(),
            port,
            path: path.to_owned(),
            query: query.to_owned(),
        };
        assert_eq!(parsed("http://localhost:4318").unwrap(), is(false, "localhost", 4318, "/v1/metrics", ""));
        // Without a port it is that of the scheme, as everywhere.
        assert_eq!(parsed("http://localhost").unwrap(), is(false, "localhost", 80, "/v1/metrics", ""));
        assert_eq!(
            parsed("https://c.example/?k=v").unwrap(),
            is(true, "c.example", 443, "/v1/metrics", "?k=v")
        );
        assert_eq!(parsed("http://[::1]:80/a").unwrap(), is(false, "::1", 80, "/a/v1/metrics", ""));
        assert_eq!(parsed("http://[::1]:80").unwrap().to_string(), "[::1]:80");
        assert_eq!(parsed("http://c:1/v1/metrics").unwrap(), is(false, "c", 1, "/v1/metrics", ""));
        for (url, words) in [
            ("localhost:4318", "http://"),
            ("http://me:secret@localhost", "password"),
            ("http://c:70000", "65535"),
            ("http://", "no address"),
            ("ftp://x", "begin with http://"),
        ] {
            let message = fault(parsed(url));
            assert!(message.contains(words) && !message.contains("secret"), "{url}: {message}");
        }
    }

    #[test]
    fn the_environment_says_where_if_the_command_line_does_not() {
        let found = |url: Option<&str>, variables: &[(&str, &str)]| {
            let found = with(variables, |environment| CollectorAddress::find(url, environment));
            found.map(|address| format!("{address}{}", address.path))
        };
        assert_eq!(found(None, &[]).unwrap(), "localhost:4318/v1/metrics");
        assert_eq!(found(None, &[(ENDPOINT, " ")]).unwrap(), "localhost:4318/v1/metrics", "empty is unset");
        let all = (ENDPOINT, "https://all.example/otlp/");
        assert_eq!(found(None, &[all]).unwrap(), "all.example:443/otlp/v1/metrics");
        // That of metrics alone is taken as it is.
        let metrics = (METRICS_ENDPOINT, "http://one.example:4318");
        assert_eq!(found(None, &[all, metrics]).unwrap(), "one.example:4318/");
        assert_eq!(found(Some("http://flag:1"), &[all, metrics]).unwrap(), "flag:1/v1/metrics");
        assert!(fault(found(None, &[(ENDPOINT, "collector:4317")])).starts_with(ENDPOINT));
        // A collector that is spoken to in another way takes nothing of ours.
        let grpc = (PROTOCOL[1], "grpc");
        assert!(fault(found(None, &[all, grpc])).contains("grpc"));
        assert!(found(None, &[all, grpc, (PROTOCOL[0], "http/protobuf")]).is_ok());
        assert!(found(Some("http://flag:1"), &[grpc]).is_ok(), "who names an address knows it");
    }

    #[test]
    fn headers_and_attributes_are_decoded_and_secrets_are_not_told() {
        let read = |text: &str| with(&[(HEADERS[1], text)], headers);
        let headers = read("authorization=Basic%20c2VjcmV0==, X-Team = a%2Cb ,,").unwrap();
        assert_eq!(headers["authorization"], "Basic c2VjcmV0==");
        assert_eq!(headers["x-team"], "a,b");
        assert_eq!(headers.len(), 2);
        assert!(!format!("{headers:?}").contains("c2VjcmV0"), "marked as a secret");
        for (text, words) in [
            ("a=1,secret", "entry 2 has no '='"),
            ("=secret", "no key"),
            ("a b=secret", "'a b' is no name"),
            ("a=secret%0d%0aHost: x", "'a' has a value"),
            ("a=secret%ff", "not UTF-8"),
            ("Content-Length=7", "sets itself"),
        ] {
            let message = fault(read(text));
            assert!(message.contains(words) && !message.contains("secret"), "{text}: {message}");
            assert!(message.starts_with(HEADERS[1]), "{message}");
        }
        let own = with(&[(HEADERS[1], "a=all"), (HEADERS[0], "b=metrics")], self::headers).unwrap();
        assert_eq!((own.get("a"), own.len()), (None, 1), "that of metrics takes the other's place");
    }

    #[test]
    fn attributes_of_the_resource() {
        let value = |variables: &[(&str, &str)], key: &str| {
            let all = with(variables, resource).unwrap_or_else(|failure| panic!("{failure}"));
            let mut found = all.into_iter().filter(|(known, _)| known == key).map(|(_, value)| value);
            let value = found.next();
            assert_eq!(found.next(), None, "{key} twice");
            value
        };
        assert_eq!(value(&[], "service.name").as_deref(), Some("serval"));
        let given = (RESOURCE_ATTRIBUTES, "service.name=mine,deployment.environment=a%20b");
        assert_eq!(value(&[given], "service.name").as_deref(), Some("mine"));
        assert_eq!(value(&[given], "deployment.environment").as_deref(), Some("a b"));
        assert_eq!(value(&[given, (SERVICE_NAME, "named")], "service.name").as_deref(), Some("named"));
        assert!(fault(with(&[(RESOURCE_ATTRIBUTES, "odd")], resource)).starts_with(RESOURCE_ATTRIBUTES));
    }

    #[test]
    fn a_file_of_signers_that_is_not_there_is_told_before_anything_starts() {
        let variables = [(CERTIFICATE[1], "nowhere.pem")];
        let message = fault(with(&variables, |environment| Collector::find(Some("https://c"), environment)));
        assert!(message.starts_with(CERTIFICATE[1]) && message.contains("nowhere.pem"), "{message}");
        // It is not asked for where nothing is encrypted.
        assert!(with(&variables, |environment| Collector::find(Some("http://c"), environment)).is_ok());
    }
}
