//! The commands.

pub(crate) mod agent;
pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod driver;
mod experiments;
pub(crate) mod explain;
mod export;
mod phases;
pub(crate) mod results;
pub(crate) mod shell;
pub(crate) mod sweep;
pub(crate) mod ycsb;
mod ycsb_client;

use crate::{
    args::{JavaArgs, PropertyArgs, RunPropertyArgs},
    failure::Failure,
};
use serval_model::properties::{Fault, Faults, Origin, Properties, Property};
use serval_plan::{properties as p, secrets::without_secrets};
use serval_stores::{StoreInfo, java};

/// Reads the properties of a single run. All faults come at once.
pub(crate) fn run_properties(args: &RunPropertyArgs) -> Result<Properties, Faults> {
    let mut properties = properties(&args.named)?;
    let flags = [
        (&p::THREAD_COUNT, &args.threads, "-threads"),
        (&p::TARGET, &args.target, "-target"),
        (&p::LABEL, &args.label, "-l"),
        (&java::CLASS, &args.class, "--class"),
        (&java::CLASS_PATH, &args.classpath, "--classpath"),
    ];
    set_flags(&mut properties, &flags);
    Ok(properties)
}

/// Sets the properties of the flags that were given.
pub(crate) fn set_flags(properties: &mut Properties, flags: &[(&Property, &Option<String>, &str)]) {
    for (property, value, flag) in flags {
        if let Some(value) = value {
            properties.set(property.name, value, Origin::CommandLine((*flag).into()));
        }
    }
}

/// Reads property files and what `-p` sets over them. All faults come at once.
pub(crate) fn properties(args: &PropertyArgs) -> Result<Properties, Faults> {
    let mut properties = Properties::new();
    let mut faults = Faults::default();
    for file in &args.files {
        faults.take(properties.load_file(file));
    }
    for text in &args.properties {
        let origin = Origin::CommandLine("-p".into());
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => properties.set(name, value, origin),
            _ => faults.0.push(Fault {
                origin: Some(origin),
                problem: format!(
                    "'{text}' is no property: write NAME=VALUE, for example -p recordcount=1000"
                ),
            }),
        }
    }
    faults.or(properties)
}

/// YCSB's Java flags mean something to the store java.
pub(crate) fn java_flags(info: &StoreInfo, args: &JavaArgs, properties: &mut Properties) {
    if info.name != java::INFO.name {
        return;
    }
    let flags = [
        (&java::CLASS, &args.db, "-db"),
        (&java::CLASS_PATH, &args.class_path, "-cp"),
        (&java::ARGUMENTS, &args.jvm_args, "-jvm-args"),
    ];
    for (property, value, flag) in flags {
        if let Some(value) = value
            && !properties.has(property)
        {
            properties.set(property.name, value, Origin::CommandLine(flag.into()));
        }
    }
}

/// Returns the store of a name, if that needs no properties.
pub(crate) fn store(name: &str) -> Result<&'static StoreInfo, Failure> {
    serval_stores::find(name).ok_or_else(|| Failure::usage(serval_stores::unknown(name)))
}

/// The store that a name and properties ask for.
pub(crate) fn resolved(name: &str, properties: &mut Properties) -> Result<&'static StoreInfo, Failure> {
    serval_stores::resolve(name, properties).map_err(|faults| Failure::usage(faults.to_string()))
}

/// The command line, without secrets.
pub(crate) fn command_line() -> Vec<String> {
    without_secrets(std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()))
}

/// Tells warnings of a plan.
pub(crate) fn tell_warnings(warnings: &[Fault]) {
    for warning in warnings {
        tell!("warning: {warning}");
    }
}

/// Warns of numbers from a build that is not optimised.
pub(crate) fn tell_debug_build() {
    if cfg!(debug_assertions) {
        tell!("warning: this is a debug build; use cargo run --release for numbers worth quoting");
    }
}
