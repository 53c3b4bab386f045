//! `serval bench`: load, warm up, run, and a result folder, from one workload
//! file.

use crate::sweep::curves::IN_PROCESS;
use serval_group::{self as group, Team, conducted};
use serval_model::properties::{Faults, Origin, Properties};
use serval_plan::{
    Plan, PlanError, default_to,
    embedded::EmbeddedStore,
    folder::{FolderError, ResultFolder},
    perform::{Performed, RunFiles, perform},
    properties as p,
    properties_file::{effective_properties, escape},
    session::{Session, open},
    timestamp,
};
use serval_runner::{Control, Observer};
use serval_stores::StoreInfo;
use serval_workload::core::{Phase, properties::EXPECTED_OPERATIONS};
use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Default measured time of `bench`.
pub const TIME: &str = "10s";
/// Default warm-up of `bench`.
pub const WARM_UP: &str = "3s";

/// What to benchmark.
#[derive(Debug, Clone)]
pub struct BenchRequest {
    /// Properties of files and command line.
    pub properties: Properties,
    /// The store.
    pub store: &'static StoreInfo,
    /// The result folder, or nothing for one under `results`.
    pub out: Option<PathBuf>,
    /// Whether the embedded store's records stay in the result folder.
    pub keep_store: bool,
    /// Whether to skip the load: the records are there.
    pub skip_load: bool,
    /// Whether every single time is written.
    pub raw: bool,
    /// The command line, for the result.
    pub command_line: Vec<String>,
    /// The workload's name for people: its file's.
    pub name: String,
}

/// A benchmark that is checked and ready.
pub struct Bench {
    /// The load, unless it is skipped.
    pub load: Option<Plan>,
    /// The run.
    pub run: Plan,
    /// Where the result goes.
    pub folder: ResultFolder,
    session: Box<dyn Session>,
    /// The embedded store in the result folder, if there is one.
    kept: Option<&'static EmbeddedStore>,
    request: BenchRequest,
}

/// The default folder of a result.
pub fn default_folder(name: &str, store: &str) -> PathBuf {
    let clean: String =
        name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    let moment = timestamp(SystemTime::now()).replace(':', "-").replace(".", "-");
    Path::new("results").join(format!("{}-{clean}-{store}", moment.trim_end_matches('Z')))
}

impl Bench {
    /// Checks everything. All faults of load and run come at once, before
    /// anything is made.
    pub fn new(mut request: BenchRequest) -> Result<Bench, PlanError> {
        let properties = &mut request.properties;
        // A workload file's operationcount is a toy (1,000 in YCSB's); time
        // bounds the run unless the command line says how many.
        let counted = properties
            .setting(&p::OPERATION_COUNT)
            .is_some_and(|(_, setting)| matches!(setting.origin, Origin::CommandLine(_)));
        if !counted {
            default_to(properties, &p::MAX_EXECUTION_TIME, TIME, "serval bench: default");
            properties.remove(p::OPERATION_COUNT.name);
        }
        default_to(properties, &p::WARM_UP, WARM_UP, "serval bench: default");
        let kept = EmbeddedStore::of(request.store, properties);
        let mut faults = Faults::default();
        if let Some(EmbeddedStore { property, .. }) = kept
            && request.skip_load
        {
            let problem = format!("--skip-load needs {property}: where is the database that is loaded?");
            faults.push(problem);
        }
        if let Some(more) = group::unshared(request.store, properties)
            && group::settings::leading(properties, group::settings::ProcessesFlag::Clients)
                .is_ok_and(|leading| leading.is_some())
        {
            faults.0.extend(more.0);
        }
        let mut planned = |phase| {
            let plan = Plan::strict(request.properties.clone(), phase, request.store);
            plan.map_err(|more| faults.add_new(more)).ok()
        };
        let load = if request.skip_load { None } else { planned(Phase::Load) };
        let run = planned(Phase::Run);
        let (Some(mut run), true) = (run, faults.0.is_empty()) else { return Err(faults.into()) };
        let folder = match &request.out {
            Some(out) => ResultFolder::begin(out)?,
            None => ResultFolder::begin_near(&default_folder(&request.name, request.store.name))?,
        };
        if let Some(kept) = kept {
            kept.place(&mut request.properties, folder.partial_path(), "serval bench: in the result folder");
        }
        let session = open(request.store.name, &request.properties)?;
        // The same seed for both phases, so that the result's seed repeats both.
        let mut load = load;
        if let Some(load) = &mut load {
            load.options.seed = run.options.seed;
            // Time and target are the run's: a load takes what it takes.
            load.options.time = None;
            load.options.rate = None;
        }
        run.label = if run.label.is_empty() { request.name.clone() } else { run.label };
        Ok(Bench { load, run, folder, session, kept, request })
    }

    /// Loads the records, by a team if there is one. Their rate tells how many operations to expect of a
    /// run that is bounded by time.
    pub fn load(
        &mut self,
        team: Option<&Team>,
        told: fn(&str),
        control: &Control,
        show: &mut dyn Observer,
    ) -> Result<Option<Performed>, PlanError> {
        let Some(plan) = &self.load else { return Ok(None) };
        let files = RunFiles { folder: &self.folder, prefix: "load-", raw: false };
        let loaded = self.perform(plan, files, team, told, control, show)?;
        self.expect(loaded.document.overall.throughput)?;
        Ok(Some(loaded))
    }

    /// Whether the store keeps what was loaded once this is gone: a server does, files elsewhere do.
    pub fn leaves_records(&self) -> bool {
        self.kept.is_none() && !IN_PROCESS.contains(&self.request.store.name)
    }

    /// Lays the key range of a run that inserts out for the rate of the load,
    /// unless the properties say what to expect.
    fn expect(&mut self, rate: f64) -> Result<(), Faults> {
        let options = &self.run.options;
        let Some(time) = options.time else { return Ok(()) };
        let given = self.request.properties.has(&EXPECTED_OPERATIONS);
        if options.units.is_some() || options.rate.is_some() || given {
            return Ok(());
        }
        let operations = rate * (time + options.warm_up_max()).as_secs_f64();
        let mut properties = self.run.properties.clone();
        let why = Origin::Program("serval bench: the rate of the load");
        properties.set(EXPECTED_OPERATIONS.name, (operations as u64).to_string(), why);
        let mut run = Plan::strict(properties, Phase::Run, self.request.store)?;
        run.options.seed = self.run.options.seed;
        run.label = std::mem::take(&mut self.run.label);
        self.run = run;
        Ok(())
    }

    /// Warms up and runs, by a team if there is one.
    pub fn run(
        &self,
        team: Option<&Team>,
        told: fn(&str),
        control: &Control,
        show: &mut dyn Observer,
    ) -> Result<Performed, PlanError> {
        let files = RunFiles { folder: &self.folder, prefix: "", raw: self.request.raw };
        self.perform(&self.run, files, team, told, control, show)
    }

    fn perform(
        &self,
        plan: &Plan,
        files: RunFiles<'_>,
        team: Option<&Team>,
        told: fn(&str),
        control: &Control,
        show: &mut dyn Observer,
    ) -> Result<Performed, PlanError> {
        let instead = conducted(&*self.session, plan, team, told)?;
        let session = instead.as_deref().unwrap_or(&*self.session);
        perform(plan, session, control, show, Some(files), self.request.command_line.clone())
    }

    /// Writes the files of a result, and the load's document, and gives the
    /// folder its name.
    pub fn finish(
        self,
        load: Option<Vec<u8>>,
        files: Vec<(String, Vec<u8>)>,
    ) -> Result<PathBuf, FolderError> {
        if let Some(load) = load {
            self.folder.write("load-result.json", &load)?;
        }
        for (name, contents) in files {
            self.folder.write(&name, &contents)?;
        }
        let mut properties = effective_properties(&self.run);
        let is_kept = self.request.keep_store;
        if let Some(kept) = self.kept.filter(|_| is_kept) {
            let folder =
                std::path::absolute(self.folder.path()).unwrap_or_else(|_| self.folder.path().into());
            properties.push_str(&format!(
                "# kept by --keep-store\n{}\n",
                escape(kept.property, &kept.value(&folder))
            ));
        }
        self.folder.write("run.properties", properties.as_bytes())?;
        // The store closes its files before they go.
        drop(self.session);
        if let Some(kept) = self.kept.filter(|_| !is_kept) {
            // What cannot be removed is in the way of nothing.
            let _ = kept.remove(self.folder.partial_path());
        }
        self.folder.finish()
    }
}
