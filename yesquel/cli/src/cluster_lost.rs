//! `yesquel cluster lost`: says what groups take with them that are lost for good, and ends the
//! transactions that wait for them.

use crate::{confirm::is_sure, connect::ServerArguments, failure::CliError, show};
use clap::Args;
use serde_json::{Value, json};
use std::{collections::BTreeMap, io::Write, path::PathBuf, thread, time::Duration};
use yesquel::{
    GivenUp, ServerId, Store, TxnId,
    status::{ServerStatus, UndecidedTransaction},
};

const ABOUT: &str = "The groups must not answer. --give-up ends the transactions that are in doubt because of them: \
    abort where no participant that is left has committed, commit where one has. Use it only if the groups never come \
    back: they may have committed what is aborted now. The command must reach all other participants. Of a machine \
    that is lost, name all groups.";

/// Rounds of giving up: each group lists its oldest transactions only.
const ROUNDS_MAX: usize = 1_000;
/// Pause before a transaction is looked at again that was queued at a group, for two seconds at most.
const QUEUED_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct ClusterLostArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Numbers of the groups
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<u16>,
    /// End the transactions that are in doubt because of them
    #[arg(long)]
    give_up: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// File whose first line is the credential that servers present to each other, for --give-up
    #[arg(long, value_name = "FILE", env = "YESQUEL_PEER_CREDENTIAL_FILE")]
    peer_credential_file: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What is missing without some groups.
#[derive(Debug, Default)]
struct Missing {
    /// The groups, and why they do not answer.
    lost: BTreeMap<u16, String>,
    /// Maps at the groups, by database; `None`: the names are at one of them.
    databases: Option<BTreeMap<String, Vec<String>>>,
    /// Other groups that do not answer.
    silent: Vec<u16>,
    /// Transactions in doubt that the groups take part in.
    in_doubt: usize,
}

/// Numbers of transactions that were ended.
#[derive(Debug, Default, Clone, Copy)]
struct Ended {
    committed: u64,
    aborted: u64,
    half: u64,
}

/// Transactions in doubt in which lost groups take part, by the status of the others.
#[derive(Debug, Default)]
struct FoundDoubts {
    transactions: BTreeMap<TxnId, UndecidedTransaction>,
    /// Other groups that do not answer.
    silent: Vec<u16>,
    /// The latest clock of those that do.
    clock: u64,
}

fn in_doubt(store: &Store, lost: &[u16]) -> Result<FoundDoubts, CliError> {
    let mut found = FoundDoubts::default();
    for group in store.directory()?.groups {
        if lost.contains(&group.group) {
            continue;
        }
        let Ok(ServerStatus { clock, commit_protocol, .. }) = store.status_of(ServerId(group.group)) else {
            found.silent.push(group.group);
            continue;
        };
        found.clock = found.clock.max(clock);
        for undecided in commit_protocol.undecided {
            if undecided.participants.iter().any(|group| lost.contains(group)) {
                let txn = TxnId { client: undecided.client, number: undecided.number };
                found.transactions.insert(txn, undecided);
            }
        }
    }
    Ok(found)
}

/// Finds what is missing. Fails if one of the groups answers.
fn missing(store: &Store, groups: &[u16]) -> Result<Missing, CliError> {
    let known = store.directory()?.groups;
    let mut lost = BTreeMap::new();
    for group in groups {
        if !known.iter().any(|known| known.group == *group) {
            return Err(yesquel::Error::NoGroup(*group).into());
        }
        match store.status_of(ServerId(*group)) {
            Ok(_) => return Err(CliError::Usage(format!("group {group} answers: it is not lost"))),
            Err(error) => drop(lost.insert(*group, error.to_string())),
        }
    }
    let has_names = groups.contains(&store.home_group().0);
    let databases = if has_names { None } else { Some(databases_at(store, groups)?) };
    let FoundDoubts { transactions, silent, .. } = in_doubt(store, groups)?;
    Ok(Missing { lost, databases, silent, in_doubt: transactions.len() })
}

/// Returns the databases that have one of these groups, with their maps there.
fn databases_at(store: &Store, lost: &[u16]) -> Result<BTreeMap<String, Vec<String>>, CliError> {
    let mut found = BTreeMap::new();
    for name in store.databases()? {
        // A database that was dropped meanwhile has none.
        let Ok(database) = store.database(&name) else { continue };
        let maps = database.maps()?.into_iter().filter(|(_, map)| lost.contains(&map.group().0));
        let maps: Vec<String> = maps.map(|(map, _)| map).collect();
        if !maps.is_empty() || database.groups().iter().any(|group| lost.contains(&group.0)) {
            found.insert(name, maps);
        }
    }
    Ok(found)
}

pub(crate) fn run(arguments: &ClusterLostArguments) -> Result<(), CliError> {
    let store = arguments.server.connect()?;
    let missing = missing(&store, &arguments.groups)?;
    let mut out = anstream::stdout();
    if !arguments.json {
        out.write_all(text_of(&missing).as_bytes())?;
        out.flush()?;
    }
    let ended = if arguments.give_up { Some(give_up(arguments, &store, &missing)?) } else { None };
    if arguments.json {
        writeln!(out, "{}", json_of(&missing, ended))?;
    } else if let Some(Ended { committed, aborted, .. }) = ended {
        writeln!(out, "ended: {} aborted, {} committed", show::count(aborted), show::count(committed))?;
    }
    match ended.map_or(0, |ended| ended.half) {
        0 => Ok(()),
        half => Err(CliError::Half(half)),
    }
}

/// Fails if further groups do not answer.
fn all_answer(silent: &[u16]) -> Result<(), CliError> {
    let silent: Vec<String> = silent.iter().map(u16::to_string).collect();
    if silent.is_empty() {
        return Ok(());
    }
    Err(CliError::Unreachable(format!(
        "these groups do not answer either, and may know how transactions have ended: {}. If they are lost, too, name \
         them as well",
        silent.join(", ")
    )))
}

/// Ends the transactions that wait for the lost groups.
fn give_up(arguments: &ClusterLostArguments, store: &Store, missing: &Missing) -> Result<Ended, CliError> {
    let lost: Vec<ServerId> = arguments.groups.iter().copied().map(ServerId).collect();
    all_answer(&missing.silent)?;
    let question = match arguments.groups.as_slice() {
        [group] => format!("Group {group} never comes back: end the transactions that wait for it?"),
        groups => format!(
            "Groups {} never come back: end the transactions that wait for them?",
            groups.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
        ),
    };
    if !arguments.yes && !is_sure(&question)? {
        return Err(CliError::Usage("nothing was ended; --yes does so without asking".to_owned()));
    }
    let peer = arguments.server.connect_as_peer(arguments.peer_credential_file.as_ref())?;
    let (mut ended, mut until) = (Ended::default(), None);
    for _ in 0..ROUNDS_MAX {
        let FoundDoubts { transactions, silent, clock } = in_doubt(store, &arguments.groups)?;
        all_answer(&silent)?;
        // Clients may begin others all the time.
        let until = *until.get_or_insert(clock);
        let mut open = transactions.into_values().filter(|undecided| undecided.birth <= until).peekable();
        if open.peek().is_none() {
            return Ok(ended);
        }
        let mut is_queued = false;
        for transaction in open {
            let given_up = peer.end_without(&transaction, &lost).inspect_err(|_| {
                // The next run does not find them again.
                let Ended { committed, aborted, half } = ended;
                anstream::eprintln!(
                    "before the error, {committed} were committed, {aborted} aborted, and {half} are committed at \
                     some groups only"
                );
            });
            match given_up? {
                GivenUp::Committed => ended.committed += 1,
                GivenUp::Aborted => ended.aborted += 1,
                GivenUp::Half => ended.half += 1,
                GivenUp::Queued => is_queued = true,
            }
        }
        if is_queued {
            thread::sleep(QUEUED_PAUSE);
        }
    }
    Err(CliError::Busy("some transactions are still in doubt: run the command again".to_owned()))
}

fn json_of(missing: &Missing, ended: Option<Ended>) -> Value {
    let Missing { lost, databases, silent, in_doubt } = missing;
    let ended = ended.map(|Ended { committed, aborted, half }| {
        json!({ "committed": committed, "aborted": aborted, "half": half })
    });
    let (group, why) = lost.first_key_value().unzip();
    json!({
        "group": group,
        "error": why,
        "groups": lost,
        "databases": databases,
        "silent_groups": silent,
        "in_doubt": in_doubt,
        "ended": ended,
    })
}

fn text_of(missing: &Missing) -> String {
    let Missing { lost, databases, silent, in_doubt } = missing;
    let lost = lost.iter().map(|(group, why)| format!("group {group} does not answer: {why}\n"));
    let mut text: String = lost.collect();
    match databases {
        None => text += "it has the names of all databases, so that what is missing is not known\n",
        Some(databases) if databases.is_empty() => text += "no database has a part there\n",
        Some(databases) => {
            for (name, maps) in databases {
                let maps = if maps.is_empty() { "no map yet".to_owned() } else { maps.join(" ") };
                text += &format!("missing of {name}: {maps}\n");
            }
        }
    }
    for group in silent {
        text += &format!("group {group} does not answer either\n");
    }
    let in_doubt = show::things(*in_doubt as u64, "transaction is", "transactions are");
    text + &format!("{in_doubt} in doubt because of it\n")
}
