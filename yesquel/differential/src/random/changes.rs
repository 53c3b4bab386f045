//! Schema changes and maintenance statements.

use super::{
    RandomScript,
    world::{RowIdentity, TableColumn, TableInfo},
};

impl RandomScript {
    pub(super) fn change(&mut self) {
        match self.draw.below(26) {
            0..3 => self.create_table(),
            3..7 => self.create_index(),
            7 | 8 => self.create_view(),
            9..12 => self.create_trigger(),
            12 => self.create_as(),
            13 => self.drop_table(),
            14 | 15 => self.drop_index(),
            16 => {
                if let Some((schema, name)) = self.world.known.triggers.pop() {
                    self.run(format!("DROP TRIGGER {schema}.{name}"));
                }
            }
            17..23 => self.alter(),
            23 => {
                let sql = match (self.draw.below(3), self.table(false)) {
                    (0, Some(table)) => format!("REINDEX {}", table.full()),
                    (1, _) => format!("REINDEX {}", self.draw.one(&["NOCASE", "RTRIM", "BINARY"])),
                    _ => "REINDEX".to_owned(),
                };
                self.run(sql);
            }
            24 => {
                let sql = match self.table(false) {
                    Some(table) if self.draw.chance(2) => format!("ANALYZE {}", table.full()),
                    _ => "ANALYZE".to_owned(),
                };
                self.run(sql);
            }
            _ => {
                let schema = self.draw.one(&self.world.schemas.clone());
                let schema = if schema == "main" { String::new() } else { format!(" {schema}") };
                self.run(format!("VACUUM{schema}"));
            }
        }
    }

    fn create_as(&mut self) {
        let Some(table) = self.table(true).filter(|_| self.world.has_hidden) else { return };
        let schema = self.draw.one(&self.world.schemas.clone());
        let name = format!("t{}", self.world.number());
        let columns: Vec<TableColumn> = self.draw.some(&table.columns);
        let columns: Vec<TableColumn> = columns
            .into_iter()
            .map(|column| TableColumn { is_row: false, is_generated: false, ..column })
            .collect();
        let list: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        let list = list.join(", ");
        let condition = self.rich_condition(&table.names());
        self.run(format!(
            "CREATE TABLE {schema}.{name} AS SELECT {list} FROM {} WHERE {condition} ORDER BY {list}",
            table.full()
        ));
        let (keys, body) = (Vec::new(), String::new());
        self.world.tables.push(TableInfo { schema, name, kind: RowIdentity::Hidden, columns, keys, body });
    }

    fn drop_table(&mut self) {
        if self.world.known.tables.len() < 2 {
            return;
        }
        let at = self.draw.below(self.world.known.tables.len() as u64) as usize;
        let table = self.world.known.tables.remove(at);
        let what = if table.kind == RowIdentity::View { "VIEW" } else { "TABLE" };
        self.run(format!("DROP {what} {}", table.full()));
        self.world.indexes.retain(|index| (index.schema, &index.table) != (table.schema, &table.name));
    }

    fn drop_index(&mut self) {
        if self.world.known.indexes.is_empty() {
            return;
        }
        let at = self.draw.below(self.world.known.indexes.len() as u64) as usize;
        let index = self.world.known.indexes.remove(at);
        self.run(format!("DROP INDEX {}.{}", index.schema, index.name));
    }

    fn alter(&mut self) {
        let Some(table) = self.table(true) else { return };
        let full = table.full();
        let at = self.draw.below(table.columns.len() as u64) as usize;
        let column = table.columns[at].name.clone();
        let same = |other: &&mut TableInfo| other.schema == table.schema && other.name == table.name;
        let what = match self.draw.below(10) {
            0 | 1 => {
                let name = format!(
                    "{}{}",
                    if table.kind == RowIdentity::View { "v" } else { "t" },
                    self.world.number()
                );
                let known = &mut self.world.known;
                for index in
                    known.indexes.iter_mut().filter(|i| i.schema == table.schema && i.table == table.name)
                {
                    index.table.clone_from(&name);
                }
                if let Some(own) = known.tables.iter_mut().find(same) {
                    own.name.clone_from(&name);
                }
                format!("RENAME TO {name}")
            }
            2 | 3 => {
                let name = format!("d{}", self.world.number());
                if let Some(own) = self.world.known.tables.iter_mut().find(same) {
                    own.columns[at].name.clone_from(&name);
                    own.body.clear();
                    own.keys
                        .iter_mut()
                        .flatten()
                        .filter(|key| **key == column)
                        .for_each(|key| key.clone_from(&name));
                }
                format!("RENAME COLUMN {column} TO {name}")
            }
            4 | 5 => {
                let name = format!("e{}", self.world.number());
                let plain: Vec<String> = table
                    .columns
                    .iter()
                    .filter(|column| !column.is_generated)
                    .map(|c| c.name.clone())
                    .collect();
                let (part, is_generated) = self.column(&name, &plain, false);
                if let Some(own) = self.world.known.tables.iter_mut().find(same) {
                    own.columns.push(TableColumn { name, is_generated, is_row: false });
                    own.body.clear();
                }
                format!("ADD COLUMN {part}")
            }
            6 => {
                if table.columns.len() > 2
                    && !table.columns[at].is_row
                    && let Some(own) = self.world.known.tables.iter_mut().find(same)
                {
                    own.columns.remove(at);
                    own.body.clear();
                }
                format!("DROP COLUMN {column}")
            }
            7 => format!("ALTER COLUMN {column} SET NOT NULL{}", self.draw.maybe(3, " ON CONFLICT REPLACE")),
            8 => format!("ALTER COLUMN {column} DROP NOT NULL"),
            _ => match self.draw.below(3) {
                0 => format!("DROP CONSTRAINT {}", self.draw.one(&["k1", "k2", "u1"])),
                1 => {
                    let condition = self.draw.condition(&table.names(), 1);
                    format!("ADD CONSTRAINT k2 CHECK ({column} IS NOT NULL OR {condition})")
                }
                _ => format!("ADD CHECK ({column} IS NULL OR {column} <> 8)"),
            },
        };
        self.run(format!("ALTER TABLE {full} {what}"));
    }
}
