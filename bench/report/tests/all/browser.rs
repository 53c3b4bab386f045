//! Opens report pages in a browser: it reports no errors, all sections are there, and the pages are
//! not blank. Screenshots are in `browser/` of the target directory's `tmp`.
//!
//! `cargo xtask test` sets SERVAL_TEST_BROWSER to Chromium's path; without it the test is ignored.
use crate::synthetic::Size;
use serval_conformance::variable;
use serval_report::{
    experiment::{self, Part},
    html, stored,
};
use std::{
    collections::BTreeSet,
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Chromium without a window and background requests, with a profile of its own.
struct Browser {
    program: String,
    profiles: tempfile::TempDir,
    pictures: PathBuf,
}

/// A theme, and Chromium's flag for it.
const THEMES: [(&str, &str); 2] = [
    ("light", "--blink-settings=preferredColorScheme=1"),
    ("dark", "--blink-settings=preferredColorScheme=0"),
];

impl Browser {
    fn run(&self, page: &Path, arguments: &[String]) -> Output {
        let profile = tempfile::tempdir_in(self.profiles.path()).unwrap();
        let mut command = Command::new(&self.program);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            "--v=0",
        ]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).args(arguments);
        let output = command.arg(format!("file://{}", page.display())).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", output.status);
        // Violations of the page's policy, syntax errors, and other messages.
        let told: Vec<&str> = errors.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(told.is_empty(), "{}: {told:#?}", page.display());
        output
    }

    /// The page's DOM after loading.
    fn read(&self, page: &Path) -> String {
        String::from_utf8(self.run(page, &["--dump-dom".to_owned()]).stdout).unwrap()
    }

    /// Takes a screenshot of this height; returns its number of colours.
    fn picture(&self, page: &Path, name: &str, theme: &str, width: u32, height: u32) -> BTreeSet<[u8; 3]> {
        let path = self.pictures.join(format!("{name}.png"));
        let _ = std::fs::remove_file(&path);
        let arguments = [
            format!("--screenshot={}", path.display()),
            format!("--window-size={width},{height}"),
            theme.to_owned(),
        ];
        self.run(page, &arguments);
        let decoder = png::Decoder::new(BufReader::new(File::open(&path).unwrap()));
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (width, height), "{name}");
        let step = info.color_type.samples();
        pixels.chunks(step).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
    }

    fn paper(&self, page: &Path, name: &str) {
        let path = self.pictures.join(format!("{name}.pdf"));
        let _ = std::fs::remove_file(&path);
        self.run(page, &[format!("--print-to-pdf={}", path.display()), "--no-pdf-header-footer".to_owned()]);
        let pdf = std::fs::read(&path).unwrap();
        assert!(pdf.starts_with(b"%PDF") && pdf.len() > 20_000, "{name}: {} bytes", pdf.len());
    }
}

/// The page of an experiment that `make` stores.
fn experiment_page(place: &Path, make: impl Fn(&Path)) -> String {
    std::fs::create_dir_all(place).unwrap();
    make(place);
    experiment::html(&[Part::read("experiment", &stored::read(place).unwrap()).unwrap()])
}

#[test]
#[ignore = "needs SERVAL_TEST_BROWSER"]
fn pages_open_without_errors_in_both_themes_and_in_print() {
    let Some(program) = variable("SERVAL_TEST_BROWSER") else { return };
    let place = tempfile::tempdir().unwrap();
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    std::fs::create_dir_all(&pictures).unwrap();
    let browser = Browser { program, profiles: tempfile::tempdir().unwrap(), pictures };
    let sweep = Size { stores: 3, points: 8, repeats: 3, seconds: 12, drawn: 200 };
    let runs: Vec<Part> = (1..=3u64)
        .map(|seed| {
            let name = format!("run-{seed}");
            let file = crate::synthetic::write_run(
                &place.path().join(&name),
                &crate::synthetic::one_run(60, 200, seed),
            );
            Part::read(&name, &stored::read(&file).unwrap()).unwrap()
        })
        .collect();
    let all = "Before quoting a number|Response times by percentile|Over time|Costs|All points|Environment|\
               Where the time went|The plan|Command line";
    let pages = [
        (
            "run",
            html::html(&crate::synthetic::result(&crate::synthetic::one_run(120, 400, 2))),
            "Before quoting a number|Times|Over time|Failures a second|By percentile|What it cost|Properties",
            5200,
        ),
        (
            "long-run",
            html::html(&crate::synthetic::result(&crate::synthetic::one_run(3600, 40, 1))),
            "Over time|By percentile",
            5200,
        ),
        (
            "sweep",
            experiment_page(&place.path().join("sweep"), |at| crate::synthetic::sweep(at, sweep)),
            &format!("Latency against throughput|Loads and searches|{all}"),
            9000,
        ),
        (
            "closed",
            experiment_page(&place.path().join("closed"), |at| crate::synthetic::closed(at, 10, 200)),
            &format!("Throughput and latency|{all}"),
            7000,
        ),
        (
            "axis",
            experiment_page(&place.path().join("axis"), |at| crate::synthetic::axis(at, 6, 200)),
            &format!("Latency and throughput|{all}"),
            8000,
        ),
        (
            "max",
            experiment_page(&place.path().join("max"), crate::synthetic::searched::max),
            &format!("The highest rate that keeps the SLO|Loads and searches|{all}"),
            9000,
        ),
        ("overlaid", experiment::html(&runs), "3 runs|Over time|All points", 7000),
    ];
    for (name, page, sections, height) in &pages {
        let file = place.path().join(format!("{name}.html"));
        std::fs::write(&file, page).unwrap();
        std::fs::write(browser.pictures.join(format!("{name}.html")), page).unwrap();
        let read = browser.read(&file);
        for section in sections.split('|') {
            assert!(read.contains(&format!("{section}</h")), "{name} has no {section}");
        }
        // The browser parsed the whole page.
        assert_eq!(read.matches("</svg>").count(), page.matches("</svg>").count(), "{name}");
        let [light, dark] = THEMES.map(|(theme, argument)| {
            browser.picture(&file, &format!("{name}-{theme}"), argument, 1280, *height)
        });
        // Background, text and lines, with antialiasing.
        assert!(light.len() > 50 && dark.len() > 50, "{name}: {} and {} colours", light.len(), dark.len());
        assert!(
            light.contains(&[0xf6, 0xf7, 0xf9]) && !light.contains(&[0x12, 0x15, 0x1b]),
            "{name} is light"
        );
        assert!(dark.contains(&[0x12, 0x15, 0x1b]) && !dark.contains(&[0xf6, 0xf7, 0xf9]), "{name} is dark");
        if ["run", "sweep"].contains(name) {
            browser.paper(&file, name);
        }
    }
    // The width of a phone.
    let narrow = browser.picture(&place.path().join("sweep.html"), "sweep-narrow", THEMES[0].1, 500, 5000);
    assert!(narrow.len() > 50);
    println!("pictures: {}", browser.pictures.display());
}
