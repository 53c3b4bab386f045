//! JDBC's URLs and names in YCSB's files: `db.url` determines the store for `jdbc`, and
//! its server.
//!
//! ```text
//! jdbc:postgresql://one:5432,two:5432/ycsb?user=u&password=p&sslmode=require
//! jdbc:mysql://127.0.0.1:3306/ycsb;jdbc:mysql://127.0.0.1:3307/ycsb
//! jdbc:sqlite:/tmp/ycsb.db
//! ```

#[cfg(feature = "url")]
mod url;

use serval_model::properties::{Fault, Faults, Kind, Properties, Property};
#[cfg(feature = "url")]
pub(crate) use url::Url;

/// Names for the store that `db.url` determines.
pub(crate) const NAMES: [&str; 3] = ["jdbc", "site.ycsb.db.JdbcDBClient", "com.yahoo.ycsb.db.JdbcDBClient"];

/// The database's URL, for stores that also have a simpler property.
pub(crate) static URL: Property = Property::ycsb(
    "db.url",
    Kind::Text,
    "JDBC URL of the database. Its scheme selects the store that 'jdbc' stands for.",
);

pub(crate) static DRIVER: Property = Property::ignored(
    "db.driver",
    "JDBC's driver class; Serval needs none. It selects the store that 'jdbc' stands for if there is no \
     db.url.",
);
pub(crate) static FETCH_SIZE: Property =
    Property::ignored("jdbc.fetchsize", "rows of a scan come in one answer, not by a cursor.");
pub(crate) static AUTO_COMMIT: Property =
    Property::ignored("jdbc.autocommit", "every operation commits itself, a batch of inserts as one.");
pub(crate) static BATCH_API: Property = Property::ignored(
    "jdbc.batchupdateapi",
    "a batch always goes to the server in one piece; db.batchsize alone asks for batches.",
);

/// JDBC's schemes and the stores for them.
const SCHEMES: [(&str, &str); 4] =
    [("postgresql", "postgres"), ("mysql", "mysql"), ("mariadb", "mysql"), ("sqlite", "sqlite")];

/// Returns the store for `jdbc`.
pub(crate) fn store(properties: &Properties) -> Result<&'static str, Faults> {
    let known = SCHEMES.map(|(scheme, _)| format!("jdbc:{scheme}:")).join(", ");
    let fault = |name: &str, problem: String| {
        let origin = properties.get(name).map(|setting| setting.origin.clone());
        Err(Faults(vec![Fault { origin, problem }]))
    };
    if let Some(setting) = properties.get(URL.name) {
        let scheme = setting.value.strip_prefix("jdbc:").and_then(|rest| rest.split_once(':'));
        let Some((scheme, _)) = scheme else {
            let problem = format!("db.url: must begin with one of {known}, as JDBC's URLs do");
            return fault(URL.name, problem);
        };
        return match SCHEMES.iter().find(|(name, _)| *name == scheme) {
            Some((_, store)) => Ok(store),
            None => fault(
                URL.name,
                format!(
                    "db.url: no store of Serval speaks jdbc:{scheme}: those that are spoken are {known}. YCSB's own \
                     binding speaks what its driver does: serval run java -db site.ycsb.db.JdbcDBClient -cp JARS"
                ),
            ),
        };
    }
    let Some(setting) = properties.get(DRIVER.name) else {
        return Err(Faults::one(format!(
            "the store 'jdbc' is the one that db.url names: set it, beginning with one of {known}"
        )));
    };
    let class = setting.value.to_ascii_lowercase();
    match SCHEMES.iter().find(|(scheme, _)| class.contains(scheme)) {
        Some((_, store)) => Ok(store),
        None => fault(
            DRIVER.name,
            format!(
                "db.driver={}: no store of Serval speaks what this driver does; set db.url, beginning with one of \
                 {known}",
                setting.value
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serval_model::properties::Origin;

    fn properties(pairs: &[(&str, &str)]) -> Properties {
        let mut properties = Properties::new();
        for (name, value) in pairs {
            properties.set(*name, *value, Origin::CommandLine("-p".into()));
        }
        properties
    }

    #[test]
    fn the_store_of_jdbc_follows_from_the_scheme_or_the_driver() {
        for (pairs, expected) in [
            (&[("db.url", "jdbc:postgresql://h/d")][..], "postgres"),
            (&[("db.url", "jdbc:mysql://h/d")], "mysql"),
            (&[("db.url", "jdbc:mariadb://h/d"), ("db.driver", "org.postgresql.Driver")], "mysql"),
            (&[("db.url", "jdbc:sqlite:x.db")], "sqlite"),
            (&[("db.driver", "com.mysql.jdbc.Driver")], "mysql"),
            (&[("db.driver", "org.mariadb.jdbc.Driver")], "mysql"),
            (&[("db.driver", "org.postgresql.Driver")], "postgres"),
        ] {
            assert_eq!(store(&properties(pairs)), Ok(expected), "{pairs:?}");
        }
        for (pairs, expected) in [
            (&[][..], "set it, beginning with one of jdbc:postgresql:"),
            (&[("db.url", "jdbc:oracle:thin:@h:1521:d")], "no store of Serval speaks jdbc:oracle"),
            (&[("db.url", "postgresql://h/d")], "must begin with one of"),
            (&[("db.driver", "oracle.jdbc.OracleDriver")], "oracle.jdbc.OracleDriver: no store"),
        ] {
            let error = store(&properties(pairs)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert_eq!(error.contains("command line (-p)"), !pairs.is_empty(), "{error}");
        }
    }
}
