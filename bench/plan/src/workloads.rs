//! The workloads of this build, by name and by YCSB's class names.

use serval_model::properties::{Faults, Properties, PropertyTable, Reader};
use serval_scripts::{Script, ScriptWorkload, is_script};
use serval_workload::{
    Workload,
    core::{self, Circumstances, CoreWorkload},
    files::{InputFile, InputFiles},
    occupancy,
    rest::{self, RestWorkload},
    timeseries::{self, TimeSeriesWorkload},
};
use std::{
    fs::File,
    io,
    path::Path,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// The description of a workload.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadInfo {
    /// Name of the workload.
    pub name: &'static str,
    /// YCSB's class names; empty for scripts, whose path is their name.
    pub classes: &'static [&'static str],
    /// Description in one line.
    pub summary: &'static str,
    /// Description in a few sentences.
    pub details: &'static str,
    /// Properties that the workload reads.
    pub tables: &'static [PropertyTable],
}

/// The core workload.
pub const CORE: WorkloadInfo = WorkloadInfo {
    name: "core",
    classes: &["site.ycsb.workloads.CoreWorkload", "com.yahoo.ycsb.workloads.CoreWorkload"],
    summary: "Records of some fields, read, updated, inserted, scanned, deleted in given shares",
    details: "The core workload of the YCSB paper (section 4). workloads/workloada to workloadf are its standard \
              settings.",
    tables: &[core::properties::PROPERTIES],
};

/// Constant occupancy.
pub const CONSTANT_OCCUPANCY: WorkloadInfo = WorkloadInfo {
    name: "constantoccupancy",
    classes: &[
        "site.ycsb.workloads.ConstantOccupancyWorkload",
        "com.yahoo.ycsb.workloads.ConstantOccupancyWorkload",
    ],
    summary: "The core workload with as many records as fill a share of a disk",
    details: "recordcount, insertcount and operationcount follow from disksize, occupancy and storageages, whatever \
              else is set.",
    tables: &[core::properties::PROPERTIES, occupancy::PROPERTIES],
};

/// Time series.
pub const TIME_SERIES: WorkloadInfo = WorkloadInfo {
    name: "timeseries",
    classes: &["site.ycsb.workloads.TimeSeriesWorkload", "com.yahoo.ycsb.workloads.TimeSeriesWorkload"],
    summary: "Points of many series, written in turn of time, and queries over them",
    details: "YCSB's time series workload: fieldcount keys with tags make the series; timestamps begin at insertstart. \
              Queries are spelt as fields ('tag=value', 'YCSBTS=from,to'), which needs a store that understands them; \
              noop and memory take them as they are.",
    tables: &[timeseries::properties::PROPERTIES],
};

/// Web services.
pub const REST: WorkloadInfo = WorkloadInfo {
    name: "rest",
    classes: &["site.ycsb.workloads.RestWorkload", "com.yahoo.ycsb.workloads.RestWorkload"],
    summary: "URLs of traces, one trace a verb, for web services (store rest)",
    details: "YCSB's REST workload: each verb chooses from the URLs of a file of its own, the first the most popular \
              under zipfian; writes carry random text in the field 'data'. The service has its data already, or a load \
              inserts each URL that reads, updates and deletes ask for, once (YCSB's load does nothing). Any store \
              takes it, the URLs being its keys. workloads/rest is an example.",
    tables: &[rest::properties::PROPERTIES],
};

/// Scripts.
pub const SCRIPT: WorkloadInfo = WorkloadInfo {
    name: "script",
    classes: &[],
    summary: "A workload of your own in Lua: workload=path/to/file.lua",
    details: "A script asks for operations on the core workload's records, by the core's distributions and values, and \
              may time sequences of them under names of its own. docs/scripts.md explains how to write one; \
              workloads/scripts has examples; 'serval workloads FILE.lua' explains one.",
    tables: &[serval_scripts::PROPERTIES, core::properties::PROPERTIES],
};

/// Every workload of this build, in the order in which help lists them.
pub const WORKLOADS: &[WorkloadInfo] = &[CORE, CONSTANT_OCCUPANCY, TIME_SERIES, REST, SCRIPT];

/// Finds a workload by its name, a class or the path of a script.
pub fn find(name: &str) -> Option<&'static WorkloadInfo> {
    if is_script(name) {
        return Some(&SCRIPT);
    }
    WORKLOADS.iter().find(|info| info.name == name || info.classes.contains(&name))
}

/// The files of this machine.
struct FileSystem;

impl InputFiles for FileSystem {
    fn open(&self, path: &Path) -> io::Result<InputFile> {
        let file = File::open(path)?;
        Ok(InputFile { size: file.metadata()?.len(), content: Box::new(file) })
    }
}

/// An open workload.
pub struct OpenWorkload {
    /// The workload.
    pub workload: Arc<dyn Workload>,
    /// The core workload, if the workload is one or is based on it. Its loads can be resumed.
    pub core: Option<CoreWorkload>,
}

/// Sets the properties that the workload derives from others. Returns warnings.
pub fn derive(info: &WorkloadInfo, properties: &mut Properties) -> Result<Vec<String>, Faults> {
    if info.name == CONSTANT_OCCUPANCY.name {
        return Ok(occupancy::derive_counts(properties, &FileSystem)?.into_iter().collect());
    }
    Ok(Vec::new())
}

/// Opens a workload or the script. Faults go to the reader; returns `None` after some faults.
pub fn open(
    info: &WorkloadInfo,
    script: Option<&Arc<Script>>,
    reader: &mut Reader<'_>,
    facts: &Circumstances,
) -> Option<OpenWorkload> {
    if let Some(script) = script {
        let workload = ScriptWorkload::open(reader, facts, &FileSystem, Arc::clone(script))?;
        let core = workload.core().clone();
        return Some(OpenWorkload { workload: Arc::new(workload), core: Some(core) });
    }
    if info.name == TIME_SERIES.name {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let workload = TimeSeriesWorkload::open(reader, facts, now)?;
        return Some(OpenWorkload { workload: Arc::new(workload), core: None });
    }
    if info.name == REST.name {
        let workload = RestWorkload::open(reader, facts, &FileSystem)?;
        return Some(OpenWorkload { workload: Arc::new(workload), core: None });
    }
    let core = CoreWorkload::open(reader, facts, &FileSystem)?;
    Some(OpenWorkload { workload: Arc::new(core.clone()), core: Some(core) })
}
