//! Transactions that retry on conflicts.

use crate::{Database, Error, Map, Transaction, write_turn::retry_write};
use yesquel_model::Timestamp;

/// Maximum number of retries of [`Database::run`].
const RUNS_MAX: usize = 100;

impl Database {
    /// Runs a closure in a transaction and commits it. Retries up to 100 times when another
    /// transaction was first, and waits up to five seconds for [leases](crate::Lease) where it writes.
    /// An error rolls the transaction back.
    pub fn run<T>(&self, mut act: impl FnMut(&mut Transaction<'_>) -> Result<T, Error>) -> Result<T, Error> {
        self.try_run(|transaction| {
            act(transaction).inspect_err(|error| {
                // The closure may have used another transaction too.
                transaction.lost_to = transaction.lost_to.or(error.lost_to());
            })
        })
    }

    /// The same for what fails with errors of its own, which roll it back.
    ///
    /// It begins again after the commit or an operation has said that another
    /// transaction was first, whatever the closure has made of that.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// #[derive(Debug, PartialEq)]
    /// enum Failure {
    ///     NotEnough { there: u8 },
    ///     Yesquel(String),
    /// }
    ///
    /// impl From<yesquel::Error> for Failure {
    ///     fn from(error: yesquel::Error) -> Failure {
    ///         Failure::Yesquel(error.to_string())
    ///     }
    /// }
    ///
    /// let database = yesquel::Store::in_memory()?.create_database("shop")?;
    /// let (stock, orders) = (database.map("stock")?, database.map("orders")?);
    /// database.put(stock, b"apples", &[3])?;
    /// let order = |count: u8| {
    ///     database.try_run(|transaction| {
    ///         transaction.put(orders, b"apples", &[count])?;
    ///         let there = transaction.get(stock, b"apples")?.map_or(0, |value| value[0]);
    ///         // What was written above is taken back.
    ///         let rest = there.checked_sub(count).ok_or(Failure::NotEnough { there })?;
    ///         transaction.put(stock, b"apples", &[rest])?;
    ///         Ok(rest)
    ///     })
    /// };
    /// assert_eq!(order(7), Err(Failure::NotEnough { there: 3 }));
    /// assert_eq!(database.get(orders, b"apples")?, None);
    /// assert_eq!(order(2), Ok(1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_run<T, E: From<Error>>(
        &self,
        mut act: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut attempts = 0;
        loop {
            // The outer result decides about a retry.
            let outcome = retry_write(self, |transaction| match act(transaction) {
                Ok(result) => transaction.try_commit().map(|_| Ok(result)),
                Err(own) => {
                    transaction.settle(false);
                    transaction.lost_to.map_or(Ok(Err(own)), |refusal| Err(refusal.into()))
                }
            });
            match outcome {
                Ok(done) => return done,
                Err(error) if error.is_retryable() && attempts < RUNS_MAX => attempts += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes a value under a key, in a transaction of its own. Returns the commit timestamp. Waits
    /// up to five seconds for [leases](crate::Lease).
    pub fn put(&self, map: Map, key: &[u8], value: &[u8]) -> Result<Timestamp, Error> {
        retry_write(self, |transaction| {
            transaction.put(map, key, value)?;
            transaction.try_commit()
        })
    }
}
