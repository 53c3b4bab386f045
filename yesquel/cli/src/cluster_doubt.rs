//! `yesquel cluster doubt`: lists the transactions that are in doubt, and why.

use crate::{connect::ServerArguments, failure::CliError, show, table_of_lines::TableOfLines};
use clap::Args;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
};
use yesquel::{ServerId, TxnId, status::ServerStatus};

const ABOUT: &str = "A transaction is in doubt at a group that has voted for it and does not know its end. Its group \
    asks the others for their votes, so that it ends a moment after all of them answer. Of each group the 256 oldest \
    are listed.";

#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct ClusterDoubtArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A transaction in doubt at some groups.
#[derive(Debug, Default)]
struct Doubt {
    /// Groups that have voted and do not know the end.
    groups: Vec<u16>,
    participants: Vec<u16>,
    /// Participants whose votes some of the groups do not know.
    unknown: BTreeSet<u16>,
    age_ms: u64,
    recovers: bool,
    waiting: u64,
}

impl Doubt {
    /// Why it has not ended, as far as that is known.
    fn cause(&self, silent: &BTreeMap<u16, String>) -> String {
        let lost: Vec<u16> =
            self.unknown.iter().copied().filter(|group| silent.contains_key(group)).collect();
        match (lost.as_slice(), self.recovers) {
            ([], false) => "its client decides".to_owned(),
            ([], true) if self.unknown.is_empty() => "its end is being written".to_owned(),
            ([], true) => format!("no answer yet from {}", groups(self.unknown.iter())),
            (lost, _) => format!("{} not answer", groups_do(lost)),
        }
    }
}

/// Lists group numbers.
fn groups<'a>(numbers: impl Iterator<Item = &'a u16>) -> String {
    let numbers: Vec<String> = numbers.map(u16::to_string).collect();
    let word = if numbers.len() == 1 { "group" } else { "groups" };
    format!("{word} {}", numbers.join(", "))
}

fn groups_do(numbers: &[u16]) -> String {
    format!("{} {}", groups(numbers.iter()), if numbers.len() == 1 { "does" } else { "do" })
}

/// Returns the transactions in doubt, by client and number.
fn doubts(answered: &[(u16, ServerStatus)]) -> BTreeMap<TxnId, Doubt> {
    let mut all = BTreeMap::<TxnId, Doubt>::new();
    for (group, status) in answered {
        for undecided in &status.commit_protocol.undecided {
            let txn = TxnId { client: undecided.client, number: undecided.number };
            let doubt = all.entry(txn).or_default();
            doubt.groups.push(*group);
            doubt.participants.clone_from(&undecided.participants);
            doubt.unknown.extend(&undecided.unknown);
            doubt.age_ms = doubt.age_ms.max(undecided.age_ms);
            doubt.recovers |= undecided.recovers;
            doubt.waiting += undecided.waiting;
        }
    }
    // The vote of a group that is in doubt itself is known here.
    for doubt in all.values_mut() {
        let voted = &doubt.groups;
        doubt.unknown.retain(|group| !voted.contains(group));
    }
    all
}

pub(crate) fn run(arguments: &ClusterDoubtArguments) -> Result<(), CliError> {
    let store = arguments.server.connect()?;
    let (mut answered, mut silent) = (Vec::new(), BTreeMap::new());
    for group in store.directory()?.groups {
        match store.status_of(ServerId(group.group)) {
            Ok(status) => answered.push((group.group, status)),
            Err(error) => drop(silent.insert(group.group, error.to_string())),
        }
    }
    let doubts = doubts(&answered);
    let undecided = answered.iter().map(|(_, status)| status.transactions.undecided).sum::<u64>();
    let listed = doubts.values().map(|doubt| doubt.groups.len() as u64).sum::<u64>();
    let text = if arguments.json {
        json_of(&doubts, &silent, undecided).to_string() + "\n"
    } else {
        text_of(&doubts, &silent, undecided.saturating_sub(listed))
    };
    let mut out = anstream::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    match silent.len() {
        0 => Ok(()),
        unserved => Err(CliError::Unserved(unserved, answered.len() + unserved)),
    }
}

fn json_of(doubts: &BTreeMap<TxnId, Doubt>, silent: &BTreeMap<u16, String>, undecided: u64) -> Value {
    let transactions: Vec<Value> = doubts
        .iter()
        .map(|(txn, doubt)| {
            json!({
                "transaction": txn.to_string(),
                "client": format!("{:x}", txn.client),
                "age_ms": doubt.age_ms,
                "groups": doubt.groups,
                "participants": doubt.participants,
                "unknown": doubt.unknown,
                "waiting": doubt.waiting,
                "cause": doubt.cause(silent),
            })
        })
        .collect();
    json!({ "transactions": transactions, "undecided": undecided, "silent_groups": silent })
}

fn text_of(doubts: &BTreeMap<TxnId, Doubt>, silent: &BTreeMap<u16, String>, unlisted: u64) -> String {
    let list = |groups: &[u16]| groups.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    let mut table =
        TableOfLines::new(["transaction", "age", "in doubt at", "participants", "waiting", "cause"]);
    for (txn, doubt) in doubts {
        table.push([
            txn.to_string(),
            show::duration(doubt.age_ms),
            list(&doubt.groups),
            list(&doubt.participants),
            show::count(doubt.waiting),
            doubt.cause(silent),
        ]);
    }
    let mut text = if doubts.is_empty() { "no transaction is in doubt\n".to_owned() } else { table.text() };
    if unlisted > 0 {
        text += &format!("and {} younger ones\n", show::count(unlisted));
    }
    let bad = anstyle::AnsiColor::Red.on_default();
    for (group, why) in silent {
        text += &format!("\n{bad}group {group}: {why}{bad:#}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use yesquel::status::{CommitProtocolStatus, UndecidedTransaction};

    fn status(undecided: UndecidedTransaction) -> ServerStatus {
        let commit_protocol =
            CommitProtocolStatus { undecided: vec![undecided], ..CommitProtocolStatus::default() };
        ServerStatus { commit_protocol, ..ServerStatus::default() }
    }

    #[test]
    fn the_cause_of_a_doubt_is_the_group_that_does_not_answer() {
        let at = |age_ms, unknown: &[u16], recovers| {
            let participants = vec![0, 1, 2];
            let unknown = unknown.to_vec();
            let (client, number) = (0x2a, 7);
            status(UndecidedTransaction {
                client,
                number,
                age_ms,
                participants,
                unknown,
                recovers,
                ..UndecidedTransaction::default()
            })
        };
        let cause = |answered: &[(u16, ServerStatus)], silent: &[u16]| {
            let silent = silent.iter().map(|group| (*group, "gone".to_owned())).collect();
            let all = doubts(answered);
            let (txn, doubt) = all.first_key_value().unwrap();
            assert_eq!((txn.to_string(), all.len()), ("2a/7".to_owned(), 1));
            (doubt.age_ms, doubt.cause(&silent))
        };
        let young = [(0, at(5, &[1, 2], false))];
        assert_eq!(cause(&young, &[]), (5, "its client decides".to_owned()));
        let both = [(0, at(9, &[1, 2], true)), (2, at(8, &[0, 1], true))];
        assert_eq!(cause(&both, &[1]), (9, "group 1 does not answer".to_owned()));
        assert_eq!(cause(&both, &[]), (9, "no answer yet from group 1".to_owned()));
        assert_eq!(cause(&[(0, at(9, &[1, 2], true))], &[1, 2]).1, "groups 1, 2 do not answer");
        assert_eq!(cause(&[(0, at(9, &[], true))], &[]).1, "its end is being written");
    }
}
