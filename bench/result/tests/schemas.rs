//! `serval schema` prints the schemas derived from the types.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use serval_result::{document, experiment, schema};
use std::{env, fs, path::Path};

fn check(name: &str, derived: &str, printed: &str) {
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name), derived).unwrap();
        return;
    }
    assert!(
        derived == printed,
        "docs/{name} is not the schema of its type; regenerate it with \
         `UPDATE_GOLDEN=1 cargo test -p serval-result`"
    );
}

#[test]
fn result_schema_is_derived_from_its_type() {
    check("result.schema.json", &schema::result(), document::json_schema());
}

#[test]
fn experiment_schema_is_derived_from_its_type() {
    check("experiment.schema.json", &schema::experiment(), experiment::json_schema());
}
