//! Values of properties, as scripts see them.

use serval_model::properties::{Kind, Property, Reader};

/// Value of a property, of the Lua type that scripts see.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PropertyValue {
    Flag(bool),
    Count(u64),
    Number(f64),
    Text(String),
}

/// Reads a property of any kind.
pub(crate) fn property_value(reader: &mut Reader<'_>, property: &Property) -> PropertyValue {
    match property.kind {
        Kind::Flag => PropertyValue::Flag(reader.flag(property)),
        Kind::Count { .. } => PropertyValue::Count(reader.count(property)),
        Kind::Size => PropertyValue::Count(reader.size(property)),
        Kind::Number { .. } => PropertyValue::Number(reader.number(property)),
        Kind::Duration { .. } => PropertyValue::Number(reader.duration(property).as_secs_f64()),
        Kind::Choice(_) => PropertyValue::Text(reader.choice(property).to_owned()),
        Kind::Text | Kind::Path | Kind::Numbers | Kind::Names => PropertyValue::Text(reader.text(property)),
    }
}
