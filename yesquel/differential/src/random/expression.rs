//! Random expressions over columns.

use super::{RandomScript, world::RandomDraw};

const COMPARISONS: &[&str] = &["=", "<>", "<", "<=", ">", ">=", "IS", "IS NOT", "==", "!="];
const CALCULATIONS: &[&str] = &["+", "-", "*", "/", "%", "||", "&", "|", "<<", ">>"];
// Without concat() and concat_ws(): stock SQLite's read uninitialized bytes of blobs.
const FUNCTIONS: &[&str] = &[
    "abs(#)",
    "length(#)",
    "lower(#)",
    "upper(#)",
    "typeof(#)",
    "hex(#)",
    "quote(#)",
    "coalesce(#, @)",
    "ifnull(#, @)",
    "nullif(#, @)",
    "substr(#, 2)",
    "substr(#, -2, 1)",
    "instr(#, @)",
    "replace(#, 'a', 'bb')",
    "trim(#)",
    "rtrim(#)",
    "ltrim(#, 'a')",
    "round(#, 1)",
    "min(#, @)",
    "max(#, @)",
    "iif(#, @, 1)",
    "unicode(#)",
    "CAST(# AS INTEGER)",
    "CAST(# AS TEXT)",
    "CAST(# AS REAL)",
    "CAST(# AS BLOB)",
    "CAST(# AS NUMERIC)",
    "(# COLLATE NOCASE)",
    "(# COLLATE RTRIM)",
    "(# COLLATE BINARY)",
    "-#",
    "+#",
    "NOT #",
    "~#",
    "(# IS NULL)",
    "sign(#)",
    "octet_length(#)",
    "json_quote(#)",
    "json_array(@, 1)",
    "likely(#)",
    "glob('a*', #)",
    "(# ISNULL)",
    "(# NOT NULL)",
    "CASE # WHEN @ THEN 1 ELSE @ END",
    "CASE WHEN # > @ THEN # END",
];
const COLLATIONS: &[&str] = &["", "", "", "", " COLLATE NOCASE", " COLLATE RTRIM", " COLLATE BINARY"];

impl RandomDraw {
    /// Draws an expression over columns without subqueries.
    pub(super) fn expression(&mut self, columns: &[String], depth: u32) -> String {
        if columns.is_empty() || self.chance(6) {
            return self.literal();
        }
        if depth == 0 || self.chance(3) {
            return self.of(columns).clone();
        }
        match self.below(10) {
            0..3 => {
                let (left, right) =
                    (self.expression(columns, depth - 1), self.expression(columns, depth - 1));
                format!("({left} {} {right})", self.one(CALCULATIONS))
            }
            3..5 => self.condition(columns, depth - 1),
            _ => {
                let (one, other) = (self.expression(columns, depth - 1), self.expression(columns, depth - 1));
                self.one(FUNCTIONS).replace('#', &one).replace('@', &other)
            }
        }
    }

    /// Draws a condition that some rows meet, often by an index.
    pub(super) fn condition(&mut self, columns: &[String], depth: u32) -> String {
        let column = if columns.is_empty() { self.literal() } else { self.of(columns).clone() };
        let collation = self.one(COLLATIONS);
        let not = if self.chance(5) { "NOT " } else { "" };
        let (low, high) = (self.literal(), self.literal());
        match self.below(18) {
            0..4 => format!("{column} {} {low}{collation}", self.one(COMPARISONS)),
            4 | 5 => format!("{column} > {low} AND {column} <= {high}"),
            6 | 7 => format!("{column}{collation} {not}BETWEEN {low} AND {high}"),
            8 | 9 => {
                let more: Vec<String> = (0..self.below(5)).map(|_| self.literal()).collect();
                let more: String = more.iter().map(|value| format!(", {value}")).collect();
                format!("{column} {not}IN ({low}{more})")
            }
            10 => {
                format!("{column} {not}LIKE {}", self.one(&["'a%'", "'A_'", "'%b%'", "'_'", "'1%'", "'ab'"]))
            }
            11 => format!("{column} {not}GLOB {}", self.one(&["'a*'", "'[ab]*'", "'?'", "'*b'"])),
            12 => format!("{column} IS {not}NULL"),
            13 if columns.len() > 1 => {
                let other = self.of(columns).clone();
                format!("({column}, {other}) {} ({low}, {high})", self.one(&["<", ">=", "=", ">", "IS NOT"]))
            }
            14 if depth > 0 => {
                let (left, right) = (self.condition(columns, depth - 1), self.condition(columns, depth - 1));
                format!("({left} {} {right})", self.one(&["AND", "OR", "OR"]))
            }
            15 if depth > 0 => {
                let (left, right) =
                    (self.expression(columns, depth - 1), self.expression(columns, depth - 1));
                format!("{left} {} {right}", self.one(COMPARISONS))
            }
            16 if columns.len() > 1 => {
                format!("{column} {} {}", self.one(COMPARISONS), self.of(columns))
            }
            _ => format!("{column} = {low}{collation}"),
        }
    }
}

impl RandomScript {
    /// Like [`condition`](Self::condition), with subqueries.
    pub(super) fn rich_condition(&mut self, columns: &[String]) -> String {
        if !self.draw.chance(5) {
            return self.draw.condition(columns, 2);
        }
        let Some(other) = self.table(true) else { return "1".to_owned() };
        let column = self.draw.of(columns).clone();
        let theirs = self.draw.of(&other.names()).clone();
        let not = if self.draw.chance(4) { "NOT " } else { "" };
        let inner: Vec<String> = other.names().iter().map(|name| format!("o.{name}")).collect();
        let condition = self.draw.condition(&inner, 1);
        let full = other.full();
        match self.draw.below(4) {
            0 => format!("{column} {not}IN (SELECT {theirs} FROM {full} AS o WHERE {condition})"),
            1 => {
                format!("{not}EXISTS (SELECT 1 FROM {full} AS o WHERE o.{theirs} = {column} AND {condition})")
            }
            2 => format!("{column} >= (SELECT min({theirs}) FROM {full} AS o WHERE {condition})"),
            _ => format!("(SELECT count(*) FROM {full} AS o WHERE o.{theirs} = {column}) > 1"),
        }
    }
}
