//! The statements of section 6.2 on Yesquel and on MariaDB, both over TCP, with prepared statements
//! and a connection for each thread. Neither syncs: Yesquel is in memory; MariaDB writes its log
//! once a second and keeps all rows in memory.

use super::{Programs, SystemUnderTest, fill, section};
use crate::Result;
use crate::bench::BenchContext;
use crate::setup::{self, Missing, ProgramPurpose};

/// Settings for speed without durability.
const SETTINGS: [(&str, &str); 5] = [
    ("innodb-flush-log-at-trx-commit", "0"),
    ("innodb-doublewrite", "0"),
    ("innodb-buffer-pool-size", "1G"),
    ("innodb-log-file-size", "256M"),
    // Connections of clients that have just ended.
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
