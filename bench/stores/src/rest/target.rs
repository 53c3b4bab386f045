//! Targets of requests: parsing and building of URLs.

use super::BodyLayout;
use bytes::{BufMut, Bytes, BytesMut};
use hyper::{
    Uri,
    header::HeaderValue,
    http::uri::{Authority, Scheme},
};
use rustls::pki_types::ServerName;

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HttpOrigin {
    pub(super) https: bool,
    pub(super) host: String,
    pub(super) port: u16,
    /// Host and port from the URL, for the Host header.
    pub(super) authority: HeaderValue,
    /// Name in messages.
    pub(super) name: String,
    /// Name that the certificate must have.
    pub(super) server_name: ServerName<'static>,
}

impl HttpOrigin {
    fn new(https: bool, authority: &Authority) -> Result<HttpOrigin, String> {
        if authority.as_str().contains('@') {
            return Err("has a user in it: set rest.user and rest.password instead".to_owned());
        }
        let port = match authority.port() {
            None if https => 443,
            None => 80,
            Some(port) => port.as_u16(),
        };
        // The http crate ignores an invalid port.
        let after = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
        if port == 0 || (authority.port().is_none() && !after.is_empty()) {
            return Err(format!("'{authority}' is no host and port"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let wrong = |_| format!("'{authority}' is no host and port");
        let server_name = ServerName::try_from(host.clone()).map_err(wrong)?;
        let text =
            HeaderValue::try_from(authority.as_str()).map_err(|_| format!("'{authority}' is no host"))?;
        let name = format!("rest at {}://{authority}", if https { "https" } else { "http" });
        Ok(HttpOrigin { https, host, port, authority: text, name, server_name })
    }
}

/// Prefix of all URLs.
#[derive(Debug, Clone)]
pub(super) struct UrlPrefix {
    pub(super) origin: HttpOrigin,
    /// Path, possibly with a query, to which keys are appended.
    path: String,
    /// Name in messages.
    pub(super) text: String,
}

impl UrlPrefix {
    /// Parses a URL. The part after the host may be incomplete: `/a?id=`.
    pub(super) fn parse(url: &str) -> Result<UrlPrefix, String> {
        let lower = url.to_ascii_lowercase();
        let (https, rest) = if lower.starts_with("https://") {
            (true, &url["https://".len()..])
        } else if lower.starts_with("http://") {
            (false, &url["http://".len()..])
        } else {
            return Err("must begin with http:// or https://".to_owned());
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let authority: Authority =
            authority.parse().map_err(|_| format!("'{authority}' is no host and port"))?;
        let origin = HttpOrigin::new(https, &authority)?;
        let prefix = UrlPrefix { origin, path: path.to_owned(), text: url.to_owned() };
        match prefix.uri("", BodyLayout::Data) {
            Some(_) if !path.contains('#') => Ok(prefix),
            _ => Err(format!("'{path}' is no beginning of a path")),
        }
    }

    /// Returns the path and query of a key; `None` if they are invalid in a URL.
    pub(super) fn uri(&self, key: &str, layout: BodyLayout) -> Option<Uri> {
        let mut buffer = BytesMut::with_capacity(self.path.len() + 1 + key.len());
        let first = if self.path.is_empty() && layout == BodyLayout::Data { key } else { &self.path };
        if !first.starts_with('/') {
            buffer.put_u8(b'/');
        }
        buffer.put_slice(self.path.as_bytes());
        match layout {
            BodyLayout::Data => buffer.put_slice(key.as_bytes()),
            BodyLayout::Json => percent_encode(key, &mut buffer),
        }
        Uri::from_maybe_shared(buffer.freeze()).ok()
    }
}

/// Parses a key that is a whole URL.
pub(super) fn absolute(key: &str) -> Result<(HttpOrigin, Uri), String> {
    let wrong = || format!("'{key}' is no URL that begins with http:// or https://, and rest.url is empty");
    let uri = Uri::from_maybe_shared(Bytes::copy_from_slice(key.as_bytes())).map_err(|_| wrong())?;
    let parts = uri.into_parts();
    let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else { return Err(wrong()) };
    if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
        return Err(wrong());
    }
    let origin = HttpOrigin::new(scheme == Scheme::HTTPS, &authority)?;
    Ok((origin, parts.path_and_query.map_or_else(Uri::default, Uri::from)))
}

/// Appends a key as a percent-encoded segment of a path; letters, digits and `-._~` are
/// unchanged.
fn percent_encode(key: &str, out: &mut BytesMut) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in key.as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.put_u8(byte),
            _ => out.put_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_consists_of_a_server_and_a_path_prefix() {
        let path = |prefix: &str, key: &str, layout| {
            let uri = UrlPrefix::parse(prefix).unwrap().uri(key, layout);
            uri.map_or_else(|| "none".to_owned(), |uri| uri.to_string())
        };
        for (prefix, key, expected) in [
            ("http://h:1/", "a", "/a"),
            ("http://h:1", "a", "/a"),
            ("http://h:1", "/a", "/a"),
            ("HTTPS://h/x/", "a/b?c=%20&d=1", "/x/a/b?c=%20&d=1"),
            ("http://h/x?id=", "7", "/x?id=7"),
            ("http://h?id=", "7", "/?id=7"),
            ("http://h", "", "/"),
            ("http://h/", "a#part", "/a"),
            ("http://h/", "a b", "none"),
        ] {
            assert_eq!(path(prefix, key, BodyLayout::Data), expected, "{prefix} {key}");
        }
        assert_eq!(path("http://h/t/", "user1", BodyLayout::Json), "/t/user1");
        assert_eq!(path("http://h/t/", "a b/ä?%\r\n", BodyLayout::Json), "/t/a%20b%2F%C3%A4%3F%25%0D%0A");
    }

    #[test]
    fn hosts_and_ports_are_parsed() {
        let origin = |url: &str| {
            let origin = UrlPrefix::parse(url).unwrap().origin;
            (origin.https, origin.host, origin.port, origin.authority.to_str().unwrap().to_owned())
        };
        assert_eq!(origin("http://a/"), (false, "a".into(), 80, "a".into()));
        assert_eq!(origin("https://a.b"), (true, "a.b".into(), 443, "a.b".into()));
        assert_eq!(origin("http://[::1]:8080/x"), (false, "::1".into(), 8080, "[::1]:8080".into()));
        for wrong in
            ["", "h:1/", "ftp://h/", "http://", "http:///x", "http://h:0/", "http://h:x/", "http://h:70000/"]
        {
            assert!(UrlPrefix::parse(wrong).is_err(), "{wrong}");
        }
        for (wrong, words) in [
            ("http://u:p@h/", "rest.user"),
            ("http://h/a b", "no beginning"),
            ("http://h/a#b", "no beginning"),
        ] {
            let problem = UrlPrefix::parse(wrong).unwrap_err();
            assert!(problem.contains(words) && !problem.contains(":p@"), "{problem}");
        }
    }

    #[test]
    fn whole_urls_are_parsed() {
        let (origin, uri) = absolute("https://h:7/a?b").unwrap();
        assert_eq!((origin.https, origin.port, uri.to_string()), (true, 7, "/a?b".into()));
        assert_eq!(absolute("http://h").unwrap().1.to_string(), "/");
        for wrong in ["a", "/a", "ftp://h/", "http://h/a b", ""] {
            assert!(absolute(wrong).unwrap_err().contains("rest.url"), "{wrong}");
        }
    }
}
