//! Writing experiment files that are self-contained: the properties of workload files are inlined.

use super::{
    FORMAT_VERSION,
    entries::{ARRIVALS, CurveObjective, ExperimentFile, PointOrder, StatePolicy, StoreEntry},
    group::GroupEntry,
    heading::Heading,
    lines::{PropertyLine, name_of},
    phase_entries::{At, PhaseSpec, PhaseWork, PhasesFile},
    points::LoadPoint,
};
use serval_model::properties::units::format_span;
use serval_plan::secrets::shown;
use std::fmt::{Display, Write as _};

/// Quotes text for TOML.
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
    if !lines.is_empty() {
        let _ = writeln!(out, "{head}");
        lines.iter().for_each(|(name, text, _)| value(out, &quoted(name), quoted(&shown(name, text))));
    }
}

/// Writes a key and its value in TOML.
fn value(out: &mut String, key: &str, value: impl Display) {
    let _ = writeln!(out, "{key} = {value}");
}

/// Writes a key and its text, unless it is empty.
fn line(out: &mut String, key: &str, text: &str) {
    if !text.is_empty() {
        value(out, key, quoted(text));
    }
}

/// Writes the keys at the top of all kinds of files.
fn heading(heading: &Heading) -> String {
    let mut out = format!("version = {FORMAT_VERSION}\n");
    line(&mut out, "title", &heading.title);
    line(&mut out, "figure", &heading.figure);
    line(&mut out, "about", &heading.about);
    line(&mut out, "saw", &heading.saw);
    out
}

fn list(items: impl IntoIterator<Item = impl ToString>) -> String {
    format!("[{}]", items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", "))
}

fn group(out: &mut String, group: Option<&GroupEntry>) {
    let Some(group) = group else { return };
    out.push_str("\n[group]\n");
    for (key, text) in group.keys() {
        // A number has no quotes.
        value(out, key, if key == "clients" { text } else { quoted(&text) });
    }
}

fn store(out: &mut String, store: &StoreEntry) {
    out.push_str("\n[[stores]]\n");
    line(out, "name", &store.name);
    line(out, "binding", &store.binding);
    if !store.watch.is_empty() {
        value(out, "watch", list(store.watch.iter().map(|process| quoted(process))));
    }
    line(out, "save", store.save.as_deref().unwrap_or_default());
    line(out, "restore", store.restore.as_deref().unwrap_or_default());
    properties(out, "[stores.properties]", &store.properties);
}

fn phase(out: &mut String, phase: &PhaseSpec) {
    out.push_str("\n[[phases]]\n");
    line(out, "name", &phase.name);
    line(out, "kind", phase.work.kind());
    if let Some(clients) = &phase.clients {
        value(out, "clients", list(clients));
    }
    if let PhaseWork::Pause(time) = &phase.work {
        line(out, "time", &format_span(*time));
    }
    if let PhaseWork::Presplit { partitions, points, .. } = &phase.work {
        partitions.iter().for_each(|partitions| value(out, "partitions", partitions));
        if !points.is_empty() {
            value(out, "points", list(points.iter().map(|point| quoted(point))));
        }
    }
    line(out, "command", phase.work.command().unwrap_or_default());
    match &phase.work {
        PhaseWork::Command { at, .. } => line(out, "at", name_of(&At::NAMES, at)),
        PhaseWork::Wait { every, .. } => line(out, "every", &format_span(*every)),
        _ => {}
    }
    if let PhaseWork::Presplit { timeout, .. }
    | PhaseWork::Command { timeout, .. }
    | PhaseWork::Wait { timeout, .. } = &phase.work
    {
        line(out, "timeout", &format_span(*timeout));
    }
    if let Some(file) = &phase.workload {
        line(out, "workload", &file.to_string_lossy());
    }
    properties(out, "[phases.properties]", &phase.properties);
    for only in &phase.only {
        out.push_str("[[phases.only]]\n");
        value(out, "clients", list(&only.clients));
        properties(out, "[phases.only.properties]", &only.properties);
    }
}

impl ExperimentFile {
    /// Writes the file as TOML. Secrets are replaced by `***`. Paths of workload files that are not inlined are
    /// relative to the working directory.
    pub fn to_toml(&self) -> String {
        let mut out = heading(&self.heading);
        line(&mut out, "axis", self.axis.as_deref().unwrap_or_default());
        let run = &self.run;
        out.push_str("\n[run]\n");
        value(&mut out, "clients", run.clients.map_or("\"auto\"".to_owned(), |clients| clients.to_string()));
        line(&mut out, "arrivals", name_of(&ARRIVALS, &run.arrivals));
        line(&mut out, "time", &format_span(run.time));
        line(&mut out, "warmup", &format_span(run.warm_up));
        line(&mut out, "warmup_max", &format_span(run.warm_up_max));
        value(&mut out, "repeats", run.repeats);
        line(&mut out, "state", name_of(&StatePolicy::NAMES, &run.state));
        line(&mut out, "order", name_of(&PointOrder::NAMES, &run.order));
        run.seed.iter().for_each(|seed| value(&mut out, "seed", seed));
        if !run.load {
            value(&mut out, "load", false);
        }
        match &self.question {
            CurveObjective::Sweep(points) => {
                let points = points.iter().map(|point| match point {
                    // A share is written with all its digits.
                    LoadPoint::Share(share) => quoted(&format!("{}%", share * 100.0)),
                    LoadPoint::Rate(rate) => quoted(&rate.to_string()),
                    LoadPoint::Max => quoted("max"),
                });
                out.push_str("\n[sweep]\n");
                value(&mut out, "points", list(points));
            }
            CurveObjective::Max(promise) => {
                out.push_str("\n[max]\n");
                value(&mut out, "promise", quoted(&promise.to_string()));
            }
        }
        group(&mut out, self.group.as_ref());
        properties(&mut out, "\n[properties]", &self.properties);
        self.stores.iter().for_each(|entry| store(&mut out, entry));
        for workload in &self.workloads {
            out.push_str("\n[[workloads]]\n");
            line(&mut out, "name", &workload.name);
            if let Some(file) = &workload.file {
                line(&mut out, "file", &file.to_string_lossy());
            }
            if let Some(at) = workload.at {
                value(&mut out, "at", format_args!("{at:?}"));
            }
            properties(&mut out, "[workloads.properties]", &workload.properties);
        }
        out
    }
}

impl PhasesFile {
    /// Writes the file as TOML. Secrets are replaced by `***`.
    pub fn to_toml(&self) -> String {
        let mut out = heading(&self.heading);
        self.seed.iter().for_each(|seed| value(&mut out, "seed", seed));
        group(&mut out, self.group.as_ref());
        properties(&mut out, "\n[properties]", &self.properties);
        store(&mut out, &self.store);
        self.phases.iter().for_each(|entry| phase(&mut out, entry));
        out
    }
}
