//! `serval agent`, and the clients of a group for commands that lead one.

use super::set_flags;
use crate::{
    args::{AgentArgs, GroupArgs},
    failure::{Exit, Failure},
};
use serval_coordination::properties as p;
use serval_group::{
    AgentSettings, ClientFacts, GroupError, Leading, Quit, Team, agent as serve, check, settings,
};
use serval_model::properties::{Properties, units::parse_duration};
use serval_plan::Plan;
use serval_runner::Control;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{process::ExitCode, time::Duration};

/// `serval agent`: waits for work until a signal ends it.
pub(crate) fn agent(args: &AgentArgs) -> Result<ExitCode, Failure> {
    let timeout = parse_duration(&args.timeout, 1_000_000_000)
        .map_err(|problem| Failure::usage(format!("--timeout: {problem}")))?;
    let agent = AgentSettings {
        cluster: args.join.clone(),
        root: args.root.clone(),
        timeout: Duration::from_nanos(timeout),
        once: args.once,
        commands: args.allow_commands,
    };
    let quit = Quit::default();
    let quitting = quit.clone();
    let mut signals =
        Signals::new([SIGINT, SIGTERM]).map_err(|error| Failure::output(format!("no signals: {error}")))?;
    std::thread::spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            if std::mem::replace(&mut asked, true) {
                std::process::exit(128 + signal);
            }
            tell!("ending; once more ends at once");
            quitting.quit();
        }
    });
    serve(&agent, &quit, &mut |words| tell!("{words}")).map_err(|error| Failure::store(error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

/// What flags say of a group, as properties.
pub(crate) fn group_properties(args: &GroupArgs, properties: &mut Properties) {
    let flags =
        [(&p::CLIENTS, &args.clients, "--clients"), (&p::ZOOKEEPER, &args.coordination, "--coordination")];
    set_flags(properties, &flags);
}

/// Gathers the group that properties ask for, if they ask for one.
pub(crate) fn gather(plan: &Plan, raw: bool, control: &Control) -> Result<Option<Team>, Failure> {
    let Some(leading) = settings::leading(&plan.properties, settings::ProcessesFlag::Clients)? else {
        return Ok(None);
    };
    check(plan, raw, leading.settings.clients)?;
    lead(leading, control).map(Some)
}

/// What a group has to tell.
pub(crate) fn say(what: &str) {
    tell!("the group: {what}");
}

/// Gathers a group.
pub(crate) fn lead(leading: Leading, control: &Control) -> Result<Team, Failure> {
    let mut came = |joined: usize, wanted: usize, who: Option<&ClientFacts>| match who {
        Some(who) => tell!("client {joined} of {wanted}: {}, {} processors", who.name(), who.processors),
        None => tell!("waiting for clients: {joined} of {wanted} joined"),
    };
    Team::gather(leading, control, &mut came, say).map_err(|error| match error {
        error @ GroupError::Interrupted => Failure::new(Exit::Interrupted, error.to_string()),
        error => Failure::store(error.to_string()),
    })
}
