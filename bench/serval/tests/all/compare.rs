//! `serval compare` as a user runs it: exit statuses, output formats, errors.

use crate::common::{Ran, folder, serval};
use std::{fs, path::Path};

/// Returns the result of a run on the no-op store, from which others are derived.
fn pattern(place: &Path) -> serde_json::Value {
    let file = crate::common::workload("workloadc");
    let words = format!("run noop -P {file} -p operationcount=2000 -p seed=1 --result pattern");
    serval(place, &words).expect(0);
    let text = fs::read(place.join("pattern/result.json")).unwrap();
    fs::remove_dir_all(place.join("pattern")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Writes results whose throughput starts at `base` and rises slightly, and whose times
/// are constant.
fn side(place: &Path, pattern: &serde_json::Value, name: &str, runs: u32, base: f64) {
    for run in 0..runs {
        let mut document = pattern.clone();
        document["run"]["started"] = format!("2026-01-01T00:00:{run:02}Z {name}").into();
        document["overall"]["throughput"] = (base * (1.0 + 0.01 * f64::from(run % 3))).into();
        let folder = place.join(name).join(run.to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("result.json"), document.to_string()).unwrap();
    }
}

fn compare(place: &Path, words: &str) -> Ran {
    serval(place, &format!("compare {words}"))
}

#[test]
fn the_exit_status_is_the_verdict() {
    let place = folder();
    let place = place.path();
    let pattern = pattern(place);
    side(place, &pattern, "before", 5, 1000.0);
    side(place, &pattern, "same", 5, 1000.0);
    side(place, &pattern, "slow", 5, 700.0);
    side(place, &pattern, "few", 4, 700.0);
    side(place, &pattern, "more", 1, 1004.0);
    let same = compare(place, "before same").expect(0);
    assert!(same.stdout.starts_with("No difference was found in"), "{}", same.stdout);
    let worse = compare(place, "before slow").expect(1);
    let verdict = "slow (B) is worse than before (A) in 1 of ";
    assert!(worse.stdout.starts_with(verdict), "{}", worse.stdout);
    assert!(worse.stdout.contains("WORSE") && !worse.stdout.contains('\x1b'), "{}", worse.stdout);
    assert!(worse.stdout.lines().all(|line| line.chars().count() <= 100), "{}", worse.stdout);
    assert!(compare(place, "slow before").expect(0).stdout.contains("BETTER"));
    let few = compare(place, "before few").expect(5);
    assert!(few.stdout.starts_with("Inconclusive: 4 runs on a side"), "{}", few.stdout);
    assert!(few.stdout.contains("−30.0 %"), "numbers are shown: {}", few.stdout);
    // A threshold, a stricter level, and noise from runs of equal sides.
    compare(place, "before slow --threshold 40%").expect(0);
    compare(place, "before slow --alpha 1e-12").expect(0);
    compare(place, "before slow --aa before").expect(1);
    side(place, &pattern, "loud", 3, 1000.0);
    side(place, &pattern, "loud/others", 3, 300.0);
    let noise = compare(place, "before slow --aa loud").expect(0);
    assert!(noise.stdout.contains("within noise"), "{}", noise.stdout);
}

#[test]
fn sides_are_folders_files_patterns_and_lists() {
    let place = folder();
    let place = place.path();
    let pattern = pattern(place);
    side(place, &pattern, "a/deep/er", 5, 1000.0);
    side(place, &pattern, "b", 6, 1000.0);
    let runs = |words: &str| -> Vec<usize> {
        let ran = compare(place, &format!("{words} --json"));
        let document: serde_json::Value =
            serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.stderr));
        let number = |side: &str| document["points"][0][side].as_array().unwrap().len();
        vec![number("runs_a"), number("runs_b")]
    };
    assert_eq!(runs("a b"), [5, 6]);
    assert_eq!(runs("a b/[0-3]"), [5, 4]);
    assert_eq!(runs("a b/2/result.json"), [5, 1]);
    assert_eq!(runs("--a a --b b/1 b/2 --b b/3"), [5, 3]);
    assert_eq!(runs("a --b b/1 b/2"), [5, 2]);
    assert_eq!(runs("a b/1 --b b/2"), [5, 2]);
}

#[test]
fn json_and_markdown_output() {
    let place = folder();
    let place = place.path();
    let mut pattern = pattern(place);
    side(place, &pattern, "a", 5, 1000.0);
    pattern["run"]["store"] = "other|store".into();
    side(place, &pattern, "b", 5, 500.0);
    let json = compare(place, "a b --json --seed 7").expect(1);
    let document: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&document["comparison_version"], &document["seed"]), (&1.into(), &7.into()));
    assert_eq!((&document["verdict"], &document["setup"][0]["what"]), (&"worse".into(), &"store".into()));
    let throughput = &document["points"][0]["metrics"][0];
    assert_eq!(
        (&throughput["metric"]["kind"], &throughput["verdict"]),
        (&"throughput".into(), &"worse".into())
    );
    assert!((throughput["change"].as_f64().unwrap() + 0.5).abs() < 1e-9, "{throughput}");
    let page = compare(place, "a b --markdown").expect(1).stdout;
    assert!(page.starts_with("❌ **serval compare: b (B) is worse than a (A) in 1 of "), "{page}");
    assert!(page.contains("| store | noop | other\\|store |") && page.contains("</details>"), "{page}");
    // Each row of a table has as many cells as its header.
    let cells = |line: &str| line.replace("\\|", "").matches('|').count();
    let rows: Vec<usize> =
        page.lines().filter(|line| line.starts_with('|') && cells(line) > 4).map(cells).collect();
    assert!(rows.len() > 6 && rows.iter().all(|n| *n == rows[0]), "{page}");
    assert_eq!(compare(place, "a b --markdown --json").status, 2);
}

#[test]
fn results_that_cannot_be_compared_are_reported() {
    let place = folder();
    let place = place.path();
    let pattern = pattern(place);
    side(place, &pattern, "a", 5, 1000.0);
    side(place, &pattern, "b", 5, 1000.0);
    let refused = |words: &str, part: &str| {
        let ran = compare(place, words).expect(2);
        assert!(ran.stderr.contains(part) && ran.stdout.is_empty(), "{words}: {}", ran.stderr);
    };
    refused("a", "side B is missing");
    refused("--b b", "side A is missing");
    refused("c --a a --b b", "c: on which side?");
    refused("a nowhere", "nowhere: cannot be read");
    refused("a b/7*", "b/7*: no path matches");
    refused("a a", "it cannot be on both sides");
    refused("a b --alpha 2", "--alpha 2: a share above 0");
    refused("a b --threshold much", "--threshold much: a percentage");
    fs::create_dir(place.join("empty")).unwrap();
    refused("a empty", "empty: there is no result in it");
    refused("a a:redis", "has no curve 'redis'");
    fs::write(place.join("b/3/result.json"), "{\"schema_version\": 1,\n\"run\"").unwrap();
    refused("a b", "3/result.json: the result is incomplete");
    fs::write(place.join("b/3/result.json"), "{\"schema_version\": 9}").unwrap();
    refused("a b", "use a newer Serval");
    fs::write(place.join("b/3/result.json"), "not JSON").unwrap();
    refused("a b", "not a result of Serval's");
    fs::remove_file(place.join("b/3/result.json")).unwrap();
    fs::write(place.join("b/3/experiment.json"), "{\"experiment_version\": 1}").unwrap();
    refused("a b", "experiment.json: has a fault");
    fs::remove_dir_all(place.join("b/3")).unwrap();
    compare(place, "a b").expect(5);
}
