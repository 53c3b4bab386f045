//! Entries of the [directory](crate::directory): keys, and values as JSON.

use crate::Error;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use yesquel_model::ServerId;
use yesquel_server::MachineStart;
use yesquel_wire::status::{MachineState, all_groups};

pub(crate) const CLUSTER: &[u8] = b"c";
pub(crate) const MACHINE: u8 = b'M';
pub(crate) const GROUP: u8 = b'G';
pub(crate) const TOKEN: u8 = b'j';
pub(crate) const LOG_END: u8 = b'L';

/// Whether a key of the catalog's tree is that of an entry of the directory.
pub(crate) fn is_key(key: &[u8]) -> bool {
    match key {
        [MACHINE, number @ ..] => number.len() == 4,
        [GROUP | LOG_END, number @ ..] => number.len() == 2,
        [TOKEN, digest @ ..] => digest.len() == 32,
        key => key == CLUSTER,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ClusterEntry {
    pub(crate) cluster: String,
    pub(crate) version: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MachineEntry {
    /// The first group.
    pub(crate) group: u16,
    /// All groups, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<u16>,
    pub(crate) address: String,
    pub(crate) state: MachineState,
    pub(crate) incarnation: u64,
    /// 32 hexadecimal digits.
    pub(crate) nonce: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct GroupEntry {
    pub(crate) machine: u32,
    pub(crate) state: GroupState,
}

/// State of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum GroupState {
    /// Its machine has not started yet.
    New,
    /// It serves, unless its machine is down.
    Serving,
    /// Its machine was removed.
    Retired,
    /// A later release has set another state.
    #[default]
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TokenEntry {
    pub(crate) expires_ms: u64,
    /// The machine that has used it, and the number of its folder.
    pub(crate) used_by: Option<TokenUse>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TokenUse {
    pub(crate) machine: u32,
    pub(crate) folder: String,
}

impl MachineEntry {
    /// Returns all groups, the first one first.
    pub(crate) fn all_groups(&self) -> impl Iterator<Item = ServerId> {
        all_groups(self.group, &self.groups).map(ServerId)
    }

    /// Sets the groups, the first one first.
    pub(crate) fn set_groups(&mut self, groups: &[ServerId]) {
        self.group = groups.first().map_or(self.group, |group| group.0);
        self.groups = match groups {
            [] | [_] => Vec::new(),
            several => several.iter().map(|group| group.0).collect(),
        };
    }

    pub(crate) fn start(&self) -> Option<MachineStart> {
        let nonce = u128::from_str_radix(&self.nonce, 16).ok()?;
        Some(MachineStart { incarnation: self.incarnation, nonce })
    }

    pub(crate) fn set_start(&mut self, start: MachineStart) {
        (self.incarnation, self.nonce) = (start.incarnation, nonce_text(start.nonce));
    }
}

/// Text of a nonce.
pub(crate) fn nonce_text(nonce: u128) -> String {
    format!("{nonce:032x}")
}

pub(crate) fn machine_key(machine: u32) -> Vec<u8> {
    [&[MACHINE][..], &machine.to_be_bytes()].concat()
}

/// Whether only servers may write the entry of a key: it names where they present their credential, or
/// what admits a machine. Such an entry ends with its proof.
pub(crate) fn has_proof(key: &[u8]) -> bool {
    matches!(key.first(), Some(&(MACHINE | TOKEN)))
}

/// Adds a proof to the JSON of an entry, which contains no line break.
pub(crate) fn with_proof(mut json: Vec<u8>, proof: &[u8; 32]) -> Vec<u8> {
    json.push(b'\n');
    json.extend(proof.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
    json
}

/// Returns the JSON of an entry and its proof.
pub(crate) fn split_proof(value: &[u8]) -> Option<(&[u8], [u8; 32])> {
    let at = value.iter().rposition(|byte| *byte == b'\n')?;
    let (json, digits) = (&value[..at], std::str::from_utf8(&value[at + 1..]).ok()?);
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    let mut proof = [0; 32];
    for (byte, at) in proof.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some((json, proof))
}

/// Key of the entry of a group.
pub(crate) fn group_key(group: ServerId) -> Vec<u8> {
    [&[GROUP][..], &group.0.to_be_bytes()].concat()
}

/// Key of the end of a group's log. It changes often, and is not part of the group's entry, which
/// others guard.
pub(crate) fn log_end_key(group: ServerId) -> Vec<u8> {
    [&[LOG_END][..], &group.0.to_be_bytes()].concat()
}

pub(crate) fn token_key(digest: &[u8; 32]) -> Vec<u8> {
    [&[TOKEN][..], digest].concat()
}

pub(crate) fn decode<T: DeserializeOwned>(value: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(value)
        .map_err(|error| Error::Internal(format!("the directory is damaged: {error}")))
}

pub(crate) fn encode(entry: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(entry).map_err(|error| Error::Internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_a_later_release_is_read() {
        let entry: MachineEntry = decode(
            br#"{"group":3,"address":"a","state":"draining","incarnation":2,"nonce":"0a","role":"x"}"#,
        )
        .unwrap();
        assert_eq!((entry.group, entry.state), (3, MachineState::Unknown));
        assert_eq!(entry.start(), Some(MachineStart { incarnation: 2, nonce: 10 }));
        let entry: GroupEntry = decode(br#"{"machine":4,"state":"moving"}"#).unwrap();
        assert_eq!(entry, GroupEntry { machine: 4, state: GroupState::Unknown });
        assert!(decode::<GroupEntry>(b"{").is_err());
        assert_eq!(MachineEntry { nonce: "x".to_owned(), ..MachineEntry::default() }.start(), None);
    }

    #[test]
    fn a_proof_is_split_from_its_entry() {
        let proof = [0xab; 32];
        let value = with_proof(b"{}".to_vec(), &proof);
        assert_eq!(split_proof(&value), Some((&b"{}"[..], proof)));
        for wrong in [&b"{}"[..], b"", b"\n", &value[..value.len() - 1], &[&value[..], b"\n"].concat()] {
            assert_eq!(split_proof(wrong), None);
        }
        assert!(has_proof(&machine_key(1)) && has_proof(&token_key(&proof)));
        assert!(!has_proof(CLUSTER) && !has_proof(&group_key(ServerId(1))) && !has_proof(b"dshop"));
    }

    #[test]
    fn entries_round_trip() {
        let mut entry = MachineEntry { group: 7, state: MachineState::Removed, ..MachineEntry::default() };
        entry.set_start(MachineStart { incarnation: 9, nonce: u128::MAX });
        let bytes = encode(&entry).unwrap();
        assert_eq!(decode::<MachineEntry>(&bytes).unwrap(), entry);
        entry.set_groups(&[7, 9].map(ServerId));
        let bytes = encode(&entry).unwrap();
        assert_eq!(decode::<MachineEntry>(&bytes).unwrap(), entry);
        assert_eq!(entry.all_groups().collect::<Vec<_>>(), [7, 9].map(ServerId));
        let entry = GroupEntry { machine: 1, state: GroupState::Retired };
        assert_eq!(decode::<GroupEntry>(&encode(&entry).unwrap()).unwrap(), entry);
    }
}
