//! Parts of transactions that are too long for one message: they are kept, in
//! the log too, until the rest comes, or nobody speaks of them any more.

use rustc_hash::FxHashMap;
use yesquel_model::{Refusal, TxnId};
use yesquel_wire::{Operation, Operations, Staged};

/// How long parts are kept to which nothing is added.
const KEPT_MS: u64 = 60_000;

/// Parts of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    parts: Vec<Box<[u8]>>,
    touched_ms: u64,
}

impl Parts {
    fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }
}

/// All that a transaction does: what was staged of it, and what came with its
/// commit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Script<'a> {
    parts: &'a [Box<[u8]>],
    last: Operations<'a>,
}

impl<'a> Script<'a> {
    pub(crate) fn new(parts: Option<&'a Parts>, last: Operations<'a>) -> Script<'a> {
        Script { parts: parts.map_or(&[], |parts| &parts.parts), last }
    }

    /// Bytes of what was staged of it.
    pub(crate) fn staged_bytes(self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }

    /// Them, in their order.
    pub(crate) fn iter(self) -> impl Iterator<Item = Operation<'a>> {
        // They were looked through when they came.
        let staged = self.parts.iter().filter_map(|part| Operations::decode(part).ok());
        staged.chain(std::iter::once(self.last)).flat_map(|operations| operations.iter())
    }
}

/// What is staged.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    all: FxHashMap<TxnId, Parts>,
    bytes: usize,
}

impl Staging {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a part is the next one, or there already.
    pub(crate) fn expects(&self, name: TxnId, part: u64) -> Result<bool, Refusal> {
        let known = self.all.get(&name).map_or(0, |parts| parts.parts.len() as u64);
        if part > known { Err(Refusal::GivenUp(name)) } else { Ok(part == known) }
    }

    /// Keeps the next part.
    pub(crate) fn push(&mut self, name: TxnId, operations: &Operations<'_>, now_ms: u64) {
        let parts = self.all.entry(name).or_default();
        parts.touched_ms = now_ms;
        parts.parts.push(operations.bytes().into());
        self.bytes += operations.bytes().len();
    }

    /// The parts that a transaction speaks of, which are not kept any more.
    pub(crate) fn take(&mut self, client: u64, staged: Option<Staged>) -> Result<Option<Parts>, Refusal> {
        let Some(staged) = staged else { return Ok(None) };
        let name = TxnId { client, number: staged.number };
        match self.remove(name) {
            Some(parts) if parts.parts.len() as u64 == staged.parts => Ok(Some(parts)),
            // Some are missing: they were kept for too long.
            _ => Err(Refusal::GivenUp(name)),
        }
    }

    /// They are kept further: the transaction was refused, and may come again.
    pub(crate) fn put_back(&mut self, client: u64, staged: Option<Staged>, parts: Option<Parts>) {
        if let (Some(staged), Some(parts)) = (staged, parts) {
            self.bytes += parts.bytes();
            self.all.insert(TxnId { client, number: staged.number }, parts);
        }
    }

    pub(crate) fn remove(&mut self, name: TxnId) -> Option<Parts> {
        let parts = self.all.remove(&name)?;
        self.bytes -= parts.bytes();
        Some(parts)
    }

    /// Those that nobody has spoken of for too long.
    pub(crate) fn late(&self, now_ms: u64) -> Vec<TxnId> {
        let late = self.all.iter().filter(|(_, parts)| parts.touched_ms + KEPT_MS <= now_ms);
        let mut late: Vec<TxnId> = late.map(|(name, _)| *name).collect();
        late.sort_unstable();
        late
    }

    /// All parts, with their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TxnId, u64, Operations<'_>)> {
        self.all.iter().flat_map(|(name, parts)| {
            let decoded = parts.parts.iter().zip(0..);
            decoded.filter_map(|(part, number)| Some((*name, number, Operations::decode(part).ok()?)))
        })
    }
}

/// What a transaction does at a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written<'a> {
    /// The number of the lease under which it does it; zero: none.
    pub(crate) lease: u64,
    pub(crate) staged: Option<Staged>,
    pub(crate) operations: Operations<'a>,
}
