//! Random SELECT statements.

use super::{
    RandomScript,
    world::{RowIdentity, TableInfo},
};
use crate::script::{Order, ScriptStep};

const AGGREGATES: &[&str] = &[
    "count(*)",
    "count(#)",
    "min(#)",
    "max(#)",
    "sum(CAST(# AS INTEGER)%1000)",
    "total(CAST(# AS INTEGER)%1000)",
    "avg(CAST(# AS INTEGER)%100)",
    "count(DISTINCT #)",
    "group_concat(quote(#) ORDER BY #)",
    "string_agg(quote(#), '+' ORDER BY # DESC)",
    "count(#) FILTER (WHERE # > 1)",
    "json_group_array(hex(#) ORDER BY #)",
    "sum(length(#))",
];
const WINDOWS: &[&str] = &[
    "row_number()",
    "rank()",
    "dense_rank()",
    "ntile(3)",
    "lag(#)",
    "lead(#, 2, 'none')",
    "first_value(#)",
    "last_value(#)",
    "nth_value(#, 2)",
    "count(*)",
    "sum(CAST(# AS INTEGER)%1000)",
    "min(#)",
    "max(#)",
    "percent_rank()",
    "cume_dist()",
];
const FRAMES: &[&str] = &[
    "",
    "",
    " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    " ROWS UNBOUNDED PRECEDING",
    " GROUPS BETWEEN CURRENT ROW AND 1 FOLLOWING",
    " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE TIES",
    " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW",
];

impl RandomScript {
    pub(super) fn query(&mut self) {
        let Some((sql, order)) = (match self.draw.below(20) {
            0..8 => self.select(),
            8 | 9 => self.extreme(),
            10..12 => self.aggregate(),
            12..15 => self.join(),
            15 | 16 => self.window(),
            17 | 18 => self.compound(),
            _ => self.recursive(),
        }) else {
            return;
        };
        self.steps.push(ScriptStep::Run(sql, order));
    }

    fn by_all(&mut self, count: usize) -> String {
        let columns: Vec<String> = (1..=count)
            .map(|number| {
                let how =
                    self.draw.one(&["", "", "", " DESC", " DESC", " ASC NULLS LAST", " DESC NULLS FIRST"]);
                format!("{number}{how}")
            })
            .collect();
        columns.join(", ")
    }

    fn limit(&mut self) -> (String, Order) {
        match self.draw.below(6) {
            0 => (format!(" LIMIT {}", self.draw.below(6)), Order::Part),
            1 => (format!(" LIMIT {} OFFSET {}", self.draw.below(6), self.draw.below(6)), Order::Part),
            _ => (String::new(), Order::By(usize::MAX)),
        }
    }

    /// Draws an index hint for a table.
    fn hint(&mut self, table: &TableInfo) -> String {
        let indexes: Vec<String> = self
            .world
            .known
            .indexes
            .iter()
            .filter(|index| index.schema == table.schema && index.table == table.name)
            .map(|index| index.name.clone())
            .collect();
        match self.draw.below(10) {
            0 if !indexes.is_empty() => format!(" INDEXED BY {}", self.draw.of(&indexes)),
            1 => " NOT INDEXED".to_owned(),
            _ => String::new(),
        }
    }

    fn select(&mut self) -> Option<(String, Order)> {
        let table = self.table(true)?;
        let names = table.names();
        let mut columns = if self.draw.chance(3) { self.draw.some(&names) } else { names.clone() };
        if self.draw.chance(4) {
            columns.push(self.draw.expression(&names, 2));
        }
        let (distinct, hint) = (self.draw.maybe(8, "DISTINCT "), self.hint(&table));
        let condition = if self.draw.chance(5) {
            String::new()
        } else {
            format!(" WHERE {}", self.rich_condition(&names))
        };
        let sql = format!("SELECT {distinct}{} FROM {}{hint}{condition}", columns.join(", "), table.full());
        if self.draw.chance(5) {
            return Some((sql, Order::None));
        }
        // Order by plain columns, so that an index may provide the order.
        let (limit, order) = self.limit();
        let mut by = columns;
        if self.draw.chance(2) {
            by.reverse();
        }
        let down = self.draw.chance(3);
        let by: Vec<String> =
            by.iter().map(|column| format!("{column}{}", if down { " DESC" } else { "" })).collect();
        let order = if order == Order::Part { order } else { Order::By(0) };
        Some((format!("{sql} ORDER BY {}{limit}", by.join(", ")), order))
    }

    /// Draws a statement that stays open for some time.
    pub(super) fn simple_select(&mut self) -> Option<String> {
        // Stock SQLite restores its position in a table without row ids by the whole row, not by
        // its key: results after a change of that row are undefined.
        let table = self.table(false).filter(|table| table.kind != RowIdentity::Keyed)?;
        let names = table.names();
        let hint = self.hint(&table);
        let condition = if self.draw.chance(2) {
            format!(" WHERE {}", self.draw.condition(&names, 1))
        } else {
            String::new()
        };
        let order = if self.draw.chance(3) {
            format!(" ORDER BY {}{}", self.draw.of(&names), self.draw.maybe(2, " DESC"))
        } else {
            String::new()
        };
        Some(format!("SELECT * FROM {}{hint}{condition}{order}", table.full()))
    }

    /// Draws min() or max() of a column, which an index may answer.
    fn extreme(&mut self) -> Option<(String, Order)> {
        let table = self.table(true)?;
        let (names, full) = (table.names(), table.full());
        let column = self.draw.of(&names).clone();
        let condition = if self.draw.chance(3) {
            format!(" WHERE {}", self.draw.condition(&names, 1))
        } else {
            String::new()
        };
        let what = match self.draw.below(6) {
            0 => format!("min({column})"),
            1 => format!("max({column})"),
            2 => format!("min({column}), max({column})"),
            3 | 4 => "count(*)".to_owned(),
            _ => format!("count({column}), {column} IS NULL"),
        };
        Some((format!("SELECT {what} FROM {full}{condition}"), Order::Part))
    }

    fn aggregate(&mut self) -> Option<(String, Order)> {
        let table = self.table(true)?;
        let names = table.names();
        let by = self.draw.some(&names);
        let by: Vec<String> = by.into_iter().take(2).collect();
        let mut columns = by.clone();
        for _ in 0..1 + self.draw.below(3) {
            let column = self.draw.of(&names).clone();
            columns.push(self.draw.one(AGGREGATES).replace('#', &column));
        }
        let condition = if self.draw.chance(2) {
            format!(" WHERE {}", self.rich_condition(&names))
        } else {
            String::new()
        };
        let having = self.draw.maybe(4, " HAVING count(*) > 1");
        let order = self.by_all(columns.len());
        let sql = format!(
            "SELECT {} FROM {}{condition} GROUP BY {}{having} ORDER BY {order}",
            columns.join(", "),
            table.full(),
            by.join(", ")
        );
        Some((sql, Order::By(0)))
    }

    fn join(&mut self) -> Option<(String, Order)> {
        let (left, right) = (self.table(true)?, self.table(true)?);
        let a: Vec<String> = left.names().iter().map(|name| format!("a.{name}")).collect();
        let b: Vec<String> = right.names().iter().map(|name| format!("b.{name}")).collect();
        let kind = self.draw.one(&["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"]);
        let on = format!(
            "{} {} {}",
            self.draw.of(&a),
            self.draw.one(&["=", "=", "=", "IS", ">"]),
            self.draw.of(&b)
        );
        let both = [a, b].concat();
        let condition = if self.draw.chance(2) { self.draw.condition(&both, 1) } else { "1".to_owned() };
        let mut from = format!("{} AS a {kind} {} AS b ON {on}", left.full(), right.full());
        let mut columns =
            vec![self.draw.of(&both).clone(), self.draw.of(&both).clone(), self.draw.of(&both).clone()];
        if self.draw.chance(4)
            && let Some(third) = self.table(true)
        {
            let c = format!("c.{}", self.draw.of(&third.names()));
            let kind = self.draw.one(&["JOIN", "LEFT JOIN"]);
            from = format!("{from} {kind} {} AS c ON {c} = {}", third.full(), self.draw.of(&both));
            columns.push(c);
        }
        if self.draw.chance(3) {
            return Some((
                format!("SELECT count(*), count({}) FROM {from} WHERE {condition}", columns[0]),
                Order::None,
            ));
        }
        let order = self.by_all(columns.len());
        Some((
            format!("SELECT {} FROM {from} WHERE {condition} ORDER BY {order} LIMIT 300", columns.join(", ")),
            Order::Part,
        ))
    }

    fn window(&mut self) -> Option<(String, Order)> {
        let table = self.table(true)?;
        let names = table.names();
        let column = self.draw.of(&names).clone();
        let function = self.draw.one(WINDOWS).replace('#', &column);
        let partition = if self.draw.chance(2) {
            format!("PARTITION BY {} ", self.draw.of(&names))
        } else {
            String::new()
        };
        let frame = self.draw.one(FRAMES);
        let over = format!("{function} OVER ({partition}ORDER BY {}{frame})", names.join(", "));
        let list = names.join(", ");
        Some((format!("SELECT {list}, {over} FROM {} ORDER BY {list} LIMIT 200", table.full()), Order::Part))
    }

    fn compound(&mut self) -> Option<(String, Order)> {
        let mut parts = Vec::new();
        for number in 0..2 + self.draw.below(2) {
            let table = self.table(true)?;
            let names = table.names();
            let (one, other) = (self.draw.of(&names).clone(), self.draw.of(&names).clone());
            let condition = self.draw.condition(&names, 1);
            let how = if number == 0 {
                String::new()
            } else {
                format!(" {} ", self.draw.one(&["UNION", "UNION ALL", "INTERSECT", "EXCEPT"]))
            };
            parts.push(format!("{how}SELECT {one}, {other} FROM {} WHERE {condition}", table.full()));
        }
        let order = self.by_all(2);
        Some((format!("{} ORDER BY {order} LIMIT 300", parts.concat()), Order::Part))
    }

    fn recursive(&mut self) -> Option<(String, Order)> {
        let table = self.table(true)?;
        let names = table.names();
        let column = self.draw.of(&names).clone();
        let full = table.full();
        Some((
            format!(
                "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 12), m AS {}(SELECT {column} AS x FROM {full}) SELECT i, count(x), min(x) FROM n LEFT JOIN m ON x = i GROUP BY i ORDER BY i",
                self.draw.one(&["", "MATERIALIZED ", "NOT MATERIALIZED "])
            ),
            Order::By(1),
        ))
    }
}
