//! Comparison with `java.util.Properties.load`: `properties.txt` has the properties that Java 17
//! reads from `nasty.properties`, sorted by key. `bench/workload/golden/README.md` describes how
//! both were made.

use serval_model::properties::java;
use std::collections::BTreeMap;

/// Escapes a text as `Golden.java` does.
fn escaped(text: &str) -> String {
    let units = text.encode_utf16().map(|unit| match u8::try_from(unit) {
        Ok(octet @ b' '..=b'~') if octet != b'\\' => char::from(octet).to_string(),
        _ => format!("\\{unit:04x}"),
    });
    format!("\"{}\"", units.collect::<String>())
}

#[test]
fn properties_equal_those_that_java_reads() {
    let entries = java::parse(include_bytes!("../../workload/golden/nasty.properties")).unwrap();
    assert!(entries.iter().any(|entry| entry.key == "joined" && entry.value == "one,two,three"));
    // The last of a key's values wins. Java sorts by UTF-16 units.
    let sorted: BTreeMap<Vec<u16>, (String, String)> = entries
        .into_iter()
        .map(|entry| (entry.key.encode_utf16().collect(), (entry.key, entry.value)))
        .collect();
    let ours: String =
        sorted.values().map(|(key, value)| format!("{} -> {}\n", escaped(key), escaped(value))).collect();
    for (ours, java) in ours.lines().zip(include_str!("../../workload/golden/properties.txt").lines()) {
        assert_eq!(ours, java);
    }
    assert_eq!(ours, include_str!("../../workload/golden/properties.txt"));
}
