//! Random triggers.

use super::{RandomScript, world::RowIdentity};

impl RandomScript {
    pub(super) fn create_trigger(&mut self) {
        let Some(table) = self.table(true) else { return };
        let name = format!("g{}", self.world.number());
        let event = match self.draw.below(4) {
            0 | 1 => "INSERT".to_owned(),
            2 => "DELETE".to_owned(),
            _ => {
                let of = if self.draw.chance(2) {
                    format!(" OF {}", self.draw.of(&table.names()))
                } else {
                    String::new()
                };
                format!("UPDATE{of}")
            }
        };
        let time = match table.kind {
            RowIdentity::View => "INSTEAD OF",
            _ => self.draw.one(&["BEFORE", "AFTER", "AFTER"]),
        };
        let row = if event == "DELETE" { "old" } else { "new" };
        let columns: Vec<String> = table.names().iter().map(|name| format!("{row}.{name}")).collect();
        let when = if self.draw.chance(4) {
            format!(" WHEN {}", self.draw.condition(&columns, 1))
        } else {
            String::new()
        };
        let Some(other) = self.table_of(table.schema) else { return };
        let mut does = Vec::new();
        for _ in 0..1 + self.draw.below(2) {
            let does_one = match self.draw.below(5) {
                0 | 1 => {
                    let into: Vec<_> =
                        other.columns.iter().filter(|column| !column.is_generated).cloned().collect();
                    let values: Vec<String> =
                        into.iter()
                            .map(|column| {
                                if column.is_row {
                                    self.draw.row()
                                } else {
                                    self.draw.expression(&columns, 1)
                                }
                            })
                            .collect();
                    let how = self.draw.one(&["", " OR IGNORE", " OR REPLACE"]);
                    let names: Vec<String> = into.into_iter().map(|column| column.name).collect();
                    format!(
                        "INSERT{how} INTO {}({}) VALUES({})",
                        other.name,
                        names.join(", "),
                        values.join(", ")
                    )
                }
                2 => {
                    let set = self.draw.of(&other.columns).name.clone();
                    let is_row = other.columns.iter().any(|column| column.is_row && column.name == set);
                    let value = if is_row { self.draw.row() } else { self.draw.expression(&columns, 1) };
                    let condition = self.draw.condition(&other.names(), 0);
                    format!("UPDATE OR IGNORE {} SET {set} = {value} WHERE {condition}", other.name)
                }
                3 => {
                    let condition = self.draw.condition(&other.names(), 0);
                    format!("DELETE FROM {} WHERE {condition}", other.name)
                }
                _ => {
                    let condition = self.draw.condition(&columns, 0);
                    let how = self.draw.one(&["ABORT", "FAIL", "ROLLBACK"]);
                    let raise = if self.draw.chance(3) {
                        "IGNORE".to_owned()
                    } else {
                        format!("{how}, 'the trigger'")
                    };
                    format!(
                        "SELECT RAISE({raise}) WHERE {condition} AND {}",
                        self.draw.condition(&columns, 0)
                    )
                }
            };
            does.push(does_one + ";");
        }
        let schema = table.schema;
        self.run(format!(
            "CREATE TRIGGER {schema}.{name} {time} {event} ON {} FOR EACH ROW{when} BEGIN {} END",
            table.name,
            does.join(" ")
        ));
        self.world.triggers.push((schema, name));
    }
}
