//! Replicates entries among three replicas in memory, some at a time. Run twice under
//! `valgrind --tool=callgrind` with different numbers: the difference is the cost of the entries.
//!
//! Usage: `entry_cost ENTRIES BYTES AT_A_TIME`

use std::{collections::VecDeque, env, error::Error};
use yesquel_replication::{CheckpointHead, RecoveredLog, Replica, ReplicaOptions, ReplicaRole};

type Messages = VecDeque<(u64, Vec<u8>)>;

fn work(replica: &mut Replica, messages: &mut Messages) -> Result<u64, Box<dyn Error>> {
    let mut committed = 0;
    while let Some(work) = replica.take_work()? {
        replica.written(work.number);
        committed += work.committed.len() as u64;
        let all = work.messages.into_iter().chain(work.messages_after);
        messages.extend(all.map(|message| (message.to, message.bytes)));
    }
    Ok(committed)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = env::args().skip(1).map(|text| text.parse::<u64>());
    let (Some(entries), Some(bytes), Some(at_a_time)) = (numbers.next(), numbers.next(), numbers.next())
    else {
        return Err("usage: entry_cost ENTRIES BYTES AT_A_TIME".into());
    };
    let (entries, bytes, at_a_time) = (entries?, bytes?, at_a_time?);
    let head = CheckpointHead::first(1..=3);
    let options = ReplicaOptions {
        incarnation: 1,
        seed: 1,
        election_ticks: 10,
        message_bytes: 1 << 20,
        is_lost: false,
    };
    let mut replicas = (1..=3)
        .map(|id| Replica::start(RecoveredLog::after(id, &head, Vec::new()), options))
        .collect::<Result<Vec<_>, _>>()?;
    let (mut messages, mut proposed, mut applied, mut sent) = (Messages::new(), 0, 0, 0u64);
    while applied < entries * 3 {
        if let Some((to, bytes)) = messages.pop_front() {
            let replica = &mut replicas[to as usize - 1];
            replica.receive(&bytes)?;
            sent += 1;
            applied += work(replica, &mut messages)?;
            continue;
        }
        let leader = replicas.iter_mut().find(|replica| replica.status().role == ReplicaRole::Leader);
        match leader {
            Some(leader) if proposed < entries => {
                for _ in 0..at_a_time {
                    leader.propose(vec![7; bytes as usize])?;
                    proposed += 1;
                }
                // A checkpoint now and then, so that the log does not grow.
                if proposed % 1_000 < at_a_time {
                    leader.checkpoint(Vec::new(), 100);
                }
                applied += work(leader, &mut messages)?;
            }
            _ => {
                for replica in &mut replicas {
                    replica.tick();
                    applied += work(replica, &mut messages)?;
                }
            }
        }
    }
    println!("{entries} entries, {sent} messages");
    Ok(())
}
