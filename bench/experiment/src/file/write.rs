//! An experiment file's text again, with everything in it that was elsewhere.

use super::{
    ARRIVALS, ExperimentFile, FORMAT_VERSION, PointOrder, PropertyLine, Question, StatePolicy, name_of,
};
use crate::document::shown;
use serval_model::properties::units::format_duration;
use std::fmt::Write as _;

/// What stands in place of a secret.
pub(crate) const SECRET: &str = "***";

/// Text as TOML has it.
fn quoted(text: &str) -> String {
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

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.map(|item| quoted(&item)).collect::<Vec<_>>().join(", "))
}

impl ExperimentFile {
    /// The file as text. Values of secrets are left out (`***` stands for
    /// them); files of workloads that are still named are named by their paths from
    /// here.
    pub fn to_toml(&self) -> String {
        let mut out = format!("version = {FORMAT_VERSION}\n");
        line(&mut out, "title", &self.title);
        line(&mut out, "figure", &self.figure);
        line(&mut out, "about", &self.about);
        line(&mut out, "saw", &self.saw);
        line(&mut out, "axis", self.axis.as_deref().unwrap_or_default());
        let run = &self.run;
        let span = |time: std::time::Duration| format_duration(time.as_nanos() as u64);
        out.push_str("\n[run]\n");
        match run.clients {
            Some(clients) => {
                let _ = writeln!(out, "clients = {clients}");
            }
            None => out.push_str("clients = \"auto\"\n"),
        }
        line(&mut out, "arrivals", name_of(&ARRIVALS, &run.arrivals));
        line(&mut out, "time", &span(run.time));
        line(&mut out, "warmup", &span(run.warm_up));
        line(&mut out, "warmup_max", &span(run.warm_up_max));
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
                    super::Point::Share(share) => format!("{}%", share * 100.0),
                    super::Point::Rate(rate) => rate.to_string(),
                    super::Point::Max => "max".to_owned(),
                });
                let _ = writeln!(out, "\n[sweep]\npoints = {}", list(points));
            }
            Question::Max(promise) => {
                let _ = writeln!(out, "\n[max]\npromise = {}", quoted(&promise.to_string()));
            }
        }
        if let Some(group) = &self.group {
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
        if !self.properties.is_empty() {
            out.push('\n');
        }
        properties(&mut out, "[properties]", &self.properties);
        for store in &self.stores {
            out.push_str("\n[[stores]]\n");
            line(&mut out, "name", &store.name);
            line(&mut out, "binding", &store.binding);
            if !store.watch.is_empty() {
                let _ = writeln!(out, "watch = {}", list(store.watch.iter().cloned()));
            }
            line(&mut out, "save", store.save.as_deref().unwrap_or_default());
            line(&mut out, "restore", store.restore.as_deref().unwrap_or_default());
            properties(&mut out, "[stores.properties]", &store.properties);
        }
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
