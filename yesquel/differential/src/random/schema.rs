//! Random tables, indexes and views.

use super::{
    RandomScript,
    world::{Index, RowIdentity, TableColumn, TableInfo},
};

const TYPES: &[&str] =
    &["INTEGER", "INT", "REAL", "TEXT", "TEXT", "BLOB", "NUMERIC", "", "VARCHAR(10)", "DOUBLE", "ANY"];
const STRICT_TYPES: &[&str] = &["INTEGER", "INT", "REAL", "TEXT", "BLOB", "ANY"];
const COLLATIONS: &[&str] = &["NOCASE", "RTRIM", "BINARY"];
pub(super) const CONFLICTS: &[&str] = &["ROLLBACK", "ABORT", "FAIL", "IGNORE", "REPLACE"];
const ACTIONS: &[&str] = &["CASCADE", "SET NULL", "SET DEFAULT", "RESTRICT", "NO ACTION"];

impl RandomScript {
    /// Draws a table, or with `or_view` possibly a view.
    pub(super) fn table(&mut self, or_view: bool) -> Option<TableInfo> {
        let tables: Vec<&TableInfo> = self
            .world
            .known
            .tables
            .iter()
            .filter(|table| or_view || table.kind != RowIdentity::View)
            .collect();
        if tables.is_empty() { None } else { Some((*self.draw.of(&tables)).clone()) }
    }

    /// Draws a table of a schema.
    pub(super) fn table_of(&mut self, schema: &str) -> Option<TableInfo> {
        let tables = self.world.known.tables.iter();
        let tables: Vec<&TableInfo> =
            tables.filter(|table| table.schema == schema && table.kind != RowIdentity::View).collect();
        if tables.is_empty() { None } else { Some((*self.draw.of(&tables)).clone()) }
    }

    fn on_conflict(&mut self) -> String {
        if self.draw.chance(4) { format!(" ON CONFLICT {}", self.draw.one(CONFLICTS)) } else { String::new() }
    }

    pub(super) fn create_table(&mut self) {
        let schema = self.draw.one(&self.world.schemas.clone());
        let name = format!("t{}", self.world.number());
        // An identical table, so that rows can be copied unchanged.
        if self.draw.chance(5)
            && let Some(like) = self.table_of(schema)
            && !like.body.is_empty()
        {
            self.run(format!("CREATE TABLE {schema}.{name}{}", like.body));
            self.world.tables.push(TableInfo { schema, name, ..like });
            return;
        }
        let other = if self.world.has_hidden { RowIdentity::Hidden } else { RowIdentity::Keyed };
        let kind = self.draw.one(&[RowIdentity::Numbered, RowIdentity::Numbered, other, RowIdentity::Keyed]);
        let is_strict = self.draw.chance(6);
        let count = 2 + self.draw.below(4) as usize;
        let (mut columns, mut keys, mut parts) = (Vec::<TableColumn>::new(), Vec::new(), Vec::new());
        if kind == RowIdentity::Numbered {
            let how = self.draw.one(&["", "", "", " AUTOINCREMENT", " NOT NULL", " ASC"]);
            parts.push(format!("id INTEGER PRIMARY KEY{how}"));
            columns.push(TableColumn { name: "id".to_owned(), is_generated: false, is_row: true });
            keys.push(vec!["id".to_owned()]);
        }
        for number in 0..count {
            let column = format!("c{number}");
            let plain: Vec<String> = columns
                .iter()
                .filter(|column| !column.is_generated)
                .map(|column| column.name.clone())
                .collect();
            let (mut part, is_generated) = self.column(&column, &plain, is_strict);
            if kind == RowIdentity::Hidden {
                // Otherwise a primary key of this column alone would be the row number.
                part = part.replace(" INTEGER", " INT");
            }
            if !is_generated && self.draw.chance(9) {
                part += &format!(" UNIQUE{}", self.on_conflict());
                keys.push(vec![column.clone()]);
            }
            if !is_generated && self.draw.chance(7) {
                part += &self.references(schema);
            }
            parts.push(part);
            columns.push(TableColumn { name: column, is_generated, is_row: false });
        }
        let plain: Vec<String> = columns
            .iter()
            .filter(|column| !column.is_generated && !column.is_row)
            .map(|c| c.name.clone())
            .collect();
        if plain.is_empty() {
            parts.push("cz".to_owned());
            columns.push(TableColumn { name: "cz".to_owned(), is_generated: false, is_row: false });
        }
        if kind == RowIdentity::Keyed || kind == RowIdentity::Hidden && self.draw.chance(4) {
            let of = if plain.is_empty() { vec!["cz".to_owned()] } else { self.draw.some(&plain) };
            let how: Vec<String> = of.iter().map(|name| self.indexed(name)).collect();
            parts.push(format!("PRIMARY KEY ({}){}", how.join(", "), self.on_conflict()));
            keys.push(of);
        }
        if plain.len() > 1 && self.draw.chance(6) {
            let of = self.draw.some(&plain);
            parts.push(format!("CONSTRAINT u1 UNIQUE ({}){}", of.join(", "), self.on_conflict()));
            keys.push(of);
        }
        if self.draw.chance(8) {
            let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
            let condition = self.draw.condition(&names, 1);
            let condition = self.draw.one(&["c0 IS NULL OR ", "c0 <> 5 OR "]).to_owned() + &condition;
            parts.push(format!("CONSTRAINT k1 CHECK ({condition})"));
        }
        let options = [(kind == RowIdentity::Keyed, "WITHOUT ROWID"), (is_strict, "STRICT")];
        let options: Vec<&str> = options.iter().filter(|(is, _)| *is).map(|(_, option)| *option).collect();
        let body = format!("({}) {}", parts.join(", "), options.join(", "));
        self.run(format!("CREATE TABLE {schema}.{name}{body}"));
        self.world.tables.push(TableInfo { schema, name, kind, columns, keys, body });
    }

    /// Draws a column definition; returns it and whether the column is generated.
    pub(super) fn column(&mut self, name: &str, before: &[String], is_strict: bool) -> (String, bool) {
        let kind = self.draw.one(if is_strict { STRICT_TYPES } else { TYPES });
        let mut part = format!("{name} {kind}");
        if self.draw.chance(4) {
            part += &format!(" COLLATE {}", self.draw.one(COLLATIONS));
        }
        if !before.is_empty() && self.draw.chance(9) {
            let expression = self.draw.expression(before, 2);
            let how = self.draw.one(&["VIRTUAL", "STORED", ""]);
            return (format!("{part} GENERATED ALWAYS AS ({expression}) {how}"), true);
        }
        if self.draw.chance(8) {
            part += &format!(" NOT NULL{}", self.on_conflict());
        }
        if self.draw.chance(5) {
            part += &format!(" DEFAULT ({})", self.draw.literal());
        }
        if self.draw.chance(14) {
            part += &format!(" CHECK ({name} IS NULL OR {})", self.draw.condition(&[name.to_owned()], 1));
        }
        (part, false)
    }

    fn references(&mut self, schema: &str) -> String {
        let Some(parent) = self.table_of(schema) else { return String::new() };
        let single: Vec<String> =
            parent.keys.iter().filter(|key| key.len() == 1).flatten().cloned().collect();
        if single.is_empty() {
            return String::new();
        }
        let mut text = format!(" REFERENCES {}({})", parent.name, self.draw.of(&single));
        if self.draw.chance(2) {
            text += &format!(" ON DELETE {}", self.draw.one(ACTIONS));
        }
        if self.draw.chance(2) {
            text += &format!(" ON UPDATE {}", self.draw.one(ACTIONS));
        }
        text + &self.draw.maybe(3, " DEFERRABLE INITIALLY DEFERRED")
    }

    /// Draws an indexed column with collation and order.
    fn indexed(&mut self, name: &str) -> String {
        let mut text = name.to_owned();
        if self.draw.chance(5) {
            text += &format!(" COLLATE {}", self.draw.one(COLLATIONS));
        }
        text + &self.draw.maybe(3, " DESC")
    }

    pub(super) fn create_index(&mut self) {
        let Some(table) = self.table(false) else { return };
        let names = table.names();
        let name = format!("i{}", self.world.number());
        let mut of: Vec<String> = self.draw.some(&names);
        if self.draw.chance(3) {
            of.reverse();
        }
        of.truncate(3);
        let mut columns: Vec<String> = of.iter().map(|name| self.indexed(name)).collect();
        if self.draw.chance(6) {
            columns[0] = self.draw.expression(&names, 2);
        }
        let unique = self.draw.maybe(5, "UNIQUE ");
        let partial = if self.draw.chance(6) {
            format!(" WHERE {}", self.draw.condition(&names, 1))
        } else {
            String::new()
        };
        let columns = columns.join(", ");
        self.run(format!(
            "CREATE {unique}INDEX {}.{name} ON {}({columns}){partial}",
            table.schema, table.name
        ));
        if !unique.is_empty() && partial.is_empty() {
            let (schema, named) = (table.schema, table.name.clone());
            let mut tables = self.world.known.tables.iter_mut();
            if let Some(table) = tables.find(|table| table.schema == schema && table.name == named) {
                table.keys.push(of);
            }
        }
        self.world.indexes.push(Index { schema: table.schema, name, table: table.name });
    }

    pub(super) fn create_view(&mut self) {
        let Some(table) = self.table(false) else { return };
        let name = format!("v{}", self.world.number());
        let columns: Vec<TableColumn> = self.draw.some(&table.columns);
        let columns: Vec<TableColumn> = columns
            .into_iter()
            .map(|column| TableColumn { is_row: false, is_generated: false, ..column })
            .collect();
        let list: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        let condition = self.draw.condition(&table.names(), 1);
        let sql = match self.draw.below(3) {
            0 => format!("SELECT {} FROM {}", list.join(", "), table.name),
            1 => format!("SELECT {} FROM {} WHERE {condition}", list.join(", "), table.name),
            _ => format!("SELECT DISTINCT {} FROM {}", list.join(", "), table.name),
        };
        let schema = table.schema;
        self.run(format!("CREATE VIEW {schema}.{name} AS {sql}"));
        self.world.tables.push(TableInfo {
            schema,
            name,
            kind: RowIdentity::View,
            columns,
            keys: Vec::new(),
            body: String::new(),
        });
    }
}
