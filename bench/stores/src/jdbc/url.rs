//! Parser of JDBC URLs.

/// A parsed URL.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Url {
    /// Servers, with their port if given. Empty: the driver's default.
    pub(crate) hosts: Vec<(String, Option<u16>)>,
    /// The database.
    pub(crate) database: Option<String>,
    /// Parameters of the query, and user and password if they precede the
    /// host.
    pub(crate) parameters: Vec<(String, String)>,
}

impl Url {
    /// Parses a URL with one of these schemes. Errors never repeat the URL, which may
    /// contain a password.
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

    /// Returns the value of a parameter, by its name without regard to case; the
    /// last wins.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let mut found = self.parameters.iter().rev().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.as_str())
    }

    /// Returns the names of other parameters.
    pub(crate) fn others(&self, known: &[&str]) -> Vec<&str> {
        let names = self.parameters.iter().map(|(name, _)| name.as_str());
        names.filter(|name| !known.iter().any(|known| known.eq_ignore_ascii_case(name))).collect()
    }
}

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

/// Decodes percent escapes.
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
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
