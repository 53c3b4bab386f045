//! The three forms in which YCSB writes its lines.

use crate::ycsb::{
    ExportLine, Value,
    java::{java_double, json_double},
};
use std::io::{self, Write};

/// YCSB's exporters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exporter {
    /// `[METRIC], measurement, value` lines.
    #[default]
    Text,
    /// Concatenated JSON objects.
    Json,
    /// One JSON array of objects.
    JsonArray,
}

impl Exporter {
    /// Parses the property `exporter`: the name of one of YCSB's classes, in either of its packages, or
    /// `ycsb` for the text.
    pub fn from_name(name: &str) -> Option<Exporter> {
        if name == "ycsb" {
            return Some(Exporter::Text);
        }
        let class = name.strip_prefix("site.ycsb.").or_else(|| name.strip_prefix("com.yahoo.ycsb."))?;
        match class.strip_prefix("measurements.exporter.")? {
            "TextMeasurementsExporter" => Some(Exporter::Text),
            "JSONMeasurementsExporter" => Some(Exporter::Json),
            "JSONArrayMeasurementsExporter" => Some(Exporter::JsonArray),
            _ => None,
        }
    }

    /// Writes lines in this form.
    pub fn write(self, lines: &[ExportLine], out: &mut impl Write) -> io::Result<()> {
        match self {
            Exporter::Text => {
                for ExportLine { metric, measurement, value } in lines {
                    match value {
                        Value::Int(value) => writeln!(out, "[{metric}], {measurement}, {value}")?,
                        Value::Float(value) => {
                            writeln!(out, "[{metric}], {measurement}, {}", java_double(*value))?;
                        }
                    }
                }
            }
            Exporter::Json => objects(lines, " ", out)?,
            Exporter::JsonArray => {
                write!(out, "[ ")?;
                objects(lines, ", ", out)?;
                write!(out, " ]")?;
            }
        }
        out.flush()
    }
}

/// Objects in the style of Jackson 1.9's pretty printer.
fn objects(lines: &[ExportLine], between: &str, out: &mut impl Write) -> io::Result<()> {
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            write!(out, "{between}")?;
        }
        let value = match line.value {
            Value::Int(value) => value.to_string(),
            Value::Float(value) => json_double(value),
        };
        let metric = serde_json::to_string(&line.metric)?;
        let measurement = serde_json::to_string(&line.measurement)?;
        write!(
            out,
            "{{\n  \"metric\" : {metric},\n  \"measurement\" : {measurement},\n  \"value\" : {value}\n}}"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exporters_are_found_by_class_name() {
        for package in ["site.ycsb", "com.yahoo.ycsb"] {
            let of = |class: &str| Exporter::from_name(&format!("{package}.measurements.exporter.{class}"));
            assert_eq!(of("TextMeasurementsExporter"), Some(Exporter::Text));
            assert_eq!(of("JSONMeasurementsExporter"), Some(Exporter::Json));
            assert_eq!(of("JSONArrayMeasurementsExporter"), Some(Exporter::JsonArray));
            assert_eq!(of("Other"), None);
        }
        assert_eq!(Exporter::from_name("ycsb"), Some(Exporter::Text));
        assert_eq!(Exporter::from_name("json"), None);
    }
}
