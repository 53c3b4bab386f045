//! Encoding of a record as a JSON object of strings, as in YCSB's `postgrenosql`
//! binding.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor, value};
use serval_model::{Outcome, Record, Status};
use std::fmt;

/// Appends a record.
pub(crate) fn write(record: &Record, out: &mut Vec<u8>) -> Result<(), Outcome> {
    out.push(b'{');
    for (index, (field, value)) in record.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let Ok(value) = std::str::from_utf8(value) else {
            let words = format!("field '{field}': JSON holds text, and this value is not UTF-8");
            return Err(Outcome::failed(Status::BadRequest, words));
        };
        string(field, out);
        out.push(b':');
        string(value, out);
    }
    out.push(b'}');
    Ok(())
}

fn string(text: &str, out: &mut Vec<u8>) {
    // Writing a string to a vector cannot fail.
    drop(serde_json::to_writer(out, text));
}

/// Parses an object into a record: strings as values, null as a missing field, other
/// values as their JSON text. Fails if the document is not an object.
pub(crate) fn read(document: &[u8], record: &mut Record) -> Result<(), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(document);
    reader.deserialize_map(JsonFields(record))?;
    reader.end()
}

/// Applies an update to a record: its fields in their order, then the new
/// ones.
#[cfg(any(feature = "etcd", feature = "memcached", feature = "zookeeper"))]
pub(crate) fn merge(old: &Record, changes: &Record, new: &mut Record) {
    new.clear();
    for (name, value) in old.iter() {
        new.push(name, changes.get(name).unwrap_or(value));
    }
    for (name, value) in changes.iter().filter(|(name, _)| old.get(name).is_none()) {
        new.push(name, value);
    }
}

struct JsonFields<'a>(&'a mut Record);

impl<'de> Visitor<'de> for JsonFields<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut name = String::new();
        while map.next_key_seed(Name(&mut name))?.is_some() {
            map.next_value_seed(JsonValue { name: &name, record: self.0 })?;
        }
        Ok(())
    }
}

/// Deserializes a name into a buffer, without allocation.
struct Name<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a name")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.0.clear();
        self.0.push_str(text);
        Ok(())
    }
}

/// Deserializes a value into the record.
struct JsonValue<'a> {
    name: &'a str,
    record: &'a mut Record,
}

impl JsonValue<'_> {
    fn other(self, value: &impl fmt::Display) {
        self.record.push(self.name, value.to_string().as_bytes());
    }
}

impl<'de> DeserializeSeed<'de> for JsonValue<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonValue<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.record.push(self.name, text.as_bytes());
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.other(&value);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.other(&value);
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.other(&value);
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.other(&value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        let deserializer = value::SeqAccessDeserializer::new(items);
        let value: serde_json::Value = serde::Deserialize::deserialize(deserializer)?;
        self.other(&value);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<(), A::Error> {
        let deserializer = value::MapAccessDeserializer::new(fields);
        let value: serde_json::Value = serde::Deserialize::deserialize(deserializer)?;
        self.other(&value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_a_round_trip_and_other_values_become_json() {
        let record =
            Record::from_iter([("a\"", &b"\\ \n\x01 \"x\""[..]), ("b", "日".as_bytes()), ("c", b"")]);
        let mut text = Vec::new();
        write(&record, &mut text).unwrap_or_else(|outcome| panic!("{outcome:?}"));
        let mut back = Record::new();
        read(&text, &mut back).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(back, record);
        let mut other = Record::new();
        let document = br#"{"n":null,"i":-1,"u":2,"f":1.5,"t":true,"l":[1,{"a":"b"}],"m":{"x":[]}}"#;
        read(document, &mut other).unwrap_or_else(|error| panic!("{error}"));
        let expected = [
            ("i", "-1"),
            ("u", "2"),
            ("f", "1.5"),
            ("t", "true"),
            ("l", r#"[1,{"a":"b"}]"#),
            ("m", r#"{"x":[]}"#),
        ];
        assert_eq!(other, expected.iter().map(|(name, value)| (*name, value.as_bytes())).collect());
        let mut none = Record::new();
        for wrong in [&b"[1]"[..], b"", b"{\"a\":", b"{} {}"] {
            assert!(read(wrong, &mut none).is_err(), "{wrong:?}");
        }
        let bytes = Record::from_iter([("x", &b"\xff"[..])]);
        assert_eq!(write(&bytes, &mut text).map_err(|outcome| outcome.status), Err(Status::BadRequest));
    }
}
