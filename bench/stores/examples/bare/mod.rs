//! What bare loops over a driver share: arguments, keys, and the counting of
//! processor time. `cargo xtask bench bindings` holds Serval against them.

use rustix::time::{ClockId, clock_gettime};
use std::{
    cell::{Cell, OnceCell},
    error::Error,
    future::Future,
    rc::Rc,
    time::Instant,
};
use tokio::{sync::Barrier, task::LocalSet};

/// Processor time of this process, in seconds.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// What all clients share.
struct Common {
    left: Cell<u64>,
    records: u64,
    connected: Barrier,
    /// When the clients set off, and the processor time used until then.
    start: OnceCell<(Instant, f64)>,
}

/// What one client is to do.
pub(crate) struct Work {
    common: Rc<Common>,
    random: u64,
}

impl Work {
    /// To be awaited when the client is connected: nobody sets off before all
    /// are, and what connections cost is not counted.
    pub(crate) async fn connected(&self) {
        self.common.connected.wait().await;
        self.common.start.get_or_init(|| (Instant::now(), processor_s()));
    }

    /// The key of the next record to read, uniformly chosen; `None` when all
    /// is done.
    pub(crate) fn next(&mut self) -> Option<String> {
        let left = self.common.left.get().checked_sub(1)?;
        self.common.left.set(left);
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(format!("user{}", (self.random >> 33) % self.common.records))
    }
}

/// Runs as many clients as the command line says, which get the server's
/// address and their work, and prints what an operation cost.
pub(crate) fn run<F>(client: impl Fn(String, Work) -> F) -> Result<(), Box<dyn Error>>
where
    F: Future<Output = Result<(), Box<dyn Error>>> + 'static,
{
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, clients, operations, records] = &arguments[..] else {
        return Err("arguments: ADDRESS CLIENTS OPERATIONS RECORDS".into());
    };
    let (clients, operations, records): (u64, u64, u64) =
        (clients.parse()?, operations.parse()?, records.parse()?);
    let common = Rc::new(Common {
        left: Cell::new(operations),
        records,
        connected: Barrier::new(clients as usize),
        start: OnceCell::new(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let work = |number| Work { common: Rc::clone(&common), random: number };
        let tasks: Vec<_> = (0..clients)
            .map(|number| tokio::task::spawn_local(client(address.clone(), work(number))))
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok::<(), Box<dyn Error>>(())
    })?;
    let (start, before) = common.start.get().copied().ok_or("no client has set off")?;
    let (elapsed, used) = (start.elapsed().as_secs_f64(), processor_s() - before);
    println!(
        "{:.0} operations/s, {:.2} us of processor time an operation",
        operations as f64 / elapsed,
        used / operations as f64 * 1e6
    );
    Ok(())
}
