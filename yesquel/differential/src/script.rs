//! Steps, each done on both, and what they must have in common.

use crate::{
    engine::{Connection, Engine, Failure, Row},
    place::{Place, Places},
};
use std::{collections::BTreeMap, env, fmt};

/// How much the order of a statement's rows says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Nothing.
    None,
    /// They are ordered by so many columns, the first.
    By(usize),
    /// They are a part of more, and ties are broken by chance.
    Part,
}

/// One thing that an application does.
#[derive(Clone, PartialEq, Eq)]
pub enum Step {
    /// Where the trees are. The first step; by default in memory.
    At(Place),
    /// The numbers of rows are compared: all of them are given, or seen.
    CompareRows,
    /// Statements.
    Run(String, Order),
    /// Statements by another connection, if this one is in no transaction.
    Other(String, Order),
    /// Prepares a statement.
    Open(usize, String),
    /// Goes on with it.
    Next(usize, usize),
    /// Ends it.
    Close(usize),
    /// Opens a value for incremental access.
    #[allow(missing_docs)]
    OpenBlob { at: usize, schema: String, table: String, column: String, row: i64, writes: bool },
    /// Goes to another row.
    ReopenBlob(usize, i64),
    /// Reads.
    ReadBlob(usize, i32, usize),
    /// Writes.
    WriteBlob(usize, i32, Vec<u8>),
    /// Ends it.
    CloseBlob(usize),
    /// Another connection, after this one.
    Reopen,
    /// Looks at everything.
    Check,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::At(place) => write!(f, "-- {place:?}"),
            Step::CompareRows => f.write_str("-- the last row is compared"),
            Step::Run(sql, _) => write!(f, "{sql};"),
            Step::Other(sql, _) => write!(f, "-- another connection: {sql}"),
            Step::Open(at, sql) => write!(f, "-- statement {at}: {sql}"),
            Step::Next(at, count) => write!(f, "-- statement {at}: {count} steps"),
            Step::Close(at) => write!(f, "-- statement {at} ends"),
            Step::OpenBlob { at, schema, table, column, row, writes } => {
                let how = if *writes { "read and write" } else { "read" };
                write!(f, "-- blob {at}: {schema}.{table}.{column} of row {row}, to {how}")
            }
            Step::ReopenBlob(at, row) => write!(f, "-- blob {at}: of row {row}"),
            Step::ReadBlob(at, offset, count) => write!(f, "-- blob {at}: read {count} from {offset}"),
            Step::WriteBlob(at, offset, bytes) => write!(f, "-- blob {at}: write {bytes:?} at {offset}"),
            Step::CloseBlob(at) => write!(f, "-- blob {at} ends"),
            Step::Reopen => f.write_str("-- the connection is closed and opened"),
            Step::Check => f.write_str("-- everything is looked at"),
        }
    }
}

/// What a step comes to.
#[derive(Clone, PartialEq, Eq)]
struct Outcome {
    rows: Vec<Row>,
    failure: Option<Failure>,
    counters: (i64, i64, i64),
    is_autocommit: bool,
}

/// What both give up at: the program of a statement was too long.
const INTERRUPTED: i32 = 9;

/// What trees cannot do: an entry of an index is a key, and keys have a limit.
fn is_known(ours: &Outcome, stock: &Outcome) -> bool {
    const TOO_BIG: i32 = 18;
    let code = |side: &Outcome| side.failure.as_ref().map(|failure| failure.code);
    code(ours) == Some(TOO_BIG) && code(stock) != Some(TOO_BIG)
}

/// One of the two, with its names for what is attached.
struct Side {
    engine: Engine,
    connection: Connection,
    /// Another connection to the same database, where there can be one.
    other: Option<Connection>,
    names: BTreeMap<&'static str, String>,
}

impl Side {
    fn open(
        engine: Engine,
        names: BTreeMap<&'static str, String>,
        (has_trees, lasts): (bool, bool),
    ) -> Result<Side, Failure> {
        let connection = Connection::open(engine, &names["{main}"])?;
        let is_on_trees = connection.filename("main").starts_with("yesquel:");
        assert_eq!(is_on_trees, has_trees, "{engine:?} is at '{}'", connection.filename("main"));
        if engine == Engine::Stock {
            let (_, failure) = connection.run("PRAGMA synchronous = OFF");
            assert_eq!(failure, None);
        }
        let other = lasts.then(|| Connection::open(engine, &names["{main}"])).transpose()?;
        Ok(Side { engine, connection, other, names })
    }

    fn own(&self, sql: &str) -> String {
        self.names.iter().fold(sql.to_owned(), |sql, (name, value)| sql.replace(name, value))
    }

    /// Without what only this side has.
    fn common(&self, failure: Failure) -> Failure {
        let message = self.names.iter().fold(failure.message, |message, (name, value)| {
            let path = value.trim_start_matches("file:");
            message.replace(value.as_str(), name).replace(path, name)
        });
        Failure { message, ..failure }
    }

    fn outcome(&self, rows: Vec<Row>, failure: Option<Failure>) -> Outcome {
        let counters = self.connection.counters();
        let failure = failure.map(|failure| self.common(failure));
        Outcome { rows, failure, counters, is_autocommit: self.connection.transaction("main").0 }
    }

    fn run(&self, sql: &str) -> Outcome {
        let (rows, failure) = self.connection.run(&self.own(sql));
        self.outcome(rows, failure)
    }

    fn run_other(&self, sql: &str) -> Outcome {
        let sql = self.own(sql);
        let (rows, failure) = self.other.as_ref().map_or_else(Default::default, |other| other.run(&sql));
        self.outcome(rows, failure)
    }

    fn act(&mut self, step: &Step) -> Outcome {
        use crate::value::Value;
        let number = |number: usize| vec![vec![Value::Integer(number as i64)]];
        let c = &mut self.connection;
        let done = match step {
            Step::Run(sql, _) => return self.run(sql),
            Step::Other(sql, _) => return self.run_other(sql),
            Step::Open(at, sql) => c.open_statement(*at, sql).map(|()| Vec::new()),
            Step::Next(at, count) => {
                let (rows, failure) = c.step_statement(*at, *count);
                return self.outcome(rows, failure);
            }
            Step::Close(at) => {
                c.close_statement(*at);
                Ok(Vec::new())
            }
            Step::OpenBlob { at, schema, table, column, row, writes } => {
                c.open_blob(*at, (schema, table, column), *row, *writes).map(number)
            }
            Step::ReopenBlob(at, row) => c.reopen_blob(*at, *row).map(number),
            Step::ReadBlob(at, offset, count) => {
                c.read_blob(*at, *offset, *count).map(|bytes| vec![vec![Value::Blob(bytes.into())]])
            }
            Step::WriteBlob(at, offset, bytes) => c.write_blob(*at, *offset, bytes).map(|()| Vec::new()),
            Step::CloseBlob(at) => c.close_blob(*at).map(|()| Vec::new()),
            Step::At(_) | Step::CompareRows | Step::Reopen | Step::Check => Ok(Vec::new()),
        };
        match done {
            Ok(rows) => self.outcome(rows, None),
            Err(failure) => self.outcome(Vec::new(), Some(failure)),
        }
    }
}

/// Whether rows are the same, as far as their order says something.
fn same_rows(ours: &[Row], stock: &[Row], order: Order) -> bool {
    if ours == stock {
        return true;
    }
    let folded = |rows: &[Row]| -> Vec<Vec<Vec<u8>>> {
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

/// A script on both.
struct Pair {
    ours: Side,
    stock: Side,
    places: Places,
    compares_rows: bool,
}

impl Pair {
    fn open(places: Places, compares_rows: bool) -> Pair {
        let lasts = places.lasts();
        let open = |engine, names, has_trees| match Side::open(engine, names, (has_trees, lasts)) {
            Ok(side) => side,
            Err(failure) => panic!("{engine:?} does not open: {failure:?}"),
        };
        let ours = open(Engine::Ours, places.ours(), places.has_trees());
        let stock = open(Engine::Stock, places.stock(), false);
        Pair { ours, stock, places, compares_rows }
    }

    fn reopen(self) -> Pair {
        if !self.places.lasts() {
            return self;
        }
        let Pair { ours, stock, places, compares_rows } = self;
        drop((ours, stock));
        Pair::open(places, compares_rows)
    }

    /// Does a step on both; returns what stock gave, `None` if both gave up.
    fn step(&mut self, step: &Step) -> Option<Outcome> {
        let order = match step {
            Step::Run(_, order) | Step::Other(_, order) => *order,
            _ => Order::By(usize::MAX),
        };
        if matches!(step, Step::Other(..))
            && !(self.stock.connection.is_idle() && self.ours.connection.is_idle())
        {
            return Some(self.stock.outcome(Vec::new(), None));
        }
        let stock = self.stock.act(step);
        let mut ours = self.ours.act(step);
        let gave_up =
            |side: &Outcome| side.failure.as_ref().is_some_and(|failure| failure.code == INTERRUPTED);
        if gave_up(&stock) || gave_up(&ours) || is_known(&ours, &stock) {
            return None;
        }
        if matches!(step, Step::Run(sql, _) if sql.starts_with("VACUUM")) {
            // Stock has copied the schema's rows, and the last was one of them.
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
            differs("rows", &Shown(&ours.rows), &Shown(&stock.rows));
        }
        if ours.counters != stock.counters {
            differs("changes, all changes and the last row", &ours.counters, &stock.counters);
        }
        if ours.is_autocommit != stock.is_autocommit {
            differs("transactions", &ours.is_autocommit, &stock.is_autocommit);
        }
        Some(stock)
    }

    /// Looks at everything by all ways that lead to it.
    fn check(&mut self) -> Option<()> {
        use crate::value::Value;
        let mut ask = |sql: String, order| Some(self.step(&Step::Run(sql, order))?.rows);
        let name = |value: &Value| match value {
            Value::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => format!("{other:?}"),
        };
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let exact = Order::By(usize::MAX);
        for schema in
            ask("SELECT name FROM pragma_database_list".to_owned(), exact)?.iter().map(|row| name(&row[0]))
        {
            // VACUUM of stock leaves the table of AUTOINCREMENT out where nobody uses
            // it.
            let list = format!(
                "SELECT type, name, tbl_name, sql FROM {schema}.sqlite_schema WHERE name <> 'sqlite_sequence' \
                 OR EXISTS (SELECT 1 FROM {schema}.sqlite_schema WHERE sql LIKE '%AUTOINCREMENT%') ORDER BY 1, 2"
            );
            let list = ask(list, exact)?;
            for table in list.iter().filter(|row| name(&row[0]) == "table") {
                let table = name(&table[1]);
                // What ANALYZE draws by chance.
                if table.starts_with("sqlite_stat") {
                    continue;
                }
                let full = format!("{schema}.{}", quoted(&table));
                ask(format!("SELECT * FROM {full} NOT INDEXED"), exact)?;
                ask(format!("SELECT count(*) FROM {full}"), exact)?;
                let indexes =
                    format!("SELECT name, partial FROM pragma_index_list('{table}', '{schema}') ORDER BY 1");
                for index in ask(indexes, exact)? {
                    let (index, is_whole) = (name(&index[0]), index[1] == Value::Integer(0));
                    let columns = format!(
                        "SELECT name, \"desc\", coll FROM pragma_index_xinfo('{index}', '{schema}') WHERE key ORDER BY seqno"
                    );
                    let columns = ask(columns, exact)?;
                    if !is_whole || columns.iter().any(|column| column[0] == Value::Null) {
                        continue;
                    }
                    let (mut forth, mut back) = (Vec::new(), Vec::new());
                    for column in &columns {
                        let by = format!("{} COLLATE {}", quoted(&name(&column[0])), name(&column[2]));
                        let is_down = column[1] == Value::Integer(1);
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
        // Without the numbers of rows, which may be hidden.
        ask("SELECT \"table\", parent, fkid FROM pragma_foreign_key_check".to_owned(), Order::None)?;
        Some(())
    }

    /// The trees that there are at the server are those that the schema names.
    fn count_trees(&self) {
        let Some(trees) = self.places.trees() else { return };
        let (rows, failure) =
            self.ours.connection.run("SELECT count(*) FROM main.sqlite_schema WHERE rootpage > 0");
        // Where it cannot be read stock could not read it either.
        if failure.is_none() {
            let own = crate::place::OWN_TREES as i64;
            assert_eq!(
                rows,
                [vec![crate::value::Value::Integer(trees as i64 - own)]],
                "the trees that the schema names are not those that are there"
            );
        }
    }
}

/// Rows, each on its line.
struct Shown<'a>(&'a [Row]);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows", self.0.len())?;
        self.0.iter().take(40).try_for_each(|row| write!(f, "\n    {row:?}"))
    }
}

/// Where `PLACE` wants all scripts to be, to see where a failure belongs.
fn chosen() -> Option<Place> {
    Some(match env::var("PLACE").ok()?.as_str() {
        "memory" => Place::Memory,
        "folder" => Place::Folder,
        "served" => Place::Served,
        "plain" => Place::Plain,
        other => panic!("PLACE={other} is none of memory, folder, served and plain"),
    })
}

/// Runs a script on both.
///
/// # Panics
///
/// Where they differ.
pub fn run(steps: &[Step]) {
    let is_traced = env::var_os("TRACE").is_some();
    let place = steps.iter().find_map(|step| if let Step::At(place) = step { Some(*place) } else { None });
    let places = Places::new(chosen().or(place).unwrap_or(Place::Memory));
    let mut pair = Pair::open(places, steps.contains(&Step::CompareRows));
    for step in steps {
        if is_traced {
            eprintln!("{step:?}");
        }
        let going = match step {
            Step::At(_) | Step::CompareRows => Some(()),
            Step::Reopen => {
                pair = pair.reopen();
                Some(())
            }
            Step::Check => pair.check(),
            step => pair.step(step).map(|_| ()),
        };
        if going.is_none() {
            return;
        }
    }
    if pair.check().is_some() && pair.ours.connection.transaction("main").0 {
        pair.count_trees();
    }
    debug_assert_eq!(pair.stock.engine, Engine::Stock);
}
