//! Properties of the client and of the measurement, and the catalog of all properties of this build.

use serval_model::properties::{Catalog, Kind, Property, PropertyTable};

/// The class of the workload.
pub const WORKLOAD: Property = Property::ycsb(
    "workload",
    Kind::Text,
    "The workload's class, by YCSB's name or Serval's ('serval workloads' lists them), or the path of a script \
     (file.lua).",
)
.default("site.ycsb.workloads.CoreWorkload");
/// The store.
pub const DB: Property =
    Property::ycsb("db", Kind::Text, "The store, by name or YCSB class. The STORE of the command line wins.");
/// Number of clients.
pub const THREAD_COUNT: Property = Property::ycsb(
    "threadcount",
    Kind::Count { min: 1, max: 1_000_000 },
    "Clients, each with one operation in flight at most; -threads on the command line. A client is a thread for \
     blocking stores and a task on an event loop for others.",
)
.default("1")
.unit("clients");
/// Offered load.
pub const TARGET: Property = Property::ycsb(
    "target",
    Kind::Number { min: 0.0, max: 1e9 },
    "Offered load of all clients together; -target on the command line. 0: as fast as the store answers.",
)
.default("0")
.unit("operations/s");
/// Offered load over time.
pub const TARGET_SCHEDULE: Property = Property::serval(
    "target.schedule",
    Kind::Text,
    "Offered load over time: '1000 for 30s; ramp 1000..5000 for 60s; steps 1000..5000 by 1000 for 10s; \
     sine 3000+-1000 every 20s for 2m'. Its end, if it has one, ends the run.",
)
.unit("operations/s");
/// Spacing of arrivals.
pub const TARGET_ARRIVALS: Property = Property::serval(
    "target.arrivals",
    Kind::Choice(&["client", "uniform", "poisson"]),
    "Spacing of intended starts, and their assignment to clients, if there is a target. client: each \
     client has evenly spaced starts of its own, as in YCSB. uniform, poisson: all clients share one \
     schedule (open loop), and the next idle client takes the next start; up to threadcount operations \
     are in flight, later ones queue and are never dropped.",
)
.default("client");
/// Longest delay of due operations on an event loop.
pub const PACING_SLACK: Property = Property::serval(
    "pacing.slack",
    Kind::MICROSECONDS,
    "Longest time for which an event loop may hold due operations to send several together. If unset: 175 \
     us above 25,000 operations/s per loop, else 0. The delay is part of the response time and is \
     reported as lateness.",
)
.unit("us");
/// Number of operations of a run.
pub const OPERATION_COUNT: Property = Property::ycsb(
    "operationcount",
    Kind::COUNT,
    "Operations of a run, over all clients. 0: no limit; the run ends by time or by an interrupt.",
)
.default("0")
.unit("operations");
/// Longest time of a run.
pub const MAX_EXECUTION_TIME: Property = Property::ycsb(
    "maxexecutiontime",
    Kind::SECONDS,
    "Longest time of a run or load, without warm-up. 0: no limit.",
)
.default("0")
.unit("s");
/// Length of the warm-up, or its minimum.
pub const WARM_UP: Property = Property::serval(
    "warmup",
    Kind::SECONDS,
    "Warm-up before the measured part of a run; its operations are performed but not counted. 'serval \
     bench' uses 3 s.",
)
.default("0")
.unit("s");
/// The longest warm-up.
pub const WARM_UP_MAX: Property = Property::serval(
    "warmup.max",
    Kind::SECONDS,
    "Longest warm-up of a run. If set, the warm-up continues beyond warmup until throughput and service \
     time are steady (docs/warm-up.md), but no longer than this; a run that is not steady by then is \
     measured, with a warning. Needs a constant target, or none. 0: warm up for exactly warmup.",
)
.default("0")
.unit("s");
/// Time limit for operations in flight at the end.
pub const SHUTDOWN_GRACE: Property = Property::serval(
    "shutdown.grace",
    Kind::SECONDS,
    "Time limit for operations in flight at the end of a run. Operations that take longer are reported as \
     unfinished, with their ages.",
)
.default("2")
.unit("s");
/// Number of event loops.
pub const EVENT_LOOPS: Property = Property::serval(
    "eventloops",
    Kind::Count { min: 1, max: 1024 },
    "Event loops (threads) that the clients of an asynchronous store share. If unset: half the \
     processors, and at least 8 clients per loop.",
);
/// The seed.
pub const SEED: Property = Property::serval(
    "seed",
    Kind::COUNT,
    "Seed of all random choices: with the same seed each client performs the same stream of operations on \
     every machine. If unset: a new seed for each run, which the result records.",
);
/// This process's share of the work.
pub const SHARE: Property = Property::serval(
    "share",
    Kind::Text,
    "This process's share of work that several processes divide: 2/4 is the second of four. Records to \
     load, operations, offered load and the new records of a run are divided, and random choices differ; \
     threadcount is per process.",
)
.default("1/1");
/// Whether a load continues an interrupted one.
pub const LOAD_RESUME: Property = Property::serval(
    "load.resume",
    Kind::Flag,
    "Whether to continue an interrupted load: reads every record, and inserts the missing ones. The reads \
     are not in the results.",
)
.default("false");
/// Number of phases.
pub const PHASES: Property = Property::serval(
    "phases",
    Kind::Count { min: 1, max: 1000 },
    "Number of phases of 'serval load' and 'serval run', as in YCSB++: phaseK.NAME=VALUE sets a property \
     for phase K only, phaseK.load=yes or no makes it a load or a run (docs/phases.md).",
);
/// Whether to run or to load.
pub const DO_TRANSACTIONS: Property = Property::ycsb(
    "dotransactions",
    Kind::Flag,
    "Whether to run (true) or load (false). The command, 'serval run' or 'serval load', wins.",
)
.default("true");
/// Whether status lines are printed.
pub const STATUS: Property = Property::ycsb(
    "status",
    Kind::Flag,
    "Whether status lines go to standard error; -s on the command line.",
)
.default("false");
/// Time between status lines.
pub const STATUS_INTERVAL: Property =
    Property::ycsb("status.interval", Kind::SECONDS, "Time between status lines.").default("10").unit("s");
/// Processes of the store whose costs are measured.
pub const WATCH: Property = Property::serval(
    "watch",
    Kind::Names,
    "Processes of the store on this machine whose cost is measured: process ids or parts of command \
     lines, separated by commas. All processes whose command line contains a part are measured together, \
     with their children.",
);
/// Label of the result.
pub const LABEL: Property = Property::ycsb(
    "label",
    Kind::Text,
    "Prefix of status lines, and name of the result; -l on the command line.",
)
.default("");
/// Share of operations that may fail before the exit status is 1.
pub const FAILURES_ALLOWED: Property = Property::serval(
    "failures.allowed",
    Kind::FRACTION,
    "Share of operations that may fail before the exit status is 1.",
)
.default("0");
/// Of YCSB, without effect in Serval.
pub const SPIN_SLEEP: Property =
    Property::ignored("spin.sleep", "clients sleep with absolute timers of nanoseconds and need not spin");
/// Of YCSB, without effect in Serval.
pub const TRACK_JVM: Property = Property::ignored("measurement.trackjvm", "there is no Java virtual machine");
/// Of YCSB, without effect in Serval.
pub const HTRACE: Property = Property::ignored("htrace.*", "there is no HTrace");
/// Of YCSB's template, without effect in YCSB too.
pub const MAX_SCAN_RATE: Property =
    Property::ignored("maxscanrate", "YCSB's template has it and nothing reads it");
/// Of YCSB's template, without effect in YCSB too.
pub const SCAN_TIME_LIMIT: Property =
    Property::ignored("scanoptimelimit", "YCSB's template has it and nothing reads it");
/// Of YCSB's template, without effect in YCSB too.
pub const DISCARD_SCANNED: Property =
    Property::ignored("discardscannedrecord", "YCSB's template has it and nothing reads it");

/// Properties of the client.
pub const CLIENT: PropertyTable = PropertyTable {
    heading: "client",
    properties: &[
        &WORKLOAD,
        &DB,
        &THREAD_COUNT,
        &TARGET,
        &TARGET_SCHEDULE,
        &TARGET_ARRIVALS,
        &PACING_SLACK,
        &OPERATION_COUNT,
        &MAX_EXECUTION_TIME,
        &WARM_UP,
        &WARM_UP_MAX,
        &SHUTDOWN_GRACE,
        &EVENT_LOOPS,
        &SEED,
        &SHARE,
        &LOAD_RESUME,
        &PHASES,
        &DO_TRANSACTIONS,
        &STATUS,
        &STATUS_INTERVAL,
        &WATCH,
        &LABEL,
        &FAILURES_ALLOWED,
        &SPIN_SLEEP,
        &TRACK_JVM,
        &HTRACE,
        &MAX_SCAN_RATE,
        &SCAN_TIME_LIMIT,
        &DISCARD_SCANNED,
    ],
};

/// Form of the times in YCSB's output.
pub const MEASUREMENT_TYPE: Property = Property::ycsb(
    "measurementtype",
    Kind::Choice(&[
        "hdrhistogram",
        "histogram",
        "hdrhistogram+histogram",
        "hdrhistogram+raw",
        "timeseries",
        "raw",
    ]),
    "Form of the times in YCSB's output: HdrHistogram percentiles, buckets of 1 ms, averages over time, \
     or every single time. Serval's own results always come from HdrHistograms.",
)
.default("hdrhistogram");
/// Times in YCSB's output: service, response or both.
pub const MEASUREMENT_INTERVAL: Property = Property::ycsb(
    "measurement.interval",
    Kind::Choice(&["op", "intended", "both"]),
    "Times in YCSB's output: service times (op), response times (intended), or both. Serval's own results \
     always have both.",
)
.default("op");
/// Percentiles of YCSB's output.
pub const PERCENTILES: Property = Property::ycsb(
    "hdrhistogram.percentiles",
    Kind::Numbers,
    "Percentiles of YCSB's output. Serval's results have these and 50, 90, 95, 99, 99.9 and 99.99.",
)
.default("50,95,99")
.unit("%");
/// Whether histogram logs are written to `.hdr` files.
pub const HDR_FILE_OUTPUT: Property = Property::ycsb(
    "hdrhistogram.fileoutput",
    Kind::Flag,
    "Whether each operation's histogram log is written to a file, in microseconds.",
)
.default("false");
/// Prefix of the paths of `.hdr` files.
pub const HDR_OUTPUT_PATH: Property = Property::ycsb(
    "hdrhistogram.output.path",
    Kind::Text,
    "Prefix of the files of hdrhistogram.fileoutput; the operation's name and .hdr follow.",
)
.default("");
/// Whether all cells of the histograms are listed.
pub const HISTOGRAM_VERBOSE: Property = Property::ycsb(
    "measurement.histogram.verbose",
    Kind::Flag,
    "Whether YCSB's output lists every cell of the histograms.",
)
.default("false");
/// Number of buckets with `measurementtype=histogram`.
pub const HISTOGRAM_BUCKETS: Property = Property::ycsb(
    "histogram.buckets",
    Kind::Count { min: 1, max: 10_000_000 },
    "Number of buckets of 1 ms with measurementtype=histogram.",
)
.default("1000")
.unit("ms");
/// Averaging interval with `measurementtype=timeseries`.
pub const TIME_SERIES_GRANULARITY: Property = Property::ycsb(
    "timeseries.granularity",
    Kind::MILLISECONDS,
    "Interval over which measurementtype=timeseries averages.",
)
.default("1000")
.unit("ms");
/// File for raw times.
pub const RAW_OUTPUT_FILE: Property = Property::ycsb(
    "measurement.raw.output_file",
    Kind::Path,
    "File to which measurementtype=raw appends every time. If unset: standard output.",
);
/// Whether raw times have no summary.
pub const RAW_NO_SUMMARY: Property = Property::ycsb(
    "measurement.raw.no_summary",
    Kind::Flag,
    "Whether measurementtype=raw omits its summary.",
)
.default("false");
/// Whether failures are listed by status.
pub const REPORT_EACH_ERROR: Property = Property::ycsb(
    "reportlatencyforeacherror",
    Kind::Flag,
    "Whether YCSB's output lists the times of failed operations by status (READ-NOT_FOUND) instead of \
     together (READ-FAILED).",
)
.default("false");
/// Statuses of failures that are listed separately.
pub const TRACKED_ERRORS: Property = Property::ycsb(
    "latencytrackederrors",
    Kind::Names,
    "Statuses whose times YCSB's output lists separately if reportlatencyforeacherror is false.",
);
/// Format of the export.
pub const EXPORTER: Property = Property::ycsb(
    "exporter",
    Kind::Text,
    "Form of the output of load and run: YCSB's text (its class name, or 'ycsb'), its JSON forms (by class name), or \
     'json' for Serval's result document.",
)
.default("site.ycsb.measurements.exporter.TextMeasurementsExporter");
/// File for the export.
pub const EXPORT_FILE: Property = Property::ycsb(
    "exportfile",
    Kind::Path,
    "File for the output of load and run, instead of standard output.",
);
/// Length of the intervals of the series.
pub const SERIES_INTERVAL: Property = Property::serval(
    "series.interval",
    Kind::SECONDS,
    "Length of the intervals of the series and the HDR log.",
)
.default("1")
.unit("s");

/// Properties of the measurement.
pub const MEASUREMENT: PropertyTable = PropertyTable {
    heading: "measurement",
    properties: &[
        &MEASUREMENT_TYPE,
        &MEASUREMENT_INTERVAL,
        &PERCENTILES,
        &HDR_FILE_OUTPUT,
        &HDR_OUTPUT_PATH,
        &HISTOGRAM_VERBOSE,
        &HISTOGRAM_BUCKETS,
        &TIME_SERIES_GRANULARITY,
        &RAW_OUTPUT_FILE,
        &RAW_NO_SUMMARY,
        &REPORT_EACH_ERROR,
        &TRACKED_ERRORS,
        &EXPORTER,
        &EXPORT_FILE,
        &SERIES_INTERVAL,
    ],
};

/// Returns the catalog of all properties of this build.
pub fn catalog() -> Catalog {
    let workloads = crate::workloads::WORKLOADS.iter().flat_map(|info| info.tables.iter().copied());
    let mut tables = vec![
        CLIENT,
        MEASUREMENT,
        serval_coordination::properties::PROPERTIES,
        serval_lag::properties::PROPERTIES,
    ];
    for table in workloads {
        if !tables.iter().any(|known| known.heading == table.heading) {
            tables.push(table);
        }
    }
    tables.push(serval_wrappers::settings::PROPERTIES);
    tables.extend(serval_stores::STORES.iter().map(|info| info.properties));
    Catalog::new(tables)
}
