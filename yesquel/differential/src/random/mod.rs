//! Random scripts.
//!
//! A `ScriptWorld` tracks the objects that a script may use, as if every statement succeeded. Where one
//! fails, later ones fail too, and equally on both engines.

mod changes;
mod expression;
mod literal;
mod query;
mod schema;
mod trigger;
mod virtuals;
mod world;
mod write;

use crate::{
    place::ScriptTrees,
    script::{Order, ScriptStep},
};
use world::{RandomDraw, RowIdentity, ScriptWorld};
use yesquel_seeds::Random;

/// Repeated according to their weights.
const PLACES: [ScriptTrees; 10] = [
    ScriptTrees::Memory,
    ScriptTrees::Memory,
    ScriptTrees::Memory,
    ScriptTrees::Memory,
    ScriptTrees::Cluster,
    ScriptTrees::Folder,
    ScriptTrees::Folder,
    ScriptTrees::Served,
    ScriptTrees::Served,
    ScriptTrees::Plain,
];

/// Maximum number of steps after a script's tables.
const STEPS_MAX: u64 = 70;

/// Returns the script of a seed.
pub fn steps(seed: u64) -> Vec<ScriptStep> {
    let mut draw = RandomDraw::new(Random::new(seed));
    let place = draw.one(&PLACES);
    let mut script = RandomScript { steps: vec![ScriptStep::At(place)], world: ScriptWorld::default(), draw };
    // Row numbers chosen by the database are in the same order in both engines, but not equal.
    script.world.has_hidden = script.draw.chance(2);
    if !script.world.has_hidden {
        script.steps.push(ScriptStep::CompareRows);
    }
    script.begin();
    let count = 20 + script.draw.below(STEPS_MAX - 20);
    script.goes_on(count);
    script.steps
}

/// Returns a longer script, in memory, in which all rows have explicit numbers.
pub fn steps_of(seed: u64, count: u64) -> Vec<ScriptStep> {
    let mut script = RandomScript {
        steps: Vec::new(),
        world: ScriptWorld::default(),
        draw: RandomDraw::new(Random::new(seed)),
    };
    script.draw.is_short = true;
    script.begin();
    script.goes_on(count);
    script.steps
}

/// Script under construction.
struct RandomScript {
    steps: Vec<ScriptStep>,
    world: ScriptWorld,
    draw: RandomDraw,
}

impl RandomScript {
    fn run(&mut self, sql: impl Into<String>) {
        self.steps.push(ScriptStep::Run(sql.into(), Order::None));
    }

    fn begin(&mut self) {
        let foreign_keys = self.draw.below(2);
        self.run(format!("PRAGMA foreign_keys = {foreign_keys}"));
        if self.draw.chance(12) {
            let encoding = self.draw.one(&["UTF-16le", "UTF-16be", "UTF-8"]);
            self.run(format!("PRAGMA encoding = '{encoding}'"));
        }
        self.attach();
        for _ in 0..1 + self.draw.below(3) {
            self.create_table();
            if self.draw.chance(2) {
                self.create_index();
            }
        }
        for _ in 0..3 {
            self.write();
        }
    }

    fn goes_on(&mut self, count: u64) {
        for _ in 0..count {
            self.one();
        }
    }

    fn attach(&mut self) {
        self.world.schemas = vec!["main", "main", "main", "main"];
        if self.draw.chance(3) {
            self.world.schemas.push("temp");
        }
        for (schema, name) in [("file", "{file}"), ("tree", "{tree}")] {
            if self.draw.chance(5) {
                self.run(format!("ATTACH '{name}' AS {schema}"));
                self.world.schemas.push(schema);
            }
        }
    }

    fn one(&mut self) {
        match self.draw.below(100) {
            0..30 => self.write(),
            30..55 => self.query(),
            55..65 => self.change(),
            65..75 => self.transaction(),
            75..84 => self.statement(),
            84..87 => self.walk(),
            87..91 => self.blob(),
            91..93 => self.virtual_table(),
            93..95 => self.by_another(),
            95..96 => self.reopen(),
            96..98 => self.pragma(),
            _ => self.steps.push(ScriptStep::Check),
        }
    }

    fn transaction(&mut self) {
        let names = ["s1", "s2", "s3"];
        let sql = match self.draw.below(10) {
            0..3 => {
                if self.world.stack.is_empty() {
                    self.world.push("");
                }
                self.draw
                    .one(&["BEGIN", "BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "BEGIN DEFERRED"])
                    .to_owned()
            }
            3 | 4 => {
                self.world.stack.clear();
                "COMMIT".to_owned()
            }
            5 => {
                self.world.pop(None);
                "ROLLBACK".to_owned()
            }
            6 | 7 => {
                let name = self.draw.one(&names);
                self.world.push(name);
                format!("SAVEPOINT {name}")
            }
            8 => {
                let name = self.draw.one(&names);
                self.world.release(name);
                format!("RELEASE {name}")
            }
            _ => {
                let name = self.draw.one(&names);
                self.world.pop(Some(name));
                format!("ROLLBACK TO {name}")
            }
        };
        self.run(sql);
    }

    /// Adds statements that are open while others run.
    fn statement(&mut self) {
        let at = self.draw.below(3) as usize;
        match self.draw.below(7) {
            0..3 => {
                if let Some(sql) = self.simple_select() {
                    self.steps.push(ScriptStep::Open(at, sql));
                    let count = self.draw.below(3) as usize;
                    self.steps.push(ScriptStep::Next(at, count));
                }
            }
            3 | 4 => {
                let count = 1 + self.draw.below(4) as usize;
                self.steps.push(ScriptStep::Next(at, count));
            }
            5 => self.steps.push(ScriptStep::Next(at, 10_000)),
            _ => self.steps.push(ScriptStep::Close(at)),
        }
    }

    /// Adds a statement that is stepped while its table is written.
    fn walk(&mut self) {
        let Some(table) = self.table(false) else { return };
        let (full, names) = (table.full(), table.names());
        let by = self.draw.of(&names).clone();
        let order = self.draw.one(&["", "", " ORDER BY #", " ORDER BY # DESC"]).replace('#', &by);
        let condition = if self.draw.chance(3) {
            self.draw.condition(std::slice::from_ref(&by), 0)
        } else {
            "1".to_owned()
        };
        self.steps.push(ScriptStep::Open(3, format!("SELECT * FROM {full} WHERE {condition}{order}")));
        for _ in 0..2 + self.draw.below(4) {
            let count = 1 + self.draw.below(5) as usize;
            self.steps.push(ScriptStep::Next(3, count));
            match self.draw.below(8) {
                // See `simple_select`.
                _ if table.kind == RowIdentity::Keyed => self.delete_of(&table),
                0..3 => self.update_of(&table),
                3..5 => self.delete_of(&table),
                5..7 => self.insert_into(&table),
                _ => self.transaction(),
            }
        }
        self.steps.push(ScriptStep::Next(3, 10_000));
        self.steps.push(ScriptStep::Close(3));
    }

    /// Adds statements by another connection.
    fn by_another(&mut self) {
        let from = self.steps.len();
        match self.draw.below(4) {
            0 => self.write(),
            1 => self.query(),
            _ => self.change(),
        }
        for step in &mut self.steps[from..] {
            if let ScriptStep::Run(sql, order) = step {
                *step = ScriptStep::Other(std::mem::take(sql), *order);
            }
        }
    }

    fn blob(&mut self) {
        let at = self.draw.below(2) as usize;
        match self.draw.below(8) {
            0..3 => {
                // Where row numbers are known.
                let Some(table) = self.table(false).filter(|table| table.kind != RowIdentity::Hidden) else {
                    return;
                };
                let column = self.draw.of(&table.columns).name.clone();
                let row = self.draw.below(9) as i64 - 1;
                let writes = self.draw.chance(2);
                let schema = table.schema.to_owned();
                self.steps.push(ScriptStep::OpenBlob { at, schema, table: table.name, column, row, writes });
            }
            3 => {
                let row = self.draw.below(9) as i64 - 1;
                self.steps.push(ScriptStep::ReopenBlob(at, row));
            }
            4 | 5 => {
                let (offset, count) = (self.draw.below(6) as i32, self.draw.below(6) as usize);
                self.steps.push(ScriptStep::ReadBlob(at, offset, count));
            }
            6 => {
                let (offset, count) = (self.draw.below(4) as i32, self.draw.below(4) as usize);
                let bytes = (0..count).map(|_| b'a' + self.draw.below(26) as u8).collect();
                self.steps.push(ScriptStep::WriteBlob(at, offset, bytes));
            }
            _ => self.steps.push(ScriptStep::CloseBlob(at)),
        }
    }

    fn reopen(&mut self) {
        if self.world.stack.is_empty() && self.draw.chance(2) {
            self.steps.push(ScriptStep::Check);
            self.steps.push(ScriptStep::Reopen);
            self.world.tables.retain(|table| table.schema == "main");
            self.world.indexes.retain(|index| index.schema == "main");
            self.attach();
        }
    }

    fn pragma(&mut self) {
        let table = self.table(true).map_or_else(|| "t1".to_owned(), |table| table.name);
        let number = self.draw.below(2);
        let pragmas = [
            format!("table_info({table})"),
            format!("table_xinfo({table})"),
            format!("index_list({table})"),
            format!("foreign_key_list({table})"),
            format!("integrity_check({table})"),
            format!("foreign_keys = {number}"),
            format!("recursive_triggers = {number}"),
            format!("reverse_unordered_selects = {number}"),
            format!("defer_foreign_keys = {number}"),
            format!("user_version = {}", self.draw.below(1000)),
            "user_version".to_owned(),
            format!("application_id = -{}", self.draw.below(1000)),
            "application_id".to_owned(),
            "quick_check".to_owned(),
            "table_list".to_owned(),
            "encoding".to_owned(),
            "optimize".to_owned(),
        ];
        let pragma = self.draw.of(&pragmas).clone();
        self.run(format!("PRAGMA {pragma}"));
    }
}
