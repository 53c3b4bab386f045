//! Accounts and transfers between them: what an application does with ordered
//! maps and transactions.
//!
//! ```text
//! cargo run --example accounts                 # in memory
//! cargo run --example accounts -- FOLDER       # kept in a folder
//! cargo run --example accounts -- HOST:PORT    # at a server: yesquel serve --data DIR
//! ```

use std::path::Path;
use yesquel::{Database, Error, Map, SocketOptions, Store, Transaction};

fn open(location: Option<&str>) -> Result<Store, Error> {
    match location {
        None => Store::in_memory(),
        Some(location) if location.contains(':') => {
            let wrong = |error: yesquel::AddressError| Error::Location {
                location: location.into(),
                what: error.to_string(),
            };
            Store::connect(&location.parse().map_err(wrong)?, SocketOptions::default())
        }
        Some(folder) => Store::open(Path::new(folder)),
    }
}

fn balance(transaction: &mut Transaction<'_>, accounts: Map, name: &str) -> Result<i64, Error> {
    let value = transaction.get(accounts, name.as_bytes())?;
    Ok(value.and_then(|value| Some(i64::from_be_bytes((*value).try_into().ok()?))).unwrap_or(0))
}

/// Moves an amount, if it is there; whether it was. Another transfer of the
/// same accounts at the same time makes this one begin again.
fn transfer(database: &Database, from: &str, to: &str, amount: i64) -> Result<bool, Error> {
    let (accounts, journal) = (database.map("accounts")?, database.map("journal")?);
    database.run(|transaction| {
        let (left, right) = (balance(transaction, accounts, from)?, balance(transaction, accounts, to)?);
        if left < amount {
            return Ok(false);
        }
        transaction.put(accounts, from.as_bytes(), &(left - amount).to_be_bytes())?;
        transaction.put(accounts, to.as_bytes(), &(right + amount).to_be_bytes())?;
        // Under the key that follows the last one: the journal is in order.
        let last = transaction.cursor(journal).last(transaction)?;
        let next =
            last.and_then(|(key, _)| Some(u64::from_be_bytes((*key).try_into().ok()?))).unwrap_or(0) + 1;
        transaction.insert(journal, &next.to_be_bytes(), format!("{from} to {to}: {amount}").as_bytes())?;
        Ok(true)
    })
}

fn main() -> Result<(), Error> {
    let location = std::env::args().nth(1);
    let database = open(location.as_deref())?.database_or_create("bank")?;
    let accounts = database.map("accounts")?;
    database.run(|transaction| transaction.put(accounts, b"anna", &100i64.to_be_bytes()))?;
    for (from, to, amount) in [("anna", "ben", 30), ("ben", "carla", 20), ("carla", "anna", 500)] {
        let done = transfer(&database, from, to, amount)?;
        println!("{from} to {to}: {amount}{}", if done { "" } else { " refused: not enough" });
    }
    let mut transaction = database.begin();
    for name in ["anna", "ben", "carla"] {
        println!("{name} has {}", balance(&mut transaction, accounts, name)?);
    }
    let journal = database.map("journal")?;
    for entry in transaction.range::<&[u8]>(journal, ..) {
        println!("  {}", String::from_utf8_lossy(&entry?.1));
    }
    Ok(())
}
