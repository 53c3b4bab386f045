//! Results of searches: on the page, as plots, and as CSV.
use serval_report::{
    experiment::{self, Part, TRIAL_COLUMNS},
    stored,
};

fn searched(make: impl Fn(&std::path::Path)) -> [Part; 1] {
    let place = tempfile::tempdir().unwrap();
    make(place.path());
    [Part::read("searched", &stored::read(place.path()).unwrap()).unwrap()]
}

#[test]
fn a_search_for_the_highest_rate_is_shown_with_every_trial() {
    let part = searched(crate::synthetic::searched::max);
    let page = experiment::html(&part);
    for part in [
        "The highest rate that keeps the SLO</h2>",
        "redis: read.p99 against offered load",
        "yesquel: failed against offered load",
        "Trials of redis</h3>",
        "<small>limit 1.00 ms</small>",
        "<small>limit 0.100 %</small>",
        "12 of 16 trials kept it.",
        "Search for the saturation of yesquel</h3>",
        "It ended because doubling the clients twice in turn gained less than 5 %.",
        "less than 5 %</td>",
        "<th>redis</th><td>990,000</td>",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let files = experiment::files(&part[0]).unwrap();
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"plots/redis-read-p99-against-offered-load.svg"), "{names:?}");
    let (_, csv) = files.iter().find(|(name, _)| name == "trials.csv").unwrap();
    let mut reader = csv::Reader::from_reader(&csv[..]);
    assert_eq!(reader.headers().unwrap().iter().collect::<Vec<_>>().join(","), TRIAL_COLUMNS);
    let lines: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    // Six doublings; 16 trials of two conditions each; two stores.
    assert_eq!(lines.len(), 2 * (6 + 16 * 2));
    let promises = || lines.iter().filter(|line| &line[5] == "promise");
    for line in promises().filter(|line| &line[14] == "read.p99_us" && !line[15].is_empty()) {
        let (value, limit): (f64, f64) = (line[15].parse().unwrap(), line[16].parse().unwrap());
        assert_eq!(limit, 1000.0);
        assert_eq!(&line[17], if value <= limit { "true" } else { "false" });
    }
    assert_eq!(promises().filter(|line| &line[13] == "changed").count(), 2);
}

#[test]
fn a_sweep_without_searches_has_no_trials_csv() {
    let size = crate::synthetic::Size { stores: 1, points: 2, repeats: 1, seconds: 2, drawn: 40 };
    let part = searched(|place| crate::synthetic::sweep(place, size));
    let files = experiment::files(&part[0]).unwrap();
    assert!(files.iter().all(|(name, _)| name != "trials.csv"));
    let page = experiment::html(&part);
    assert!(page.contains("Loads</h3>") && !page.contains("Search for the saturation"));
}
