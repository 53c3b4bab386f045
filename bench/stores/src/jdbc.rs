//! JDBC's URLs and names, which YCSB's files carry: `db.url` says which store
//! `jdbc` is, and where its server.
//!
//! ```text
//! jdbc:postgresql://one:5432,two:5432/ycsb?user=u&password=p&sslmode=require
//! jdbc:mysql://127.0.0.1:3306/ycsb;jdbc:mysql://127.0.0.1:3307/ycsb
//! jdbc:sqlite:/tmp/ycsb.db
//! ```

use serval_model::properties::{Fault, Faults, Kind, Properties, Property};

/// Names of the store that is whichever `db.url` says.
pub(crate) const NAMES: [&str; 3] = ["jdbc", "site.ycsb.db.JdbcDBClient", "com.yahoo.ycsb.db.JdbcDBClient"];

/// Where the database is, for stores that have a simpler setting of their own.
pub(crate) static URL: Property = Property::ycsb(
    "db.url",
    Kind::Text,
    "Where the database is, as JDBC spells it. The store 'jdbc' is the one that its scheme names.",
);

pub(crate) static DRIVER: Property = Property::ignored(
    "db.driver",
    "JDBC's driver class: Serval needs none; it tells what the store 'jdbc' is when there is no db.url.",
);
pub(crate) static FETCH_SIZE: Property =
    Property::ignored("jdbc.fetchsize", "rows of a scan come in one answer, not by a cursor.");
pub(crate) static AUTO_COMMIT: Property =
    Property::ignored("jdbc.autocommit", "every operation commits itself, a batch of inserts as one.");
pub(crate) static BATCH_API: Property = Property::ignored(
    "jdbc.batchupdateapi",
    "a batch always goes to the server in one piece; db.batchsize alone asks for batches.",
);

/// JDBC's schemes and the names of the stores that speak them.
const SCHEMES: [(&str, &str); 4] =
    [("postgresql", "postgres"), ("mysql", "mysql"), ("mariadb", "mysql"), ("sqlite", "sqlite")];

/// The store that `jdbc` is, by these properties.
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

/// A URL of a server, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg(feature = "url")]
pub(crate) struct Url {
    /// Servers with the port if it is given. None: the driver's default.
    pub(crate) hosts: Vec<(String, Option<u16>)>,
    /// The database.
    pub(crate) database: Option<String>,
    /// What stands behind the question mark, and the user and password if they
    /// stand before the host.
    pub(crate) parameters: Vec<(String, String)>,
}

#[cfg(feature = "url")]
impl Url {
    /// Takes a URL of one of these schemes apart. What is wrong with it never
    /// repeats the URL, which may hold a password.
    pub(crate) fn parse(text: &str, schemes: &[&str]) -> Result<Url, String> {
        let form = format!("write jdbc:{}://HOST:PORT/DATABASE?NAME=VALUE", schemes[0]);
        let rest = schemes
            .iter()
            .find_map(|scheme| text.trim().strip_prefix("jdbc:")?.strip_prefix(scheme)?.strip_prefix(':'));
        let rest = rest.ok_or_else(|| format!("is no URL of this database: {form}"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Url::default();
        let database = match place.strip_prefix("//") {
            // jdbc:postgresql:DATABASE, on this machine.
            None if place.contains([':', '/']) => {
                return Err(format!("has a form that Serval does not know: {form}"));
            }
            None => place,
            Some(place) => {
                let (servers, database) = place.split_once('/').unwrap_or((place, ""));
                let servers = match servers.rsplit_once('@') {
                    None => servers,
                    Some((user, servers)) => {
                        let (user, password) =
                            user.split_once(':').map_or((user, None), |(u, p)| (u, Some(p)));
                        url.parameters.push(("user".into(), decoded(user)?));
                        if let Some(password) = password {
                            url.parameters.push(("password".into(), decoded(password)?));
                        }
                        servers
                    }
                };
                for server in servers.split(',').filter(|server| !server.is_empty()) {
                    url.hosts.push(host_and_port(server)?);
                }
                database
            }
        };
        url.database = Some(decoded(database)?).filter(|name| !name.is_empty());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            url.parameters.push((decoded(name)?, decoded(value)?));
        }
        Ok(url)
    }

    /// The value of a parameter, whose name is taken in any case; the last
    /// wins.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let mut found = self.parameters.iter().rev().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.as_str())
    }

    /// Names of parameters beside these.
    pub(crate) fn others(&self, known: &[&str]) -> Vec<&str> {
        let names = self.parameters.iter().map(|(name, _)| name.as_str());
        names.filter(|name| !known.iter().any(|known| known.eq_ignore_ascii_case(name))).collect()
    }
}

#[cfg(feature = "url")]
fn host_and_port(server: &str) -> Result<(String, Option<u16>), String> {
    // A colon within brackets belongs to an IPv6 address.
    let split = server.rfind(']').map_or(0, |end| end + 1);
    let (host, port) = match server[split..].find(':') {
        None => (server, None),
        Some(at) => (&server[..split + at], Some(&server[split + at + 1..])),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = match port {
        None => None,
        Some(digits) => match digits.parse::<u16>() {
            Ok(port) if port > 0 => Some(port),
            _ => return Err(format!("'{digits}' is no port: a number from 1 to 65535")),
        },
    };
    if host.is_empty() { Err("names a port without a host".into()) } else { Ok((decoded(host)?, port)) }
}

/// Without percent signs and what they stand for.
#[cfg(feature = "url")]
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        rest = more;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = more.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(
            byte.ok_or("has a percent sign without two hexadecimal digits: write %25 for the sign itself")?,
        );
        rest = &more[2..];
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 once its percent signs are replaced".to_owned())
}

#[cfg(all(test, feature = "url"))]
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
    fn the_scheme_says_which_store_jdbc_is_and_the_driver_if_there_is_none() {
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

    #[test]
    fn urls_are_taken_apart() {
        let url = |text| Url::parse(text, &["postgresql"]).unwrap();
        let found =
            url("jdbc:postgresql://one:1,two,[::1]:3/my%20db?user=u%26v&password=p=q&SSLMode=require&flag");
        assert_eq!(found.hosts, [("one".into(), Some(1)), ("two".into(), None), ("::1".into(), Some(3))]);
        assert_eq!(found.database.as_deref(), Some("my db"));
        assert_eq!(found.parameter("user"), Some("u&v"));
        assert_eq!(found.parameter("password"), Some("p=q"));
        assert_eq!(found.parameter("sslmode"), Some("require"));
        assert_eq!(found.others(&["user", "password", "sslmode"]), ["flag"]);
        assert_eq!(url("jdbc:postgresql:d").database.as_deref(), Some("d"));
        assert_eq!(url("jdbc:postgresql:"), Url::default());
        assert_eq!(url("jdbc:postgresql://h").hosts, [("h".into(), None)]);
        let found = url("jdbc:postgresql://u:p%40@h:1/d");
        assert_eq!((found.parameter("user"), found.parameter("password")), (Some("u"), Some("p@")));
        for (text, part) in [
            ("jdbc:mysql://h/d", "no URL of this database"),
            ("http://h/d", "write jdbc:postgresql://HOST:PORT/DATABASE"),
            ("jdbc:postgresql://h:0/d", "'0' is no port"),
            ("jdbc:postgresql://h:x/d?password=secret", "'x' is no port"),
            ("jdbc:postgresql://:5/d", "without a host"),
            ("jdbc:postgresql:replication://h/d", "form that Serval does not know"),
            ("jdbc:postgresql://h/%zz", "percent sign"),
            ("jdbc:postgresql://h/%+1", "percent sign"),
            ("jdbc:postgresql://h/%f", "percent sign"),
            ("jdbc:postgresql://h/%ff", "not UTF-8"),
        ] {
            let error = Url::parse(text, &["postgresql"]).unwrap_err();
            assert!(error.contains(part) && !error.contains("secret"), "{error}");
        }
    }
}
