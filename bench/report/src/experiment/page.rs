//! An experiment as one HTML file.

use super::{
    Layout, Section, costs, load::CurveResults, phases, searches, sections, summary::keeps, table,
    view::View, warnings::warnings,
};
use crate::{
    html::parts::{
        self, command_line, explained, figure, heading, keys, preformatted, tile, warnings_section,
    },
    text::{escape, printable},
    units::{bytes, count, plural, rate, time},
};
use serval_result::experiment::{ExperimentDocument, ExperimentKind, RunKind};
use std::{collections::BTreeMap, fmt::Write as _};

/// Largest number of curves with tiles.
const TILES_MAX: usize = 6;

pub(super) fn page(view: &View<'_>) -> String {
    let documents: Vec<&ExperimentDocument> =
        view.parts.iter().map(|part| &part.experiment.document).collect();
    let title = match documents[..] {
        [only] => printable(&only.title, 200),
        _ if view.only_runs => plural(documents.len() as u64, "run"),
        _ => {
            documents.iter().map(|document| printable(&document.title, 100)).collect::<Vec<_>>().join(" and ")
        }
    };
    let mut below: Vec<String> = documents
        .iter()
        .map(|document| format!("{} · Serval {}", document.started, document.serval_version))
        .collect();
    below.dedup();
    let below = match below.len() {
        0..=3 => below.join(" · "),
        _ => format!("{} and later", below[0]),
    };
    parts::page(&title, &printable(&below, 300), |page| {
        about(page, view);
        warnings_section(page, &warnings(view));
        let of_phases: Vec<_> = view.parts.iter().filter(|part| phases::has(part)).collect();
        for part in &of_phases {
            phases::table(page, part);
            phases::section(part).iter().for_each(|section| write_section(page, section));
        }
        if view.curves.is_empty() && !of_phases.is_empty() {
            // There are phases only.
        } else if view.curves.is_empty() {
            page.push_str("<p>No point has been measured yet.</p>\n");
        } else {
            tiles(page, view);
            for section in &sections(view) {
                write_section(page, section);
                if section.title == searches::TITLE {
                    searches::table(page, view);
                }
                if section.title == "Costs" {
                    costs::table(page, view);
                }
            }
            table::points(page, view);
        }
        searches::others(page, view);
        stores(page, view);
        for document in documents {
            facts(page, document, view.parts.len() > 1);
        }
    })
}

fn about(page: &mut String, view: &View<'_>) {
    for part in view.parts {
        let document = &part.experiment.document;
        if view.parts.len() > 1 && !part.is_run {
            heading(page, &printable(&document.title, 200));
        }
        for (lead, words) in [
            ("", &document.about),
            ("Stands for: ", &document.figure),
            ("What was seen there: ", &document.saw),
        ] {
            if !words.is_empty() {
                let _ = writeln!(page, "<p class=\"about\">{lead}{}</p>", escape(words));
            }
        }
    }
}

fn tiles(page: &mut String, view: &View<'_>) {
    // Too many tiles say less than the plots.
    if view.curves.len() > TILES_MAX {
        return;
    }
    page.push_str("<div class=\"tiles\">\n");
    for curve in &view.curves {
        let name = &curve.name;
        let (value, what) = if let Some(highest) = curve.highest {
            (highest.rate, format!(", {name}: {}", keeps(highest)))
        } else if let Some(saturation) = curve.saturation {
            (saturation.throughput, format!(": where {name} saturates"))
        } else if let Some(point) = curve.highest_sound() {
            let at = curve.at.map_or(String::new(), |(at, axis)| format!(", {at} {axis}"));
            (point.throughput.value, format!(", {name}{at}"))
        } else {
            continue;
        };
        tile(page, &rate(value), &format!("operations/s{what}"));
    }
    page.push_str("</div>\n");
}

fn write_section(page: &mut String, section: &Section) {
    let _ = writeln!(page, "<h2>{}</h2>", escape(section.title));
    for block in section.blocks.iter().filter(|block| block.on_page && !block.plots.is_empty()) {
        if !block.heading.is_empty() || block.keys.is_some() {
            let _ = write!(page, "<div class=\"block\"><h3>{}</h3>", escape(&block.heading));
            if let Some(shared) = &block.keys {
                keys(page, shared);
            }
            page.push_str("</div>\n");
        }
        let small = block.layout == Layout::Small;
        if small {
            let columns = if block.plots[0].size.0 < 400 { "triple" } else { "pair" };
            let _ = writeln!(page, "<div class=\"{columns}\">");
        }
        block.plots.iter().for_each(|plot| figure(page, plot, block.keys.is_none()));
        if small {
            page.push_str("</div>\n");
        }
    }
    explained(page, &section.words);
}

/// Tables of facts about the stores.
fn stores(page: &mut String, view: &View<'_>) {
    let mut shown: BTreeMap<&str, Vec<(&str, &String)>> = BTreeMap::new();
    for curve in &view.curves {
        let rows = shown.entry(&curve.store).or_insert_with(|| vec![("store", &curve.binding)]);
        let CurveResults { facts, workloads, executions, .. } = curve.results;
        let facts = facts.iter().map(|(name, value)| (name.as_str(), value));
        let workloads = workloads.iter().map(|workload| ("workload", workload));
        let executions = executions.iter().map(|execution| ("clients run on", execution));
        for row in facts.chain(workloads).chain(executions) {
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
    }
    for (store, rows) in shown {
        parts::facts(page, &format!("Store {}", escape(store)), rows);
    }
}

fn facts(page: &mut String, document: &ExperimentDocument, named: bool) {
    let of = if named { format!(" of {}", escape(printable(&document.title, 100))) } else { String::new() };
    let environment = &document.environment;
    let points = document.runs.iter().filter(|run| run.kind == RunKind::Point).count() as u64;
    let rows = [
        ("processor", format!("{}, {}", environment.cpu, plural(environment.cores, "core"))),
        ("memory", bytes(environment.memory_bytes)),
        ("system", environment.kernel.clone()),
        ("host", environment.host.clone()),
        ("client", format!("Serval {}, {}", document.serval_version, environment.build)),
        ("started", document.started.clone()),
        ("seed", document.seed.to_string()),
        match document.kind.known() {
            Some(ExperimentKind::Phases) => {
                let done = count(document.phases.len() as u64);
                ("phases", format!("{done} of {} planned", count(document.runs_planned)))
            }
            _ => ("runs", format!("{} of {} planned", count(points), count(document.runs_planned))),
        },
    ];
    parts::facts(page, &format!("Environment{of}"), rows);
    let whole: f64 = document.time_s.values().sum();
    if whole > 0.0 {
        let share = |s: f64| format!("{} ({:.1} %)", time(s * 1e9), 100.0 * s / whole);
        let rows = document.time_s.iter().map(|(name, s)| (name, share(*s)));
        parts::facts(page, &format!("Where the time went{of}"), rows);
    }
    if !document.plan.is_empty() {
        let _ = writeln!(page, "<h2>The plan{of}</h2>");
        explained(page, "The experiment file as it was run; it repeats the experiment.");
        preformatted(page, &document.plan);
    }
    let _ = writeln!(page, "<h2>Command line{of}</h2>");
    preformatted(page, &command_line(&document.command_line));
}
