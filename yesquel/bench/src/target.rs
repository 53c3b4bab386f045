//! Databases that a load can run on.

#[cfg(feature = "mariadb")]
use crate::mariadb::Maria;
use crate::{
    Result, cluster,
    redis::RespClient,
    sql::{Sql, SqlLocation, SqlTable},
};
use yesquel::{Database, Map, Store};

/// Connections that the threads share: for Yesquel one with a cache; none for Redis, where each
/// thread has its own.
pub(crate) enum ThreadConnections {
    Yesquel(Database, Map),
    /// Each thread opens a SQL connection, and these share a socket. The store is for the server's
    /// status, if there is one.
    Sql(SqlLocation, Option<Store>),
    #[cfg(feature = "mariadb")]
    Maria(String),
    Redis(String),
}

pub(crate) enum LoadClient<'a> {
    Yesquel(&'a Database, Map),
    Sql(Box<dyn SqlTable>),
    Redis(Box<RespClient>),
}

pub(crate) fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

impl ThreadConnections {
    pub(crate) fn connect(target: &str) -> Result<ThreadConnections> {
        match target.split_once(':') {
            Some(("yesquel", addresses)) => {
                let (database, map) = cluster::database(&cluster::connect(addresses)?)?;
                Ok(ThreadConnections::Yesquel(database, map))
            }
            Some(("redis", address)) => Ok(ThreadConnections::Redis(address.to_owned())),
            #[cfg(feature = "mariadb")]
            Some(("mariadb", address)) => {
                Maria::prepare(address)?;
                Ok(ThreadConnections::Maria(address.to_owned()))
            }
            #[cfg(not(feature = "mariadb"))]
            Some(("mariadb", _)) => Err("this program was built without its feature 'mariadb'".into()),
            Some((kind, rest)) if let Some(place) = SqlLocation::of(kind, rest) => {
                place.prepare()?;
                let store = (kind == "sql").then(|| cluster::connect(rest));
                Ok(ThreadConnections::Sql(place, store.transpose()?))
            }
            _ => Err(format!("'{target}' is no KIND:PLACE that is known").into()),
        }
    }

    pub(crate) fn client(&self) -> Result<LoadClient<'_>> {
        match self {
            ThreadConnections::Yesquel(database, map) => Ok(LoadClient::Yesquel(database, *map)),
            ThreadConnections::Sql(place, _) => Ok(LoadClient::Sql(Box::new(Sql::connect(place)?))),
            #[cfg(feature = "mariadb")]
            ThreadConnections::Maria(address) => Ok(LoadClient::Sql(Box::new(Maria::connect(address)?))),
            ThreadConnections::Redis(address) => {
                Ok(LoadClient::Redis(Box::new(RespClient::connect(address)?)))
            }
        }
    }
}
