//! An experiment file's text again, with everything in it that was elsewhere.

use super::{
    FORMAT_VERSION,
    entries::{ARRIVALS, ExperimentFile, PointOrder, Question, StatePolicy, StoreEntry},
    group::GroupEntry,
    heading::Heading,
    lines::{PropertyLine, name_of},
    phase_entries::{At, PhaseSpec, PhaseWork, PhasesFile},
    points::LoadPoint,
};
use serval_model::properties::units::format_span;
use serval_plan::secrets::shown;
use std::fmt::Write as _;

/// Text as TOML has it.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn properties(out: &mut String, head: &str, lines: &[PropertyLine]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "{head}");
    for (name, value, _) in lines {
        let _ = writeln!(out, "{} = {}", quoted(name), quoted(&shown(name, value)));
    }
}

fn line(out: &mut String, key: &str, text: &str) {
    if !text.is_empty() {
        let _ = writeln!(out, "{key} = {}", quoted(text));
    }
}

fn heading(out: &mut String, heading: &Heading) {
    line(out, "title", &heading.title);
    line(out, "figure", &heading.figure);
    line(out, "about", &heading.about);
    line(out, "saw", &heading.saw);
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.map(|item| quoted(&item)).collect::<Vec<_>>().join(", "))
}

fn group(out: &mut String, group: Option<&GroupEntry>) {
    let Some(group) = group else { return };
    out.push_str("\n[group]\n");
    for (key, value) in group.keys() {
        // A number stands without quotes.
        match key {
            "clients" => {
                let _ = writeln!(out, "{key} = {value}");
            }
            _ => {
                let _ = writeln!(out, "{key} = {}", quoted(&value));
            }
        }
    }
}

fn store(out: &mut String, store: &StoreEntry) {
    out.push_str("\n[[stores]]\n");
    line(out, "name", &store.name);
    line(out, "binding", &store.binding);
    if !store.watch.is_empty() {
        let _ = writeln!(out, "watch = {}", list(store.watch.iter().cloned()));
    }
    line(out, "save", store.save.as_deref().unwrap_or_default());
    line(out, "restore", store.restore.as_deref().unwrap_or_default());
    properties(out, "[stores.properties]", &store.properties);
}

/// A file of phases as text.
fn phases(file: &PhasesFile) -> String {
    let mut out = format!("version = {FORMAT_VERSION}\n");
    heading(&mut out, &file.heading);
    if let Some(seed) = file.seed {
        let _ = writeln!(out, "seed = {seed}");
    }
    group(&mut out, file.group.as_ref());
    if !file.properties.is_empty() {
        out.push('\n');
    }
    properties(&mut out, "[properties]", &file.properties);
    store(&mut out, &file.store);
    file.phases.iter().for_each(|entry| phase(&mut out, entry));
    out
}

fn numbers(clients: &[u64]) -> String {
    let all: Vec<String> = clients.iter().map(u64::to_string).collect();
    format!("[{}]", all.join(", "))
}

fn phase(out: &mut String, phase: &PhaseSpec) {
    out.push_str("\n[[phases]]\n");
    line(out, "name", &phase.name);
    line(out, "kind", phase.work.kind());
    if let Some(clients) = &phase.clients {
        let _ = writeln!(out, "clients = {}", numbers(clients));
    }
    match &phase.work {
        PhaseWork::Load | PhaseWork::Run | PhaseWork::Later(_) => {}
        PhaseWork::Pause(time) => line(out, "time", &format_span(*time)),
        PhaseWork::Presplit { partitions, points, command, timeout } => {
            if let Some(partitions) = partitions {
                let _ = writeln!(out, "partitions = {partitions}");
            }
            if !points.is_empty() {
                let _ = writeln!(out, "points = {}", list(points.iter().cloned()));
            }
            line(out, "command", command.as_deref().unwrap_or_default());
            line(out, "timeout", &format_span(*timeout));
        }
        PhaseWork::Command { command, at, timeout } => {
            line(out, "command", command);
            line(out, "at", name_of(&At::NAMES, at));
            line(out, "timeout", &format_span(*timeout));
        }
        PhaseWork::Wait { command, every, timeout } => {
            line(out, "command", command);
            line(out, "every", &format_span(*every));
            line(out, "timeout", &format_span(*timeout));
        }
    }
    if let Some(file) = &phase.workload {
        line(out, "workload", &file.to_string_lossy());
    }
    properties(out, "[phases.properties]", &phase.properties);
    for only in &phase.only {
        let _ = writeln!(out, "[[phases.only]]\nclients = {}", numbers(&only.clients));
        properties(out, "[phases.only.properties]", &only.properties);
    }
}

impl ExperimentFile {
    /// The file as text. Values of secrets are left out (`***` stands for
    /// them); files of workloads that are still named are named by their paths from
    /// here.
    pub fn to_toml(&self) -> String {
        let mut out = format!("version = {FORMAT_VERSION}\n");
        heading(&mut out, &self.heading);
        line(&mut out, "axis", self.axis.as_deref().unwrap_or_default());
        let run = &self.run;
        out.push_str("\n[run]\n");
        match run.clients {
            Some(clients) => {
                let _ = writeln!(out, "clients = {clients}");
            }
            None => out.push_str("clients = \"auto\"\n"),
        }
        line(&mut out, "arrivals", name_of(&ARRIVALS, &run.arrivals));
        line(&mut out, "time", &format_span(run.time));
        line(&mut out, "warmup", &format_span(run.warm_up));
        line(&mut out, "warmup_max", &format_span(run.warm_up_max));
        let _ = writeln!(out, "repeats = {}", run.repeats);
        line(&mut out, "state", name_of(&StatePolicy::NAMES, &run.state));
        line(&mut out, "order", name_of(&PointOrder::NAMES, &run.order));
        if let Some(seed) = run.seed {
            let _ = writeln!(out, "seed = {seed}");
        }
        if !run.load {
            out.push_str("load = false\n");
        }
        match &self.question {
            Question::Sweep(points) => {
                let points = points.iter().map(|point| match point {
                    // A share is written with all its digits.
                    LoadPoint::Share(share) => format!("{}%", share * 100.0),
                    LoadPoint::Rate(rate) => rate.to_string(),
                    LoadPoint::Max => "max".to_owned(),
                });
                let _ = writeln!(out, "\n[sweep]\npoints = {}", list(points));
            }
            Question::Max(promise) => {
                let _ = writeln!(out, "\n[max]\npromise = {}", quoted(&promise.to_string()));
            }
        }
        group(&mut out, self.group.as_ref());
        if !self.properties.is_empty() {
            out.push('\n');
        }
        properties(&mut out, "[properties]", &self.properties);
        self.stores.iter().for_each(|entry| store(&mut out, entry));
        for workload in &self.workloads {
            out.push_str("\n[[workloads]]\n");
            line(&mut out, "name", &workload.name);
            if let Some(file) = &workload.file {
                line(&mut out, "file", &file.to_string_lossy());
            }
            if let Some(at) = workload.at {
                let _ = writeln!(out, "at = {at:?}");
            }
            properties(&mut out, "[workloads.properties]", &workload.properties);
        }
        out
    }
}

impl PhasesFile {
    /// The file as text, with everything in it that was elsewhere. Values of secrets are left
    /// out.
    pub fn to_toml(&self) -> String {
        phases(self)
    }
}
