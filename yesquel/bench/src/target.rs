//! The databases that a load can ask.

#[cfg(feature = "mariadb")]
use crate::mariadb::Maria;
use crate::{
    Result,
    redis::Redis,
    sql::{Place, Sql, Table},
};
use yesquel::{Database, Map, SocketOptions, Store};

/// A connection to Yesquel, with what is known of its trees, that threads
/// share; or nothing, for Redis has one a thread.
pub(crate) enum Shared {
    Yesquel(Database, Map),
    /// SQL has a connection a thread, which share a socket by themselves; the
    /// store is for the server's status, where there is one.
    Sql(Place, Option<Store>),
    #[cfg(feature = "mariadb")]
    Maria(String),
    Redis(String),
}

pub(crate) enum Client<'a> {
    Yesquel(&'a Database, Map),
    Sql(Box<dyn Table>),
    Redis(Box<Redis>),
}

pub(crate) fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

impl Shared {
    pub(crate) fn connect(target: &str) -> Result<Shared> {
        match target.split_once(':') {
            Some(("yesquel", address)) => {
                let store = Store::connect(&address.parse()?, SocketOptions::default())?;
                let database = store.database_or_create("bench")?;
                let map = database.map("bench")?;
                Ok(Shared::Yesquel(database, map))
            }
            Some(("redis", address)) => Ok(Shared::Redis(address.to_owned())),
            #[cfg(feature = "mariadb")]
            Some(("mariadb", address)) => {
                Maria::prepare(address)?;
                Ok(Shared::Maria(address.to_owned()))
            }
            #[cfg(not(feature = "mariadb"))]
            Some(("mariadb", _)) => Err("this program was built without its feature 'mariadb'".into()),
            Some((kind, rest)) if let Some(place) = Place::of(kind, rest) => {
                place.prepare()?;
                let store = (kind == "sql").then(|| -> Result<Store> {
                    Ok(Store::connect(&rest.parse()?, SocketOptions::default())?)
                });
                Ok(Shared::Sql(place, store.transpose()?))
            }
            _ => Err(format!("'{target}' is no KIND:PLACE that is known").into()),
        }
    }

    pub(crate) fn client(&self) -> Result<Client<'_>> {
        match self {
            Shared::Yesquel(database, map) => Ok(Client::Yesquel(database, *map)),
            Shared::Sql(place, _) => Ok(Client::Sql(Box::new(Sql::connect(place)?))),
            #[cfg(feature = "mariadb")]
            Shared::Maria(address) => Ok(Client::Sql(Box::new(Maria::connect(address)?))),
            Shared::Redis(address) => Ok(Client::Redis(Box::new(Redis::connect(address)?))),
        }
    }
}
