//! The JSON Schemas of the documents.
//!
//! Only tests derive them, since the crates needed add seconds to each build. The program prints
//! the files in `docs/`, which `tests/schemas.rs` compares with these.

use crate::{document::ResultDocument, experiment::ExperimentDocument, note::Note, word::Word};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema, schema_for};
use std::borrow::Cow;

/// The schema of [`ResultDocument`], pretty-printed.
pub fn result() -> String {
    text(&schema_for!(ResultDocument))
}

/// The schema of [`ExperimentDocument`], pretty-printed.
pub fn experiment() -> String {
    text(&schema_for!(ExperimentDocument))
}

fn text(schema: &Schema) -> String {
    serde_json::to_string_pretty(schema).unwrap_or_default() + "\n"
}

impl<T> JsonSchema for Word<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Word".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

/// Valid for notes of all versions.
impl JsonSchema for Note {
    fn schema_name() -> Cow<'static, str> {
        "Note".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A warning for readers of the numbers. docs/result-format.md lists the codes.",
            "type": "object",
            "properties": {
                "code": { "description": "The kind of warning.", "type": "string" },
                "arguments": { "description": "The arguments of its text; absent if there are none.", "type": "object" }
            },
            "required": ["code"]
        })
    }
}
