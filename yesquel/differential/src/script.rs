//! Steps that run on both engines, and the comparison of their results.

use crate::{
    engine::{EngineConnection, ResultRow, SqlEngine, SqlFailure},
    place::{Places, ScriptTrees},
};
use std::{collections::BTreeMap, env, fmt};

/// How far the order of a statement's rows is defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Undefined.
    None,
    /// Defined by the first columns, this many.
    By(usize),
    /// The rows are a part of more, with undefined ties.
    Part,
}

/// Step of an application.
#[derive(Clone, PartialEq, Eq)]
pub enum ScriptStep {
    /// Sets the location of the trees. Must be first; the default is memory.
    At(ScriptTrees),
    /// Compares row numbers: all of them are explicit or visible.
    CompareRows,
    /// Runs statements.
    Run(String, Order),
    /// Runs statements by another connection, if this one is in no transaction.
    Other(String, Order),
    /// Prepares a statement.
    Open(usize, String),
    /// Steps it.
    Next(usize, usize),
    /// Closes it.
    Close(usize),
    /// Opens a blob.
    #[allow(missing_docs)]
    OpenBlob { at: usize, schema: String, table: String, column: String, row: i64, writes: bool },
    /// Moves it to another row.
    ReopenBlob(usize, i64),
    /// Reads from it.
    ReadBlob(usize, i32, usize),
    /// Writes to it.
    WriteBlob(usize, i32, Vec<u8>),
    /// Closes it.
    CloseBlob(usize),
    /// Closes the connection and opens another.
    Reopen,
    /// Compares everything.
    Check,
}

impl fmt::Debug for ScriptStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScriptStep::At(place) => write!(f, "-- {place:?}"),
            ScriptStep::CompareRows => f.write_str("-- the last row is compared"),
            ScriptStep::Run(sql, _) => write!(f, "{sql};"),
            ScriptStep::Other(sql, _) => write!(f, "-- another connection: {sql}"),
            ScriptStep::Open(at, sql) => write!(f, "-- statement {at}: {sql}"),
            ScriptStep::Next(at, count) => write!(f, "-- statement {at}: {count} steps"),
            ScriptStep::Close(at) => write!(f, "-- statement {at} ends"),
            ScriptStep::OpenBlob { at, schema, table, column, row, writes } => {
                let how = if *writes { "read and write" } else { "read" };
                write!(f, "-- blob {at}: {schema}.{table}.{column} of row {row}, to {how}")
            }
            ScriptStep::ReopenBlob(at, row) => write!(f, "-- blob {at}: of row {row}"),
            ScriptStep::ReadBlob(at, offset, count) => write!(f, "-- blob {at}: read {count} from {offset}"),
            ScriptStep::WriteBlob(at, offset, bytes) => {
                write!(f, "-- blob {at}: write {bytes:?} at {offset}")
            }
            ScriptStep::CloseBlob(at) => write!(f, "-- blob {at} ends"),
            ScriptStep::Reopen => f.write_str("-- the connection is closed and opened"),
            ScriptStep::Check => f.write_str("-- everything is looked at"),
        }
    }
}

/// Result of a step.
#[derive(Clone, PartialEq, Eq)]
struct StepOutcome {
    rows: Vec<ResultRow>,
    failure: Option<SqlFailure>,
    counters: (i64, i64, i64),
    is_autocommit: bool,
}

/// Code with which both give up: the statement ran too long.
const INTERRUPTED: i32 = 9;

/// Returns whether a difference is a documented limit of trees: index entries are keys, whose
/// length is limited.
fn is_known(ours: &StepOutcome, stock: &StepOutcome) -> bool {
    const TOO_BIG: i32 = 18;
    let code = |side: &StepOutcome| side.failure.as_ref().map(|failure| failure.code);
    code(ours) == Some(TOO_BIG) && code(stock) != Some(TOO_BIG)
}

/// One engine, with its names of attached databases.
struct EngineSide {
    engine: SqlEngine,
    connection: EngineConnection,
    /// Another connection to the same database, if possible.
    other: Option<EngineConnection>,
    names: BTreeMap<&'static str, String>,
}

impl EngineSide {
    fn open(
        engine: SqlEngine,
        names: BTreeMap<&'static str, String>,
        (has_trees, lasts): (bool, bool),
    ) -> Result<EngineSide, SqlFailure> {
        let connection = EngineConnection::open(engine, &names["{main}"])?;
        let is_on_trees = connection.filename("main").starts_with("yesquel:");
        assert_eq!(is_on_trees, has_trees, "{engine:?} is at '{}'", connection.filename("main"));
        if engine == SqlEngine::Stock {
            let (_, failure) = connection.run("PRAGMA synchronous = OFF");
            assert_eq!(failure, None);
        }
        let other = lasts.then(|| EngineConnection::open(engine, &names["{main}"])).transpose()?;
        Ok(EngineSide { engine, connection, other, names })
    }

    fn own(&self, sql: &str) -> String {
        self.names.iter().fold(sql.to_owned(), |sql, (name, value)| sql.replace(name, value))
    }

    /// Removes from an error what only this engine has.
    fn common(&self, failure: SqlFailure) -> SqlFailure {
        let message = self.names.iter().fold(failure.message, |message, (name, value)| {
            let path = value.trim_start_matches("file:");
            message.replace(value.as_str(), name).replace(path, name)
        });
        SqlFailure { message, ..failure }
    }

    fn outcome(&self, rows: Vec<ResultRow>, failure: Option<SqlFailure>) -> StepOutcome {
        let counters = self.connection.counters();
        let failure = failure.map(|failure| self.common(failure));
        StepOutcome { rows, failure, counters, is_autocommit: self.connection.transaction("main").0 }
    }

    fn run(&self, sql: &str) -> StepOutcome {
        let (rows, failure) = self.connection.run(&self.own(sql));
        self.outcome(rows, failure)
    }

    fn run_other(&self, sql: &str) -> StepOutcome {
        let sql = self.own(sql);
        let (rows, failure) = self.other.as_ref().map_or_else(Default::default, |other| other.run(&sql));
        self.outcome(rows, failure)
    }

    fn act(&mut self, step: &ScriptStep) -> StepOutcome {
        use crate::value::SqlValue;
        let number = |number: usize| vec![vec![SqlValue::Integer(number as i64)]];
        let c = &mut self.connection;
        let done = match step {
            ScriptStep::Run(sql, _) => return self.run(sql),
            ScriptStep::Other(sql, _) => return self.run_other(sql),
            ScriptStep::Open(at, sql) => c.open_statement(*at, sql).map(|()| Vec::new()),
            ScriptStep::Next(at, count) => {
                let (rows, failure) = c.step_statement(*at, *count);
                return self.outcome(rows, failure);
            }
            ScriptStep::Close(at) => {
                c.close_statement(*at);
                Ok(Vec::new())
            }
            ScriptStep::OpenBlob { at, schema, table, column, row, writes } => {
                c.open_blob(*at, (schema, table, column), *row, *writes).map(number)
            }
            ScriptStep::ReopenBlob(at, row) => c.reopen_blob(*at, *row).map(number),
            ScriptStep::ReadBlob(at, offset, count) => {
                c.read_blob(*at, *offset, *count).map(|bytes| vec![vec![SqlValue::Blob(bytes.into())]])
            }
            ScriptStep::WriteBlob(at, offset, bytes) => {
                c.write_blob(*at, *offset, bytes).map(|()| Vec::new())
            }
            ScriptStep::CloseBlob(at) => c.close_blob(*at).map(|()| Vec::new()),
            ScriptStep::At(_) | ScriptStep::CompareRows | ScriptStep::Reopen | ScriptStep::Check => {
                Ok(Vec::new())
            }
        };
        match done {
            Ok(rows) => self.outcome(rows, None),
            Err(failure) => self.outcome(Vec::new(), Some(failure)),
        }
    }
}

/// Returns whether rows are equal, as far as their order is defined.
fn same_rows(ours: &[ResultRow], stock: &[ResultRow], order: Order) -> bool {
    if ours == stock {
        return true;
    }
    let folded = |rows: &[ResultRow]| -> Vec<Vec<Vec<u8>>> {
        rows.iter().map(|row| row.iter().map(|value| value.folded()).collect()).collect()
    };
    let (mut ours, mut stock) = (folded(ours), folded(stock));
    if let Order::By(count) = order {
        let keys = |rows: &[Vec<Vec<u8>>]| -> Vec<Vec<Vec<u8>>> {
            rows.iter().map(|row| row[..count.min(row.len())].to_vec()).collect()
        };
        if keys(&ours) != keys(&stock) {
            return false;
        }
    }
    ours.sort();
    stock.sort();
    ours == stock
}

/// Script running on both engines.
struct EnginePair {
    ours: EngineSide,
    stock: EngineSide,
    places: Places,
    compares_rows: bool,
}

impl EnginePair {
    fn open(places: Places, compares_rows: bool) -> EnginePair {
        let lasts = places.lasts();
        let open = |engine, names, has_trees| match EngineSide::open(engine, names, (has_trees, lasts)) {
            Ok(side) => side,
            Err(failure) => panic!("{engine:?} does not open: {failure:?}"),
        };
        let ours = open(SqlEngine::Ours, places.ours(), places.has_trees());
        let stock = open(SqlEngine::Stock, places.stock(), false);
        EnginePair { ours, stock, places, compares_rows }
    }

    fn reopen(self) -> EnginePair {
        if !self.places.lasts() {
            return self;
        }
        let EnginePair { ours, stock, places, compares_rows } = self;
        drop((ours, stock));
        EnginePair::open(places, compares_rows)
    }

    /// Runs a step on both engines. Returns the result of stock SQLite; `None` if both gave up.
    fn step(&mut self, step: &ScriptStep) -> Option<StepOutcome> {
        let order = match step {
            ScriptStep::Run(_, order) | ScriptStep::Other(_, order) => *order,
            _ => Order::By(usize::MAX),
        };
        if matches!(step, ScriptStep::Other(..))
            && !(self.stock.connection.is_idle() && self.ours.connection.is_idle())
        {
            return Some(self.stock.outcome(Vec::new(), None));
        }
        let stock = self.stock.act(step);
        let mut ours = self.ours.act(step);
        let gave_up =
            |side: &StepOutcome| side.failure.as_ref().is_some_and(|failure| failure.code == INTERRUPTED);
        if gave_up(&stock) || gave_up(&ours) || is_known(&ours, &stock) {
            return None;
        }
        if matches!(step, ScriptStep::Run(sql, _) if sql.starts_with("VACUUM")) {
            // Stock SQLite has copied the schema's rows, the last of which counts as inserted.
            self.ours.connection.set_last_row(stock.counters.2);
            ours.counters.2 = stock.counters.2;
        }
        if !self.compares_rows {
            ours.counters.2 = stock.counters.2;
        }
        let differs = |what: &str, ours: &dyn fmt::Debug, stock: &dyn fmt::Debug| -> ! {
            panic!("{step:?}\n{what} differ:\n  ours:  {ours:?}\n  stock: {stock:?}")
        };
        if ours.failure != stock.failure {
            differs("errors", &ours.failure, &stock.failure);
        }
        if !same_rows(&ours.rows, &stock.rows, order) {
            differs("rows", &ShownRows(&ours.rows), &ShownRows(&stock.rows));
        }
        if ours.counters != stock.counters {
            differs("changes, all changes and the last row", &ours.counters, &stock.counters);
        }
        if ours.is_autocommit != stock.is_autocommit {
            differs("transactions", &ours.is_autocommit, &stock.is_autocommit);
        }
        Some(stock)
    }

    /// Compares everything, by all access paths.
    fn check(&mut self) -> Option<()> {
        use crate::value::SqlValue;
        let mut ask = |sql: String, order| Some(self.step(&ScriptStep::Run(sql, order))?.rows);
        let name = |value: &SqlValue| match value {
            SqlValue::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => format!("{other:?}"),
        };
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let exact = Order::By(usize::MAX);
        for schema in
            ask("SELECT name FROM pragma_database_list".to_owned(), exact)?.iter().map(|row| name(&row[0]))
        {
            // Stock SQLite's VACUUM leaves out an unused AUTOINCREMENT table.
            let list = format!(
                "SELECT type, name, tbl_name, sql FROM {schema}.sqlite_schema WHERE name <> 'sqlite_sequence' \
                 OR EXISTS (SELECT 1 FROM {schema}.sqlite_schema WHERE sql LIKE '%AUTOINCREMENT%') ORDER BY 1, 2"
            );
            let list = ask(list, exact)?;
            for table in list.iter().filter(|row| name(&row[0]) == "table") {
                let table = name(&table[1]);
                // ANALYZE samples at random.
                if table.starts_with("sqlite_stat") {
                    continue;
                }
                let full = format!("{schema}.{}", quoted(&table));
                ask(format!("SELECT * FROM {full} NOT INDEXED"), exact)?;
                ask(format!("SELECT count(*) FROM {full}"), exact)?;
                let indexes =
                    format!("SELECT name, partial FROM pragma_index_list('{table}', '{schema}') ORDER BY 1");
                for index in ask(indexes, exact)? {
                    let (index, is_whole) = (name(&index[0]), index[1] == SqlValue::Integer(0));
                    let columns = format!(
                        "SELECT name, \"desc\", coll FROM pragma_index_xinfo('{index}', '{schema}') WHERE key ORDER BY seqno"
                    );
                    let columns = ask(columns, exact)?;
                    if !is_whole || columns.iter().any(|column| column[0] == SqlValue::Null) {
                        continue;
                    }
                    let (mut forth, mut back) = (Vec::new(), Vec::new());
                    for column in &columns {
                        let by = format!("{} COLLATE {}", quoted(&name(&column[0])), name(&column[2]));
                        let is_down = column[1] == SqlValue::Integer(1);
                        forth.push(format!("{by} {}", if is_down { "DESC" } else { "ASC" }));
                        back.push(format!("{by} {}", if is_down { "ASC" } else { "DESC" }));
                    }
                    for by in [forth, back] {
                        let columns: Vec<String> =
                            columns.iter().map(|column| quoted(&name(&column[0]))).collect();
                        ask(
                            format!(
                                "SELECT {} FROM {full} INDEXED BY {} ORDER BY {}",
                                columns.join(", "),
                                quoted(&index),
                                by.join(", ")
                            ),
                            Order::By(columns.len()),
                        )?;
                    }
                }
            }
        }
        ask("PRAGMA integrity_check".to_owned(), exact)?;
        // Without row numbers, which may be hidden.
        ask("SELECT \"table\", parent, fkid FROM pragma_foreign_key_check".to_owned(), Order::None)?;
        Some(())
    }

    /// Checks that the server has exactly the trees that the schema names.
    fn count_trees(&self) {
        let database = self.ours.connection.database("main");
        let Some(trees) = database.and_then(|database| self.places.trees(&database)) else { return };
        let (rows, failure) =
            self.ours.connection.run("SELECT count(*) FROM main.sqlite_schema WHERE rootpage > 0");
        // What cannot be read here must be unreadable for stock SQLite, too.
        if failure.is_none() {
            assert_eq!(
                rows,
                [vec![crate::value::SqlValue::Integer(trees as i64)]],
                "the trees that the schema names are not those that are there"
            );
        }
    }
}

/// Displays rows, each on its line.
struct ShownRows<'a>(&'a [ResultRow]);

impl fmt::Debug for ShownRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows", self.0.len())?;
        self.0.iter().take(40).try_for_each(|row| write!(f, "\n    {row:?}"))
    }
}

/// State of a transaction that writes.
const TXN_WRITE: i32 = 2;

/// Returns the location that `PLACE` sets for all scripts, to locate a failure.
fn chosen() -> Option<ScriptTrees> {
    Some(match env::var("PLACE").ok()?.as_str() {
        "memory" => ScriptTrees::Memory,
        "folder" => ScriptTrees::Folder,
        "served" => ScriptTrees::Served,
        "cluster" => ScriptTrees::Cluster,
        "plain" => ScriptTrees::Plain,
        other => panic!("PLACE={other} is none of memory, folder, served, cluster and plain"),
    })
}

/// Runs a script on both engines.
///
/// # Panics
///
/// If the results differ.
pub fn run(steps: &[ScriptStep]) {
    let is_traced = env::var_os("TRACE").is_some();
    let place =
        steps.iter().find_map(|step| if let ScriptStep::At(place) = step { Some(*place) } else { None });
    let places = Places::new(chosen().or(place).unwrap_or(ScriptTrees::Memory));
    let mut pair = EnginePair::open(places, steps.contains(&ScriptStep::CompareRows));
    for step in steps {
        if is_traced {
            eprintln!("{step:?}");
        }
        let going = match step {
            ScriptStep::At(_) | ScriptStep::CompareRows => Some(()),
            ScriptStep::Reopen => {
                pair = pair.reopen();
                Some(())
            }
            ScriptStep::Check => pair.check(),
            step => pair.step(step).map(|_| ()),
        };
        if going.is_none() {
            return;
        }
    }
    // An open blob keeps what others have written uncommitted.
    let is_committed = |(is_autocommit, state): (bool, i32)| is_autocommit && state != TXN_WRITE;
    if pair.check().is_some() && is_committed(pair.ours.connection.transaction("main")) {
        pair.count_trees();
    }
    debug_assert_eq!(pair.stock.engine, SqlEngine::Stock);
}
