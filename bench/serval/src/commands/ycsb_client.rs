//! What `serval load` and `serval run` print because YCSB's client prints it, before the results.

use super::command_line;
use crate::{args::YcsbArgs, failure::Failure, stdout};
use serval_model::properties::{Origin, Properties, Reader};
use serval_plan::{Plan, perform::Performed, properties as p};
use serval_report::ycsb::{Exporter, client_lines};
use serval_runner::EndedBy;
use serval_stores::{StoreInfo, java};
use serval_workload::core::{
    Phase,
    properties::{DATA_INTEGRITY, INSERT_RETRY_LIMIT},
};

/// YCSB's client, as its script would have called it.
pub(super) struct YcsbClient {
    arguments: Vec<String>,
    /// The plan's properties, and those that YCSB's script sets.
    pub(super) properties: Properties,
    /// Whether standard output is YCSB's text: not with `exporter=json`.
    is_text: bool,
    verifies: bool,
}

/// The class of a store in YCSB; its name if YCSB does not have it.
fn class(info: &StoreInfo, properties: &Properties) -> String {
    let class = info.aliases.iter().find(|alias| alias.starts_with("site.ycsb."));
    match class {
        _ if info.name == java::INFO.name => Reader::new(properties).text(&java::CLASS),
        Some(class) => (*class).to_owned(),
        None => info.name.to_owned(),
    }
}

/// Arguments of YCSB's client: without those that its script takes for itself.
fn arguments(store: &str, class: &str, phase: Phase) -> Vec<String> {
    let mut arguments = vec!["-db".to_owned(), class.to_owned()];
    let mut given = command_line().into_iter().skip(2);
    let mut named_store = false;
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "-cp" | "--cp" | "-jvm-args" | "--jvm-args" => drop(given.next()),
            _ if argument == store && !named_store => named_store = true,
            _ => arguments.push(argument),
        }
    }
    arguments.push(if phase == Phase::Load { "-load" } else { "-t" }.to_owned());
    arguments
}

impl YcsbClient {
    pub(super) fn new(args: &YcsbArgs, plan: &Plan) -> YcsbClient {
        let class = class(plan.store, &plan.properties);
        let mut properties = plan.properties.clone();
        let origin = || Origin::Program("what YCSB's script sets");
        if !properties.has(&p::DB) {
            properties.set(p::DB.name, class.clone(), origin());
        }
        properties.set(p::DO_TRANSACTIONS.name, (plan.phase == Phase::Run).to_string(), origin());
        YcsbClient {
            arguments: arguments(&args.store, &class, plan.phase),
            is_text: Exporter::from_name(&plan.output.exporter).is_some(),
            verifies: plan.core.is_some() && Reader::new(&properties).flag(&DATA_INTEGRITY),
            properties,
        }
    }

    /// Before the store is opened.
    pub(super) fn loading(&self) -> Result<(), Failure> {
        tell_lines(&client_lines::loading(self.arguments.iter().map(String::as_str)));
        if self.verifies && self.is_text { stdout(client_lines::DATA_INTEGRITY.as_bytes()) } else { Ok(()) }
    }

    /// Takes as many clients as there are operations, if there are fewer.
    pub(super) fn limit_threads(&self, plan: &mut Plan, processes: usize) -> Result<(), Failure> {
        let units = plan.workload.units().or(plan.options.units).filter(|units| *units > 0);
        let clients = plan.options.clients as u64 * processes as u64;
        match units {
            Some(units) if units < clients && processes > 1 => {
                tell!(
                    "warning: there are more clients (threadcount) than operations; some would have nothing to do"
                );
            }
            Some(units) if units < clients => {
                plan.options.clients = units as usize;
                if self.is_text {
                    stdout(client_lines::FEWER_THREADS.as_bytes())?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Tells what a run has ended by, as YCSB's threads do. Of inserts that failed it tells one a client:
/// a client stops at the first, unless an option lets it go on.
pub(super) fn tell_ends(plan: &Plan, performed: &Performed) {
    if plan.options.time.is_some() {
        tell_lines(client_lines::time_over(performed.record.ended_by == EndedBy::Time));
    }
    if plan.phase == Phase::Load && plan.core.is_some() {
        let retries = Reader::new(&plan.properties).count(&INSERT_RETRY_LIMIT);
        let stopped = performed.record.totals.units_failed.min(plan.options.clients as u64);
        (0..stopped).for_each(|_| tell_lines(&client_lines::gave_up(retries)));
    }
}

/// Writes lines to standard error.
pub(super) fn tell_lines(text: &str) {
    for line in text.lines() {
        tell!("{line}");
    }
}
