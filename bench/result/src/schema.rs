//! The JSON Schemas that the types have.
//!
//! Only tests derive them: the crates that do so take seconds of each build. The program prints
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

/// Holds for notes of all versions.
impl JsonSchema for Note {
    fn schema_name() -> Cow<'static, str> {
        "Note".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "What a reader must know before quoting a number. docs/result-format.md lists the codes.",
            "type": "object",
            "properties": {
                "code": { "description": "Which note it is.", "type": "string" },
                "arguments": { "description": "What its sentence is made of; absent if it needs nothing.", "type": "object" }
            },
            "required": ["code"]
        })
    }
}
