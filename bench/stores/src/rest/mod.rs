//! Web services over HTTP/1.1, as in YCSB's `rest` binding.
//!
//! | verb | request | `data` layout: body | `json` layout: body |
//! |---|---|---|---|
//! | read | `GET` | the response's body is the field `response` | the response is an object of the fields |
//! | insert | `POST`, or `PUT` (`rest.insert`) | the field `data` | an object of all fields |
//! | update | `PUT`, or `PATCH` (`rest.update`) | the field `data` | an object of the given fields |
//! | scan | none | | |
//! | delete | `DELETE` | | |
//!
//! The URL is `rest.url` followed by the key: unchanged in the `data` layout, whose keys
//! are the URLs of a trace; percent-encoded in the `json` layout. status.rs has the
//! meaning of status codes.
//!
//! A client has a connection of its own, which is kept between operations (link.rs).
//! There are no redirections, retries or caches.

mod client;
mod link;
mod status;
mod target;

pub use client::RestClient;

use crate::{StoreInfo, optional};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use link::HttpConnector;
use rustls::ClientConfig;
use serval_model::{
    Execution, OperationKind, OperationKinds, Purpose, Schema, Store, StoreError,
    properties::{Faults, Kind, Properties, Property, PropertyTable, Reader, units},
};
use serval_tls::CertificateVerification;
use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};
use target::{HttpOrigin, UrlPrefix};

/// URL of the service.
pub const URL: Property = Property::serval(
    "rest.url",
    Kind::Text,
    "Prefix of the URLs of all operations; the key follows. http:// or https://. Empty: keys are whole \
     URLs, and a client keeps a connection to each server that they name.",
)
.default("http://127.0.0.1:8080/")
.aliases(&["url.prefix"]);
/// Layout of a record.
pub const LAYOUT: Property = Property::serval(
    "rest.layout",
    Kind::Choice(&["data", "json"]),
    "Layout of a record. data, as in YCSB: keys are URLs (of a trace: workload=rest), a write sends only \
     the field 'data', and a read returns the whole body as the field 'response'. json: keys are any text \
     and are percent-encoded, a record is a JSON object of its fields; for all other workloads.",
)
.default("data");
/// Method of an insert.
pub const INSERT: Property = Property::serval(
    "rest.insert",
    Kind::Choice(&["post", "put"]),
    "Method of an insert: post, as in YCSB, or put, for services (WebDAV) that create records with it.",
)
.default("post");
/// Method of an update.
pub const UPDATE: Property = Property::serval(
    "rest.update",
    Kind::Choice(&["put", "patch", "merge"]),
    "Method of an update. put, as in YCSB: the given fields replace the whole record. patch: PATCH with \
     the given fields, for services that support JSON merge patches. merge, in the json layout only: GET, \
     then PUT of the record with the given fields; two requests, between which another client's update \
     can be lost. If unset: put in the data layout, merge in the json layout, where put would drop the \
     other fields.",
);
/// Headers.
pub const HEADERS: Property = Property::serval(
    "rest.headers",
    Kind::Text,
    "Headers of every request: name, value, name, value, all separated by blanks. Results contain them, \
     so do not use secrets. If unset: in the data layout 'Accept */* Content-Type application/xml \
     user-agent Mozilla/5.0', as in YCSB; in the json layout JSON is sent and accepted.",
)
.aliases(&["headers"]);
/// User of basic authentication.
pub const USER: Property =
    Property::serval("rest.user", Kind::Text, "User of basic authentication; needs rest.password.");
/// Password of basic authentication.
pub const PASSWORD: Property =
    Property::serval("rest.password", Kind::Text, "Password of basic authentication; needs rest.user.");
/// Bearer token.
pub const TOKEN: Property =
    Property::serval("rest.token", Kind::Text, "Token of bearer authentication; not with rest.user.");
/// Time limit for connecting.
pub const CONNECT_TIMEOUT: Property = Property::serval(
    "rest.connect.timeout",
    Kind::SECONDS,
    "Timeout for opening a connection, including TLS.",
)
.default("10")
.unit("s")
.aliases(&["timeout.con"]);
/// Time limit between parts of a response.
pub const READ_TIMEOUT: Property = Property::serval(
    "rest.read.timeout",
    Kind::SECONDS,
    "Timeout for the start of an answer, and for each further part of it. 0: no timeout.",
)
.default("10")
.unit("s")
.aliases(&["timeout.read"]);
/// Time limit of operations.
pub const TIMEOUT: Property = Property::serval(
    "rest.operation.timeout",
    Kind::SECONDS,
    "Timeout for the whole answer to a request; a late request fails with ERROR and closes its \
     connection. 0: no timeout.",
)
.default("10")
.unit("s")
.aliases(&["timeout.exec"]);
/// Maximum size of a response.
pub const RESPONSE_MAX: Property = Property::serval(
    "rest.response.max",
    Kind::Size,
    "Largest accepted body of an answer. A larger one fails its operation with ERROR and closes the \
     connection.",
)
.default("64MiB")
.unit("bytes");
/// Unix socket.
pub const SOCKET: Property = Property::serval(
    "rest.socket",
    Kind::Path,
    "Unix socket to connect to instead of the host of rest.url, which is then only a name.",
);
/// Trusted roots.
pub const TLS_ROOTS: Property = Property::serval(
    "rest.tls.roots",
    Kind::Path,
    "PEM file of the root certificates to trust, for https. If unset: those that browsers trust.",
);
/// Whether to accept any certificate.
pub const TLS_ACCEPT_ANY: Property = Property::serval(
    "rest.tls.insecure.accept.any.certificate",
    Kind::Flag,
    "Whether to accept any certificate of the server, regardless of signer and name.",
)
.default("false");
/// The client's certificate.
pub const TLS_CERTIFICATE: Property = Property::serval(
    "rest.tls.certificate",
    Kind::Path,
    "PEM file of the client's certificate, for servers that ask for one; needs rest.tls.key.",
);
/// Its key.
pub const TLS_KEY: Property =
    Property::serval("rest.tls.key", Kind::Path, "PEM file of the private key of rest.tls.certificate.");
/// YCSB's log.
pub const LOG: Property =
    Property::ignored("log.enable", "results count failures by their message, and no operation is printed.");
/// YCSB's decompression.
pub const COMPRESSION: Property = Property::ignored(
    "response.compression",
    "YCSB decompresses the answers to writes and discards them; Serval asks for no compression and reads \
     the bytes as sent.",
);

const ALL: &[&Property] = &[
    &URL,
    &LAYOUT,
    &INSERT,
    &UPDATE,
    &HEADERS,
    &USER,
    &PASSWORD,
    &TOKEN,
    &CONNECT_TIMEOUT,
    &READ_TIMEOUT,
    &TIMEOUT,
    &RESPONSE_MAX,
    &SOCKET,
    &TLS_ROOTS,
    &TLS_ACCEPT_ANY,
    &TLS_CERTIFICATE,
    &TLS_KEY,
    &LOG,
    &COMPRESSION,
];

/// Description of this store.
pub const INFO: StoreInfo = StoreInfo {
    name: optional::REST.name,
    aliases: optional::REST.aliases,
    summary: optional::REST.summary,
    details: "A read is a GET of rest.url and the key, an insert a POST, an update a PUT, a delete a \
              DELETE; there are no scans. By default keys are URLs and bodies are the field 'data', as in \
              YCSB's rest binding and as workload=rest uses it. With rest.layout=json any workload runs, \
              with a record as a JSON object; values must then be UTF-8. An update by PUT replaces the \
              whole record with the given fields; in the json layout an update is therefore a GET and a \
              PUT of the whole record, unless rest.update says otherwise. The service decides the effect \
              of an insert of an existing record.\n\
              2xx and 304 are OK; 400 BAD_REQUEST; 401, 403 and 407 FORBIDDEN; 404 and 410 NOT_FOUND; 405 \
              and 501 NOT_IMPLEMENTED; 408, 429 and 503 SERVICE_UNAVAILABLE; 409 and 412 ERROR; other 4xx \
              BAD_REQUEST; other 5xx, and redirections, which are not followed, ERROR.\n\
              Each client has a connection of its own (HTTP/1.1, kept alive). A connection that the \
              service closed between two operations is reopened within the time of the next; one that is \
              lost during an operation fails it with SERVICE_UNAVAILABLE; a late answer fails with ERROR. \
              Nothing is retried. Asynchronous: clients run on event loops.",
    time_series: false,
    keeps_records: true,
    batches: false,
    updates_insert: false,
    behind_driver: false,
    properties: PropertyTable { heading: "rest", properties: ALL },
};

/// Layout of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyLayout {
    Data,
    Json,
}

/// Request of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Update {
    Put,
    Patch,
    Merge,
}

/// RestSettings of all clients.
#[derive(Debug)]
struct RestSettings {
    /// Target of requests; `None` if keys are whole URLs.
    prefix: Option<UrlPrefix>,
    layout: BodyLayout,
    insert_puts: bool,
    update: Update,
    headers: HeaderMap,
    connector: HttpConnector,
}

/// A web service.
#[derive(Debug)]
pub struct Rest {
    settings: Arc<RestSettings>,
    /// Facts about the server.
    server: OnceLock<String>,
}

impl Rest {
    /// Reads the properties. Does not connect.
    pub fn open(properties: &Properties) -> Result<Rest, Faults> {
        let mut reader = Reader::new(properties);
        let url = reader.text(&URL);
        let prefix = match url.trim() {
            "" => None,
            url => UrlPrefix::parse(url).map_err(|problem| reader.fault(&URL, problem)).ok(),
        };
        let layout = if reader.choice(&LAYOUT) == "json" { BodyLayout::Json } else { BodyLayout::Data };
        let chosen = if reader.given(&UPDATE) { reader.choice(&UPDATE) } else { "" };
        let update = match (chosen, layout) {
            ("patch", _) => Update::Patch,
            ("merge", _) | ("", BodyLayout::Json) => Update::Merge,
            _ => Update::Put,
        };
        if update == Update::Merge && layout == BodyLayout::Data {
            reader.fault(
                &UPDATE,
                "needs rest.layout=json: there is nothing to merge in a record without fields",
            );
        }
        if layout == BodyLayout::Json && url.trim().is_empty() {
            reader.fault(&URL, "must not be empty with rest.layout=json, whose keys are no URLs");
        }
        let insert_puts = reader.choice(&INSERT) == "put";
        let headers = headers(&mut reader, layout);
        let secure = prefix.as_ref().is_none_or(|prefix| prefix.origin.https);
        let connector = HttpConnector {
            connect_timeout: some_time(&mut reader, &CONNECT_TIMEOUT),
            read_timeout: any_time(&mut reader, &READ_TIMEOUT),
            timeout: any_time(&mut reader, &TIMEOUT),
            response_max: reader.size(&RESPONSE_MAX),
            socket: reader.path(&SOCKET),
            tls: tls(&mut reader, secure).map(Arc::new),
        };
        reader.finish()?;
        let settings = RestSettings { prefix, layout, insert_puts, update, headers, connector };
        Ok(Rest { settings: Arc::new(settings), server: OnceLock::new() })
    }

    fn address(&self) -> &str {
        self.settings.prefix.as_ref().map_or("the servers that keys name", |prefix| &prefix.text)
    }
}

/// Reads a duration above 0.
fn some_time(reader: &mut Reader<'_>, property: &'static Property) -> Duration {
    let time = reader.duration(property);
    if time.is_zero() {
        reader.fault(property, "must be more than 0");
    }
    time
}

/// Reads a duration; `None` for 0.
fn any_time(reader: &mut Reader<'_>, property: &'static Property) -> Option<Duration> {
    Some(reader.duration(property)).filter(|time| !time.is_zero())
}

/// Reads the headers of every request except Host.
fn headers(reader: &mut Reader<'_>, layout: BodyLayout) -> HeaderMap {
    let default = match layout {
        BodyLayout::Data => "Accept */* Content-Type application/xml user-agent Mozilla/5.0",
        BodyLayout::Json => "Accept application/json Content-Type application/json User-Agent serval",
    };
    let text = reader.optional_text(&HEADERS).unwrap_or_else(|| default.to_owned());
    let mut headers = HeaderMap::new();
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    for pair in words.chunks(2) {
        let &[name, value] = pair else {
            reader.fault(&HEADERS, format!("'{}' has no value: names and values must alternate", pair[0]));
            continue;
        };
        match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            (Ok(name), _) if [header::AUTHORIZATION, header::PROXY_AUTHORIZATION].contains(&name) => {
                let problem = format!(
                    "'{name}' would stand in results: set rest.user and rest.password, or rest.token"
                );
                reader.fault(&HEADERS, problem);
            }
            (Ok(name), _) if [header::CONTENT_LENGTH, header::TRANSFER_ENCODING].contains(&name) => {
                reader.fault(&HEADERS, format!("'{name}' follows from the body: leave it out"));
            }
            (Ok(name), Ok(value)) => {
                headers.append(name, value);
            }
            (Err(_), _) => reader.fault(&HEADERS, format!("'{name}' is no name of a header")),
            (_, Err(_)) => reader.fault(&HEADERS, format!("'{value}' is no value of a header")),
        }
    }
    if let Some(value) = authorization(reader) {
        headers.insert(header::AUTHORIZATION, value);
    }
    headers
}

fn authorization(reader: &mut Reader<'_>) -> Option<HeaderValue> {
    let (user, password) = (reader.optional_text(&USER), reader.optional_text(&PASSWORD));
    let token = reader.optional_text(&TOKEN);
    if user.is_some() != password.is_some() {
        reader.fault(&USER, "and rest.password need each other");
    }
    if user.as_ref().is_some_and(|user| user.contains(':')) {
        reader.fault(&USER, "must have no colon: basic authentication cannot send it");
    }
    let (property, text) = match (user, password, token) {
        (None, None, None) => return None,
        (None, None, Some(token)) => (&TOKEN, format!("Bearer {token}")),
        (user, password, None) => {
            let both = format!("{}:{}", user.unwrap_or_default(), password.unwrap_or_default());
            (&USER, format!("Basic {}", BASE64_STANDARD.encode(both)))
        }
        (_, _, Some(_)) => {
            // The message omits the value, which is a secret.
            reader.fault_overall("rest.token and rest.user are two ways to log in: leave out one of them");
            return None;
        }
    };
    match HeaderValue::try_from(text) {
        Ok(mut value) => {
            value.set_sensitive(true);
            Some(value)
        }
        Err(_) => {
            reader.fault_overall(format!("{}: has a character that a header cannot carry", property.name));
            None
        }
    }
}

/// Reads the TLS settings; `None` without https.
fn tls(reader: &mut Reader<'_>, secure: bool) -> Option<ClientConfig> {
    let accept_any = reader.flag(&TLS_ACCEPT_ANY);
    let files: [(&'static Property, Option<PathBuf>); 3] =
        [&TLS_ROOTS, &TLS_CERTIFICATE, &TLS_KEY].map(|property| (property, reader.path(property)));
    if !secure {
        for (property, path) in &files {
            if path.is_some() {
                reader.fault(property, "needs rest.url to begin with https://");
            }
        }
        if accept_any {
            reader.fault(&TLS_ACCEPT_ANY, "needs rest.url to begin with https://");
        }
        return None;
    }
    let [(_, roots), (_, certificate), (_, key)] = files;
    if accept_any && roots.is_some() {
        reader.fault(&TLS_ACCEPT_ANY, "makes rest.tls.roots pointless: leave out one of them");
    }
    let roots = noted(reader, &TLS_ROOTS, serval_tls::roots(roots.as_deref()));
    let identity = serval_tls::identity(reader, (&TLS_CERTIFICATE, certificate), (&TLS_KEY, key));
    let demand = if accept_any { CertificateVerification::Nothing } else { CertificateVerification::Full };
    let config = serval_tls::config(roots?, demand, identity);
    noted(reader, &TLS_CERTIFICATE, config)
}

fn noted<T>(reader: &mut Reader<'_>, property: &Property, result: Result<T, String>) -> Option<T> {
    result.map_err(|problem| reader.fault(property, problem)).ok()
}

impl Store for Rest {
    type Local = ();
    type Client = RestClient;

    fn execution(&self) -> Execution {
        Execution::EventLoops
    }

    fn capabilities(&self) -> OperationKinds {
        OperationKinds::ALL.without(OperationKind::Scan)
    }

    fn prepare(&self, _: &Schema, _: Purpose) -> Result<(), StoreError> {
        let Some(prefix) = &self.settings.prefix else { return Ok(()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| {
            StoreError::new(prefix.origin.name.clone(), format!("no event loop: {error}"))
        })?;
        let server = runtime.block_on(client::greet(&self.settings, prefix))?;
        // A second preparation finds the same facts.
        let _ = self.server.set(server);
        Ok(())
    }

    fn describe(&self) -> Vec<(String, String)> {
        let settings = &self.settings;
        let time = |time: Option<Duration>| {
            time.map_or("none".to_owned(), |time| units::format_duration(time.as_nanos() as u64))
        };
        let mut facts: Vec<(String, String)> = [
            ("address", self.address().to_owned()),
            ("layout", if settings.layout == BodyLayout::Json { "json" } else { "data" }.to_owned()),
            ("insert", if settings.insert_puts { "PUT" } else { "POST" }.to_owned()),
            (
                "update",
                match settings.update {
                    Update::Put => "PUT",
                    Update::Patch => "PATCH",
                    Update::Merge => "GET and PUT",
                }
                .to_owned(),
            ),
            ("connections", "one a client".to_owned()),
            ("timeout", time(settings.connector.timeout)),
            ("read timeout", time(settings.connector.read_timeout)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        if let Some(socket) = &settings.connector.socket {
            facts.push(("socket".to_owned(), socket.display().to_string()));
        }
        if settings.prefix.as_ref().is_some_and(|prefix| prefix.origin.https) {
            facts.push(("tls".to_owned(), "true".to_owned()));
        }
        if let Some(server) = self.server.get().filter(|server| !server.is_empty()) {
            facts.push(("server".to_owned(), server.clone()));
        }
        facts
    }

    fn local(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn connect(&self, (): &(), _: usize) -> Result<RestClient, StoreError> {
        let mut client = RestClient::new(Arc::clone(&self.settings));
        if let Some(prefix) = &self.settings.prefix {
            client.connect(HttpOrigin::clone(&prefix.origin)).await?;
        }
        Ok(client)
    }
}
