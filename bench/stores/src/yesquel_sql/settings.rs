//! Properties of the yesquel store.

use crate::sqlite::BUSY_TIMEOUT_MAX;
use serval_model::properties::{Faults, Kind, Properties, Property, Reader};
use std::time::Duration;
use yesquel::Address;
use yesquel_sqlite::{DatabaseAddress, DatabaseAddressError, DatabaseLocation};

pub(super) const ADDRESS: Property = Property::serval(
    "yesquel.address",
    Kind::Text,
    "Address of the database, as any program gives it: yesquel://host:port/name, \
     yesquel:///path/of/socket/name, yesquel:folder, or yesquel: for a database in memory. Options follow \
     a question mark (durability, timeout). A host, host:port or socket alone means the database 'ycsb' \
     there. The load creates the database.",
)
.default("yesquel:serval-data?durability=100");
pub(super) const BUSY_TIMEOUT: Property = Property::serval(
    "yesquel.busy_timeout",
    Kind::MILLISECONDS,
    "Time for which a statement that lost against concurrent writers is retried, before it fails with \
     SERVICE_UNAVAILABLE.",
)
.default("5s")
.unit("ms");
pub(super) const UPSERT: Property = Property::serval(
    "yesquel.upsert",
    Kind::Flag,
    "Whether an insert replaces an existing record (INSERT OR REPLACE) or fails, as in YCSB.",
)
.default("false");

pub(super) const WITHOUT_ROWID: Property = Property::serval(
    "yesquel.without_rowid",
    Kind::Flag,
    "Whether the load creates the table WITHOUT ROWID: a record is then stored under its key in one tree. \
     With row ids it is stored under a number, as in the store sqlite, and a second tree maps the key to \
     the number.",
)
.default("false");

pub(super) const ALL: &[&Property] = &[&ADDRESS, &BUSY_TIMEOUT, &UPSERT, &WITHOUT_ROWID];

/// Values of the properties.
#[derive(Debug)]
pub(super) struct YesquelSqlSettings {
    pub(super) address: DatabaseAddress,
    /// The address to open.
    pub(super) opened: String,
    pub(super) busy_timeout: Duration,
    pub(super) upsert: bool,
    pub(super) without_rowid: bool,
}

impl YesquelSqlSettings {
    pub(super) fn read(properties: &Properties) -> Result<YesquelSqlSettings, Faults> {
        let mut reader = Reader::new(properties);
        let known = address(&reader.text(&ADDRESS)).map_err(|error| reader.fault(&ADDRESS, error)).ok();
        if let Some((_, DatabaseAddress { location: DatabaseLocation::Server(servers), .. })) = &known
            && servers.iter().any(|address| matches!(address, Address::Tcp { port: 0, .. }))
        {
            reader.fault(&ADDRESS, "has port 0, on which no server listens");
        }
        let busy_timeout = reader.duration(&BUSY_TIMEOUT);
        if busy_timeout > BUSY_TIMEOUT_MAX {
            reader.fault(&BUSY_TIMEOUT, "must be 24 days or less");
        }
        let (upsert, without_rowid) = (reader.flag(&UPSERT), reader.flag(&WITHOUT_ROWID));
        reader.finish()?;
        // An unknown value is a fault above.
        let (opened, address) = known.ok_or_else(Faults::default)?;
        Ok(YesquelSqlSettings { address, opened, busy_timeout, upsert, without_rowid })
    }
}

/// Returns the address to open, and its parsed form.
fn address(text: &str) -> Result<(String, DatabaseAddress), DatabaseAddressError> {
    let text = text.trim();
    let mut opened = match text.strip_prefix("file:").unwrap_or(text) {
        whole if whole.starts_with("yesquel:") => whole.to_owned(),
        server => match server.split_once('?') {
            Some((server, options)) => format!("yesquel://{server}/ycsb?{options}"),
            None => format!("yesquel://{server}/ycsb"),
        },
    };
    let mut address = DatabaseAddress::parse(&opened, [])?;
    // Otherwise each client would have a database of its own.
    if address.location == DatabaseLocation::Memory {
        opened.push(if opened.contains('?') { '&' } else { '?' });
        opened.push_str("cache=shared");
        address = DatabaseAddress::parse(&opened, [])?;
    }
    Ok((opened, address))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_url_or_a_server() {
        for (text, opened) in [
            ("yesquel:data?durability=none", "yesquel:data?durability=none"),
            (" file:yesquel://db:7000/shop", "yesquel://db:7000/shop"),
            ("db", "yesquel://db/ycsb"),
            ("127.0.0.1:7000?timeout=9", "yesquel://127.0.0.1:7000/ycsb?timeout=9"),
            ("/run/y.sock", "yesquel:///run/y.sock/ycsb"),
            ("yesquel:", "yesquel:?cache=shared"),
            ("yesquel:?database=a", "yesquel:?database=a&cache=shared"),
            ("yesquel:?cache=shared", "yesquel:?cache=shared"),
        ] {
            let (found, meant) = address(text).unwrap();
            assert_eq!(found, opened);
            assert_eq!(DatabaseAddress::parse(opened, []), Ok(meant));
        }
        for wrong in ["", "yesquel://db", "db:port", "yesquel:data?speed=9"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
