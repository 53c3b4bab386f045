//! Reports of one or several experiments, and of several runs: a page, a summary, CSV, plots as
//! files.

mod alike;
mod costs;
mod csv;
mod curves;
mod load;
mod over_time;
mod page;
mod percentiles;
mod phases;
mod searches;
mod summary;
mod table;
mod view;
mod warnings;

use crate::{
    html::{PlotFile, named_apart},
    plot::{LegendEntry, Plot},
    stored::{Stored, StoredError, StoredExperiment},
    terminal::Styles,
};
pub use csv::COLUMNS;
use load::Loaded;
pub use phases::COLUMNS as PHASE_COLUMNS;
pub use searches::COLUMNS as TRIAL_COLUMNS;
use serval_result::{
    document::ResultDocument,
    experiment::{Curve, EXPERIMENT_VERSION, ExperimentDocument, ExperimentKind, RunEntry, RunKind},
};
use std::{io::Write, path::Path};
use view::View;

/// Largest length of a name, in characters.
const NAME_MAX: usize = 80;

/// An experiment with its results. A single run is one with a single point.
#[derive(Debug, Clone)]
pub struct Part {
    /// Name, different from other parts.
    name: String,
    experiment: StoredExperiment,
    loaded: Loaded,
    /// Whether it is a single run.
    is_run: bool,
}

impl Part {
    /// Reads what is stored, under a name different from other parts.
    pub fn read(name: &str, stored: &Stored) -> Result<Part, StoredError> {
        let name = crate::text::printable(name, NAME_MAX);
        match stored {
            Stored::Experiment(experiment) => Ok(Part { name, ..Part::of((**experiment).clone())? }),
            Stored::Result(path, document) => Ok(Part::of_run(name, path, document)),
        }
    }

    fn of_run(name: String, path: &Path, document: &ResultDocument) -> Part {
        let name = crate::text::printable(&name, NAME_MAX);
        let run = &document.run;
        let target = document.pacing.as_ref().map(|pacing| pacing.target);
        let entry = RunEntry { target, ..RunEntry::of(document, RunKind::Point, String::new()) };
        let loaded = Loaded::of_result(&entry, document);
        let curve = Curve {
            name: name.clone(),
            store: name.clone(),
            binding: run.store.clone(),
            workload: run.workload.rsplit('.').next().unwrap_or(&run.workload).to_owned(),
            at: None,
            saturation: None,
            highest: None,
        };
        let document = ExperimentDocument {
            experiment_version: EXPERIMENT_VERSION,
            serval_version: run.serval_version.clone(),
            title: crate::text::title(document),
            kind: ExperimentKind::Run.into(),
            started: run.started.clone(),
            command_line: run.command_line.clone(),
            seed: run.seed,
            environment: document.environment.clone(),
            curves: vec![curve],
            runs: vec![entry],
            runs_planned: 1,
            complete: true,
            ..ExperimentDocument::default()
        };
        let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
        Part { name, experiment: StoredExperiment { folder, document }, loaded, is_run: true }
    }

    /// Reads the results of an experiment's runs. Reports name those that cannot be read; if all fail,
    /// returns the first error.
    pub fn of(experiment: StoredExperiment) -> Result<Part, StoredError> {
        let name = crate::text::printable(&experiment.document.title, NAME_MAX);
        let loaded = Loaded::read(&experiment)?;
        Ok(Part { name, experiment, loaded, is_run: false })
    }
}

/// Returns the page of all parts.
pub fn html(parts: &[Part]) -> String {
    page::page(&View::new(parts))
}

/// Returns the summary of all parts, at most [`crate::terminal::WIDTH`] columns wide.
pub fn summary(parts: &[Part], styles: &Styles) -> String {
    summary::summary(&View::new(parts), styles)
}

/// Writes CSV: a line for each operation at each point, repeats merged; for an experiment of phases a
/// line for each interval and operation. docs/result-format.md has the columns.
pub fn csv(parts: &[Part], out: impl Write) -> Result<(), ::csv::Error> {
    match parts {
        [part] if phases::has(part) => phases::csv(part, out),
        _ => csv::write(&View::new(parts), out),
    }
}

/// Returns the curves of lag of phases as CSV; `None` if no lag was measured. docs/result-format.md
/// has the columns.
pub fn lag_csv(parts: &[Part]) -> Result<Option<Vec<u8>>, ::csv::Error> {
    let lags = phases::lags_of(parts);
    let mut text = Vec::new();
    crate::lag::write(&lags, &mut text)?;
    Ok((!lags.is_empty()).then_some(text))
}

/// Returns every plot of the page as files.
pub fn plots(parts: &[Part]) -> Vec<PlotFile> {
    let mut sections = sections(&View::new(parts));
    sections.extend(parts.iter().filter_map(phases::section));
    let plots = sections.iter().flat_map(|section| &section.blocks).flat_map(|block| &block.plots);
    named_apart(plots.filter_map(|plot| PlotFile::of(&plot.title, plot)))
}

/// Returns the files of a report in an experiment's folder, as pairs of relative name and contents:
/// `report.html`, `summary.txt`, `points.csv` (for phases `phases.csv`, `lag.csv` and a report of
/// each), `trials.csv` if there were searches, and `plots/` with every plot as SVG and PNG.
pub fn files(part: &Part) -> Result<Vec<(String, Vec<u8>)>, ::csv::Error> {
    let (parts, experiment) = (std::slice::from_ref(part), &part.experiment);
    let mut table = Vec::new();
    csv(parts, &mut table)?;
    let table_name = if phases::has(part) { "phases.csv" } else { "points.csv" };
    let mut files = vec![
        ("report.html".to_owned(), html(parts).into_bytes()),
        ("summary.txt".to_owned(), summary(parts, &Styles::plain()).into_bytes()),
        (table_name.to_owned(), table),
    ];
    files.extend(lag_csv(parts)?.map(|lag| ("lag.csv".to_owned(), lag)));
    for (entry, result) in experiment.document.phases.iter().zip(&part.loaded.phases) {
        let folder = entry.folder.as_ref().filter(|folder| experiment.is_inside(folder));
        if let (Some(folder), Some(result)) = (folder, result) {
            files.push((format!("{folder}/report.html"), crate::html::html(result).into_bytes()));
        }
    }
    files.extend(searches::csv(&View::new(parts))?.map(|trials| ("trials.csv".to_owned(), trials)));
    for PlotFile { name, svg, png } in plots(parts) {
        files.push((format!("plots/{name}.svg"), svg.into_bytes()));
        files.push((format!("plots/{name}.png"), png));
    }
    Ok(files)
}

/// Plots under a heading.
struct Section {
    title: &'static str,
    /// How to read the plots.
    words: String,
    blocks: Vec<Block>,
}

/// Plots that belong together.
struct Block {
    /// May be empty.
    heading: String,
    /// The legend, if the plots share one.
    keys: Option<Vec<LegendEntry>>,
    layout: Layout,
    plots: Vec<Plot>,
    /// Whether the page has the plots; there are files of them in any case.
    on_page: bool,
}

/// How the plots of a block are laid out.
#[derive(Clone, Copy, PartialEq)]
enum Layout {
    /// One below the other.
    Wide,
    /// Two or three side by side.
    Small,
}

impl Block {
    fn new(heading: String, layout: Layout, plots: Vec<Plot>) -> Block {
        Block { heading, keys: None, layout, plots, on_page: true }
    }

    /// The block with one legend for all plots.
    fn sharing(self, keys: Vec<LegendEntry>) -> Block {
        Block { keys: Some(keys), ..self }
    }
}

fn sections(view: &View<'_>) -> Vec<Section> {
    let mut sections: Vec<Section> = searches::section(view).into_iter().collect();
    sections.extend(curves::sections(view));
    sections.extend(percentiles::section(view));
    sections.extend(over_time::section(view));
    sections.extend(costs::section(view));
    sections.retain(|section| section.blocks.iter().any(|block| !block.plots.is_empty()));
    sections
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{html::parts::checks::check, sample, terminal::WIDTH};
    use proptest::prelude::*;
    use serval_result::{
        document::{BufferedResult, Censored, EndedBy},
        experiment::Flag,
        flags::flags,
        group::GroupResult,
    };

    /// Two runs, and an experiment of the same results whose texts are `words`.
    fn parts(documents: &[ResultDocument; 2], words: &str) -> Vec<Part> {
        let mut parts: Vec<Part> = documents
            .iter()
            .map(|document| Part::of_run(words.to_owned(), Path::new("result.json"), document))
            .collect();
        let mut odd = parts[0].clone();
        odd.is_run = false;
        let document = &mut odd.experiment.document;
        for text in [&mut document.title, &mut document.saw, &mut document.plan, &mut document.curves[0].name]
        {
            words.clone_into(text);
        }
        document.axis = Some(words.to_owned());
        document.curves[0].at = Some(documents[0].overall.throughput);
        document.warnings.push(words.to_owned());
        document.time_s.insert(words.to_owned(), documents[1].overall.throughput);
        document.complete = false;
        parts.push(odd);
        parts
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn no_results_break_a_report(
            a in sample::any_document(),
            b in sample::any_document(),
            words in ".{0,30}(<script>|&|\"|\u{1b}\\[31m)?.{0,5}",
        ) {
            let parts = parts(&[a, b], &words);
            check(&html(&parts));
            check(&html(&parts[2..]));
            csv(&parts, Vec::new()).unwrap();
            for line in summary(&parts, &Styles::colourless()).lines() {
                prop_assert!(!line.contains('\u{1b}'), "{:?}", line);
                // A word longer than a line is not broken.
                prop_assert!(line.chars().count() <= WIDTH || !line.trim().contains(' '), "{}", line);
            }
        }
    }

    /// A report of several runs has the flags that [`flags`] derives.
    #[test]
    fn a_report_of_several_runs_has_the_flags_of_each() {
        type Change = fn(&mut ResultDocument);
        let calm = || {
            let mut document = sample::unpaced();
            document.overall.failed = 0;
            document
        };
        let cases: [(Change, &[Flag]); 8] = [
            (|_| {}, &[]),
            (|run| run.overall.failed = 1, &[Flag::Failures]),
            (|run| run.buffered = Some(BufferedResult { sent: 9, lost: 1, unsent: 0 }), &[Flag::Failures]),
            (|run| run.buffered = Some(BufferedResult { sent: 9, lost: 0, unsent: 1 }), &[Flag::Failures]),
            (|run| run.censored.in_flight = 1, &[Flag::Failures]),
            (|run| run.overall.ended_by = EndedBy::Interrupted.into(), &[Flag::Interrupted]),
            (|run| run.overall.ended_by = EndedBy::Failed.into(), &[Flag::Interrupted]),
            (|run| run.overall.operations = 999, &[Flag::FewSamples]),
        ];
        for (number, (change, wanted)) in cases.into_iter().enumerate() {
            let mut document = calm();
            change(&mut document);
            let part = Part::of_run("a".to_owned(), Path::new("result.json"), &document);
            assert_eq!(part.experiment.document.runs[0].flags, wanted, "case {number}");
            let page = html(&[part.clone(), part]);
            for (flag, words) in [(Flag::Failures, "Failures: "), (Flag::Interrupted, "Interrupted: ")] {
                assert_eq!(page.contains(words), wanted.contains(&flag), "case {number}, {words}");
            }
        }
        // The number of a load's operations is no sample size.
        let mut load = calm();
        (load.run.phase, load.overall.operations) = ("load".to_owned(), 10);
        assert_eq!(flags(&load), []);
        let mut slow = sample::paced();
        let pacing = slow.pacing.as_mut().unwrap();
        (pacing.target, slow.overall.failed, slow.censored) = (1000.0, 0, Censored::default());
        assert_eq!(flags(&slow), [Flag::Overloaded]);
    }

    #[test]
    fn warnings_that_runs_share_are_merged() {
        let part = |name: &str, skew_ns: u64| {
            let mut document = sample::unpaced();
            (document.overall.operations, document.environment.debug) = (900, true);
            document.group = Some(GroupResult {
                start_skew_ns: Some(skew_ns),
                clock_error_ns: Some(80_000),
                ..GroupResult::default()
            });
            // As a run writes it.
            document.notes = crate::notes::notes(&document);
            document.warnings = crate::notes::lines(&document.notes);
            Part::of_run(name.to_owned(), Path::new("result.json"), &document)
        };
        let parts = [part("a", 2_500_000), part("b", 3_000_000_000), part("c", 20_000_000)];
        let said = warnings::warnings(&View::new(&parts));
        let said: Vec<String> = said.iter().map(crate::notes::Warning::line).collect();
        let at = "a at 16 clients; b at 16 clients; c at 16 clients";
        let wanted = [
            format!(
                "Failures: times are those of successful operations: {at}. 3 of 11,053 READ (0.027 %); 3 × NOT_FOUND: \
                 <b>no such key</b> & \"none\" in 'usertable'"
            ),
            format!("Few samples: too few operations for the tail percentiles: {at}."),
            "The store runs on the same machine as the client. (all points)".to_owned(),
            "The clients may have begun as much as 2.58 ms to 3.00 s apart (clocks are known to 80.0 µs). (all points)"
                .to_owned(),
            "This is a debug build of the client: its numbers are not to be quoted. (all points)".to_owned(),
        ];
        let mut sorted = said.clone();
        sorted.sort();
        let mut wanted = wanted.to_vec();
        wanted.sort();
        assert_eq!(sorted, wanted);
    }

    #[test]
    fn files_of_an_experiments_folder_are_complete() {
        let part = Part::of_run("redis".to_owned(), Path::new("result.json"), &sample::paced());
        let files = files(&part).unwrap();
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[..3], ["report.html", "summary.txt", "points.csv"]);
        assert!(names[3..].chunks(2).all(|pair| {
            pair[0].starts_with("plots/") && pair[0].strip_suffix(".svg") == pair[1].strip_suffix(".png")
        }));
        assert!(names.len() > 8 && files.iter().all(|(_, contents)| !contents.is_empty()), "{names:?}");
    }
}
