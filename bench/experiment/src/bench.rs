//! `serval bench`: load, warm-up, run and result folder of one workload file.

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

/// Input of a benchmark.
#[derive(Debug, Clone)]
pub struct BenchRequest {
    /// Properties from files and the command line.
    pub properties: Properties,
    /// The store.
    pub store: &'static StoreInfo,
    /// The result folder; `None` for a folder under `results`.
    pub out: Option<PathBuf>,
    /// Whether an embedded store's files stay in the result folder.
    pub keep_store: bool,
    /// Whether to skip the load, because the records exist.
    pub skip_load: bool,
    /// Whether the time of every operation is written.
    pub raw: bool,
    /// The command line, for the result.
    pub command_line: Vec<String>,
    /// Name of the workload for display: its file's name.
    pub name: String,
}

/// A benchmark that is checked and ready.
pub struct Bench {
    /// The load, unless it is skipped.
    pub load: Option<Plan>,
    /// The run.
    pub run: Plan,
    /// The result folder.
    pub folder: ResultFolder,
    session: Box<dyn Session>,
    /// The embedded store whose files are in the result folder.
    embedded: Option<&'static EmbeddedStore>,
    request: BenchRequest,
}

/// Returns the default result folder: `results/TIME-NAME-STORE`.
pub fn default_folder(name: &str, store: &str) -> PathBuf {
    let clean: String =
        name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    let now = timestamp(SystemTime::now()).replace(':', "-").replace(".", "-");
    Path::new("results").join(format!("{}-{clean}-{store}", now.trim_end_matches('Z')))
}

impl Bench {
    /// Checks the load and the run, begins the result folder and opens the store. Reports all faults of load and
    /// run at once, before it creates anything.
    pub fn new(mut request: BenchRequest) -> Result<Bench, PlanError> {
        let properties = &mut request.properties;
        // The operationcount of a workload file is too small (1,000 in YCSB's files), so a time bounds the run
        // unless the command line gives a count.
        let has_count = properties
            .setting(&p::OPERATION_COUNT)
            .is_some_and(|(_, setting)| matches!(setting.origin, Origin::CommandLine(_)));
        if !has_count {
            default_to(properties, &p::MAX_EXECUTION_TIME, TIME, "serval bench: default");
            properties.remove(p::OPERATION_COUNT.name);
        }
        default_to(properties, &p::WARM_UP, WARM_UP, "serval bench: default");
        let embedded = EmbeddedStore::of(request.store, properties);
        let mut faults = Faults::default();
        if let Some(EmbeddedStore { property, .. }) = embedded
            && request.skip_load
        {
            let problem = format!("--skip-load needs {property}, the path of the loaded database");
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
        if let Some(embedded) = embedded {
            let why = "serval bench: in the result folder";
            embedded.place(&mut request.properties, folder.partial_path(), why);
        }
        let session = open(request.store.name, &request.properties)?;
        // The same seed for both phases, so that the result's seed repeats both.
        let mut load = load;
        if let Some(load) = &mut load {
            load.options.seed = run.options.seed;
            // Time and target are for the run. A load inserts all records as fast as possible.
            load.options.time = None;
            load.options.rate = None;
        }
        run.label = if run.label.is_empty() { request.name.clone() } else { run.label };
        Ok(Bench { load, run, folder, session, embedded, request })
    }

    /// Loads the records, with the processes of `team` if given. The throughput of the load predicts the number of
    /// operations of a run that is bounded by time.
    pub fn load(
        &mut self,
        team: Option<&Team>,
        say: fn(&str),
        control: &Control,
        show: &mut dyn Observer,
    ) -> Result<Option<Performed>, PlanError> {
        let Some(plan) = &self.load else { return Ok(None) };
        let files = RunFiles { folder: &self.folder, prefix: "load-", raw: false };
        let loaded = self.perform(plan, files, team, say, control, show)?;
        self.expect(loaded.document.overall.throughput)?;
        Ok(Some(loaded))
    }

    /// Returns whether the loaded records outlive this benchmark: on a server, or in files outside the result
    /// folder.
    pub fn leaves_records(&self) -> bool {
        self.embedded.is_none() && !IN_PROCESS.contains(&self.request.store.name)
    }

    /// Sets the expected number of operations of the run from the rate of the load, unless the properties give it.
    /// This number determines the key range of a run that inserts.
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

    /// Warms up and runs, with the processes of `team` if given.
    pub fn run(
        &self,
        team: Option<&Team>,
        say: fn(&str),
        control: &Control,
        show: &mut dyn Observer,
    ) -> Result<Performed, PlanError> {
        let files = RunFiles { folder: &self.folder, prefix: "", raw: self.request.raw };
        self.perform(&self.run, files, team, say, control, show)
    }

    fn perform(
        &self,
        plan: &Plan,
        files: RunFiles<'_>,
        team: Option<&Team>,
        say: fn(&str),
        control: &Control,
        show: &mut dyn Observer,
    ) -> Result<Performed, PlanError> {
        let group = conducted(&*self.session, plan, team, say)?;
        let session = group.as_deref().unwrap_or(&*self.session);
        perform(plan, session, control, show, Some(files), self.request.command_line.clone())
    }

    /// Writes the files of the result and the load's document, and renames the folder to its final path.
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
        let keeps_store = self.request.keep_store;
        if let Some(embedded) = self.embedded.filter(|_| keeps_store) {
            let folder =
                std::path::absolute(self.folder.path()).unwrap_or_else(|_| self.folder.path().into());
            properties.push_str(&format!(
                "# kept by --keep-store\n{}\n",
                escape(embedded.property, &embedded.value(&folder))
            ));
        }
        self.folder.write("run.properties", properties.as_bytes())?;
        // The store must close its files before they are removed.
        drop(self.session);
        if let Some(embedded) = self.embedded.filter(|_| !keeps_store) {
            // Files that cannot be removed only waste space.
            let _ = embedded.remove(self.folder.partial_path());
        }
        self.folder.finish()
    }
}
