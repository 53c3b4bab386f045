//! Random SQL literals from a small set, so that they collide, with boundary values.

use super::world::RandomDraw;

const INTEGERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "6",
    "7",
    "8",
    "-1",
    "-2",
    "10",
    "100",
    "127",
    "128",
    "255",
    "256",
    "32767",
    "-32769",
    "2147483647",
    "2147483648",
    "-2147483649",
    "9007199254740991",
    "9007199254740992",
    "9007199254740993",
    "-9007199254740993",
    "4611686018427387904",
    "9223372036854775806",
    "9223372036854775807",
    "-9223372036854775807",
    "(-9223372036854775807-1)",
];

const REALS: &[&str] = &[
    "0.0",
    "-0.0",
    "0.5",
    "-0.5",
    "1.0",
    "1.5",
    "2.0",
    "3.25",
    "-1.0",
    "1e10",
    "1e300",
    "-1e300",
    "1e-300",
    "9e999",
    "-9e999",
    "9007199254740992.0",
    "9007199254740994.0",
    "9223372036854775807.0",
    "-9223372036854775808.0",
    "1e15",
    "123456789.125",
];

const TEXTS: &[&str] = &[
    "''",
    "'a'",
    "'A'",
    "'b'",
    "'B'",
    "'a '",
    "'A  '",
    "' a'",
    "'ab'",
    "'aB'",
    "'Ab'",
    "'abc'",
    "'z'",
    "'1'",
    "'1.0'",
    "'01'",
    "' 1 '",
    "'1e2'",
    "'x'",
    "'é'",
    "'É'",
    "'日本'",
    "'😀'",
    "'a'||char(0)||'b'",
    "'a'||char(0)",
    "char(0)",
    "'['",
    "'`'",
    "'%'",
    "'_'",
    "'a_b'",
    "'~'",
    "'null'",
    "'9223372036854775808'",
    "'a\tb'",
    "'\u{ffff}'",
    "'\u{e000}'",
];

const BLOBS: &[&str] = &[
    "x''",
    "x'00'",
    "x'0000'",
    "x'0001'",
    "x'01'",
    "x'61'",
    "x'41'",
    "x'6100'",
    "x'ff'",
    "x'ffff'",
    "x'31'",
    "zeroblob(3)",
];

/// Column expressions of a generated row with number `i`.
pub(super) const OF_NUMBER: &[&str] = &[
    "i",
    "-i",
    "i%7",
    "i*1.5",
    "i/10",
    "'k'||(i%50)",
    "printf('%05d', i)",
    "hex(i*7919)",
    "zeroblob(i%9)",
    "substr('aAbB  ', i%5+1)",
    "i*7919%1000",
    "nullif(i%5, 0)",
    "x'00'||i",
    "char(97+i%26)",
    "printf('%.40c', 'q')||i",
    "i<<40",
    "-i*1e17",
];

impl RandomDraw {
    pub(super) fn integer(&mut self) -> String {
        if self.chance(3) { self.one(INTEGERS).to_owned() } else { (self.below(14) as i64 - 2).to_string() }
    }

    /// Draws a row number: never the largest, after which SQLite draws numbers at random.
    pub(super) fn row(&mut self) -> String {
        match self.below(24) {
            0 => "-9223372036854775807".to_owned(),
            1 => "(-9223372036854775807-1)".to_owned(),
            2 => "9007199254740993".to_owned(),
            3 => (self.below(600) as i64 - 10).to_string(),
            _ => (self.below(24) as i64 - 3).to_string(),
        }
    }

    pub(super) fn text(&mut self) -> String {
        self.one(TEXTS).to_owned()
    }

    pub(super) fn literal(&mut self) -> String {
        match self.below(40) {
            0..4 => "NULL".to_owned(),
            4..18 => self.integer(),
            18..24 => self.one(REALS).to_owned(),
            24..35 => self.text(),
            35..39 => self.one(BLOBS).to_owned(),
            _ => self.long(),
        }
    }

    /// Draws a large value: some bytes, more than 32 KiB, or rarely more than 1 MB.
    fn long(&mut self) -> String {
        let length = match self.below(12) {
            0 if !self.is_short => 1_000_001 + self.below(400_000),
            1..4 => 32_000 + self.below(2000),
            4..6 => 65_000 + self.below(2000),
            _ => 100 + self.below(4000),
        };
        match self.below(3) {
            0 => format!("zeroblob({length})"),
            1 => format!("printf('%.*c', {length}, 'x')||{}", self.below(3)),
            _ => format!("CAST(printf('%.*c', {length}, 'y') AS BLOB)"),
        }
    }
}
