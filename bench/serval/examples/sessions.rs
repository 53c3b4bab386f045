//! A custom workload: web sessions. Each client begins a session (an insert) and
//! reads it nine times. Run it with `cargo run --release --example sessions`.

use serval_model::{Operation, OperationKind, Purpose, Schema, Store};
use serval_runner::{Control, RunOptions, run};
use serval_workload::{ClientWorkload, Demand, Last, Place, Random, Rng, Step, Workload};
use std::{sync::Arc, time::Duration};

struct Sessions;

impl Workload for Sessions {
    fn schema(&self) -> Schema {
        Schema { table: "sessions".into(), fields: vec!["user".into()] }
    }
    fn demands(&self) -> Vec<Demand> {
        let demand = |kind| Demand { kind, because: "sessions".into() };
        vec![demand(OperationKind::Insert), demand(OperationKind::Read)]
    }
    fn client(&self, _: Place, rng: Rng) -> Box<dyn ClientWorkload> {
        Box::new(SiteVisitor { rng, session: 0, looks: 0 })
    }
}

struct SiteVisitor {
    rng: Rng,
    session: u64,
    looks: u32,
}

impl ClientWorkload for SiteVisitor {
    fn step(&mut self, _: Last<'_>, operation: &mut Operation) -> Step {
        if self.looks == 0 {
            self.session = self.rng.next_u64();
            operation.begin(OperationKind::Insert);
            operation.record.push("user", b"anonymous");
        } else {
            operation.begin(OperationKind::Read);
        }
        self.looks = (self.looks + 1) % 10;
        operation.key = format!("session{}", self.session);
        Step::Issue { more: false }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = serval_stores::memory::Memory::open(&Default::default())?;
    store.prepare(&Sessions.schema(), Purpose::Load)?;
    let options = RunOptions { clients: 2, time: Some(Duration::from_secs(1)), ..Default::default() };
    let record = run(&Arc::new(store), &(Arc::new(Sessions) as _), &options, &Control::default(), &mut ())?;
    for ((metric, status), pair) in &record.totals.measured {
        let (count, median) = (pair.service.count(), pair.service.percentile(50.0));
        println!("{} {}: {count} times, median {median} ns", metric.name(&[]), status.name());
    }
    Ok(())
}
