//! Commands that change the machines of a cluster, as JSON: unknown fields are ignored.

use crate::status::DirectoryStatus;
use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;

/// A machine asks to join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// Text of its [token](crate::JoinToken).
    pub token: String,
    /// Random number of its data folder, 32 hexadecimal digits. The same folder may ask again.
    pub nonce: String,
    /// Address at which others will reach it.
    pub address: String,
}

/// A command of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineCommand {
    /// Issues a token for one machine.
    Add {
        /// Milliseconds until the token expires.
        expires_in_ms: u64,
    },
    /// Removes a machine.
    Remove {
        /// Its number.
        machine: u32,
    },
}

/// Reply to a [`JoinRequest`] or a [`MachineCommand`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManagementReply {
    /// Text of a new token.
    Token(String),
    /// The machine has joined.
    Joined(Box<JoinedMachine>),
    /// The machine is removed.
    Removed,
    /// Nothing was changed.
    Refused(ManagementRefusal),
}

impl fmt::Debug for ManagementReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without secrets.
        f.write_str(match self {
            ManagementReply::Token(_) => "Token",
            ManagementReply::Joined(_) => "Joined",
            ManagementReply::Removed => "Removed",
            ManagementReply::Refused(refusal) => return write!(f, "Refused({refusal:?})"),
        })
    }
}

/// What a machine needs to start in a cluster.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedMachine {
    /// UUID of the cluster.
    pub cluster: String,
    /// The home group.
    pub home_group: u16,
    /// The machine's number, which no other machine had or will have.
    pub machine: u32,
    /// Its group, likewise.
    pub group: u16,
    /// The credential that servers present to each other, in hexadecimal digits; `None`: they have none.
    pub peer_credential: Option<String>,
    /// The machines and groups of the cluster.
    pub directory: DirectoryStatus,
}

/// Why nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManagementRefusal {
    /// The cluster has not issued the token, or has deleted it long after its time.
    #[error("the cluster does not know the token: write another one with `yesquel cluster add`")]
    UnknownToken,
    /// The token has expired.
    #[error("the token has expired: write another one with `yesquel cluster add`")]
    ExpiredToken,
    /// Another data folder has used the token.
    #[error(
        "machine {machine} has used the token, which admits one: write another one with `yesquel cluster add`"
    )]
    UsedToken {
        /// The machine that has used it.
        machine: u32,
    },
    /// The machine was removed after it had asked.
    #[error("machine {machine} was removed from the cluster: join with a new data folder and another token")]
    RemovedMachine {
        /// Its number.
        machine: u32,
    },
    /// There is no such machine.
    #[error("there is no machine {machine}: `yesquel cluster status` lists the machines")]
    NoMachine {
        /// The number.
        machine: u32,
    },
    /// The machine has the home group.
    #[error("machine {machine} has the home group, without which the cluster has no databases")]
    HomeGroup {
        /// Its number.
        machine: u32,
    },
    /// Databases have tables at the machine's group.
    #[error("machine {machine} has group {group} of {}: export and drop them first", listed(.databases))]
    HoldsDatabases {
        /// Its number.
        machine: u32,
        /// Its group.
        group: u16,
        /// Names of the databases.
        databases: Vec<String>,
    },
    /// The machine would present the credential of servers without encryption.
    #[error(
        "the machine encrypts its clients' connections, and not its own to other servers: start it with \
         --peer-tls-ca"
    )]
    NoPeerEncryption,
    /// All numbers of groups were used.
    #[error("all numbers of groups are used up")]
    NoGroupNumbers,
    /// The home group does not answer.
    #[error("the home group does not answer: {why}")]
    Unavailable {
        /// The error.
        why: String,
    },
    /// Too many commands wait.
    #[error("the machine has too many commands to handle: ask again")]
    Busy,
    /// The command is not understood.
    #[error("the machine does not understand the command: is it of the same release?")]
    Unknown,
}

/// Names that an error message lists.
const LISTED_MAX: usize = 10;

fn listed(names: &[String]) -> String {
    let count = names.len();
    let what = if count == 1 { "the database" } else { "the databases" };
    let more = count.saturating_sub(LISTED_MAX);
    let names = names.iter().take(LISTED_MAX).map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{what} {names}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_lists_ten_databases_at_most() {
        let refusal = |count: usize| {
            let databases = (0..count).map(|number| format!("d{number}")).collect();
            ManagementRefusal::HoldsDatabases { machine: 2, group: 1, databases }.to_string()
        };
        assert_eq!(refusal(1), "machine 2 has group 1 of the database 'd0': export and drop them first");
        assert!(refusal(10).ends_with("'d9': export and drop them first"));
        assert!(refusal(12).contains("'d9' and 2 more:"));
    }

    #[test]
    fn a_reply_shows_no_secret() {
        let token = ManagementReply::Token("yesquel-join-0123".to_owned());
        assert_eq!(format!("{token:?}"), "Token");
    }
}
