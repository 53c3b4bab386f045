//! Experiments of phases: a sequence of loads, runs, pauses and programs that all clients perform together. Each
//! is measured separately, on one time axis (YCSB++, SoCC 2011, 3.3; `docs/phases.md`).

mod conduct;

pub use conduct::LookingOn;

use crate::{
    file::{PhaseSpec, PhaseWork, PhasesFile, PropertyLine, add_workload_file, fault_at, set_lines},
    sweep::curves::IN_PROCESS,
};
use serval_coordination::properties::{self as group, is_of_group};
use serval_group::{ClientPart, Leading, check, settings};
use serval_model::properties::{
    Fault, Faults, Origin, Properties,
    units::{counted, format_span},
};
use serval_plan::{Plan, embedded::EmbeddedStore, properties as p};
use serval_stores::StoreInfo;
use serval_workload::{core::Phase, random::derived_seed};
use std::time::Duration;

/// An experiment of phases that is checked and ready.
#[derive(Debug, Clone)]
pub struct Phases {
    /// The file, with the properties of workload files inlined.
    pub file: PhasesFile,
    /// Warnings to show before the start.
    pub warnings: Vec<Fault>,
    /// The store.
    pub store: &'static StoreInfo,
    embedded: Option<&'static EmbeddedStore>,
    clients: u64,
}

/// Inlines the properties of workload files. Properties of all phases, of the store and of the phase override
/// them.
pub fn inlined(mut file: PhasesFile) -> (PhasesFile, Faults) {
    let mut faults = Faults::default();
    let common: Vec<String> =
        file.properties.iter().chain(&file.store.properties).map(|(name, _, _)| name.clone()).collect();
    let overridden = |name: &str| common.iter().any(|set| set == name);
    for phase in &mut file.phases {
        let Some(path) = phase.workload.take() else { continue };
        faults.take(add_workload_file(&mut phase.properties, path, &phase.origin, &overridden));
    }
    (file, faults)
}

impl Phases {
    /// Checks a file against the stores and workloads of this build.
    ///
    /// # Errors
    ///
    /// All faults at once.
    pub fn new(file: PhasesFile) -> Result<Phases, Faults> {
        let (file, mut faults) = inlined(file);
        let mut note = |more: Faults| faults.add_new(more);
        let mut named = Properties::new();
        set_lines(&mut named, &file.properties);
        set_lines(&mut named, &file.store.properties);
        let store = match serval_stores::resolve(&file.store.binding, &mut named) {
            Ok(store) => store,
            Err(more) => {
                let origin = &file.store.origin;
                note(more.map(|fault| fault_at(origin, fault.problem)));
                return Err(faults);
            }
        };
        let embedded = EmbeddedStore::of(store, &named);
        // A plan can be shown before ZooKeeper's address is known.
        let clients = match Self::leading_of(&file, Some("?")) {
            Ok(leading) => leading.map_or(1, |leading| leading.settings.clients as u64),
            Err(more) => {
                note(more);
                1
            }
        };
        let mut phases = Phases { file, warnings: Vec::new(), store, embedded, clients };
        let mut warnings: Vec<Fault> = Vec::new();
        for (nth, phase) in phases.file.phases.iter().enumerate() {
            phases.check_clients(phase, &mut note);
            match phases.check(nth) {
                Ok(more) => more.into_iter().for_each(|warning| {
                    if !warnings.contains(&warning) {
                        warnings.push(warning);
                    }
                }),
                Err(more) => note(more),
            }
        }
        if let Some(fault) = phases.loses_records() {
            note(Faults(vec![fault]));
        }
        phases.warnings = warnings;
        faults.or(phases)
    }

    /// Notes a fault if a phase names a client that the group does not have.
    fn check_clients(&self, phase: &PhaseSpec, note: &mut dyn FnMut(Faults)) {
        let listed = phase.clients.iter().flatten().chain(phase.only.iter().flat_map(|only| &only.clients));
        if let Some(beyond) = listed.copied().find(|number| *number > self.clients) {
            let problem = format!(
                "phase '{}' names client {beyond}, but there are {} (clients in [group])",
                phase.name, self.clients
            );
            note(Faults(vec![fault_at(&phase.origin, problem)]));
        }
    }

    /// Returns the settings of the group's coordinator, if the file has a group.
    ///
    /// # Errors
    ///
    /// All faults of the group's properties.
    pub fn leading(&self) -> Result<Option<Leading>, Faults> {
        Self::leading_of(&self.file, None)
    }

    fn leading_of(file: &PhasesFile, zookeeper: Option<&str>) -> Result<Option<Leading>, Faults> {
        let mut properties = Properties::new();
        if let Some(entry) = &file.group {
            set_lines(&mut properties, &entry.properties());
        }
        let of_group = |line: &&PropertyLine| is_of_group(&line.0);
        for (name, value, origin) in file.properties.iter().filter(of_group) {
            properties.set(name.clone(), value.clone(), origin.clone());
        }
        if let Some(zookeeper) = zookeeper
            && properties.has(&group::CLIENTS)
            && !properties.has(&group::ZOOKEEPER)
        {
            properties.set(group::ZOOKEEPER.name, zookeeper, Origin::Program("to be said"));
        }
        // `phases=N` of a single command has no [group].
        let flag = if file.group.is_some() {
            settings::ProcessesFlag::Agents
        } else {
            settings::ProcessesFlag::Clients
        };
        settings::leading(&properties, flag)
    }

    /// Returns the number of client processes.
    pub fn clients(&self) -> u64 {
        self.clients
    }

    /// Returns the properties of a phase for a client, numbered from 0, or for all clients.
    fn properties(&self, nth: usize, client: Option<u64>) -> Properties {
        let phase = &self.file.phases[nth];
        let mut all = Properties::new();
        if let Some(group) = &self.file.group {
            set_lines(&mut all, &group.properties());
        }
        set_lines(&mut all, &self.file.properties);
        set_lines(&mut all, &self.file.store.properties);
        set_lines(&mut all, &phase.properties);
        for only in &phase.only {
            if client.is_some_and(|client| only.clients.contains(&(client + 1))) {
                set_lines(&mut all, &only.properties);
            }
        }
        // Sets the properties that a name of the store implies.
        let _ = serval_stores::resolve(&self.file.store.binding, &mut all);
        if !self.file.store.watch.is_empty() {
            let origin = self.file.store.origin.clone().unwrap_or(Origin::Program("the experiment"));
            all.set(p::WATCH.name, self.file.store.watch.join(","), origin);
        }
        all
    }

    fn kind(&self, nth: usize) -> Phase {
        if self.file.phases[nth].work == PhaseWork::Load { Phase::Load } else { Phase::Run }
    }

    /// Checks a phase by making its plan. Returns its warnings, or its faults.
    fn check(&self, nth: usize) -> Result<Vec<Fault>, Faults> {
        let phase = &self.file.phases[nth];
        match &phase.work {
            PhaseWork::Load | PhaseWork::Run => {}
            PhaseWork::Presplit { .. } => return self.points(nth).map(|_| Vec::new()),
            _ => return Ok(Vec::new()),
        }
        let name = |fault: Fault| match fault.origin {
            Some(_) => fault,
            None => fault_at(&phase.origin, format!("phase '{}': {}", phase.name, fault.problem)),
        };
        let named = |faults: Faults| faults.map(name);
        let plan = self.plan_of(nth, self.properties(nth, None)).map_err(named)?;
        if self.clients > 1 {
            let taking_part = self.parts(nth).iter().flatten().count();
            check(&plan, false, taking_part).map_err(named)?;
        }
        if plan.phase == Phase::Run && !plan.is_bounded() {
            let problem = format!("phase '{}' has no end: set time or operationcount", phase.name);
            return Err(Faults(vec![fault_at(&phase.origin, problem)]));
        }
        for only in &phase.only {
            if let Some(client) = only.clients.first() {
                self.plan_of(nth, self.properties(nth, Some(client.saturating_sub(1)))).map_err(named)?;
            }
        }
        Ok(plan.warnings)
    }

    fn plan_of(&self, nth: usize, properties: Properties) -> Result<Plan, Faults> {
        Plan::strict(properties, self.kind(nth), self.store)
    }

    /// Returns the part of each client in a phase; `None` for a client that does not take part. The properties of
    /// a part override those of all clients.
    fn parts(&self, nth: usize) -> Vec<Option<ClientPart>> {
        let phase = &self.file.phases[nth];
        let takes_part = |client: u64| phase.clients.as_ref().is_none_or(|list| list.contains(&(client + 1)));
        let count = (0..self.clients).filter(|client| takes_part(*client)).count() as u64;
        let mut place = 0;
        (0..self.clients)
            .map(|client| {
                if !takes_part(client) {
                    return None;
                }
                place += 1;
                let of = |only: &&crate::file::Only| only.clients.contains(&(client + 1));
                let lines = phase.only.iter().filter(of).flat_map(|only| &only.properties);
                let properties = lines.map(|(name, value, _)| (name.clone(), value.clone())).collect();
                Some(ClientPart { place: place - 1, of: count, consumes: false, properties })
            })
            .collect()
    }

    /// Returns the split points of a presplit.
    fn points(&self, nth: usize) -> Result<Vec<String>, Faults> {
        let phase = &self.file.phases[nth];
        let PhaseWork::Presplit { partitions, points, .. } = &phase.work else { return Ok(Vec::new()) };
        let Some(partitions) = partitions else { return Ok(points.clone()) };
        let properties = self.properties(nth, None);
        let core = Plan::strict(properties, Phase::Load, self.store)?.core;
        core.and_then(|core| core.split_points(*partitions)).ok_or_else(|| {
            let problem = format!(
                "phase '{}': keys are not in the order of their numbers, so that their range cannot be divided evenly: set \
                 insertorder=uniform with insertrange, or insertorder=ordered with zeropadding, or give points",
                phase.name
            );
            Faults(vec![fault_at(&phase.origin, problem)])
        })
    }

    /// Returns the seed of a phase.
    fn seed(&self, nth: usize, seed: u64) -> u64 {
        // Loads of one experiment have the same seed, so that they write the same values.
        if self.kind(nth) == Phase::Load { seed } else { derived_seed(seed ^ (nth as u64) << 32) }
    }

    /// Describes each phase: its name with its kind, and its work.
    pub fn describe(&self) -> Vec<(String, String)> {
        let words = |nth: usize, phase: &PhaseSpec| {
            let mut words = match &phase.work {
                PhaseWork::Load | PhaseWork::Run => match self.plan_of(nth, self.properties(nth, None)) {
                    Ok(plan) => plan.describe(phase.clients.as_ref().map_or(self.clients as usize, Vec::len)),
                    Err(faults) => faults.to_string(),
                },
                PhaseWork::Pause(time) => format!("pause of {}", format_span(*time)),
                PhaseWork::Presplit { command, .. } => {
                    let keys = counted(self.points(nth).map_or(0, |points| points.len() as u64), "key");
                    match command {
                        Some(command) => format!("division at {keys} by: {command}"),
                        None => format!("division at {keys}; {}", self.no_presplit()),
                    }
                }
                PhaseWork::Command { command, at, timeout } => {
                    let at = crate::file::name_of(&crate::file::At::NAMES, at);
                    format!("command, at {at}, for {} at most: {command}", format_span(*timeout))
                }
                PhaseWork::Wait { command, every, timeout } => {
                    format!(
                        "wait for {} at most, asking every {}: {command}",
                        format_span(*timeout),
                        format_span(*every)
                    )
                }
                PhaseWork::Later(kind) => later(kind),
            };
            if let Some(clients) = &phase.clients {
                let clients: Vec<String> = clients.iter().map(u64::to_string).collect();
                words += &format!("; clients {}", clients.join(", "));
            }
            words
        };
        self.file
            .phases
            .iter()
            .enumerate()
            .map(|(nth, phase)| (format!("{} ({})", phase.name, phase.work.kind()), words(nth, phase)))
            .collect()
    }

    fn no_presplit(&self) -> String {
        format!(
            "Serval cannot divide a table of {} itself yet: give a command that does, which gets the keys on its standard \
             input, a line each",
            self.store.name
        )
    }

    /// Refuses phases that this version or the store does not support.
    ///
    /// # Errors
    ///
    /// One fault per phase.
    pub fn refuse(&self) -> Result<(), Faults> {
        let problem = |phase: &PhaseSpec| match &phase.work {
            PhaseWork::Later(kind) => Some(later(kind)),
            PhaseWork::Presplit { command: None, .. } => Some(self.no_presplit()),
            PhaseWork::Command { at: crate::file::At::Clients, .. } if self.clients < 2 => {
                Some("at = \"clients\" needs a group, and this process runs alone".to_owned())
            }
            _ => None,
        };
        let fault = |phase: &PhaseSpec| {
            Some(fault_at(&phase.origin, format!("phase '{}': {}", phase.name, problem(phase)?)))
        };
        let mut faults = Faults(self.file.phases.iter().filter_map(fault).collect());
        faults.take(self.leading());
        faults.or(())
    }

    /// Returns the sum of the times that are known beforehand.
    pub fn least(&self) -> Duration {
        let time = |(nth, phase): (usize, &PhaseSpec)| match &phase.work {
            PhaseWork::Pause(time) => *time,
            PhaseWork::Run => {
                let plan = self.plan_of(nth, self.properties(nth, None)).ok();
                plan.and_then(|plan| Some(plan.options.time? + plan.options.warm_up)).unwrap_or_default()
            }
            _ => Duration::ZERO,
        };
        self.file.phases.iter().enumerate().map(time).sum()
    }

    /// Returns the properties that the store is opened with. Phases with the same identity share one open store.
    fn identity(&self, properties: &Properties) -> Vec<(String, String)> {
        let own = |name: &str| {
            let mut known = self.store.properties.properties.iter();
            let of_wrapper = ["writebuffer.", "visibility."].iter().any(|start| name.starts_with(start));
            self.store.passes_on()
                || of_wrapper
                || known.any(|property| property.name == name || property.aliases.contains(&name))
        };
        let own = properties.iter().filter(|(name, _)| own(name));
        own.map(|(name, setting)| (name.to_owned(), setting.value.clone())).collect()
    }

    /// Returns a fault if a phase opens an in-process store with other properties: its records would be lost.
    fn loses_records(&self) -> Option<Fault> {
        let measured = (0..self.file.phases.len()).filter(|nth| self.file.phases[*nth].work.measures());
        let mut opened = measured.map(|nth| (nth, self.identity(&self.properties(nth, None))));
        let (_, first) = opened.next().filter(|_| self.in_process())?;
        let (nth, _) = opened.find(|(_, identity)| *identity != first)?;
        let phase = &self.file.phases[nth];
        let problem = format!(
            "phase '{}' opens the store {} with other properties than the phase before, and a new {1} is empty: use a \
             store that keeps records",
            phase.name, self.store.name
        );
        Some(fault_at(&phase.origin, problem))
    }

    /// Returns whether the store's records end with the process.
    fn in_process(&self) -> bool {
        IN_PROCESS.contains(&self.store.name)
    }
}

fn later(kind: &str) -> String {
    format!("{kind} is not built yet: bulk loading comes in a later version of Serval")
}
