//! What a seed draws: conditions, faults and transactions.

use crate::steps::{KEYS, LISTS, Level, Step, WIDE, Work};
use yesquel_seeds::Random;
use yesquel_simulation::{InjectedFault, TASKS, draw_faults, server_count};
use yesquel_sql_histories::{BeginMode, SqlAct};

/// Faults of a long run, and its transactions.
const LONG_FAULTS: usize = 3;
const LONG_WORK: usize = 300;

/// Draws the steps of a run. With `LONG_SEEDS` set, a run is at least so long, and never calm.
pub(crate) fn steps(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed);
    let random = &mut random;
    let is_long = std::env::var_os("LONG_SEEDS").is_some();
    let mut faults = draw_faults(random);
    while is_long && faults.iter().filter(|fault| fault.is_adverse()).count() < LONG_FAULTS {
        faults = draw_faults(random);
    }
    let servers = server_count(&faults);
    let mut steps: Vec<Step> = faults.into_iter().map(Step::Fault).collect();
    let level = match random.next(5) {
        0 => Level::Strict,
        1 => Level::Serializable,
        _ => Level::Session,
    };
    if level != Level::Session {
        steps.push(Step::Level(level));
    }
    if level == Level::Strict && random.next(2) == 0 {
        // As far apart as clocks of servers that serve may be: a snapshot by one clock then misses what was
        // committed by another.
        for server in 0..servers {
            let ahead_ms = random.next(160) as i64 - 80;
            steps.push(Step::Fault(InjectedFault::Clock { at_us: 0, server, ahead_ms }));
        }
    }
    // Transactions of few lists meet more often.
    let keys = if level == Level::Session && random.next(3) > 0 { KEYS } else { 1 };
    if random.next(3) == 0 {
        steps.push(Step::Groups(1 + random.next(2) as usize));
    }
    let slow = [500, 20_000, 100_000][random.next(3) as usize];
    // How many transactions in ten change a schema.
    let changes = [0, 2, 6][random.next(3) as usize];
    let count = if is_long { LONG_WORK } else { 15 + random.next(45) as usize };
    for _ in 0..count {
        let changes = random.next(10) < changes;
        let work = match level == Level::Strict && random.next(2) == 0 {
            true => reader_or_writer(random, slow, keys),
            false => work(random, slow, keys, changes),
        };
        steps.push(Step::Work(work));
    }
    steps
}

fn work(random: &mut Random, slow: u64, keys: i64, changes: bool) -> Work {
    let begin = match random.next(6) {
        0 | 1 if !changes => BeginMode::Autocommit,
        2 | 3 if !changes => BeginMode::Deferred,
        // Schema changes of deferred transactions often fail.
        5 if changes => BeginMode::Deferred,
        _ => BeginMode::Immediate,
    };
    let mut acts: Vec<SqlAct> = (0..1 + random.next(3)).map(|_| act(random, keys)).collect();
    if changes {
        for _ in 0..1 + random.next(3) {
            let place = random.next(acts.len() as u64 + 1) as usize;
            acts.insert(place, change(random));
        }
    }
    if begin != BeginMode::Autocommit && random.next(5) == 0 {
        let place = random.next(acts.len() as u64) as usize;
        acts.insert(place, SqlAct::Savepoint);
        acts.push(SqlAct::RollbackTo);
    }
    // By a connection of its own, which would wait for an open transaction.
    let writes_wide = acts.iter().any(|act| matches!(act, SqlAct::UpdateWide { .. }));
    let begin = if writes_wide && begin == BeginMode::Autocommit { BeginMode::Deferred } else { begin };
    let adds_groups = changes && random.next(10) == 0;
    Work {
        task: random.next(TASKS as u64) as usize,
        pause_us: random.next(slow),
        begin,
        acts,
        adds_groups,
        commits: random.next(10) > 0,
        reopens: random.next(12) == 0,
    }
}

/// A transaction that reads tables at several groups, or an append in a statement of its own: the reader
/// must see what was committed before it began.
fn reader_or_writer(random: &mut Random, slow: u64, keys: i64) -> Work {
    let first = random.next(LISTS as u64) as usize;
    let (begin, acts) = match random.next(2) {
        0 => {
            let tables = (0..LISTS).map(|table| (first + table) % LISTS);
            (BeginMode::Deferred, tables.map(|table| SqlAct::ReadAll { table, keys: KEYS }).collect())
        }
        _ => {
            let key = random.next(keys as u64) as i64;
            (BeginMode::Autocommit, vec![SqlAct::Append { table: first, key }])
        }
    };
    let (task, pause_us) = (random.next(TASKS as u64) as usize, random.next(slow));
    Work { task, pause_us, begin, acts, adds_groups: false, commits: true, reopens: false }
}

fn act(random: &mut Random, keys: i64) -> SqlAct {
    let (table, key) = (random.next(LISTS as u64) as usize, random.next(keys as u64) as i64);
    let value = random.next(20) as i64;
    match random.next(18) {
        0..5 => SqlAct::Append { table, key },
        5..8 => SqlAct::Read { table, key },
        8 => SqlAct::ReadAll { table, keys: KEYS },
        9 | 10 => SqlAct::CompareColumns { table: random.next(WIDE as u64) as usize },
        11 | 12 => SqlAct::InsertRow { value },
        13 => SqlAct::UpdateRows { value },
        14 => SqlAct::DeleteRow { value },
        16 | 17 => SqlAct::UpdateWide { table: random.next(WIDE as u64) as usize },
        _ => SqlAct::CompareIndexes,
    }
}

fn change(random: &mut Random) -> SqlAct {
    let table = random.next(WIDE as u64) as usize;
    match random.next(8) {
        0..3 => SqlAct::AddColumn { table },
        3 | 4 => SqlAct::DropColumn { table },
        5 => SqlAct::Recreate { table },
        _ => {
            let table = (random.next(3) > 0).then_some(table);
            SqlAct::ChangeIndex { table, create: random.next(3) > 0 }
        }
    }
}

/// Whether something can make a transaction fail.
pub(crate) fn is_disturbed(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step, Step::Fault(fault) if InjectedFault::is_adverse(fault)))
}
