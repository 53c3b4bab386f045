//! Random INSERT, UPDATE and DELETE statements.

use super::{
    RandomScript,
    literal::OF_NUMBER,
    schema::CONFLICTS,
    world::{RowIdentity, TableColumn, TableInfo},
};

impl RandomScript {
    pub(super) fn write(&mut self) {
        match self.draw.below(20) {
            0..9 => self.insert(),
            9 | 10 => self.insert_many(),
            11 => self.insert_select(),
            12..16 => self.update(),
            16..19 => self.delete(),
            _ => {
                if let Some(table) = self.table(false) {
                    self.run(format!("DELETE FROM {}", table.full()));
                }
            }
        }
    }

    fn or_conflict(&mut self) -> String {
        if self.draw.chance(3) { format!(" OR {}", self.draw.one(CONFLICTS)) } else { String::new() }
    }

    fn returning(&mut self, table: &TableInfo) -> String {
        if table.kind == RowIdentity::View || !self.draw.chance(6) {
            return String::new();
        }
        if self.draw.chance(3) {
            " RETURNING *".to_owned()
        } else {
            format!(" RETURNING {}", self.draw.of(&table.names()))
        }
    }

    fn value(&mut self, column: &TableColumn) -> String {
        if column.is_row { self.draw.row() } else { self.draw.literal() }
    }

    fn insert(&mut self) {
        let or_view = self.draw_view();
        if let Some(table) = self.table(or_view) {
            self.insert_into(&table);
        }
    }

    pub(super) fn insert_into(&mut self, table: &TableInfo) {
        let mut into: Vec<TableColumn> =
            table.columns.iter().filter(|column| !column.is_generated).cloned().collect();
        if self.draw.chance(6) {
            // The row number is always explicit.
            into.retain(|column| column.is_row || self.draw.chance(2));
        }
        if into.is_empty() {
            return;
        }
        let rows: Vec<String> = (0..1 + self.draw.below(5))
            .map(|_| {
                let values: Vec<String> = into.iter().map(|column| self.value(column)).collect();
                format!("({})", values.join(", "))
            })
            .collect();
        let or = self.or_conflict();
        let upsert = if self.draw.chance(5) { self.upsert(table) } else { String::new() };
        let returning = self.returning(table);
        let names: Vec<String> = into.into_iter().map(|column| column.name).collect();
        self.run(format!(
            "INSERT{or} INTO {}({}) VALUES {}{upsert}{returning}",
            table.full(),
            names.join(", "),
            rows.join(", ")
        ));
    }

    /// Writes to a view occasionally.
    fn draw_view(&mut self) -> bool {
        self.draw.chance(8)
    }

    fn upsert(&mut self, table: &TableInfo) -> String {
        let on = if table.keys.is_empty() || self.draw.chance(4) {
            String::new()
        } else {
            format!("({})", self.draw.of(&table.keys).join(", "))
        };
        if self.draw.chance(3) {
            return format!(" ON CONFLICT {on} DO NOTHING");
        }
        let set = self.sets(table, &["excluded."]);
        let condition = if self.draw.chance(4) {
            format!(" WHERE {}", self.draw.condition(&table.names(), 1))
        } else {
            String::new()
        };
        format!(" ON CONFLICT {on} DO UPDATE SET {set}{condition}")
    }

    /// Draws assignments; `prefixes` qualify columns of other tables with the same names.
    fn sets(&mut self, table: &TableInfo, prefixes: &[&str]) -> String {
        let plain: Vec<TableColumn> =
            table.columns.iter().filter(|column| !column.is_generated).cloned().collect();
        if plain.is_empty() {
            return "c0 = 1".to_owned();
        }
        let mut sources = table.names();
        for prefix in prefixes {
            sources.extend(table.names().iter().map(|name| format!("{prefix}{name}")));
        }
        let mut some = self.draw.some(&plain);
        some.truncate(3);
        let sets: Vec<String> = some
            .iter()
            .map(|column| {
                let value = match (column.is_row, self.draw.below(3)) {
                    (true, 0) => format!("{} + {}", column.name, 1 + self.draw.below(50)),
                    (true, 1) => format!("{} - 100", column.name),
                    (true, _) => self.draw.row(),
                    _ => self.draw.expression(&sources, 2),
                };
                format!("{} = {value}", column.name)
            })
            .collect();
        sets.join(", ")
    }

    fn insert_many(&mut self) {
        let Some(table) = self.table(false) else { return };
        let into: Vec<TableColumn> =
            table.columns.iter().filter(|column| !column.is_generated).cloned().collect();
        let values: Vec<String> = into
            .iter()
            .map(|column| {
                if column.is_row {
                    self.draw.one(&["i", "i*3", "1000-i", "-i"]).to_owned()
                } else {
                    self.draw.one(OF_NUMBER).to_owned()
                }
            })
            .collect();
        let count = self.draw.one(&[5, 30, 30, 30, 150, 150, 400, 1500]);
        let or = self.draw.one(&[" OR IGNORE", " OR IGNORE", " OR REPLACE", "", " OR FAIL"]);
        let names: Vec<String> = into.into_iter().map(|column| column.name).collect();
        self.run(format!(
            "INSERT{or} INTO {}({}) WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<{count}) SELECT {} FROM n",
            table.full(),
            names.join(", "),
            values.join(", ")
        ));
    }

    fn insert_select(&mut self) {
        let (Some(table), Some(from)) = (self.table(false), self.table(true)) else { return };
        let or = self.or_conflict();
        let alike = |other: &&TableInfo| other.body == table.body && !table.body.is_empty();
        let like: Vec<TableInfo> = self.world.known.tables.iter().filter(alike).cloned().collect();
        if self.draw.chance(2) && !like.is_empty() {
            let from = self.draw.of(&like).full();
            self.run(format!("INSERT{or} INTO {} SELECT * FROM {from}", table.full()));
            return;
        }
        let into: Vec<TableColumn> =
            table.columns.iter().filter(|column| !column.is_generated).cloned().collect();
        let values: Vec<String> = into
            .iter()
            .map(|column| {
                let value = self.draw.of(&from.names()).clone();
                if column.is_row { format!("coalesce({value}, 7) % 1000") } else { value }
            })
            .collect();
        let condition = self.rich_condition(&from.names());
        let limit = self.draw.maybe(2, " LIMIT 20");
        let names: Vec<String> = into.into_iter().map(|column| column.name).collect();
        let order: Vec<String> = (1..=values.len()).map(|number| number.to_string()).collect();
        self.run(format!(
            "INSERT{or} INTO {}({}) SELECT {} FROM {} WHERE {condition} ORDER BY {}{limit}",
            table.full(),
            names.join(", "),
            values.join(", "),
            from.full(),
            order.join(", ")
        ));
    }

    fn update(&mut self) {
        let or_view = self.draw_view();
        let Some(table) = self.table(or_view) else { return };
        let or = self.or_conflict();
        let returning = self.returning(&table);
        if self.draw.chance(8)
            && let Some(from) = self.table(true)
        {
            // Columns of both tables, qualified.
            let own: Vec<String> = table.names().iter().map(|name| format!("u.{name}")).collect();
            let theirs: Vec<String> = from.names().iter().map(|name| format!("f.{name}")).collect();
            let plain: Vec<&TableColumn> =
                table.columns.iter().filter(|column| !column.is_generated && !column.is_row).collect();
            if plain.is_empty() {
                return;
            }
            let set = self.draw.of(&plain).name.clone();
            // At most one row of the other table may match, or the result is undefined.
            let value = self.draw.of(&theirs).clone();
            let key = self.draw.of(&own).clone();
            let full = from.full();
            let from_names = from.names().join(", ");
            self.run(format!(
                "UPDATE{or} {} AS u SET {set} = {value} FROM (SELECT DISTINCT {from_names} FROM {full} ORDER BY {from_names} LIMIT 1) AS f WHERE {key} = {value}{}",
                table.full(),
                returning.replace(" RETURNING ", " RETURNING u.").replace("u.*", "*")
            ));
            return;
        }
        self.update_of(&table);
    }

    pub(super) fn update_of(&mut self, table: &TableInfo) {
        let or = self.or_conflict();
        let returning = self.returning(table);
        let set = self.sets(table, &[]);
        let condition = self.rich_condition(&table.names());
        self.run(format!("UPDATE{or} {} SET {set} WHERE {condition}{returning}", table.full()));
    }

    fn delete(&mut self) {
        let or_view = self.draw_view();
        if let Some(table) = self.table(or_view) {
            self.delete_of(&table);
        }
    }

    pub(super) fn delete_of(&mut self, table: &TableInfo) {
        let condition = self.rich_condition(&table.names());
        let returning = self.returning(table);
        self.run(format!("DELETE FROM {} WHERE {condition}{returning}", table.full()));
    }
}
