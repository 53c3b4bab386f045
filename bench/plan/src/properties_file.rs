//! The file `run.properties` of a result folder.

use crate::{plan::Plan, properties as p, secrets::shown};

/// Formats the properties of a plan as a file that repeats the run. Secrets are left out.
pub fn effective_properties(plan: &Plan) -> String {
    let mut text = format!(
        "# Serval {}: the properties of this run. To run it again:\n# serval {} {} -P run.properties\n",
        env!("CARGO_PKG_VERSION"),
        plan.phase_name(),
        plan.store.name
    );
    for (name, setting) in plan.properties.iter() {
        if shown(name, &setting.value) != setting.value {
            text.push_str(&format!("# {name} is left out: it is a secret, or holds one\n"));
        } else {
            text.push_str(&format!("# {}\n{}\n", setting.origin, escape(name, &setting.value)));
        }
    }
    if plan.properties.get(p::SEED.name).is_none() {
        text.push_str(&format!("# chosen for this run\nseed={}\n", plan.options.seed));
    }
    text
}

/// Formats a line in the syntax of Java's properties files.
pub fn escape(name: &str, value: &str) -> String {
    let escape = |text: &str, key: bool| {
        let mut out = String::new();
        for (at, c) in text.char_indices() {
            match c {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                ' ' if key || at == 0 => out.push_str("\\ "),
                '=' | ':' | '#' | '!' if key => {
                    out.push('\\');
                    out.push(c);
                }
                c => out.push(c),
            }
        }
        out
    };
    format!("{}={}", escape(name, true), escape(value, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serval_model::properties::Properties;
    use std::path::Path;

    #[test]
    fn escaped_properties_survive_a_round_trip() {
        for (name, value) in [("a", "b"), ("a b=c", " lead \\ and\ttab\n"), ("#x", "!y"), ("e", "")] {
            let mut properties = Properties::new();
            properties.load(escape(name, value).as_bytes(), Path::new("x")).unwrap();
            assert_eq!(properties.get(name).unwrap().value, value);
        }
    }
}
