//! Checks that the published Java core still generates the golden files.
//!
//! Needs the class path of `site.ycsb:core:0.17.0` in SERVAL_YCSB_CLASSPATH (`cargo xtask test`
//! fetches it) and Java 17, whose random source the goldens inject draws into; ignored otherwise.

#![allow(clippy::disallowed_methods, reason = "a test may read files")]

use std::{
    path::Path,
    process::{Command, Output},
};

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Compiles a program of `golden/`, runs it in an empty folder and compares its
/// output files with the golden ones.
fn regenerated(program: &str, options: &[&str]) {
    let Ok(class_path) = std::env::var("SERVAL_YCSB_CLASSPATH") else {
        panic!("SERVAL_YCSB_CLASSPATH is not set: 'cargo xtask test' fetches YCSB's core and sets it");
    };
    let version = Command::new("java").arg("-version").output();
    let version =
        version.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default();
    let first = version.lines().next().unwrap_or("no java");
    assert!(version.contains("\"17."), "the goldens are of Java 17, and here is {first}");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let place = tempfile::tempdir().unwrap();
    let (classes, out) = (place.path().join("classes"), place.path().join("out"));
    std::fs::create_dir(&out).unwrap();
    std::fs::copy(golden.join("nasty.properties"), out.join("nasty.properties")).unwrap();
    run(Command::new("javac")
        .args(["-cp", &class_path, "-d"])
        .arg(&classes)
        .arg(golden.join(format!("{program}.java"))));
    let class_path = format!("{}:{class_path}", classes.display());
    run(Command::new("java").args(options).args(["-cp", &class_path, program]).arg(&out));
    let mut compared = 0;
    for entry in std::fs::read_dir(&out).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        let (made, kept) = (std::fs::read(&path).unwrap(), std::fs::read(golden.join(name)).unwrap());
        assert!(made == kept, "{} is not what Java makes now", name.to_string_lossy());
        compared += 1;
    }
    assert!(compared >= 5, "{compared} files");
}

#[test]
#[ignore = "needs SERVAL_YCSB_CLASSPATH"]
fn distributions_keys_and_values() {
    let options = [
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:-UseLibmIntrinsic",
        "--add-opens",
        "java.base/java.lang=ALL-UNNAMED",
    ];
    regenerated("Golden", &options);
}

#[test]
#[ignore = "needs SERVAL_YCSB_CLASSPATH"]
fn time_series() {
    regenerated("TimeSeriesGolden", &["-Xmx1g"]);
}
