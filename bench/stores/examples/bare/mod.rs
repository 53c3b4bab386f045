//! What bare loops over a driver share: arguments, keys, and the counting of
//! processor time. `cargo xtask bench bindings` holds Serval against them.

mod cost;

use cost::{BarePlan, MeasuredCost, plan};
use std::{
    cell::{Cell, OnceCell},
    error::Error,
    future::Future,
    rc::Rc,
};
use tokio::{sync::Barrier, task::LocalSet};

/// What all clients share.
struct Common {
    left: Cell<u64>,
    records: u64,
    connected: Barrier,
    /// Counted from when the clients set off.
    cost: OnceCell<MeasuredCost>,
}

/// What one client is to do.
pub(crate) struct ClientWork {
    common: Rc<Common>,
    random: u64,
}

impl ClientWork {
    /// To be awaited when the client is connected: nobody sets off before all
    /// are, and what connections cost is not counted.
    pub(crate) async fn connected(&self) {
        self.common.connected.wait().await;
        self.common.cost.get_or_init(MeasuredCost::start);
    }

    /// The key of the next record to read, uniformly chosen; `None` when all
    /// is done.
    pub(crate) fn next(&mut self) -> Option<String> {
        let left = self.common.left.get().checked_sub(1)?;
        self.common.left.set(left);
        Some(cost::next_key(&mut self.random, self.common.records))
    }
}

/// Runs as many clients as the command line says, which get the server's
/// address and their work, and prints what an operation cost.
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
