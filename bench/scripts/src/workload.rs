//! Scripts as workloads (`docs/scripts.md`).

use crate::{
    engine::LuaState,
    host::{ScriptHost, ScriptStage, ScriptState, Sequence},
    property_value::property_value,
    script::{BUDGET, Script},
};
use mlua::Function;
use serval_model::{
    Operation, OperationKind, Outcome, Record, Reply, Schema,
    properties::{Faults, Reader},
};
use serval_workload::{
    ClientWorkload, Demand, End, InputFiles, Last, Place, Rng, Step, Workload,
    core::{Circumstances, CoreWorkload, LoadRecords, Phase, properties as core},
};
use std::{mem, sync::Arc};

/// A script that uses the core workload's records.
#[derive(Debug)]
pub struct ScriptWorkload {
    core: CoreWorkload,
    script: Arc<Script>,
    common: Arc<ScriptState>,
    budget: u64,
    /// Sample of keys that a run needs.
    samples: Vec<String>,
}

impl ScriptWorkload {
    /// Reads the properties, and calls the script's `start` once to check it. Reports
    /// faults to the reader; returns `None` if there are any.
    pub fn open(
        reader: &mut Reader<'_>,
        facts: &Circumstances,
        files: &dyn InputFiles,
        script: Arc<Script>,
    ) -> Option<ScriptWorkload> {
        let properties = core::PROPERTIES.properties.iter().chain(script.table.properties);
        let properties =
            properties.map(|property| (property.name.to_owned(), property_value(reader, property))).collect();
        let budget = reader.count(&BUDGET);
        let core = CoreWorkload::open(reader, facts, files)?;
        let common =
            ScriptState { transactions: script.transactions.clone(), properties, ..ScriptState::default() };
        let mut workload =
            ScriptWorkload { core, script, common: Arc::new(common), budget, samples: Vec::new() };
        match workload.check() {
            Ok(samples) => workload.samples = samples,
            Err(error) => {
                reader.absorb::<()>(Err(Faults::one(workload.script.source.explain(&error))));
                return None;
            }
        }
        // Resets the shared choosers that the check has advanced.
        let ScriptState { transactions, properties, .. } = Arc::try_unwrap(workload.common).ok()?;
        workload.common = Arc::new(ScriptState { transactions, properties, ..ScriptState::default() });
        Some(workload)
    }

    /// Returns the core workload whose records the script uses.
    pub fn core(&self) -> &CoreWorkload {
        &self.core
    }

    fn table(&self) -> String {
        self.core.schema().table
    }

    /// Creates a client's Lua state and calls `start`.
    fn engine(&self, place: Place, rng: Rng) -> mlua::Result<LuaState> {
        let host =
            ScriptHost::new(&self.table(), rng, Some(self.core.tools(place)), Arc::clone(&self.common));
        let of = Some((place.index, place.count));
        let engine = LuaState::new(&self.script.source, host, self.budget, of)?;
        engine.host.borrow_mut().allowed = self.script.kinds();
        if let Some(start) = engine.function("start")? {
            engine.refill();
            start.call::<()>(())?;
        }
        Ok(engine)
    }

    /// Checks what is possible without a store, and returns the sample of keys that
    /// a run needs.
    fn check(&self) -> mlua::Result<Vec<String>> {
        let place = Place { index: 0, count: 1, units: None, seed: 0 };
        if self.loads() {
            let mut records = RecordLoader::new(self.engine(place, Rng::new(0))?)?;
            let first = self.core.load_range().0;
            records.make(first, Rng::new(0))?;
            return Ok(Vec::new());
        }
        let engine = self.engine(place, Rng::new(0))?;
        let needs = |kind: &OperationKind| {
            matches!(kind, OperationKind::Read | OperationKind::Update | OperationKind::Scan)
        };
        let needed = self.script.checks && self.script.operations.iter().any(needs);
        if self.core.phase() == Phase::Load || !needed {
            return Ok(Vec::new());
        }
        let numbers = self.core.sample_numbers();
        if !self.script.loads {
            return Ok(numbers.into_iter().map(|number| self.core.key(number)).collect());
        }
        let mut records = RecordLoader::new(engine)?;
        let keys = numbers.into_iter().map(|number| {
            records.make(number, Rng::new(number))?;
            Ok(mem::take(&mut records.engine.host.borrow_mut().operation.key))
        });
        keys.collect()
    }

    /// Returns whether the script does this load itself.
    fn loads(&self) -> bool {
        self.core.phase() == Phase::Load && self.script.loads
    }
}

impl Workload for ScriptWorkload {
    fn schema(&self) -> Schema {
        let schema = self.core.schema();
        Schema { fields: self.script.fields.clone().unwrap_or(schema.fields), ..schema }
    }

    fn demands(&self) -> Vec<Demand> {
        if self.core.phase() == Phase::Load {
            return self.core.demands();
        }
        let path = self.script.path().display();
        let demand =
            |&kind: &OperationKind| Demand { kind, because: format!("{path} asks for {}", kind.name()) };
        self.script.operations.iter().map(demand).collect()
    }

    fn units(&self) -> Option<u64> {
        self.core.units()
    }

    fn metrics(&self) -> Vec<String> {
        self.script.transactions.clone()
    }

    fn verifies(&self) -> bool {
        self.core.verifies()
    }

    fn sample_keys(&self) -> Vec<String> {
        self.samples.clone()
    }

    fn client(&self, place: Place, rng: Rng) -> Box<dyn ClientWorkload> {
        if self.core.phase() == Phase::Load && !self.script.loads {
            return self.core.client(place, rng);
        }
        let failed = |error: mlua::Error| -> Box<dyn ClientWorkload> {
            Box::new(Failed(Some(self.script.source.explain(&error))))
        };
        let engine = match self.engine(place, rng.clone()) {
            Ok(engine) => engine,
            Err(error) => return failed(error),
        };
        if self.loads() {
            return match RecordLoader::new(engine) {
                Ok(records) => {
                    let records = Loading { records, script: Arc::clone(&self.script), failure: None };
                    Box::new(self.core.loader(records, place, rng))
                }
                Err(error) => failed(error),
            };
        }
        match ScriptClient::new(engine, Arc::clone(&self.script)) {
            Ok(client) => Box::new(client),
            Err(error) => failed(error),
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.core.warnings()
    }
}

/// A client whose script failed before its first operation.
struct Failed(Option<String>);

impl ClientWorkload for Failed {
    fn step(&mut self, _: Last<'_>, _: &mut Operation) -> Step {
        Step::Stop
    }

    fn failure(&mut self) -> Option<String> {
        self.0.take()
    }
}

fn defined(engine: &LuaState, name: &str) -> mlua::Result<Function> {
    let function = engine.function(name)?;
    function.ok_or_else(|| mlua::Error::RuntimeError(format!("there is no function {name}() any more")))
}

/// A client of a run.
struct ScriptClient {
    engine: LuaState,
    step: Function,
    script: Arc<Script>,
    failure: Option<String>,
}

impl ScriptClient {
    fn new(engine: LuaState, script: Arc<Script>) -> mlua::Result<Self> {
        let step = defined(&engine, "step")?;
        engine.host.borrow_mut().stage = ScriptStage::Stepping;
        Ok(ScriptClient { engine, step, script, failure: None })
    }

    /// Calls the script. Returns the step if it does not depend on the operation that the script requested.
    fn call(&mut self, last: Last<'_>, operation: &mut Operation) -> mlua::Result<Option<Step>> {
        let LuaState { host, resume, .. } = &self.engine;
        self.engine.refill();
        let Last::Outcome(outcome, reply) = last else {
            if host.borrow().stop {
                return Ok(Some(Step::Stop));
            }
            self.step.call::<()>(())?;
            if host.borrow().sequence.is_some_and(|sequence| sequence.finished) {
                return Err(mlua::Error::RuntimeError("a sequence asks for no operation".into()));
            }
            return Ok(None);
        };
        if let Some(end) = take(&mut host.borrow_mut(), outcome, reply, operation) {
            return Ok(Some(end));
        }
        resume.call::<()>(outcome.is_ok())?;
        Ok(None)
    }

    fn next(&mut self, last: Last<'_>, operation: &mut Operation) -> mlua::Result<Step> {
        if let Some(step) = self.call(last, operation)? {
            return Ok(step);
        }
        let mut host = self.engine.host.borrow_mut();
        if mem::take(&mut host.requested) {
            mem::swap(operation, &mut host.operation);
            return Ok(Step::Issue { more: host.sequence.is_some() || host.inserting.is_some() });
        }
        acknowledge(&mut host);
        match host.sequence.take() {
            Some(Sequence { metric, ok, verified, .. }) => {
                let ok = ok && verified.is_none_or(|status| status.is_ok());
                Ok(Step::End(End { composite: metric, verified, ok, stop: host.stop }))
            }
            None if host.stop => Ok(Step::Stop),
            None => Err(mlua::Error::RuntimeError(
                "step() asks for no operation: call read, scan, update, insert, delete, a sequence or stop"
                    .into(),
            )),
        }
    }
}

/// Acknowledges the number of an insert, successful or not.
fn acknowledge(host: &mut ScriptHost) {
    if let (Some(number), Some(tools)) = (host.inserting.take(), &host.tools) {
        tools.acknowledge(number);
    }
}

/// Handles an outcome. Returns the end of the unit, unless a sequence is running.
fn take(host: &mut ScriptHost, outcome: &Outcome, reply: &mut Reply, operation: &Operation) -> Option<Step> {
    if operation.kind == OperationKind::Insert {
        acknowledge(host);
    }
    let Some(sequence) = &mut host.sequence else {
        return Some(Step::End(End { stop: host.stop, ..End::of(outcome) }));
    };
    sequence.ok &= outcome.is_ok();
    host.status = outcome.status;
    host.message.clone_from(&outcome.message);
    if matches!(operation.kind, OperationKind::Read | OperationKind::Scan) {
        mem::swap(&mut host.reply, reply);
    }
    None
}

impl ClientWorkload for ScriptClient {
    fn step(&mut self, last: Last<'_>, operation: &mut Operation) -> Step {
        match self.next(last, operation) {
            Ok(step) => step,
            Err(error) => {
                self.failure = Some(self.script.source.explain(&error));
                Step::End(End { composite: None, verified: None, ok: false, stop: true })
            }
        }
    }

    fn failure(&mut self) -> Option<String> {
        self.failure.take()
    }
}

/// Calls the script's `load`.
struct RecordLoader {
    engine: LuaState,
    load: Function,
}

impl RecordLoader {
    fn new(engine: LuaState) -> mlua::Result<Self> {
        let load = defined(&engine, "load")?;
        Ok(RecordLoader { engine, load })
    }

    /// Makes a record in the host's operation.
    fn make(&mut self, number: u64, rng: Rng) -> mlua::Result<()> {
        {
            let mut host = self.engine.host.borrow_mut();
            host.rng = rng;
            host.stage = ScriptStage::Loading(number);
            host.requested = false;
        }
        self.engine.refill();
        self.load.call::<()>(number)?;
        if !self.engine.host.borrow().requested {
            return Err(mlua::Error::RuntimeError(format!("load({number}) inserts nothing")));
        }
        Ok(())
    }
}

/// A client of a load.
struct Loading {
    records: RecordLoader,
    script: Arc<Script>,
    failure: Option<String>,
}

impl Loading {
    fn made(&mut self, number: u64, rng: Rng) -> bool {
        match self.records.make(number, rng) {
            Ok(()) => true,
            Err(error) => {
                self.failure = Some(self.script.source.explain(&error));
                false
            }
        }
    }
}

impl LoadRecords for Loading {
    fn write(&mut self, number: u64, key: &mut String, record: &mut Record, rng: Rng) -> bool {
        let made = self.made(number, rng);
        let ScriptHost { operation, .. } = &mut *self.records.engine.host.borrow_mut();
        mem::swap(key, &mut operation.key);
        mem::swap(record, &mut operation.record);
        made
    }

    fn write_key(&mut self, number: u64, key: &mut String, rng: Rng) -> bool {
        let made = self.made(number, rng);
        mem::swap(key, &mut self.records.engine.host.borrow_mut().operation.key);
        made
    }

    fn failure(&mut self) -> Option<String> {
        self.failure.take()
    }
}
