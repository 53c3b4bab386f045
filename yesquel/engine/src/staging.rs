//! Staged parts of transactions that are too long for one message. They are kept, also in the log,
//! until the commit arrives or no part has come for a while.

use rustc_hash::FxHashMap;
use yesquel_model::{Refusal, TxnId};
use yesquel_wire::{ENDS_LEASE, NodeOperation, Operations, Staged};

/// How long parts are kept after the last one.
const KEPT_MS: u64 = 60_000;

/// The parts of one transaction.
#[derive(Debug, Default)]
pub(crate) struct StagedParts {
    parts: Vec<Box<[u8]>>,
    touched_ms: u64,
}

impl StagedParts {
    fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }
}

/// All operations of a transaction: its staged parts, and those sent with the commit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OperationScript<'a> {
    parts: &'a [Box<[u8]>],
    last: Operations<'a>,
}

impl<'a> OperationScript<'a> {
    pub(crate) fn new(parts: Option<&'a StagedParts>, last: Operations<'a>) -> OperationScript<'a> {
        OperationScript { parts: parts.map_or(&[], |parts| &parts.parts), last }
    }

    /// Bytes of the staged parts.
    pub(crate) fn staged_bytes(self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }

    /// Iterates over the operations in order.
    pub(crate) fn iter(self) -> impl Iterator<Item = NodeOperation<'a>> {
        // They were checked on arrival.
        let staged = self.parts.iter().filter_map(|part| Operations::decode(part).ok());
        staged.chain(std::iter::once(self.last)).flat_map(|operations| operations.iter())
    }
}

/// All staged parts.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    all: FxHashMap<TxnId, StagedParts>,
    bytes: usize,
}

impl Staging {
    /// Bytes of all parts.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a part is the next one. False if it has arrived before.
    pub(crate) fn expects(&self, name: TxnId, part: u64) -> Result<bool, Refusal> {
        let known = self.all.get(&name).map_or(0, |parts| parts.parts.len() as u64);
        if part > known { Err(Refusal::GivenUp(name)) } else { Ok(part == known) }
    }

    /// Adds the next part.
    pub(crate) fn push(&mut self, name: TxnId, operations: &Operations<'_>, now_ms: u64) {
        let parts = self.all.entry(name).or_default();
        parts.touched_ms = now_ms;
        parts.parts.push(operations.bytes().into());
        self.bytes += operations.bytes().len();
    }

    /// Takes the parts of a transaction out. If some are missing, the others stay until they expire:
    /// a refusal changes nothing.
    pub(crate) fn take(
        &mut self,
        client: u64,
        staged: Option<Staged>,
    ) -> Result<Option<StagedParts>, Refusal> {
        let Some(staged) = staged else { return Ok(None) };
        let name = TxnId { client, number: staged.number };
        match self.all.get(&name) {
            Some(parts) if parts.parts.len() as u64 == staged.parts => Ok(self.remove(name)),
            // Parts are missing: they have expired. Others go by a record only.
            _ => Err(Refusal::GivenUp(name)),
        }
    }

    /// Puts the parts back: the transaction was refused, and may be retried.
    pub(crate) fn put_back(&mut self, client: u64, staged: Option<Staged>, parts: Option<StagedParts>) {
        if let (Some(staged), Some(parts)) = (staged, parts) {
            self.bytes += parts.bytes();
            self.all.insert(TxnId { client, number: staged.number }, parts);
        }
    }

    pub(crate) fn remove(&mut self, name: TxnId) -> Option<StagedParts> {
        let parts = self.all.remove(&name)?;
        self.bytes -= parts.bytes();
        Some(parts)
    }

    /// Names of the parts that have expired.
    pub(crate) fn late(&self, now_ms: u64) -> Vec<TxnId> {
        let late = self.all.iter().filter(|(_, parts)| parts.touched_ms + KEPT_MS <= now_ms);
        let mut late: Vec<TxnId> = late.map(|(name, _)| *name).collect();
        late.sort_unstable();
        late
    }

    /// Iterates over all parts with their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TxnId, u64, Operations<'_>)> {
        self.all.iter().flat_map(|(name, parts)| {
            let decoded = parts.parts.iter().zip(0..);
            decoded.filter_map(|(part, number)| Some((*name, number, Operations::decode(part).ok()?)))
        })
    }
}

/// Operations of a transaction at a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommitPayload<'a> {
    /// Number of the lease under which it writes; zero: none.
    pub(crate) lease: u64,
    pub(crate) staged: Option<Staged>,
    pub(crate) operations: Operations<'a>,
}

impl CommitPayload<'_> {
    /// Name of the lease under which a transaction writes.
    pub(crate) fn holder(&self, txn: TxnId) -> TxnId {
        TxnId { number: self.lease & !ENDS_LEASE, ..txn }
    }

    /// Name of the lease that ends with the transaction's commit.
    pub(crate) fn ended_lease(&self, txn: TxnId) -> Option<TxnId> {
        (self.lease & ENDS_LEASE != 0).then(|| self.holder(txn))
    }
}
