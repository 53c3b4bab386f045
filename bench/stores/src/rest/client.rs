//! A client and its verbs.

use super::{
    BodyLayout, RestSettings, Update,
    link::{Payload, RestConnector},
    status,
    target::{HttpOrigin, UrlPrefix, absolute},
};
use crate::{
    json,
    reconnecting::{Reconnecting, Slot},
};
use bytes::Bytes;
use hyper::{
    Method, Request, StatusCode, Uri,
    header::{self, HeaderValue},
    http::response::Parts,
};
use serval_model::{Client, FieldSelection, Outcome, Record, Reply, Status, StoreError};
use std::sync::Arc;

/// Maximum number of servers that a client keeps connections to, if keys are whole URLs.
const ORIGINS_MAX: usize = 64;

/// Field of writes in the data layout, named as in YCSB.
const DATA: &str = "data";
/// Field of reads in the data layout, named as in YCSB.
const RESPONSE: &str = "response";

/// Content type of a PATCH (RFC 7396).
const MERGE_PATCH: HeaderValue = HeaderValue::from_static("application/merge-patch+json");

/// A client of a web service.
#[derive(Debug)]
pub struct RestClient {
    settings: Arc<RestSettings>,
    /// One connection; several if keys are whole URLs.
    links: Vec<Reconnecting<RestConnector>>,
    /// Buffer for the last response's body.
    body: Vec<u8>,
    /// Buffer for a record that is merged or projected.
    record: Record,
}

/// Returns facts about the server and checks that it grants access. Any response
/// except a refusal will do: the prefix itself need not be a
/// resource.
pub(super) async fn greet(settings: &Arc<RestSettings>, prefix: &UrlPrefix) -> Result<String, StoreError> {
    let mut client = RestClient::new(Arc::clone(settings));
    client.connect(prefix.origin.clone()).await?;
    let error = |problem: String| StoreError::new(prefix.origin.name.clone(), problem);
    match client.ask("", Method::HEAD, None).await {
        Err(outcome) => {
            let words = outcome.message.unwrap_or_default();
            Err(error(format!("no answer to HEAD: {words}. Is it an HTTP server that rest.url names?")))
        }
        Ok(head) if head.status == StatusCode::UNAUTHORIZED => {
            let problem = if settings.headers.contains_key(header::AUTHORIZATION) {
                "refuses the credentials: check rest.user and rest.password, or rest.token"
            } else {
                "asks for credentials: set rest.user and rest.password, or rest.token"
            };
            Err(error(problem.to_owned()))
        }
        Ok(head) => {
            let server = head.headers.get(header::SERVER).and_then(|server| server.to_str().ok());
            Ok(server.unwrap_or_default().to_owned())
        }
    }
}

impl RestClient {
    pub(super) fn new(settings: Arc<RestSettings>) -> Self {
        RestClient { settings, links: Vec::new(), body: Vec::new(), record: Record::new() }
    }

    /// Connects to a server.
    pub(super) async fn connect(&mut self, origin: HttpOrigin) -> Result<(), StoreError> {
        let opener = RestConnector { settings: Arc::clone(&self.settings), origin };
        self.links.push(Reconnecting::connect(opener).await?);
        Ok(())
    }

    /// Returns the connection for a key, and the path.
    fn place(&mut self, key: &str) -> Result<(usize, Uri), Outcome> {
        let refused = |problem: String| Outcome::failed(Status::BadRequest, problem);
        if let Some(prefix) = &self.settings.prefix {
            let uri = prefix.uri(key, self.settings.layout);
            return uri.map(|uri| (0, uri)).ok_or_else(|| refused("the key is no part of a URL".to_owned()));
        }
        let (origin, uri) = absolute(key).map_err(refused)?;
        if let Some(number) = self.links.iter().position(|link| link.connector().origin == origin) {
            return Ok((number, uri));
        }
        if self.links.len() == ORIGINS_MAX {
            self.links.remove(0);
        }
        let opener = RestConnector { settings: Arc::clone(&self.settings), origin };
        self.links.push(Reconnecting::new(Slot::empty(opener)));
        Ok((self.links.len() - 1, uri))
    }

    /// Sends a request and reads the response's body into `body`.
    async fn ask(&mut self, key: &str, method: Method, payload: Option<Vec<u8>>) -> Result<Parts, Outcome> {
        let (number, uri) = self.place(key)?;
        let link = &mut self.links[number];
        let settings = &self.settings;
        let patches = method == Method::PATCH && settings.layout == BodyLayout::Json;
        let mut request = Request::new(Payload(payload.map(Bytes::from)));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        *headers = settings.headers.clone();
        if patches {
            headers.insert(header::CONTENT_TYPE, MERGE_PATCH);
        }
        if let header::Entry::Vacant(host) = headers.entry(header::HOST) {
            host.insert(link.connector().origin.authority.clone());
        }
        link.run(async |open| open.exchange(request, &settings.connector, &mut self.body).await).await
    }

    /// Sends a request and returns its outcome.
    fn outcome(&self, head: &Parts) -> Outcome {
        let location =
            head.headers.get(header::LOCATION).map(|place| String::from_utf8_lossy(place.as_bytes()));
        status::outcome(head.status, location.as_deref(), &self.body)
    }

    /// Returns the body of a write.
    fn payload(&self, record: &Record) -> Result<Vec<u8>, Outcome> {
        if self.settings.layout == BodyLayout::Data {
            let words = "the record has no field 'data', which is all that rest.layout=data sends: set rest.layout=json \
                         (or workload=rest)";
            let data = record.get(DATA).ok_or_else(|| Outcome::failed(Status::BadRequest, words))?;
            return Ok(data.to_vec());
        }
        let mut text = Vec::with_capacity(record.size() + 8 * record.len() + 2);
        json::write(record, &mut text)?;
        Ok(text)
    }

    async fn write(&mut self, key: &str, method: Method, record: &Record) -> Result<Outcome, Outcome> {
        let payload = self.payload(record)?;
        let head = self.ask(key, method, Some(payload)).await?;
        Ok(self.outcome(&head))
    }

    /// Updates by reading the whole record and writing it with the new fields.
    async fn merge(&mut self, key: &str, fields: &Record) -> Result<Outcome, Outcome> {
        // Checks for fields that JSON cannot represent before any request.
        self.payload(fields)?;
        let head = self.ask(key, Method::GET, None).await?;
        let found = self.outcome(&head);
        if !found.is_ok() {
            return Ok(found);
        }
        let mut before = std::mem::take(&mut self.record);
        before.clear();
        let parsed = self.parse(&mut before);
        let mut merged: Record =
            before.iter().map(|(name, value)| (name, fields.get(name).unwrap_or(value))).collect();
        for (name, value) in fields.iter().filter(|(name, _)| before.get(name).is_none()) {
            merged.push(name, value);
        }
        self.record = before;
        parsed?;
        self.write(key, Method::PUT, &merged).await
    }

    /// Parses the last response into a record.
    fn parse(&self, record: &mut Record) -> Result<(), Outcome> {
        json::read(&self.body, record).map_err(|error| {
            let words = format!("the answer is no JSON object of a record: {error}");
            Outcome::failed(Status::UnexpectedState, words)
        })
    }

    async fn get(
        &mut self,
        key: &str,
        fields: &FieldSelection,
        reply: &mut Reply,
    ) -> Result<Outcome, Outcome> {
        let head = self.ask(key, Method::GET, None).await?;
        let outcome = self.outcome(&head);
        if !outcome.is_ok() {
            return Ok(outcome);
        }
        if self.settings.layout == BodyLayout::Data {
            reply.begin_record().push(RESPONSE, &self.body);
            return Ok(outcome);
        }
        if fields.is_all() {
            let parsed = self.parse(reply.begin_record());
            if parsed.is_err() {
                reply.clear();
            }
            return parsed.map(|()| outcome);
        }
        let mut whole = std::mem::take(&mut self.record);
        whole.clear();
        let parsed = self.parse(&mut whole);
        if parsed.is_ok() {
            let record = reply.begin_record();
            for (name, value) in whole.iter().filter(|(name, _)| fields.wants(name)) {
                record.push(name, value);
            }
        }
        self.record = whole;
        parsed.map(|()| outcome)
    }
}

/// Merges both variants of a result.
fn either(result: Result<Outcome, Outcome>) -> Outcome {
    result.unwrap_or_else(|outcome| outcome)
}

impl Client for RestClient {
    async fn read(&mut self, _: &str, key: &str, fields: &FieldSelection, reply: &mut Reply) -> Outcome {
        either(self.get(key, fields, reply).await)
    }

    async fn update(&mut self, _: &str, key: &str, fields: &Record) -> Outcome {
        either(match self.settings.update {
            Update::Put => self.write(key, Method::PUT, fields).await,
            Update::Patch => self.write(key, Method::PATCH, fields).await,
            Update::Merge => self.merge(key, fields).await,
        })
    }

    async fn insert(&mut self, _: &str, key: &str, record: &Record) -> Outcome {
        let method = if self.settings.insert_puts { Method::PUT } else { Method::POST };
        either(self.write(key, method, record).await)
    }

    async fn scan(&mut self, _: &str, _: &str, _: u64, _: &FieldSelection, _: &mut Reply) -> Outcome {
        Outcome::failed(Status::NotImplemented, "there are no scans over HTTP")
    }

    async fn delete(&mut self, _: &str, key: &str) -> Outcome {
        match self.ask(key, Method::DELETE, None).await {
            Ok(head) => self.outcome(&head),
            Err(outcome) => outcome,
        }
    }
}
