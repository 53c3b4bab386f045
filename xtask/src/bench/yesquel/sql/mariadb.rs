//! The statements of section 6.2 at Yesquel and at MariaDB, both by TCP, with
//! prepared statements and a connection for each thread. Neither syncs anything:
//! Yesquel is in memory, MariaDB writes its log once a second and has memory for
//! all rows.

use super::{Programs, SystemUnderTest, fill, section};
use crate::Result;
use crate::bench::BenchContext;
use crate::setup::{self, Missing, ProgramPurpose};

/// What makes it fast where nothing need be left after a crash.
const SETTINGS: [(&str, &str); 5] = [
    ("innodb-flush-log-at-trx-commit", "0"),
    ("innodb-doublewrite", "0"),
    ("innodb-buffer-pool-size", "1G"),
    ("innodb-log-file-size", "256M"),
    // Connections of clients that were there a moment ago.
    ("max-connections", "500"),
];

pub(in crate::bench) fn mariadb(bench: &BenchContext) -> Result<()> {
    setup::provide(bench.children, ProgramPurpose::Mysql, Missing::Report)?;
    let programs = Programs::build_with(bench, &["--features", "yesquel-bench/mariadb"])?;
    let load = programs.load.as_path();
    let (yesquel, maria) =
        (SystemUnderTest::sql(bench, &programs)?, SystemUnderTest::mariadb(bench, &SETTINGS)?);
    fill(bench, load, &[(&yesquel, "load"), (&maria, "load")])?;
    section(bench, load, (&yesquel, &maria, "MariaDB"), "1.5 or more")?;
    let settings: Vec<String> = SETTINGS.iter().map(|(name, value)| format!("{name}={value}")).collect();
    println!("MariaDB: {}", settings.join(" "));
    Ok(())
}
