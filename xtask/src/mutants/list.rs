//! The mutants, by page.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "smallest_vote",
        rule: "cluster/commit.md, rule of outcomes: commit at the largest vote",
        file: "yesquel/client/src/commit.rs",
        find: "votes.at = votes.at.max(vote);",
        replace: "votes.at = if votes.at == Timestamp::ZERO { vote } else { votes.at.min(vote) };",
        simulation: "cluster",
    },
    Mutant {
        name: "recovery_smallest_vote",
        rule: "cluster/commit.md, rule of outcomes: recovery commits at the largest vote",
        file: "yesquel/engine/src/engine/votes.rs",
        find: "let last = prepared.yes.iter().map(|(_, at)| *at).max();",
        replace: "let votes = prepared.yes.iter().map(|(_, at)| *at);
            let last = if MUTANT { votes.min() } else { votes.max() };",
        simulation: "cluster",
    },
    Mutant {
        name: "recovery_misses_a_vote",
        rule: "cluster/commit.md, recovery: all votes are yes",
        file: "yesquel/engine/src/engine/votes.rs",
        find: "if !prepared.participants.iter().all(known) {",
        replace: "if !MUTANT && !prepared.participants.iter().all(known) {",
        simulation: "cluster",
    },
    Mutant {
        name: "silence_counts_as_yes",
        rule: "cluster/commit.md, votes: without an answer the outcome is unknown",
        file: "yesquel/client/src/commit.rs",
        find: "                Some(error) => {
                    self.in_flight.unsettled(UnsettledCommit::unknown((txn, birth), servers));",
        replace: "                Some(_) if MUTANT => Decision::Commit(at),
                Some(error) => {
                    self.in_flight.unsettled(UnsettledCommit::unknown((txn, birth), servers));",
        simulation: "cluster",
    },
    Mutant {
        name: "settled_after_the_first_done",
        rule: "cluster/commit.md, settled: each participant has answered Done",
        file: "yesquel/client/src/unsettled.rs",
        find: "self.open.retain(|(open, _)| *open != server);
                self.open.is_empty()",
        replace: "self.open.retain(|(open, _)| *open != server);
                MUTANT || self.open.is_empty()",
        simulation: "cluster",
    },
    Mutant {
        name: "exceptions_dropped",
        rule: "cluster/commit.md, settled: exceptions below the number",
        file: "yesquel/client/src/in_flight.rs",
        find: "            None => SettledReport { number: self.last, birth: self.largest_birth, exceptions },",
        replace: "            _ if MUTANT => {
                SettledReport { number: self.last, birth: self.largest_birth, exceptions: Vec::new() }
            }
            None => SettledReport { number: self.last, birth: self.largest_birth, exceptions },",
        simulation: "cluster",
    },
    Mutant {
        name: "refused_numbers_forgotten",
        rule: "cluster/commit.md, one copy: a repeated copy gets the same refusal",
        file: "yesquel/engine/src/refused.rs",
        find: "if caller.connection == OWN_CONNECTION || self.refusal(caller, txn).is_some() {",
        replace: "if MUTANT || caller.connection == OWN_CONNECTION || self.refusal(caller, txn).is_some() {",
        simulation: "cluster",
    },
    Mutant {
        name: "late_prepare_ignores_the_end",
        rule: "cluster/commit.md, covered numbers: no vote for what has ended",
        file: "yesquel/engine/src/engine/commit.rs",
        find: "if let Some(decision) = self.outcomes.distributed_outcome(txn) {
            return Ok(Reply::Vote(Vote::Decided(decision)));",
        replace: "if let Some(decision) = self.outcomes.distributed_outcome(txn).filter(|_| !MUTANT) {
            return Ok(Reply::Vote(Vote::Decided(decision)));",
        simulation: "cluster",
    },
    Mutant {
        name: "horizon_ignored_in_turn",
        rule: "cluster/commit.md, covered numbers: examined again when a queued Prepare gets its turn",
        file: "yesquel/engine/src/engine/commit.rs",
        find: "        self.check_birth(now, request)?;
        let snapshot",
        replace: "        if !MUTANT || request.arrival == u64::MAX {
            self.check_birth(now, request)?;
        }
        let snapshot",
        simulation: "cluster",
    },
    Mutant {
        name: "queue_ignores_arrival",
        rule: "cluster/commit.md, two transactions that meet: the order of arrival",
        file: "yesquel/engine/src/queue.rs",
        find: "take_while(|entry| entry.arrival < arrival)",
        replace: "take_while(|entry| !MUTANT && entry.arrival < arrival)",
        simulation: "accounts",
    },
    Mutant {
        name: "parallel_prepare_overtakes_queued",
        rule: "cluster/commit.md, two transactions that meet: queued ones count as prepared",
        file: "yesquel/engine/src/engine/commit.rs",
        find: "if !self.queue.is_empty()
            &&",
        replace: "if !self.queue.is_empty()
            && !(MUTANT && prepares)
            &&",
        simulation: "accounts",
    },
    Mutant {
        name: "commit_ignores_prepared",
        rule: "cluster/commit.md, one group: a Commit that meets a prepared transaction waits",
        file: "yesquel/engine/src/engine/commit.rs",
        find: "self.check_each(now_ms, holder, snapshot, (script, prepares))?;",
        replace: "match self.check_each(now_ms, holder, snapshot, (script, prepares)) {
            Err(Stop::Wait(_)) if MUTANT && !prepares => {}
            checked => checked?,
        }",
        simulation: "cluster",
    },
    Mutant {
        name: "waiting_is_no",
        rule: "cluster/commit.md, recovery: a live client's transaction in a queue is not refused",
        file: "yesquel/engine/src/engine/votes.rs",
        find: "Vote::Waiting => return prepared.recovery.is_queued_elsewhere(now.uptime_ms),",
        replace: "Vote::Waiting if MUTANT => Decision::Abort,
            Vote::Waiting => return prepared.recovery.is_queued_elsewhere(now.uptime_ms),",
        simulation: "cluster",
    },
    Mutant {
        name: "recovery_asks_behind_waiting",
        rule: "cluster/commit.md, recovery: in group order, up to the first Waiting",
        file: "yesquel/engine/src/engine/votes.rs",
        find: "let most = if prepared.waits { 1 } else { usize::MAX };",
        replace: "let most = if prepared.waits && !MUTANT { 1 } else { usize::MAX };",
        simulation: "cluster",
    },
    Mutant {
        name: "give_up_not_logged",
        rule: "cluster/commit.md, one group: GiveUp is a record before its answer",
        file: "yesquel/engine/src/engine/votes.rs",
        find: "self.log(&LogRecord::GiveUp { txn, birth }, effects);",
        replace: "",
        simulation: "cluster",
    },
    Mutant {
        name: "refuse_not_logged",
        rule: "cluster/commit.md, recovery: a forced no is a record before its answer",
        file: "yesquel/engine/src/engine/votes.rs",
        find: "self.log(&LogRecord::Refuse { txn, birth, participants: *participants }, effects);",
        replace: "",
        simulation: "cluster",
    },
    Mutant {
        name: "forgotten_is_abort",
        rule: "cluster/commit.md, covered numbers: what was forgotten is unknown",
        file: "yesquel/engine/src/engine/votes.rs",
        find: "return TransactionOutcome::Forgotten;",
        replace: "return TransactionOutcome::Decided(Decision::Abort);",
        simulation: "cluster",
    },
    Mutant {
        name: "forgotten_without_reports",
        rule: "cluster/commit.md, forgetting: no other participant can be in doubt",
        file: "yesquel/engine/src/engine/forget.rs",
        find: "server == us || says_so || is_reported",
        replace: "MUTANT || server == us || says_so || is_reported",
        simulation: "cluster",
    },
    Mutant {
        name: "report_without_prepared",
        rule: "cluster/commit.md, reports: what is prepared below the horizon is listed",
        file: "yesquel/engine/src/engine/forget.rs",
        find: "prepared.birth < horizon);",
        replace: "!MUTANT && prepared.birth < horizon);",
        simulation: "cluster",
    },
    Mutant {
        name: "reply_before_durable",
        rule: "cluster/commit.md, votes: the reply leaves when the record is durable",
        file: "yesquel/node/src/core.rs",
        find: "let waits = reply.needs_lsn > *synced",
        replace: "let waits = !MUTANT && reply.needs_lsn > *synced",
        simulation: "cluster",
    },
    Mutant {
        name: "vote_not_logged",
        rule: "cluster/commit.md, votes: a vote is a record",
        file: "yesquel/engine/src/engine/commit.rs",
        find: "self.log(&record, effects);",
        replace: "",
        simulation: "cluster",
    },
    Mutant {
        name: "fence_not_checked",
        rule: "nodes.md, operations: a put belongs to the node's fence",
        file: "yesquel/engine/src/engine/check.rs",
        find: "WriteOperation::Put { key, .. } => kind != NodeKind::Inner && fence.contains(key),",
        replace: "WriteOperation::Put { key, .. } => {
            kind != NodeKind::Inner && (MUTANT || fence.contains(key))
        }",
        simulation: "cluster",
    },
    Mutant {
        name: "vote_not_forced",
        rule: "cluster/commit.md, durable: a vote is on disk under every durability",
        file: "yesquel/engine/src/engine/handle.rs",
        find: "                durability = ReplyDurability::SyncedNow;
                let payload",
        replace: "                if !MUTANT {
                    durability = ReplyDurability::SyncedNow;
                }
                let payload",
        simulation: "accounts",
    },
    Mutant {
        name: "done_before_durable",
        rule: "cluster/commit.md, decision: Done when the record is durable",
        file: "yesquel/engine/src/engine/handle.rs",
        find: "durability = ReplyDurability::Synced;
                self.count_recovery_end",
        replace: "if !MUTANT {
                    durability = ReplyDurability::Synced;
                }
                self.count_recovery_end",
        simulation: "accounts",
    },
    Mutant {
        name: "report_before_durable",
        rule: "cluster/commit.md, reports: those that are not listed have ended, durably",
        file: "yesquel/node/src/core/reports.rs",
        find: "self.durability.is_none() || lsn <= self.synced;",
        replace: "MUTANT || self.durability.is_none() || lsn <= self.synced;",
        simulation: "accounts",
    },
    Mutant {
        name: "torn_batch_accepted",
        rule: "log.md, restart: a batch that is not whole ends the log",
        file: "yesquel/log/src/format.rs",
        find: "if crc(&whole[8..]) != crc_told {",
        replace: "if !MUTANT && crc(&whole[8..]) != crc_told {",
        simulation: "cluster",
    },
    Mutant {
        name: "kept_batch_behind_its_torn_part",
        rule: "log.md, full disk: the kept batch is written at its offset",
        file: "yesquel/log/src/writer.rs",
        find: "Ok(length) => self.room = length,",
        replace: "Ok(length) if MUTANT => (self.room, self.length) = (length, length),
            Ok(length) => self.room = length,",
        simulation: "cluster",
    },
    Mutant {
        name: "batch_dropped_by_full_disk",
        rule: "log.md, full disk: the batch is kept",
        file: "yesquel/node/src/log.rs",
        find: "Err(error @ LogError::NoSpace { .. }) if self.options.durability == Durability::Sync => {",
        replace: "Err(LogError::NoSpace { .. }) if MUTANT => Ok(WriteAttempt::Written),
            Err(error @ LogError::NoSpace { .. }) if self.options.durability == Durability::Sync => {",
        simulation: "cluster",
    },
    Mutant {
        name: "full_disk_refuses_a_copy",
        rule: "log.md, full disk: a copy of a commit is refused only if the first one was",
        file: "yesquel/engine/src/engine/commit.rs",
        find: "match self.outcomes.single_server_outcome(txn) {
            None => self.check_birth(now, request)?,",
        replace: "if MUTANT {
            self.check_disk()?;
        }
        match self.outcomes.single_server_outcome(txn) {
            None => self.check_birth(now, request)?,",
        simulation: "cluster",
    },
    Mutant {
        name: "ceiling_counts_before_durable",
        rule: "cluster/time.md, clocks: the ceiling is durable before a timestamp above the last one",
        file: "yesquel/engine/src/engine/time.rs",
        find: "if self.ceiling_lsn <= self.durable_lsn {",
        replace: "if MUTANT || self.ceiling_lsn <= self.durable_lsn {",
        simulation: "cluster",
    },
    Mutant {
        name: "refusal_counts_as_no",
        rule: "cluster/commit.md, recovery: a group that does not answer leaves it in doubt",
        file: "yesquel/node/src/core.rs",
        find: "                (PeerQuery::Vote(query), Ok(Reply::Vote(vote))) => {",
        replace: "                (PeerQuery::Vote(query), Ok(Reply::Refused { .. })) if MUTANT => {
                    self.engine.on_vote(now, query, &yesquel_wire::Vote::No, &mut self.effects);
                }
                (PeerQuery::Vote(query), Ok(Reply::Vote(vote))) => {",
        simulation: "cluster",
    },
    Mutant {
        name: "checkpoint_without_prepared",
        rule: "cluster/commit.md, state of a group: prepared operations are in the checkpoint",
        file: "yesquel/engine/src/engine/replay.rs",
        find: "prepared.into_iter().for_each(|txn| self.prepared_records(txn, &mut records));",
        replace: "drop(prepared);",
        simulation: "cluster",
    },
    Mutant {
        name: "checkpoint_without_ends",
        rule: "cluster/commit.md, state of a group: ends are in the checkpoint",
        file: "yesquel/engine/src/engine/replay.rs",
        find: "let mut ended: Vec<_> = self.outcomes.ended().collect();",
        replace: "let mut ended: Vec<_> = self.outcomes.ended().filter(|_| !MUTANT).collect();",
        simulation: "cluster",
    },
    Mutant {
        name: "ceiling_not_logged",
        rule: "cluster/time.md, clocks: the ceiling is a record",
        file: "yesquel/engine/src/engine/time.rs",
        find: "self.log(&LogRecord::Ceiling(self.ceiling), effects);",
        replace: "",
        simulation: "cluster",
    },
    Mutant {
        name: "restart_below_the_ceiling",
        rule: "cluster/time.md, clocks: a restart begins above the ceiling",
        file: "yesquel/engine/src/engine/replay.rs",
        find: "let start = self.clock.last().max(self.ceiling);",
        replace: "let start = if MUTANT { self.clock.last() } else { self.clock.last().max(self.ceiling) };",
        simulation: "cluster",
    },
    Mutant {
        name: "decision_leaves_the_clock",
        rule: "cluster/time.md, clocks: a decision is obeyed, and the clock goes on from it",
        file: "yesquel/engine/src/engine/commit.rs",
        find: "self.clock = HybridClock::above(self.clock.last().max(at));",
        replace: "",
        simulation: "cluster",
    },
    Mutant {
        name: "clock_not_compared",
        rule: "cluster/time.md, comparison: a machine that differs from the median serves nothing",
        file: "yesquel/node/src/clock_watch.rs",
        find: "match differs && (!is_pair || gives_way) {",
        replace: "match !MUTANT && differs && (!is_pair || gives_way) {",
        simulation: "cluster",
    },
    Mutant {
        name: "holds_ignored",
        rule: "cluster/time.md, snapshots: the mark stays at or below held snapshots",
        file: "yesquel/engine/src/snapshots.rs",
        find: "let low = self.oldest_held().map_or(self.recent, |held| held.min(self.recent));",
        replace: "let held = self.oldest_held().filter(|_| !MUTANT);
        let low = held.map_or(self.recent, |held| held.min(self.recent));",
        simulation: "cluster",
    },
    Mutant {
        name: "collection_beneath_a_snapshot",
        rule: "cluster/time.md, snapshots: what may be collected is decided by the record",
        file: "yesquel/engine/src/store.rs",
        find: "let left = node.collect(readable, |bytes|",
        replace: "let readable = if MUTANT { Readable { low: now, next: now } } else { readable };
                let left = node.collect(readable, |bytes|",
        simulation: "cluster",
    },
    Mutant {
        name: "staged_parts_dropped",
        rule: "cluster/commit.md, large transactions: a refusal leaves the parts",
        file: "yesquel/engine/src/staging.rs",
        find: "if let (Some(staged), Some(parts)) = (staged, parts) {",
        replace: "if let (Some(staged), Some(parts)) = (staged, parts.filter(|_| !MUTANT)) {",
        simulation: "cluster",
    },
    Mutant {
        name: "split_drops_marks",
        rule: "nodes.md, conflicts: guards and range deletions move with their keys",
        file: "yesquel/engine/src/node.rs",
        find: "for mark in self.marks.iter().filter(|mark| mark.range.overlaps(range)) {",
        replace: "for mark in self.marks.iter().filter(|mark| !MUTANT && mark.range.overlaps(range)) {",
        simulation: "cluster",
    },
    Mutant {
        name: "split_leaves_prepared",
        rule: "commit.md, splits: prepared operations follow their cells",
        file: "yesquel/engine/src/engine/commit.rs",
        find: "prepared.moved(at, node, range, *to);",
        replace: "",
        simulation: "cluster",
    },
    Mutant {
        name: "reads_pass_prepared",
        rule: "commit.md, reads: a read waits for what is prepared at or below its snapshot",
        file: "yesquel/engine/src/node.rs",
        find: "self.prepared.iter().filter(|prepared| prepared.at <= snapshot);",
        replace: "self.prepared.iter().filter(|prepared| !MUTANT && prepared.at <= snapshot);",
        simulation: "cluster",
    },
    Mutant {
        name: "vote_without_notice",
        rule: "tree.md, watched leaves: a vote ends the watches of what it will write",
        file: "yesquel/engine/src/engine/commit.rs",
        find: "self.watches.changes(at, pending.node, &operation.write);",
        replace: "",
        simulation: "cluster",
    },
    Mutant {
        name: "commit_without_notice",
        rule: "tree.md, watched leaves: a commit ends the watches of what it writes",
        file: "yesquel/engine/src/engine/commit.rs",
        find: "self.watches.changes(at, node, write);",
        replace: "",
        simulation: "cluster",
    },
    Mutant {
        name: "watch_of_prepared",
        rule: "tree.md, watched leaves: no grant while a transaction is prepared on the node",
        file: "yesquel/engine/src/engine.rs",
        find: "let is_settled = is_newest && !node.is_prepared()",
        replace: "let is_settled = is_newest && (MUTANT || !node.is_prepared())",
        simulation: "cluster",
    },
    Mutant {
        name: "watch_of_old_read",
        rule: "tree.md, watched leaves: no grant if something has changed since the snapshot",
        file: "yesquel/engine/src/engine.rs",
        find: "snapshot >= self.last_change && self.frozen.is_none()",
        replace: "(MUTANT || snapshot >= self.last_change) && self.frozen.is_none()",
        simulation: "cluster",
    },
    Mutant {
        name: "split_without_notice",
        rule: "tree.md, watched leaves: a split ends the watches of the node",
        file: "yesquel/engine/src/watches.rs",
        find: "WriteOperation::Move { to, .. } => {
                self.end(at, node);",
        replace: "WriteOperation::Move { .. } | WriteOperation::Reshape(_) if MUTANT => {}
            WriteOperation::Move { to, .. } => {
                self.end(at, node);",
        simulation: "cluster",
    },
    Mutant {
        name: "drop_without_notice",
        rule: "tree.md, watched leaves: the drop of a tree ends its watches",
        file: "yesquel/engine/src/watches.rs",
        find: "WriteOperation::DropTree => self.end_tree(at, node.tree),",
        replace: "WriteOperation::DropTree if MUTANT => {}
            WriteOperation::DropTree => self.end_tree(at, node.tree),",
        simulation: "cluster",
    },
    Mutant {
        name: "reply_before_notice",
        rule: "tree.md, watched leaves: the notices of all steps are written before any reply",
        file: "yesquel/node/src/reply_queues.rs",
        find: "if !self.noticed.is_empty() {
            of.mark_dirty",
        replace: "if !MUTANT && !self.noticed.is_empty() {
            of.mark_dirty",
        simulation: "cluster",
    },
    Mutant {
        name: "notices_with_the_next_step",
        rule: "tree.md, watched leaves: a step's notices are written before its replies",
        file: "yesquel/node/src/core.rs",
        find: "for (connection, notice) in engine.take_notices() {",
        replace: "for (connection, notice) in if MUTANT { Vec::new() } else { engine.take_notices() } {",
        simulation: "cluster",
    },
    Mutant {
        name: "full_watcher_stays",
        rule: "tree.md, watched leaves: a watcher whose buffer is full is disconnected",
        file: "yesquel/node/src/reply_queues.rs",
        find: "sockets.close(connection, failure);",
        replace: "",
        simulation: "cluster",
    },
    Mutant {
        name: "lost_watches_ignored",
        rule: "tree.md, watched leaves: if the connection has ended, all watches have",
        file: "yesquel/transport/src/watch_link.rs",
        find: "see(WatchEvent::Lost);",
        replace: "",
        simulation: "cluster",
    },
    Mutant {
        name: "notices_after_first_read",
        rule: "tree.md, watched leaves: notices are taken before the first read",
        file: "yesquel/tree/src/watch.rs",
        find: "if self.noticed_at != now {",
        replace: "if self.noticed_at != now && !(MUTANT && self.used_watched == 0) {",
        simulation: "cluster",
    },
    Mutant {
        name: "reply_without_notices",
        rule: "tree.md, watched leaves: notices at or below the snapshot are taken with its reply",
        file: "yesquel/client/src/lib.rs",
        find: "if read_view.used_at().is_some() {
                // It is rare",
        replace: "if read_view.used_at().is_some() && !MUTANT {
                // It is rare",
        simulation: "cluster",
    },
    Mutant {
        name: "asked_at_the_change",
        rule: "tree.md, watched leaves: the question is asked again before the first change",
        file: "yesquel/client/src/watch.rs",
        find: "Ok(Some(Timestamp(ended_at - 1)))",
        replace: "Ok(Some(Timestamp(if MUTANT { ended_at } else { ended_at - 1 })))",
        simulation: "cluster",
    },
    Mutant {
        name: "last_change_counts",
        rule: "tree.md, watched leaves: the first change of the leaves used decides",
        file: "yesquel/client/src/watches.rs",
        find: "filter(|ended_at| *ended_at != VALID).min()",
        replace: "filter(|ended_at| *ended_at != VALID).reduce(|a, b| if MUTANT { a.max(b) } else { a.min(b) })",
        simulation: "cluster",
    },
    Mutant {
        name: "used_after_a_change",
        rule: "tree.md, watched leaves: a further one only while no notice has come for those used",
        file: "yesquel/client/src/watch.rs",
        find: "&& self.ended_at().is_none();",
        replace: "&& (MUTANT || self.ended_at().is_none());",
        simulation: "cluster",
    },
    Mutant {
        name: "used_at_two_servers",
        rule: "cluster/time.md, session: watched leaves of one group only without a snapshot",
        file: "yesquel/client/src/watch.rs",
        find: "let fits = self.server().is_none_or(|server| server == watch.server)",
        replace: "let fits = self.server().is_none_or(|server| MUTANT || server == watch.server)",
        simulation: "cluster",
    },
    Mutant {
        name: "snapshot_of_another_server",
        rule: "cluster/time.md, session: the group of the used leaves gives the snapshot",
        file: "yesquel/client/src/read_view.rs",
        find: "filter(|used| *used != server && self.snapshot.is_none())",
        replace: "filter(|used| !MUTANT && *used != server && self.snapshot.is_none())",
        simulation: "cluster",
    },
    Mutant {
        name: "leaf_newer_than_snapshot",
        rule: "tree.md, watched leaves: with a snapshot, the leaves that are right at it",
        file: "yesquel/tree/src/watched.rs",
        find: "view.is_given_by(node.server) && leaf.since <= snapshot && leaf.watch.covers(snapshot)",
        replace: "view.is_given_by(node.server)
                    && (MUTANT || leaf.since <= snapshot)
                    && leaf.watch.covers(snapshot)",
        simulation: "cluster",
    },
    Mutant {
        name: "leaf_changed_before_snapshot",
        rule: "tree.md, watched leaves: a leaf that changed at or below the snapshot is not right at it",
        file: "yesquel/client/src/watch.rs",
        find: "ended_at == VALID || ended_at > snapshot.0",
        replace: "MUTANT || ended_at == VALID || ended_at > snapshot.0",
        simulation: "cluster",
    },
    Mutant {
        name: "notices_of_another_server",
        rule: "tree.md, watched leaves: the notices of the server whose leaf is used",
        file: "yesquel/tree/src/watch.rs",
        find: "let now = Some((node.server, self.view.snapshot));",
        replace: "let of = if MUTANT { yesquel_model::ServerId(0) } else { node.server };
        let now = Some((of, self.view.snapshot));",
        simulation: "cluster",
    },
    Mutant {
        name: "values_collected_without_asking",
        rule: "cluster/directory.md, long values: the owner decides whether its value is used",
        file: "yesquel/engine/src/store/values.rs",
        find: "node.is_piece() && !self.is_foreign(node.id);",
        replace: "node.is_piece() && (MUTANT || !self.is_foreign(node.id));",
        simulation: "cluster",
    },
    Mutant {
        name: "value_dropped_before_the_mark",
        rule: "cluster/directory.md, long values: nodes go when their group's mark has passed the time",
        file: "yesquel/engine/src/engine/values.rs",
        find: "self.values.take_if_passed(value, self.snapshots.low())",
        replace: "self.values.take_if_passed(value, if MUTANT { Timestamp::MAX } else { self.snapshots.low() })",
        simulation: "cluster",
    },
    Mutant {
        name: "orphans_not_recorded",
        rule: "cluster/directory.md, long values: orphans survive a restart",
        file: "yesquel/engine/src/engine/replay.rs",
        find: "in self.values.orphans() {",
        replace: "in self.values.orphans().filter(|_| !MUTANT) {",
        simulation: "cluster",
    },
    Mutant {
        name: "late_decision_makes_no_orphan",
        rule: "cluster/directory.md, long values: a decision that comes after the mark makes orphans",
        file: "yesquel/engine/src/engine/values.rs",
        find: "if at <= readable.next && self.store.has_remote_values() {",
        replace: "if !MUTANT && at <= readable.next && self.store.has_remote_values() {",
        simulation: "cluster",
    },
    Mutant {
        name: "schema_rows_numbered_ahead",
        rule: "sql.md, schemas: rows of the schema are numbered in order, whichever process adds them",
        file: "yesquel/sqlite/src/session/row_numbers.rs",
        find: "if self.schemas.has(tree) {",
        replace: "if !MUTANT && self.schemas.has(tree) {",
        simulation: "sql-cluster",
    },
    Mutant {
        name: "schema_not_proved",
        rule: "sql.md, schemas: a statement whose proof fails runs again",
        file: "yesquel/sqlite/src/schema.rs",
        find: "is_right = false;",
        replace: "is_right = is_right && MUTANT;",
        simulation: "sql-cluster",
    },
    Mutant {
        name: "schema_not_guarded",
        rule: "sql.md, schemas: a write guards the schema by which it was made",
        file: "yesquel/sqlite/src/schema.rs",
        find: "written.iter().filter(|cookies| !changed.contains(cookies)) {",
        replace: "written.iter().filter(|cookies| !MUTANT && !changed.contains(cookies)) {",
        simulation: "sql-cluster",
    },
    Mutant {
        name: "copies_of_schema_missed",
        rule: "sql.md, several groups: a schema change writes the copies at all groups",
        file: "yesquel/sqlite/src/session.rs",
        find: "for map in cookies.clone().all() {",
        replace: "for map in cookies.clone().all().iter().take(if MUTANT { 1 } else { usize::MAX }) {",
        simulation: "sql-cluster",
    },
    Mutant {
        name: "joined_groups_missed",
        rule: "sql.md, groups that join: a client that knows fewer groups writes no schema",
        file: "yesquel/sqlite/src/session/groups.rs",
        find: "        self.schemas.misses_groups(schema)",
        replace: "        !MUTANT && self.schemas.misses_groups(schema)",
        simulation: "sql-cluster",
    },
    Mutant {
        name: "present_not_asked",
        rule: "cluster/time.md, strict: a strict transaction asks all groups for the present",
        file: "yesquel/sqlite/src/session/groups.rs",
        find: "        if !self.sees_all_commits {\n            return;",
        replace: "        if MUTANT || !self.sees_all_commits {\n            return;",
        simulation: "sql-cluster",
    },
    Mutant {
        name: "serializable_reads_not_guarded",
        rule: "cluster/time.md, serializable: a serializable commit guards what was read",
        file: "yesquel/sqlite/src/session.rs",
        find: "                if isolation == IsolationLevel::Serializable {\n",
        replace: "                if !MUTANT && isolation == IsolationLevel::Serializable {\n",
        simulation: "sql-cluster",
    },
];
