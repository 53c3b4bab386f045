//! Virtual tables of extensions, which store their content in ordinary tables.

use super::RandomScript;
use crate::script::{Order, ScriptStep};

const WORDS: &[&str] = &["cat", "dog", "fish", "the", "a", "Katze", "été", "run", "running", "x1"];

impl RandomScript {
    pub(super) fn virtual_table(&mut self) {
        if self.draw.chance(2) { self.text() } else { self.boxes() }
    }

    fn words(&mut self) -> String {
        let words: Vec<&str> = (0..1 + self.draw.below(6)).map(|_| self.draw.one(WORDS)).collect();
        words.join(" ")
    }

    /// Full-text tables.
    fn text(&mut self) {
        let Some(name) = self.world.known.texts.last().cloned() else {
            let name = format!("f{}", self.world.number());
            let options = self.draw.one(&["", ", detail=none", ", prefix='2'", ", tokenize='porter'"]);
            self.run(format!("CREATE VIRTUAL TABLE {name} USING fts5(x, y{options})"));
            self.world.texts.push(name);
            return;
        };
        for _ in 0..3 {
            let (row, words, more, word) =
                (self.draw.below(20), self.words(), self.words(), self.draw.one(WORDS));
            match self.draw.below(10) {
                0..4 => self.run(format!("INSERT OR REPLACE INTO {name}(rowid, x, y) VALUES({row}, '{words}', '{more}')")),
                4 => self.run(format!("UPDATE {name} SET y = '{more}' WHERE rowid < {row}")),
                5 => self.run(format!("DELETE FROM {name} WHERE rowid = {row}")),
                6 => self.run(format!("INSERT INTO {name}({name}) VALUES('integrity-check')")),
                7 => self.run(format!(
                    "INSERT OR IGNORE INTO {name}(rowid, x, y) WITH RECURSIVE n(i) AS (VALUES(100) UNION ALL SELECT i+1 FROM n WHERE i<300) SELECT i, '{words}', '{word} ' || i FROM n"
                )),
                _ => {
                    let sql = format!("SELECT rowid, x, y FROM {name} WHERE {name} MATCH '{word}' ORDER BY rowid");
                    self.steps.push(ScriptStep::Run(sql, Order::By(1)));
                }
            }
        }
    }

    /// R*Tree tables.
    fn boxes(&mut self) {
        let Some(name) = self.world.known.boxes.last().cloned() else {
            let name = format!("b{}", self.world.number());
            let kind = self.draw.one(&["rtree", "rtree_i32"]);
            self.run(format!("CREATE VIRTUAL TABLE {name} USING {kind}(id, x0, x1, y0, y1, +note)"));
            self.world.boxes.push(name);
            return;
        };
        for _ in 0..3 {
            let (id, x, y, wide) =
                (self.draw.below(30), self.draw.below(20), self.draw.below(20), self.draw.below(5));
            let place = format!("{x}, {}, {y}, {}", x + wide, y + wide);
            match self.draw.below(9) {
                0..3 => self.run(format!("INSERT OR REPLACE INTO {name} VALUES({id}, {place}, 'n{id}')")),
                3 => self.run(format!("UPDATE {name} SET x1 = x1 + {wide} WHERE id > {id}")),
                4 => self.run(format!("DELETE FROM {name} WHERE x0 > {x} AND id < {id}")),
                5 => self.run(format!(
                    "INSERT OR IGNORE INTO {name} WITH RECURSIVE n(i) AS (VALUES(100) UNION ALL SELECT i+1 FROM n WHERE i<250) SELECT i, i%20, i%20+1, i/20, i/20+2, NULL FROM n"
                )),
                6 => self.run(format!("SELECT rtreecheck('{name}')")),
                _ => {
                    let sql = format!("SELECT * FROM {name} WHERE x0 >= {x} AND y1 <= {} ORDER BY id", y + 8);
                    self.steps.push(ScriptStep::Run(sql, Order::By(1)));
                }
            }
        }
    }
}
