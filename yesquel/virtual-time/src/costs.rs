//! The cost model: what messages and statements cost in processor time, and how long messages take.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf};
use thiserror::Error;

/// Longest cost in microseconds that makes sense.
const COST_US_MAX: f64 = 1e6;

/// Processor time of a server, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerCosts {
    /// To wake up for messages while it has nothing to do.
    pub wake_us: f64,
    /// To read the messages of a connection, and to write the replies to them, however many there are.
    pub connection_us: f64,
    /// To answer a read, besides its bytes.
    pub read_us: f64,
    /// To commit, vote or decide, besides the bytes.
    pub write_us: f64,
    /// To take another message: a heartbeat, a report of a server, a question.
    pub message_us: f64,
    /// For each KiB of a request and its reply.
    pub kib_us: f64,
}

/// Processor time of a client, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCosts {
    /// To send a request and take its reply.
    pub request_us: f64,
    /// To execute a statement, by its name, besides its requests.
    pub statements_us: BTreeMap<String, f64>,
}

/// Network between machines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkCosts {
    /// Time from the end of sending to arrival, in microseconds.
    pub one_way_us: f64,
    /// Rate at which a machine sends, in Mbit/s; above zero.
    pub megabits_per_second: f64,
}

/// Costs of a kind of machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostModel {
    /// When and where it was measured.
    pub measured: String,
    /// Of a server.
    pub server: ServerCosts,
    /// Of a client.
    pub client: ClientCosts,
    /// Of the network.
    pub network: NetworkCosts,
}

/// Why a cost model cannot be used.
#[derive(Debug, Error)]
pub enum CostError {
    /// The file cannot be read.
    #[error("{path}: the cost model cannot be read: {error}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The text is no cost model.
    #[error("the cost model is malformed: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A value is out of range.
    #[error("the cost model has {name} = {value}: it must be {wanted}")]
    Range {
        /// The value's name.
        name: String,
        /// The value.
        value: f64,
        /// The range.
        wanted: &'static str,
    },
    /// The model does not have a statement.
    #[error("the cost model has no statement '{statement}': measure it, or choose one of {known}")]
    NoStatement {
        /// The name.
        statement: String,
        /// The known names.
        known: String,
    },
}

/// The costs that `cargo xtask bench yesquel-costs` has measured last.
const MEASURED: &str = include_str!("../costs.json");

impl CostModel {
    /// Returns the costs that were measured last on the machine of the benchmarks.
    pub fn measured() -> CostModel {
        CostModel::parse(MEASURED).unwrap_or_else(|error| unreachable!("a test parses them: {error}"))
    }

    /// Decodes a cost model from JSON.
    ///
    /// # Errors
    ///
    /// If the text is no cost model, or a value is out of range.
    pub fn parse(json: &str) -> Result<CostModel, CostError> {
        let model: CostModel = serde_json::from_str(json)?;
        model.check()?;
        Ok(model)
    }

    /// Checks the ranges of its values.
    ///
    /// # Errors
    ///
    /// If a value is out of range.
    pub fn check(&self) -> Result<(), CostError> {
        let CostModel { server, client, network, .. } = self;
        let costs = [
            ("server.wake_us", server.wake_us),
            ("server.connection_us", server.connection_us),
            ("server.read_us", server.read_us),
            ("server.write_us", server.write_us),
            ("server.message_us", server.message_us),
            ("server.kib_us", server.kib_us),
            ("client.request_us", client.request_us),
            ("network.one_way_us", network.one_way_us),
        ];
        let costs = costs.map(|(name, value)| (name.to_owned(), value));
        let statements = client.statements_us.iter();
        let statements = statements.map(|(name, value)| (format!("client.statements_us.{name}"), *value));
        for (name, value) in costs.into_iter().chain(statements) {
            if !(0.0..=COST_US_MAX).contains(&value) {
                return Err(CostError::Range { name, value, wanted: "from 0 to 1000000 us" });
            }
        }
        let rate = network.megabits_per_second;
        if !(1.0..=1e6).contains(&rate) {
            let name = "network.megabits_per_second".to_owned();
            return Err(CostError::Range { name, value: rate, wanted: "from 1 to 1000000 Mbit/s" });
        }
        Ok(())
    }

    /// Reads a cost model from a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is no cost model.
    pub fn read(path: PathBuf) -> Result<CostModel, CostError> {
        match std::fs::read_to_string(&path) {
            Ok(json) => CostModel::parse(&json),
            Err(error) => Err(CostError::Read { path, error }),
        }
    }

    /// Returns the client's cost of a statement in nanoseconds, besides its requests.
    ///
    /// # Errors
    ///
    /// If the model does not have the statement.
    pub fn statement_ns(&self, statement: &str) -> Result<u64, CostError> {
        let known = &self.client.statements_us;
        known.get(statement).map(|us| nanoseconds(*us)).ok_or_else(|| CostError::NoStatement {
            statement: statement.to_owned(),
            known: known.keys().cloned().collect::<Vec<_>>().join(", "),
        })
    }
}

/// Converts a cost to nanoseconds.
pub(crate) fn nanoseconds(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = r#"{
        "measured": "by hand",
        "server": {"wake_us": 1, "connection_us": 2, "read_us": 3, "write_us": 4, "message_us": 5, "kib_us": 0.5},
        "client": {"request_us": 6, "statements_us": {"read": 7.5}},
        "network": {"one_way_us": 70, "megabits_per_second": 10000}
    }"#;

    #[test]
    fn a_model_is_read_and_written() {
        let model = CostModel::parse(MODEL).unwrap();
        assert_eq!(model.statement_ns("read").unwrap(), 7_500);
        assert_eq!(CostModel::parse(&serde_json::to_string(&model).unwrap()).unwrap(), model);
    }

    #[test]
    fn the_measured_costs_have_all_statements() {
        let model = CostModel::measured();
        for statement in ["read", "update", "scan"] {
            assert!(model.statement_ns(statement).unwrap() > 0, "{statement}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for (from, to) in [
            ("\"wake_us\": 1", "\"wake_us\": -1"),
            ("\"one_way_us\": 70", "\"one_way_us\": 1e9"),
            ("\"megabits_per_second\": 10000", "\"megabits_per_second\": 0"),
            ("7.5", "-7.5"),
        ] {
            let error = CostModel::parse(&MODEL.replace(from, to)).unwrap_err();
            assert!(matches!(error, CostError::Range { .. }), "{to}: {error}");
        }
        let error = CostModel::parse(&MODEL.replace("\"wake_us\"", "\"wake\"")).unwrap_err();
        assert!(matches!(error, CostError::Malformed(_)));
    }

    #[test]
    fn an_unknown_statement_is_named() {
        let error = CostModel::parse(MODEL).unwrap().statement_ns("scan").unwrap_err();
        assert!(error.to_string().contains("'scan'") && error.to_string().contains("read"), "{error}");
    }
}
