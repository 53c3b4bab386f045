//! Common parts of bare loops over a driver: arguments, keys and CPU time.
//! `cargo xtask bench bindings` compares Serval with them.

mod cost;

use cost::{BarePlan, MeasuredCost, plan};
use std::{
    cell::{Cell, OnceCell},
    error::Error,
    future::Future,
    rc::Rc,
};
use tokio::{sync::Barrier, task::LocalSet};

/// State that all clients share.
struct Common {
    left: Cell<u64>,
    records: u64,
    connected: Barrier,
    /// Starts when all clients have connected.
    cost: OnceCell<MeasuredCost>,
}

/// The work of one client.
pub(crate) struct ClientWork {
    common: Rc<Common>,
    random: u64,
}

impl ClientWork {
    /// Call after connecting. Waits until all clients are connected, so that the
    /// cost does not include connecting.
    pub(crate) async fn connected(&self) {
        self.common.connected.wait().await;
        self.common.cost.get_or_init(MeasuredCost::start);
    }

    /// Returns the key of the next record to read, chosen uniformly; `None` when all
    /// reads are done.
    pub(crate) fn next(&mut self) -> Option<String> {
        let left = self.common.left.get().checked_sub(1)?;
        self.common.left.set(left);
        Some(cost::next_key(&mut self.random, self.common.records))
    }
}

/// Runs the number of clients in the command line. Passes each the server's
/// address and its work, and prints the cost of an operation.
pub(crate) fn run<F>(client: impl Fn(String, ClientWork) -> F) -> Result<(), Box<dyn Error>>
where
    F: Future<Output = Result<(), Box<dyn Error>>> + 'static,
{
    let BarePlan { address, clients, operations, records } = plan()?;
    let common = Rc::new(Common {
        left: Cell::new(operations),
        records,
        connected: Barrier::new(clients as usize),
        cost: OnceCell::new(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let work = |number| ClientWork { common: Rc::clone(&common), random: number };
        let tasks: Vec<_> = (0..clients)
            .map(|number| tokio::task::spawn_local(client(address.clone(), work(number))))
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok::<(), Box<dyn Error>>(())
    })?;
    common.cost.get().ok_or("no client has set off")?.print(operations);
    Ok(())
}
