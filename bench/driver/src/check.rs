//! Checks that a driver conforms to the protocol, for its author. Runs on the driver's
//! own store, and deletes the keys that it used.

use super::{Driver, DriverClient, DriverLocal, frame};
use serval_model::{
    Client, FieldSelection, OperationKind, OperationKinds, Outcome, Purpose, Record, Reply, Schema, Status,
    Store, StoreError,
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckResult {
    /// The case passed.
    Passed,
    /// The case failed: why.
    Failed(String),
    /// The store differs from most stores, which may be intended: how.
    Remarked(String),
    /// The case was not run: why.
    Skipped(String),
}

/// A case and its result.
#[derive(Debug, Clone)]
pub struct Check {
    /// Requirement of the case.
    pub name: &'static str,
    /// Result of the case.
    pub verdict: CheckResult,
}

/// Results of all cases.
#[derive(Debug)]
pub struct CheckReport {
    /// The store's name, from the driver's greeting.
    pub store: String,
    /// The driver's verbs, from its greeting.
    pub capabilities: OperationKinds,
    /// The cases.
    pub checks: Vec<Check>,
    /// Median round trip to the driver, without its service time, ns.
    pub hop_ns: Option<u64>,
}

impl CheckReport {
    /// Returns whether no case failed.
    pub fn passed(&self) -> bool {
        !self.checks.iter().any(|check| matches!(check.verdict, CheckResult::Failed(_)))
    }
}

/// Number of concurrent clients.
const SIDE_BY_SIDE: usize = 8;
/// Reads of each concurrent client.
const ROUNDS: usize = 50;
/// Number of reads for the median round trip.
const HOPS: usize = 500;

const TABLE: &str = "usertable";
const FIELDS: [&str; 3] = ["field0", "field1", "field2"];

type FieldMap = BTreeMap<String, Vec<u8>>;
/// A failure, or `Ok(Some(remark))`.
type CaseResult = Result<Option<String>, String>;

/// Runs all cases. The verbs are tested on a shared connection, which every driver
/// supports.
pub fn check(mut driver: Driver) -> Result<CheckReport, StoreError> {
    driver.apart = false;
    let schema = Schema { table: TABLE.into(), fields: FIELDS.map(String::from).into() };
    let capabilities = driver.capabilities();
    driver.prepare(&schema, Purpose::Load)?;
    let store = driver.with(|running| Ok(running.welcome.name.clone()))?;
    let system = |error: std::io::Error| StoreError::new("event loop", error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
    let mut checker = Checker::new(&driver, capabilities);
    let hop_ns = tokio::task::LocalSet::new().block_on(&runtime, async {
        let local = driver.local()?;
        checker.all(&local).await
    })?;
    let mut checks = checker.checks;
    if checker.lost {
        let verdict = CheckResult::Skipped("the driver is lost".into());
        checks.push(Check { name: "all remaining cases", verdict });
        return Ok(CheckReport { store, capabilities, checks, hop_ns });
    }
    driver.apart = true;
    let mut checker = Checker::new(&driver, capabilities);
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let local = driver.local()?;
        checker.apart(&local).await
    })?;
    checks.append(&mut checker.checks);
    checks.push(Check { name: "the driver exits in time after the end of its input", verdict: end(driver) });
    Ok(CheckReport { store, capabilities, checks, hop_ns })
}

fn end(driver: Driver) -> CheckResult {
    match driver.end() {
        None => CheckResult::Skipped("Serval did not start it: it listens on a socket".into()),
        Some(Ok(status)) if status.success() => CheckResult::Passed,
        Some(Ok(status)) => CheckResult::Failed(format!("it exits with {status}")),
        Some(Err(grace)) => CheckResult::Failed(format!("it still runs {grace:?} later (driver.grace)")),
    }
}

struct Checker<'a> {
    driver: &'a Driver,
    capabilities: OperationKinds,
    prefix: String,
    checks: Vec<Check>,
    /// Keys that must be deleted.
    used: Vec<String>,
    /// The first impossible service time.
    times: Option<String>,
    /// Whether the driver was lost.
    lost: bool,
}

fn full(tag: &str) -> FieldMap {
    FIELDS.iter().map(|name| ((*name).to_owned(), format!("{name} of {tag}").into())).collect()
}

fn record(fields: &FieldMap) -> Record {
    fields.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect()
}

fn selection(names: &[&str]) -> FieldSelection {
    let mut selection = FieldSelection::default();
    names.iter().for_each(|name| selection.push(name));
    selection
}

fn ok(what: &str, outcome: Outcome) -> Result<(), String> {
    if outcome.is_ok() { Ok(()) } else { Err(format!("{what}: {}", text(&outcome))) }
}

fn text(outcome: &Outcome) -> String {
    match &outcome.message {
        Some(message) => format!("{} ({message})", outcome.status.name()),
        None => outcome.status.name().to_owned(),
    }
}

async fn read(client: &mut DriverClient, key: &str, names: &[&str]) -> Result<Option<FieldMap>, String> {
    let mut reply = Reply::new();
    let outcome = client.read(TABLE, key, &selection(names), &mut reply).await;
    match outcome.status {
        Status::NotFound if reply.records().is_empty() => Ok(None),
        Status::NotFound => Err("NOT_FOUND with a record".into()),
        _ => {
            ok("read", outcome)?;
            let [record] = reply.records() else { return Err("OK without a record".into()) };
            Ok(Some(record.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect()))
        }
    }
}

fn same(found: Option<FieldMap>, expected: &FieldMap) -> Result<(), String> {
    match found {
        Some(found) if found == *expected => Ok(()),
        Some(found) => {
            let names = |fields: &FieldMap| fields.keys().cloned().collect::<Vec<_>>().join(", ");
            if names(&found) != names(expected) {
                let (found, expected) = (names(&found), names(expected));
                return Err(format!("the record has the fields {found} where {expected} were written"));
            }
            let wrong = expected.iter().find(|(name, value)| found.get(*name) != Some(value));
            let (name, value) = wrong.map_or(("", &[][..]), |(name, value)| (name.as_str(), value));
            let actual = found.get(name).map_or(&[][..], Vec::as_slice);
            let cut = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
            Err(format!(
                "{name} has {} bytes, '{}', where {} bytes, '{}', were written",
                actual.len(),
                cut(actual),
                value.len(),
                cut(value)
            ))
        }
        None => Err("NOT_FOUND for an inserted record".into()),
    }
}

impl<'a> Checker<'a> {
    fn new(driver: &'a Driver, capabilities: OperationKinds) -> Self {
        Checker {
            driver,
            capabilities,
            prefix: format!("serval-check-{}-", std::process::id()),
            checks: Vec::new(),
            used: Vec::new(),
            times: None,
            lost: false,
        }
    }

    fn can(&self, kind: OperationKind) -> bool {
        self.capabilities.contains(kind)
    }

    fn key(&mut self, name: &str) -> String {
        let key = format!("{}{name}", self.prefix);
        self.used.push(key.clone());
        key
    }

    fn note(&mut self, name: &'static str, found: CaseResult) {
        let verdict = match found {
            Ok(None) => CheckResult::Passed,
            Ok(Some(remark)) => CheckResult::Remarked(remark),
            Err(problem) => CheckResult::Failed(problem),
        };
        self.checks.push(Check { name, verdict });
    }

    /// Returns whether the driver has the verbs; if not, records the case as skipped.
    fn needs(&mut self, name: &'static str, kinds: &[OperationKind]) -> bool {
        let missing = kinds.iter().find(|kind| !self.can(**kind));
        if let Some(kind) = missing {
            let verdict = CheckResult::Skipped(format!("the driver's capabilities have no {}", kind.name()));
            self.checks.push(Check { name, verdict });
        }
        missing.is_none()
    }

    async fn all(&mut self, local: &DriverLocal) -> Result<Option<u64>, StoreError> {
        use OperationKind::{Delete, Insert, Read, Scan, Update};
        let mut client = self.driver.connect(local, 0).await?;
        let c = &mut client;
        macro_rules! case {
            ($name:literal, $kinds:expr, $case:ident) => {
                if self.needs($name, &$kinds) {
                    let found = self.$case(c).await;
                    self.note($name, found);
                    if self.is_lost(c) {
                        return Ok(None);
                    }
                }
            };
        }
        case!("an inserted record is read back", [Insert, Read], inserted);
        case!("a missing record is NOT_FOUND", [Read], missing);
        case!("a read returns the requested fields", [Insert, Read], chosen_fields);
        case!("an update changes its fields and leaves the others", [Insert, Read, Update], updated);
        case!("a deleted record is gone", [Insert, Read, Delete], deleted);
        case!("keys and values may be any text", [Insert, Read], texts);
        case!("values may be any bytes", [Insert, Read], any_bytes);
        case!("a value of 1 MiB is read back complete", [Insert, Read], large);
        case!("a scan returns at most the requested number of records, none twice", [Insert, Scan], scanned);
        case!("a batch of inserts is written", [Insert, Read], batch);
        case!("an unknown request is answered with BAD_REQUEST", [], invalid);
        case!("a request of a client that is not open is refused", [Read], not_open);
        const SIDE: &str = "concurrent clients get their own answers";
        if self.needs(SIDE, &[Insert, Read]) {
            let found = self.side_by_side(local).await;
            self.note(SIDE, found);
            if self.is_lost(c) {
                return Ok(None);
            }
        }
        case!("verbs outside of its capabilities are NOT_IMPLEMENTED", [], not_implemented);
        let hop = if self.can(Insert) && self.can(Read) { self.hop(c).await } else { None };
        let times = self.times.take().map_or(Ok(None), Err);
        self.note("service times are reported, and within the whole time", times);
        if self.can(Delete) {
            for key in std::mem::take(&mut self.used) {
                client.delete(TABLE, &key).await;
            }
        }
        let closed = ok("close", client.close().await).map(|()| None);
        self.note("a client closes", closed);
        let reopened = match self.driver.connect(local, 0).await {
            Ok(mut again) => ok("close", again.close().await).map(|()| None),
            Err(error) => Err(error.problem),
        };
        self.note("a client may be opened again", reopened);
        Ok(if self.is_lost(&client) { None } else { hop })
    }

    /// Returns whether the driver was lost. If so, the last case fails with the reason,
    /// and no more cases run.
    fn is_lost(&mut self, client: &DriverClient) -> bool {
        let Some(error) = client.lost() else { return false };
        let problem = self.driver.explain(error).problem;
        if let Some(last) = self.checks.last_mut() {
            last.verdict = CheckResult::Failed(problem);
        }
        self.lost = true;
        true
    }

    /// Runs concurrent clients with connections of their own.
    async fn apart(&mut self, local: &DriverLocal) -> Result<(), StoreError> {
        use OperationKind::{Delete, Insert, Read};
        const NAME: &str = "concurrent clients with pipes of their own get their own answers";
        if local.pipes.is_none() {
            let why = "the driver's capabilities have no pipes of clients".to_owned();
            self.checks.push(Check { name: NAME, verdict: CheckResult::Skipped(why) });
        } else if self.needs(NAME, &[Insert, Read]) {
            let found = self.side_by_side(local).await;
            self.note(NAME, found);
            if self.can(Delete) {
                let mut client = self.driver.connect(local, 0).await?;
                for key in std::mem::take(&mut self.used) {
                    client.delete(TABLE, &key).await;
                }
                client.close().await;
            }
        }
        Ok(())
    }

    async fn insert(
        &mut self,
        client: &mut DriverClient,
        key: &str,
        fields: &FieldMap,
    ) -> Result<(), String> {
        let start = Instant::now();
        let outcome = client.insert(TABLE, key, &record(fields)).await;
        let (whole, service) = (start.elapsed(), Duration::from_nanos(client.service_ns.unwrap_or_default()));
        if outcome.is_ok() && self.times.is_none() && (service.is_zero() || service > whole) {
            self.times = Some(format!(
                "an insert took {whole:?}, and the driver reports a service time of {service:?}"
            ));
        }
        ok("insert", outcome)
    }

    async fn inserted(&mut self, client: &mut DriverClient) -> CaseResult {
        let (key, fields) = (self.key("inserted"), full("inserted"));
        self.insert(client, &key, &fields).await?;
        same(read(client, &key, &[]).await?, &fields)?;
        same(read(client, &key, &FIELDS).await?, &fields).map(|()| None)
    }

    async fn missing(&mut self, client: &mut DriverClient) -> CaseResult {
        let key = format!("{}missing", self.prefix);
        match read(client, &key, &[]).await? {
            None => Ok(None),
            Some(_) => Err("a record that was never inserted".into()),
        }
    }

    async fn chosen_fields(&mut self, client: &mut DriverClient) -> CaseResult {
        let (key, fields) = (self.key("fields"), full("fields"));
        self.insert(client, &key, &fields).await?;
        let mut expected = fields;
        expected.remove("field1");
        same(read(client, &key, &["field2", "field0"]).await?, &expected).map(|()| None)
    }

    async fn updated(&mut self, client: &mut DriverClient) -> CaseResult {
        let (key, mut fields) = (self.key("updated"), full("updated"));
        self.insert(client, &key, &fields).await?;
        let change: FieldMap = [("field1".to_owned(), b"changed".to_vec())].into();
        ok("update", client.update(TABLE, &key, &record(&change)).await)?;
        fields.extend(change);
        same(read(client, &key, &[]).await?, &fields)?;
        let missing = format!("{}never", self.prefix);
        let outcome = client.update(TABLE, &missing, &record(&full("never"))).await;
        if outcome.is_ok() {
            self.used.push(missing);
            return Ok(Some("an update of a missing record succeeds".into()));
        }
        Ok(None)
    }

    async fn deleted(&mut self, client: &mut DriverClient) -> CaseResult {
        let key = self.key("deleted");
        self.insert(client, &key, &full("deleted")).await?;
        ok("delete", client.delete(TABLE, &key).await)?;
        match read(client, &key, &[]).await? {
            None => Ok(None),
            Some(_) => Err("the record still exists".into()),
        }
    }

    async fn round_trip(
        &mut self,
        client: &mut DriverClient,
        name: &str,
        value: &[u8],
    ) -> Result<(), String> {
        let key = self.key(name);
        let fields: FieldMap = [("field0".to_owned(), value.to_vec())].into();
        self.insert(client, &key, &fields).await?;
        same(read(client, &key, &["field0"]).await?, &fields)
    }

    async fn texts(&mut self, client: &mut DriverClient) -> CaseResult {
        for (name, value) in [
            ("quotes ' \" ` \\ ;", "' \" ` \\ ; -- %s {} $1 ?"),
            ("Grüße 世界 🦁", "Grüße, 世界, 🦁"),
            ("line", "a\r\nb\tc"),
            ("digits", "007"),
        ] {
            self.round_trip(client, name, value.as_bytes())
                .await
                .map_err(|problem| format!("{name:?}: {problem}"))?;
        }
        Ok(None)
    }

    /// A remark, because some stores keep text only.
    async fn any_bytes(&mut self, client: &mut DriverClient) -> CaseResult {
        for (name, value) in
            [("empty", vec![]), ("nul", b"a\0b".to_vec()), ("bytes", (0..=255).collect::<Vec<u8>>())]
        {
            if let Err(problem) = self.round_trip(client, name, &value).await {
                return Ok(Some(format!("{name}: {problem}")));
            }
        }
        Ok(None)
    }

    async fn large(&mut self, client: &mut DriverClient) -> CaseResult {
        let value: Vec<u8> = (0..1 << 20).map(|i: u32| b'a' + (i % 26) as u8).collect();
        match self.round_trip(client, "large", &value).await {
            Ok(()) => Ok(None),
            // A remark, because stores have limits; other cases notice a broken connection.
            Err(problem) => Ok(Some(problem)),
        }
    }

    async fn scanned(&mut self, client: &mut DriverClient) -> CaseResult {
        let mut first = String::new();
        for number in 0..5 {
            let key = self.key(&format!("scan{number}"));
            self.insert(client, &key, &full(&number.to_string())).await?;
            if number == 0 {
                first = key;
            }
        }
        let mut reply = Reply::new();
        ok("scan", client.scan(TABLE, &first, 3, &selection(&[]), &mut reply).await)?;
        let found: Vec<FieldMap> = reply
            .records()
            .iter()
            .map(|record| record.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect())
            .collect();
        if found.is_empty() {
            return Err("no record, although five were inserted".into());
        }
        for (index, record) in found.iter().enumerate() {
            if found[..index].contains(record) {
                return Err("a record twice".into());
            }
        }
        let expected: Vec<FieldMap> = (0..3).map(|number| full(&number.to_string())).collect();
        Ok((found != expected).then(|| "records are not in the order of their keys".into()))
    }

    async fn batch(&mut self, client: &mut DriverClient) -> CaseResult {
        let records: Vec<(String, Record)> = (0..4)
            .map(|number| (self.key(&format!("batch{number}")), record(&full(&number.to_string()))))
            .collect();
        ok("batch", client.insert_batch(TABLE, &records).await)?;
        for (number, (key, _)) in records.iter().enumerate() {
            same(read(client, key, &[]).await?, &full(&number.to_string()))?;
        }
        let declared = client.batches;
        Ok((!declared).then(|| "the driver accepts no batches: Serval sends single inserts".into()))
    }

    async fn invalid(&mut self, client: &mut DriverClient) -> CaseResult {
        let outcome = client.call(200, 0, &mut Reply::new(), |out| frame::put_u32(out, 0)).await;
        match outcome.status {
            Status::BadRequest => Ok(None),
            _ => Err(format!("a request of type 200 is answered with {}", text(&outcome))),
        }
    }

    async fn not_open(&mut self, client: &mut DriverClient) -> CaseResult {
        let number = std::mem::replace(&mut client.number, 999);
        let outcome = client.read(TABLE, "k", &selection(&[]), &mut Reply::new()).await;
        client.number = number;
        match outcome.status {
            Status::Ok | Status::BatchedOk | Status::NotFound => {
                Err(format!("a read of client 999, which was never opened, is {}", text(&outcome)))
            }
            _ => Ok(None),
        }
    }

    async fn not_implemented(&mut self, client: &mut DriverClient) -> CaseResult {
        let missing: Vec<OperationKind> =
            OperationKind::ALL.into_iter().filter(|kind| !self.can(*kind)).collect();
        for kind in missing {
            let (all, mut reply, some) = (selection(&[]), Reply::new(), record(&full("x")));
            let key = format!("{}nothing", self.prefix);
            let outcome = match kind {
                OperationKind::Read => client.read(TABLE, &key, &all, &mut reply).await,
                OperationKind::Update => client.update(TABLE, &key, &some).await,
                OperationKind::Insert => client.insert(TABLE, &key, &some).await,
                OperationKind::Scan => client.scan(TABLE, &key, 1, &all, &mut reply).await,
                OperationKind::Delete => client.delete(TABLE, &key).await,
            };
            if outcome.status != Status::NotImplemented {
                return Err(format!("{} is answered with {}", kind.name(), text(&outcome)));
            }
        }
        Ok(None)
    }

    async fn side_by_side(&mut self, local: &DriverLocal) -> CaseResult {
        let mut clients = Vec::new();
        for number in 1..=SIDE_BY_SIDE {
            clients.push(self.driver.connect(local, number).await.map_err(|error| error.problem)?);
        }
        let mut keys = Vec::new();
        for number in 0..SIDE_BY_SIDE {
            keys.push(self.key(&format!("side{number}")));
        }
        let tasks: Vec<_> = clients
            .into_iter()
            .zip(keys)
            .enumerate()
            .map(|(number, (mut client, key))| {
                tokio::task::spawn_local(async move {
                    let fields = full(&format!("client {number}"));
                    ok("insert", client.insert(TABLE, &key, &record(&fields)).await)?;
                    for _ in 0..ROUNDS {
                        same(read(&mut client, &key, &[]).await?, &fields)?;
                    }
                    ok("close", client.close().await)
                })
            })
            .collect();
        for task in tasks {
            task.await.map_err(|error| error.to_string())??;
        }
        Ok(None)
    }

    /// Measures the median round trip to the driver.
    async fn hop(&mut self, client: &mut DriverClient) -> Option<u64> {
        let key = self.key("hop");
        self.insert(client, &key, &full("hop")).await.ok()?;
        let mut hops = Vec::with_capacity(HOPS);
        let (all, mut reply) = (selection(&[]), Reply::new());
        for _ in 0..HOPS {
            reply.clear();
            let start = Instant::now();
            if !client.read(TABLE, &key, &all, &mut reply).await.is_ok() {
                return None;
            }
            hops.push(
                (start.elapsed().as_nanos() as u64).saturating_sub(client.service_ns.unwrap_or_default()),
            );
        }
        hops.sort_unstable();
        hops.get(HOPS / 2).copied()
    }
}
