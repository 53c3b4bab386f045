//! Functions that a script can call, and the client's state that they use.
//!
//! A function for an operation fills the client's operation buffer. The workload
//! passes it to the runner when the script returns (or yields, in a sequence). An
//! operation whose key is a record's number and whose fields are the core's
//! allocates nothing here; each Lua string costs one small allocation in mlua.

use crate::property_value::PropertyValue;
use mlua::{AnyUserData, Function, Lua, LuaString, Value, Variadic};
use serval_model::{Metric, Operation, OperationKind, OperationKinds, Record, Reply, Status};
use serval_workload::{
    Random, Rng,
    core::{Tools, YCSB_ZIPFIAN},
    distribution::{
        Discrete, DistributionError, Hotspot, KeyChooser, LengthChooser, ScatteredZipf, ScrambledZipfian,
        Sequential, Uniform, Zipfian,
    },
    values::RandomText,
};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    io::Write,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
};

const PRELUDE: &str = include_str!("prelude.lua");

/// Maximum length of a value of [`text`](TextGenerator), bytes.
const TEXT_LENGTH_MAX: u64 = 1 << 30;

/// Seed that chooses the hot keys of `exactzipfian(min, max)`: the same for all runs, as
/// in the core.
const SCATTER_SEED: u64 = 0;

/// Stage of a script, which decides the functions that it may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptStage {
    /// The file runs for its declarations.
    Declaring,
    /// `start()` of a client.
    Starting,
    /// `step()`.
    Stepping,
    /// `load(number)`.
    Loading(u64),
}

/// A running sequence of operations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sequence {
    /// Metric of the whole sequence, if it has a name.
    pub(crate) metric: Option<Metric>,
    /// Whether all operations succeeded.
    pub(crate) ok: bool,
    pub(crate) finished: bool,
    pub(crate) verified: Option<Status>,
}

/// State that the clients of a script share.
#[derive(Debug, Default)]
pub(crate) struct ScriptState {
    pub(crate) transactions: Vec<String>,
    pub(crate) properties: BTreeMap<String, PropertyValue>,
    /// Sequential choosers that clients share, in the order in which each client
    /// creates them.
    pub(crate) sequences: Mutex<Vec<Sequential>>,
}

/// One client's state.
pub(crate) struct ScriptHost {
    pub(crate) rng: Rng,
    /// `None` until the properties are known.
    pub(crate) tools: Option<Tools>,
    pub(crate) operation: Operation,
    pub(crate) reply: Reply,
    pub(crate) status: Status,
    pub(crate) message: Option<Box<str>>,
    pub(crate) allowed: OperationKinds,
    pub(crate) stage: ScriptStage,
    /// Whether `operation` is filled in.
    pub(crate) requested: bool,
    pub(crate) sequence: Option<Sequence>,
    /// Number of an insert that is not acknowledged.
    pub(crate) inserting: Option<u64>,
    pub(crate) stop: bool,
    common: Arc<ScriptState>,
    /// Number of shared sequential choosers that this client has created.
    sequences_created: usize,
}

fn wrong<T>(problem: impl Into<String>) -> mlua::Result<T> {
    Err(mlua::Error::RuntimeError(problem.into()))
}

fn too_early(function: &str) -> mlua::Error {
    mlua::Error::RuntimeError(format!(
        "{function} can be called in start(), step() and load() only: properties are not known while the file runs"
    ))
}

impl ScriptHost {
    pub(crate) fn new(table: &str, rng: Rng, tools: Option<Tools>, common: Arc<ScriptState>) -> Self {
        ScriptHost {
            rng,
            stage: if tools.is_some() { ScriptStage::Starting } else { ScriptStage::Declaring },
            tools,
            operation: Operation::new(table),
            reply: Reply::new(),
            status: Status::Ok,
            message: None,
            allowed: OperationKinds::NONE,
            requested: false,
            sequence: None,
            inserting: None,
            stop: false,
            common,
            sequences_created: 0,
        }
    }

    fn tools(&mut self, function: &str) -> mlua::Result<&mut Tools> {
        self.tools.as_mut().ok_or_else(|| too_early(function))
    }

    /// Starts to fill in an operation.
    #[inline]
    fn request(&mut self, kind: OperationKind) -> mlua::Result<()> {
        let fits = match self.stage {
            ScriptStage::Stepping => self.allowed.contains(kind),
            ScriptStage::Loading(_) => kind == OperationKind::Insert,
            ScriptStage::Declaring | ScriptStage::Starting => false,
        };
        if !fits || self.requested {
            return wrong(self.refusal(kind));
        }
        self.operation.begin(kind);
        self.requested = true;
        Ok(())
    }

    #[cold]
    fn refusal(&self, kind: OperationKind) -> String {
        let verb = kind.name().to_lowercase();
        match self.stage {
            ScriptStage::Loading(_) if kind != OperationKind::Insert => {
                "load() inserts, and nothing else".into()
            }
            ScriptStage::Loading(_) => "load() inserts one record, and here is a second".into(),
            ScriptStage::Declaring | ScriptStage::Starting => {
                format!("{verb}: operations are asked for in step() and load() only")
            }
            ScriptStage::Stepping if !self.allowed.contains(kind) => {
                format!("asks for a {verb}, which 'operations' does not name")
            }
            ScriptStage::Stepping => "a second operation before the first has ended: several in turn are a \
                             sequence(function(op) op.read(...) ... end)"
                .into(),
        }
    }

    fn write_key(&mut self, key: &Value) -> mlua::Result<()> {
        let ScriptHost { tools, operation, .. } = self;
        let Some(tools) = tools else { return Err(too_early("a key")) };
        write_key(tools, &mut operation.key, key)
    }

    fn push_fields(&mut self, first: &Value, rest: &[Value]) -> mlua::Result<()> {
        for name in std::iter::once(first).chain(rest) {
            self.operation.fields.push(&field_name(name)?);
        }
        Ok(())
    }

    /// Adds a field with a given value, a generator's, or the core workload's.
    fn push_value(&mut self, name: &Value, value: &Value) -> mlua::Result<()> {
        let ScriptHost { tools, operation, rng, .. } = self;
        let Operation { key, record, .. } = operation;
        let name = field_name(name)?;
        match value {
            Value::Nil => match tools {
                Some(tools) => tools.push_field(record, key, &name, rng),
                None => return Err(too_early("a value")),
            },
            Value::String(text) => record.push(&name, &text.as_bytes()),
            Value::Integer(number) => {
                let mut buffer = itoa::Buffer::new();
                record.push(&name, buffer.format(*number).as_bytes());
            }
            Value::Number(number) => push_display(record, &name, number),
            Value::Boolean(flag) => push_display(record, &name, flag),
            Value::UserData(text) => {
                let mut text = text.borrow_mut::<TextGenerator>()?;
                let length = text.lengths.draw(rng) as usize;
                record.push_with(&name, |out| text.random.write(out, length, rng));
            }
            other => return wrong(format!("a {} is no value of a field", other.type_name())),
        }
        Ok(())
    }

    /// Adds the fields of a write: alternating names and values.
    fn push_values(&mut self, name: &Value, value: &Value, rest: &[Value]) -> mlua::Result<()> {
        self.push_value(name, value)?;
        for pair in rest.chunks(2) {
            self.push_value(&pair[0], pair.get(1).unwrap_or(&Value::Nil))?;
        }
        Ok(())
    }

    /// Returns the client's next shared sequential chooser; `new` if this client is the first to create it.
    fn shared_sequence(&mut self, new: Sequential) -> Sequential {
        let mut all = self.common.sequences.lock().unwrap_or_else(PoisonError::into_inner);
        let index = self.sequences_created;
        self.sequences_created += 1;
        if index == all.len() {
            all.push(new);
        }
        all[index].clone()
    }
}

fn push_display(record: &mut Record, name: &str, value: &impl std::fmt::Display) {
    // Writing to memory does not fail.
    record.push_with(name, |out| drop(write!(out, "{value}")));
}

#[inline]
fn write_key(tools: &Tools, out: &mut String, key: &Value) -> mlua::Result<()> {
    match key {
        Value::Integer(number) if *number >= 0 => tools.write_key(out, *number as u64),
        Value::Number(number) if *number >= 0.0 && number.fract() == 0.0 => {
            tools.write_key(out, *number as u64);
        }
        Value::String(text) => out.push_str(&text.to_str()?),
        other => {
            return wrong(format!(
                "a key is a record's number, 0 or more, or a text; this is a {}",
                match other {
                    Value::Integer(_) => "number below 0",
                    Value::Number(_) => "number below 0 or not whole",
                    other => other.type_name(),
                }
            ));
        }
    }
    Ok(())
}

fn field_name(name: &Value) -> mlua::Result<mlua::BorrowedStr> {
    match name {
        Value::String(text) => text.to_str(),
        other => wrong(format!("a field's name is a text; this is a {}", other.type_name())),
    }
}

/// Generator of random text.
struct TextGenerator {
    lengths: LengthChooser,
    random: RandomText,
}

impl mlua::UserData for TextGenerator {}

/// A chooser, by what it returns.
enum ScriptChooser {
    /// Numbers of existing records.
    Records(KeyChooser),
    /// Numbers in a range.
    Numbers(KeyChooser),
    /// Ranks: small numbers are more frequent.
    Ranks(Zipfian),
    /// Numbers of alternatives, from 1.
    Discrete(Discrete),
}

impl ScriptChooser {
    #[inline]
    fn draw(&mut self, rng: &mut Rng, tools: Option<&Tools>) -> u64 {
        match self {
            ScriptChooser::Records(chooser) => chooser.draw(rng, tools.map_or(0, Tools::newest)),
            ScriptChooser::Numbers(chooser) => chooser.draw(rng, u64::MAX),
            ScriptChooser::Ranks(zipfian) => zipfian.next(rng),
            ScriptChooser::Discrete(discrete) => discrete.draw(rng) as u64 + 1,
        }
    }
}

fn number(function: &str, args: &[Value], at: usize) -> mlua::Result<Option<f64>> {
    match args.get(at) {
        None | Some(Value::Nil) => Ok(None),
        Some(Value::Integer(number)) => Ok(Some(*number as f64)),
        Some(Value::Number(number)) => Ok(Some(*number)),
        Some(other) => {
            wrong(format!("{function}: argument {} must be a number and is a {}", at + 1, other.type_name()))
        }
    }
}

fn whole(function: &str, args: &[Value], at: usize) -> mlua::Result<u64> {
    match args.get(at) {
        Some(Value::Integer(number)) if *number >= 0 => Ok(*number as u64),
        Some(Value::Number(number)) if *number >= 0.0 && number.fract() == 0.0 => Ok(*number as u64),
        _ => wrong(format!("{function}: argument {} must be a whole number, 0 or more", at + 1)),
    }
}

fn described<T>(function: &str, result: Result<T, DistributionError>) -> mlua::Result<T> {
    result.or_else(|error| wrong(format!("{function}: {error}")))
}

/// Creates a chooser from its name and arguments.
fn chooser(host: &mut ScriptHost, name: &'static str, args: &[Value]) -> mlua::Result<ScriptChooser> {
    let tools = host.tools(name)?;
    if args.is_empty() {
        let chooser = match name {
            "keys" => tools.request_chooser(),
            "ranks" | "discrete" => return wrong(format!("{name} needs arguments")),
            _ => described(name, tools.chooser(name))?,
        };
        // The chooser of requestdistribution is shared already.
        return Ok(ScriptChooser::Records(match chooser {
            KeyChooser::Sequential(made) if name != "keys" => {
                KeyChooser::Sequential(host.shared_sequence(made))
            }
            chooser => chooser,
        }));
    }
    if name == "discrete" {
        let weights: mlua::Result<Vec<f64>> =
            (0..args.len()).map(|at| Ok(number(name, args, at)?.unwrap_or(f64::NAN))).collect();
        return Ok(ScriptChooser::Discrete(described(name, Discrete::new(&weights?))?));
    }
    let (min, max) = (whole(name, args, 0)?, whole(name, args, 1)?);
    let third = number(name, args, 2)?;
    let made = match name {
        "uniform" => Uniform::new(min, max).map(KeyChooser::Uniform),
        "zipfian" => ScrambledZipfian::new(min, max, YCSB_ZIPFIAN).map(KeyChooser::Zipfian),
        "exactzipfian" => ScatteredZipf::new(min, max, third.unwrap_or(YCSB_ZIPFIAN), SCATTER_SEED)
            .map(KeyChooser::ScatteredZipf),
        "hotspot" => {
            let share = number(name, args, 3)?;
            Hotspot::new(min, max, third.unwrap_or(0.2), share.unwrap_or(0.8)).map(KeyChooser::Hotspot)
        }
        "sequential" => {
            Sequential::new(min, max).map(|made| KeyChooser::Sequential(host.shared_sequence(made)))
        }
        "ranks" => {
            let zipfian = Zipfian::new(min, max, third.unwrap_or(YCSB_ZIPFIAN));
            return described(name, zipfian).map(ScriptChooser::Ranks);
        }
        _ => return wrong(format!("{name} is over the records there are, and takes no range")),
    };
    described(name, made).map(ScriptChooser::Numbers)
}

/// Names of choosers: those of `requestdistribution`, and more.
const CHOOSERS: [&str; 10] = [
    "keys",
    "uniform",
    "zipfian",
    "exactzipfian",
    "latest",
    "hotspot",
    "sequential",
    "exponential",
    "ranks",
    "discrete",
];

type SharedHost = Rc<RefCell<ScriptHost>>;

fn install_choosers(lua: &Lua, host: &SharedHost) -> mlua::Result<()> {
    for name in CHOOSERS {
        let host = Rc::clone(host);
        let make = lua.create_function(move |lua, args: Variadic<Value>| {
            let draw = RefCell::new(chooser(&mut host.borrow_mut(), name, &args)?);
            let host = Rc::clone(&host);
            lua.create_function(move |_, ()| {
                let ScriptHost { rng, tools, .. } = &mut *host.borrow_mut();
                Ok(draw.borrow_mut().draw(rng, tools.as_ref()) as i64)
            })
        })?;
        lua.globals().set(name, make)?;
    }
    Ok(())
}

fn install_operations(lua: &Lua, host: &SharedHost) -> mlua::Result<()> {
    let globals = lua.globals();
    let own = Rc::clone(host);
    let read = lua.create_function(move |_, (key, first, rest): (Value, Value, Variadic<Value>)| {
        let mut host = own.borrow_mut();
        host.request(OperationKind::Read)?;
        host.write_key(&key)?;
        if !first.is_nil() {
            return host.push_fields(&first, &rest);
        }
        let ScriptHost { tools, operation, rng, .. } = &mut *host;
        if let Some(tools) = tools {
            tools.choose_fields(&mut operation.fields, tools.reads_by_name(), rng);
        }
        Ok(())
    })?;
    globals.set("read", read)?;
    let own = Rc::clone(host);
    let scan =
        lua.create_function(move |_, (key, count, first, rest): (Value, Value, Value, Variadic<Value>)| {
            let mut host = own.borrow_mut();
            host.request(OperationKind::Scan)?;
            host.write_key(&key)?;
            let ScriptHost { tools, operation, rng, .. } = &mut *host;
            let Some(tools) = tools else { return Err(too_early("scan")) };
            operation.scan_length = match count {
                Value::Nil => tools.scan_length(rng),
                count => whole("scan", &[Value::Nil, count], 1)?,
            };
            if first.is_nil() {
                tools.choose_fields(&mut operation.fields, false, rng);
                return Ok(());
            }
            host.push_fields(&first, &rest)
        })?;
    globals.set("scan", scan)?;
    let own = Rc::clone(host);
    let update =
        lua.create_function(move |_, (key, name, value, rest): (Value, Value, Value, Variadic<Value>)| {
            let mut host = own.borrow_mut();
            host.request(OperationKind::Update)?;
            host.write_key(&key)?;
            if !name.is_nil() {
                return host.push_values(&name, &value, &rest);
            }
            let ScriptHost { tools, operation, rng, .. } = &mut *host;
            if let Some(tools) = tools {
                tools.push_some(&mut operation.record, &operation.key, rng);
            }
            Ok(())
        })?;
    globals.set("update", update)?;
    let own = Rc::clone(host);
    let insert =
        lua.create_function(move |_, (key, name, value, rest): (Value, Value, Value, Variadic<Value>)| {
            let mut host = own.borrow_mut();
            host.request(OperationKind::Insert)?;
            if !key.is_nil() {
                host.write_key(&key)?;
            } else {
                let number = match host.stage {
                    ScriptStage::Loading(number) => number,
                    _ => next_record(&mut host)?,
                };
                let ScriptHost { tools, operation, .. } = &mut *host;
                if let Some(tools) = tools {
                    tools.write_key(&mut operation.key, number);
                }
            }
            if !name.is_nil() {
                return host.push_values(&name, &value, &rest);
            }
            let ScriptHost { tools, operation, rng, .. } = &mut *host;
            if let Some(tools) = tools {
                tools.push_all(&mut operation.record, &operation.key, rng);
            }
            Ok(())
        })?;
    globals.set("insert", insert)?;
    let own = Rc::clone(host);
    let delete = lua.create_function(move |_, key: Value| {
        let mut host = own.borrow_mut();
        host.request(OperationKind::Delete)?;
        host.write_key(&key)
    })?;
    globals.set("delete", delete)
}

/// Returns the number of the next record to insert, until it is acknowledged.
fn next_record(host: &mut ScriptHost) -> mlua::Result<u64> {
    if let Some(number) = host.inserting {
        return Ok(number);
    }
    if host.stage != ScriptStage::Stepping {
        return wrong("next_record: new records are made in step() only");
    }
    let number = host.tools("next_record")?.begin_insert();
    host.inserting = Some(number);
    Ok(number)
}

fn install_records(lua: &Lua, host: &SharedHost) -> mlua::Result<()> {
    let globals = lua.globals();
    let own = Rc::clone(host);
    let key = lua.create_function(move |lua, (number, prefix): (Value, Option<LuaString>)| {
        let mut host = own.borrow_mut();
        let tools = host.tools("key")?;
        let (mut text, number) = (String::new(), whole("key", &[number], 0)?);
        match prefix {
            Some(prefix) => tools.write_key_with(&mut text, &prefix.to_str()?, number),
            None => tools.write_key(&mut text, number),
        }
        lua.create_string(&text)
    })?;
    globals.set("key", key)?;
    let own = Rc::clone(host);
    let next = lua.create_function(move |_, ()| Ok(next_record(&mut own.borrow_mut())? as i64))?;
    globals.set("next_record", next)?;
    let own = Rc::clone(host);
    let newest = lua.create_function(move |_, ()| Ok(own.borrow_mut().tools("newest")?.newest() as i64))?;
    globals.set("newest", newest)?;
    let own = Rc::clone(host);
    let field = lua.create_function(move |lua, (name, at): (LuaString, Option<usize>)| {
        let host = own.borrow();
        let record = host.reply.records().get(at.unwrap_or(1).wrapping_sub(1));
        record.and_then(|record| record.get(&name.to_str().ok()?)).map(|v| lua.create_string(v)).transpose()
    })?;
    globals.set("field", field)?;
    let own = Rc::clone(host);
    globals.set("count", lua.create_function(move |_, ()| Ok(own.borrow().reply.records().len()))?)?;
    let own = Rc::clone(host);
    globals.set("status", lua.create_function(move |_, ()| Ok(own.borrow().status.name()))?)?;
    let own = Rc::clone(host);
    globals.set(
        "message",
        lua.create_function(move |_, ()| Ok(own.borrow().message.as_deref().map(str::to_owned)))?,
    )?;
    let own = Rc::clone(host);
    let verify = lua.create_function(move |_, key: Value| {
        let mut host = own.borrow_mut();
        let ScriptHost { tools, sequence, reply, .. } = &mut *host;
        let Some(tools) = tools else { return Err(too_early("verify")) };
        let Some(sequence) = sequence else { return wrong("verify is for what a sequence has read") };
        let mut text = String::new();
        write_key(tools, &mut text, &key)?;
        let verified = tools.verify(&text, reply);
        // Keeps the first failure.
        if sequence.verified.is_none_or(Status::is_ok) {
            sequence.verified = verified;
        }
        Ok(verified.is_none_or(Status::is_ok))
    })?;
    globals.set("verify", verify)
}

fn install_rest(lua: &Lua, host: &SharedHost) -> mlua::Result<()> {
    let globals = lua.globals();
    let own = Rc::clone(host);
    let random = lua.create_function(move |_, (a, b): (Option<i64>, Option<i64>)| {
        let rng = &mut own.borrow_mut().rng;
        let Some(a) = a else { return Ok(Value::Number(rng.next_f64())) };
        let (min, max) = b.map_or((1, a), |b| (a, b));
        if max < min {
            return wrong(format!("random: the range from {min} to {max} is empty"));
        }
        // The length of the full range overflows.
        let drawn = match (max.wrapping_sub(min) as u64).checked_add(1) {
            Some(n) => rng.below(n),
            None => rng.next_u64(),
        };
        Ok(Value::Integer(min.wrapping_add(drawn as i64)))
    })?;
    globals.set("random", random)?;
    let own = Rc::clone(host);
    let property = lua.create_function(move |lua, name: String| {
        let host = own.borrow();
        if host.stage == ScriptStage::Declaring {
            return Err(too_early("property"));
        }
        match host.common.properties.get(&name) {
            None => wrong(format!("no property '{name}': it is neither among 'properties' nor of the core")),
            Some(PropertyValue::Flag(flag)) => Ok(Value::Boolean(*flag)),
            Some(PropertyValue::Count(count)) => Ok(Value::Integer(*count as i64)),
            Some(PropertyValue::Number(number)) => Ok(Value::Number(*number)),
            Some(PropertyValue::Text(text)) => Ok(Value::String(lua.create_string(text)?)),
        }
    })?;
    globals.set("property", property)?;
    let own = Rc::clone(host);
    let text = lua.create_function(move |lua, args: Variadic<Value>| {
        let mut host = own.borrow_mut();
        let random = host.tools("text")?.random_text();
        let least = whole("text", &args, 0)?;
        let most = if args.len() > 1 { whole("text", &args, 1)? } else { least };
        if most > TEXT_LENGTH_MAX {
            return wrong(format!("text: at most {TEXT_LENGTH_MAX} bytes"));
        }
        let kind =
            args.get(2).map(|kind| kind.as_string().map(LuaString::to_string_lossy).unwrap_or_default());
        let lengths = match kind.as_deref() {
            _ if args.len() == 1 => LengthChooser::Constant(least),
            None | Some("uniform") => LengthChooser::Uniform(described("text", Uniform::new(least, most))?),
            Some("zipfian") => {
                LengthChooser::Zipfian(described("text", Zipfian::new(least, most, YCSB_ZIPFIAN))?)
            }
            Some(other) => return wrong(format!("text: lengths are uniform or zipfian, not '{other}'")),
        };
        let text: AnyUserData = lua.create_userdata(TextGenerator { lengths, random })?;
        Ok(text)
    })?;
    globals.set("text", text)?;
    let own = Rc::clone(host);
    let stop = lua.create_function(move |_, ()| {
        own.borrow_mut().stop = true;
        Ok(())
    })?;
    globals.set("stop", stop)?;
    // For debugging; results go to standard output.
    let print = lua.create_function(|_, values: Variadic<Value>| {
        let words: mlua::Result<Vec<String>> = values.iter().map(Value::to_string).collect();
        eprintln!("{}", words?.join("\t"));
        Ok(())
    })?;
    globals.set("print", print)
}

/// Creates the table through which the prelude reports sequences.
fn sequence_table(lua: &Lua, host: &SharedHost) -> mlua::Result<mlua::Table> {
    let table = lua.create_table()?;
    let own = Rc::clone(host);
    let begin = lua.create_function(move |_, (name, work): (Option<LuaString>, Value)| {
        let mut host = own.borrow_mut();
        if host.stage != ScriptStage::Stepping {
            return wrong("sequences of operations are begun in step() only");
        }
        if host.sequence.is_some() || host.requested {
            return wrong("a sequence begins while another or an operation is under way");
        }
        if !work.is_function() {
            return wrong(format!("a sequence is a function, not a {}", work.type_name()));
        }
        let metric = match name {
            None => None,
            Some(name) => {
                let all = &host.common.transactions;
                match all.iter().position(|known| *name.as_bytes() == *known.as_bytes()) {
                    Some(index) => Some(Metric::custom(index)),
                    None => {
                        let name = name.to_string_lossy();
                        return wrong(format!("'transactions' does not name '{name}'"));
                    }
                }
            }
        };
        host.sequence = Some(Sequence { metric, ok: true, finished: false, verified: None });
        Ok(())
    })?;
    table.set("begin", begin)?;
    let own = Rc::clone(host);
    let finish = lua.create_function(move |_, result: Value| {
        let mut host = own.borrow_mut();
        if host.requested {
            return wrong("in a sequence an operation is asked for by its own functions: op.read(...)");
        }
        if let Some(sequence) = &mut host.sequence {
            sequence.finished = true;
            // The function's result overrides the outcomes of its operations.
            if let Value::Boolean(flag) = result {
                sequence.ok = flag;
            }
        }
        Ok(())
    })?;
    table.set("finish", finish)?;
    Ok(table)
}

/// Defines all functions in a Lua state. Returns the function that resumes a
/// sequence.
pub(crate) fn install(lua: &Lua, host: &SharedHost) -> mlua::Result<Function> {
    install_choosers(lua, host)?;
    install_operations(lua, host)?;
    install_records(lua, host)?;
    install_rest(lua, host)?;
    let table = sequence_table(lua, host)?;
    lua.load(PRELUDE).set_name("@prelude").call(table)
}
