//! Properties of the mongodb store and of its URL.

use futures_util::FutureExt;
use mongodb::options::{
    Acknowledgment, ClientOptions, Credential, DriverInfo, ReadPreference, SelectionCriteria, Tls,
    WriteConcern,
};
use serval_model::properties::{Faults, Kind, Properties, Property, Reader};
use std::time::Duration;

pub(super) static URL: Property = Property::ycsb(
    "mongodb.url",
    Kind::Text,
    "MongoDB's connection string: mongodb://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?OPTIONS. Without a \
     database (or with 'admin') the database is 'ycsb'. Options are the driver's: w, journal, wTimeoutMS, \
     readPreference, readConcernLevel, replicaSet, directConnection, authSource, authMechanism, \
     minPoolSize, and for TLS tls=true, tlsCAFile=FILE (PEM; without it the public signers), \
     tlsCertificateKeyFile=FILE, tlsInsecure=true and others.",
)
.default("mongodb://localhost:27017/ycsb?w=1");
pub(super) static USERNAME: Property = Property::serval(
    "mongodb.username",
    Kind::Text,
    "User, if the URL has none. It is looked up in the database of the URL's authSource, or 'admin'.",
);
pub(super) static PASSWORD: Property =
    Property::serval("mongodb.password", Kind::Text, "Password of mongodb.username.");
pub(super) static WRITE_CONCERN: Property = Property::ycsb(
    "mongodb.writeConcern",
    Kind::Choice(&[
        "errors_ignored",
        "unacknowledged",
        "acknowledged",
        "journaled",
        "replica_acknowledged",
        "majority",
    ]),
    "When a write is acknowledged, if the URL does not say it (w, journal). acknowledged: the server has \
     it (w=1, the default). journaled: the server has it in its journal. replica_acknowledged: a second \
     server has it (w=2). majority: the majority has it. The first two values, which do not wait for the \
     server, are refused: the driver has no such writes.",
);
pub(super) static READ_PREFERENCE: Property = Property::ycsb(
    "mongodb.readPreference",
    Kind::Choice(&["primary", "primary_preferred", "secondary", "secondary_preferred", "nearest"]),
    "Servers of a replica set that serve reads, if the URL does not say it (readPreference).",
);
pub(super) static MAX_CONNECTIONS: Property = Property::ycsb(
    "mongodb.maxconnections",
    Kind::Count { min: 0, max: 100_000 },
    "Largest number of connections from the clients of one event loop to each server, if the URL does not \
     say it (maxPoolSize). 0: as many as there are operations in flight, so that no client waits for \
     another.",
)
.default("0");
pub(super) static WAITING: Property = Property::ycsb(
    "mongodb.threadsAllowedToBlockForConnectionMultiplier",
    Kind::Text,
    "Setting of YCSB's Java driver, without effect: any number of clients may wait for a connection.",
);
pub(super) static UPSERT: Property = Property::ycsb(
    "mongodb.upsert",
    Kind::Flag,
    "Whether an insert replaces an existing record or fails. If true, batches of inserts are sent one by \
     one.",
)
.default("false");
pub(super) static CONNECT_TIMEOUT: Property = Property::serval(
    "mongodb.connect_timeout",
    Kind::MILLISECONDS,
    "Timeout for a usable server, including authentication: before the run, and in an operation while the \
     server is away. If not set, the URL's serverSelectionTimeoutMS and connectTimeoutMS apply.",
)
.default("10s")
.unit("ms");
pub(super) static TIMEOUT: Property = Property::serval(
    "mongodb.timeout",
    Kind::MILLISECONDS,
    "Timeout for the answer to an operation. The operation then fails with SERVICE_UNAVAILABLE, and its \
     connection is closed. 0: no timeout, so that a slow server shows as slow.",
)
.default("0")
.unit("ms");

pub(super) static ALL: &[&Property] = &[
    &URL,
    &USERNAME,
    &PASSWORD,
    &WRITE_CONCERN,
    &READ_PREFERENCE,
    &UPSERT,
    &MAX_CONNECTIONS,
    &WAITING,
    &CONNECT_TIMEOUT,
    &TIMEOUT,
];

/// Maximum number of connections for "unlimited": the driver's default is 10, and it refuses 0.
pub(super) const UNBOUNDED: u32 = u32::MAX;

/// Default database, as in YCSB.
const DATABASE: &str = "ycsb";

const UNACKNOWLEDGED: &str =
    "the driver waits for the server's answer to every write; choose acknowledged (w=1) or more";

/// Options of YCSB's Java drivers only.
const JAVA_ONLY: &[&str] = &["waitqueuemultiple", "j", "safe", "fsync"];

/// Values of the properties.
#[derive(Debug)]
pub(super) struct MongodbSettings {
    pub(super) options: ClientOptions,
    pub(super) database: String,
    pub(super) upsert: bool,
    pub(super) timeout: Option<Duration>,
    /// Options of the URL that are ignored.
    pub(super) unread: Vec<String>,
}

impl MongodbSettings {
    pub(super) fn read(properties: &Properties) -> Result<MongodbSettings, Faults> {
        let mut reader = Reader::new(properties);
        let (url, unread) = without_java_options(&reader.text(&URL));
        let mut options = parse(&mut reader, &url).unwrap_or_default();
        // The default URL's w is not the user's choice.
        let chosen = if reader.given(&URL) { options.write_concern.take() } else { None };
        options.write_concern = Some(write_concern(&mut reader, chosen));
        let preference = reader.given(&READ_PREFERENCE).then(|| reader.choice(&READ_PREFERENCE));
        if let (Some(word), None) = (preference, &options.selection_criteria) {
            options.selection_criteria = Some(SelectionCriteria::ReadPreference(read_preference(word)));
        }
        let connections = reader.count(&MAX_CONNECTIONS) as u32;
        options.max_pool_size.get_or_insert(if connections == 0 { UNBOUNDED } else { connections });
        let connect_timeout = reader.duration(&CONNECT_TIMEOUT);
        if connect_timeout.is_zero() {
            reader.fault(&CONNECT_TIMEOUT, "must be above zero");
        }
        for timeout in [&mut options.connect_timeout, &mut options.server_selection_timeout] {
            if reader.given(&CONNECT_TIMEOUT) || timeout.is_none() {
                *timeout = Some(connect_timeout);
            }
        }
        log_in(&mut reader, &mut options);
        check_files(&mut reader, &options);
        // No retries, whatever the URL says: failures must be visible.
        options.retry_reads = Some(false);
        options.retry_writes = Some(false);
        options.max_adaptive_retries = Some(0);
        options.driver_info = Some(DriverInfo::builder().name("serval").build());
        let upsert = reader.flag(&UPSERT);
        let timeout = Some(reader.duration(&TIMEOUT)).filter(|timeout| !timeout.is_zero());
        if timeout.is_some() {
            options.cmap_event_handler = Some(super::limit::connections());
        }
        let database = options.default_database.clone().filter(|name| name != "admin");
        let database = database.unwrap_or_else(|| DATABASE.to_owned());
        reader.finish()?;
        Ok(MongodbSettings { options, database, upsert, timeout, unread })
    }
}

/// Returns the URL, and the names of the options that were removed from it.
fn without_java_options(url: &str) -> (String, Vec<String>) {
    let Some((before, options)) = url.split_once('?') else { return (url.to_owned(), Vec::new()) };
    let (mut kept, mut unread) = (Vec::new(), Vec::new());
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let name = option.split('=').next().unwrap_or_default();
        if JAVA_ONLY.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            unread.push(name.to_owned());
        } else {
            kept.push(option);
        }
    }
    (format!("{before}?{}", kept.join("&")), unread)
}

/// Parses the URL by the driver. Faults do not repeat it, because it may contain a
/// password.
fn parse(reader: &mut Reader<'_>, url: &str) -> Option<ClientOptions> {
    if url.starts_with("mongodb+srv:") {
        reader.fault_overall(format!(
            "{}: mongodb+srv asks the DNS for the servers, which this build does not: name them, \
             mongodb://HOST:PORT,HOST:PORT/DATABASE?tls=true&replicaSet=NAME",
            URL.name
        ));
        return None;
    }
    // Only DNS lookups would wait.
    match ClientOptions::parse(url).into_future().now_or_never() {
        Some(Ok(options)) => Some(options),
        Some(Err(error)) => {
            let mut problem = error.kind.to_string();
            if let Some((_, secret)) = url.split_once('@').and_then(|(login, _)| login.rsplit_once(':')) {
                problem = problem.replace(secret, "***");
            }
            reader.fault_overall(format!("{}: {problem}", URL.name));
            None
        }
        None => {
            reader.fault_overall(format!("{}: cannot be read at once", URL.name));
            None
        }
    }
}

/// Returns the URL's value, or else the property's.
fn write_concern(reader: &mut Reader<'_>, chosen: Option<WriteConcern>) -> WriteConcern {
    let word = if reader.given(&WRITE_CONCERN) { reader.choice(&WRITE_CONCERN) } else { "acknowledged" };
    let chosen = chosen.unwrap_or_default();
    if word == "journaled" {
        let journal = chosen.journal.or(Some(true));
        return WriteConcern::builder().w(chosen.w).w_timeout(chosen.w_timeout).journal(journal).build();
    }
    if ["errors_ignored", "unacknowledged"].contains(&word) {
        reader.fault(&WRITE_CONCERN, UNACKNOWLEDGED);
    }
    if chosen.w == Some(Acknowledgment::Nodes(0)) {
        reader.fault_overall(format!("{}: w=0: {UNACKNOWLEDGED}", URL.name));
    }
    let w = chosen.w.unwrap_or(match word {
        "replica_acknowledged" => Acknowledgment::Nodes(2),
        "majority" => Acknowledgment::Majority,
        _ => Acknowledgment::Nodes(1),
    });
    WriteConcern::builder().w(w).w_timeout(chosen.w_timeout).journal(chosen.journal).build()
}

fn read_preference(word: &str) -> ReadPreference {
    match word {
        "primary_preferred" => ReadPreference::PrimaryPreferred { options: None },
        "secondary" => ReadPreference::Secondary { options: None },
        "secondary_preferred" => ReadPreference::SecondaryPreferred { options: None },
        "nearest" => ReadPreference::Nearest { options: None },
        _ => ReadPreference::Primary,
    }
}

/// Returns the effective read preference in the URL's notation.
pub(super) fn preference(options: &ClientOptions) -> &'static str {
    match &options.selection_criteria {
        Some(SelectionCriteria::ReadPreference(preference)) => match preference {
            ReadPreference::PrimaryPreferred { .. } => "primaryPreferred",
            ReadPreference::Secondary { .. } => "secondary",
            ReadPreference::SecondaryPreferred { .. } => "secondaryPreferred",
            ReadPreference::Nearest { .. } => "nearest",
            _ => "primary",
        },
        _ => "primary",
    }
}

fn log_in(reader: &mut Reader<'_>, options: &mut ClientOptions) {
    let (username, password) = (reader.optional_text(&USERNAME), reader.optional_text(&PASSWORD));
    if username.is_some() != password.is_some() {
        reader.fault(&USERNAME, "and mongodb.password need each other");
    }
    if username.is_none() {
        return;
    }
    let known = options.credential.take().unwrap_or_default();
    if known.username.is_some() {
        reader.fault(&USERNAME, "the URL has a user too: leave one of them out");
    }
    let source = known.source.unwrap_or_else(|| "admin".to_owned());
    options.credential = Some(
        Credential::builder()
            .username(username)
            .password(password)
            .source(source)
            .mechanism(known.mechanism)
            .mechanism_properties(known.mechanism_properties)
            .build(),
    );
}

/// Checks the files of TLS, which the driver would read late, for every connection.
fn check_files(reader: &mut Reader<'_>, options: &ClientOptions) {
    let Some(Tls::Enabled(tls)) = &options.tls else { return };
    for path in [&tls.ca_file_path, &tls.cert_key_file_path].into_iter().flatten() {
        match std::fs::read(path) {
            Ok(bytes) if bytes.windows(11).any(|window| window == b"-----BEGIN ") => {}
            Ok(_) => reader.fault_overall(format!("{}: {} is no PEM file", URL.name, path.display())),
            Err(error) => reader.fault_overall(format!("{}: {}: {error}", URL.name, path.display())),
        }
    }
}
