//! What clients and groups tell each other so that ends of transactions can be forgotten.
//! `docs/yesquel/cluster/commit.md` has the rules.

use crate::{ByteReader, ByteWriter, Malformed, Participants};
use yesquel_model::{ServerId, Timestamp, TxnId};

/// Exceptions that a client may report.
pub const SETTLED_EXCEPTIONS_MAX: usize = 64;

/// The settled transactions of a client: all up to a number, except for some. A transaction is
/// settled when no participant can be in doubt about it and the client needs no answer any more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SettledReport {
    /// The number.
    pub number: u64,
    /// Upper bound of the births up to that number.
    pub birth: Timestamp,
    /// Numbers up to it that are not settled, in order.
    pub exceptions: Vec<u64>,
}

impl SettledReport {
    /// Whether a transaction of the client is settled.
    pub fn covers(&self, number: u64) -> bool {
        number <= self.number && self.exceptions.binary_search(&number).is_err()
    }

    /// Takes in another report of the same client, whichever of the two is older: what either
    /// states is settled.
    pub fn merge(&mut self, other: &SettledReport) {
        let (smaller, mut larger) = match self.number <= other.number {
            true => (std::mem::take(self), other.clone()),
            false => (other.clone(), std::mem::take(self)),
        };
        larger.exceptions.retain(|number| !smaller.covers(*number));
        larger.birth = larger.birth.max(smaller.birth);
        *self = larger;
    }

    /// Appends the report to a message.
    pub fn write(&self, writer: &mut ByteWriter<'_>) {
        writer.number(self.number).timestamp(self.birth).number(self.exceptions.len() as u64);
        let mut last = 0;
        for exception in &self.exceptions {
            writer.number(exception - last);
            last = *exception;
        }
    }

    /// Decodes a report.
    pub fn read(reader: &mut ByteReader<'_>) -> Result<SettledReport, Malformed> {
        let (number, birth, count) = (reader.number()?, reader.timestamp()?, reader.count()?);
        // A count may claim more than there is; each exception takes at least a byte.
        let (mut exceptions, mut last) = (Vec::new(), 0_u64);
        for _ in 0..count {
            let before = *reader;
            let next = last.checked_add(reader.number()?).filter(|next| *next > last && *next <= number);
            last = next.ok_or(before.malformed("exceptions out of order"))?;
            exceptions.push(last);
        }
        Ok(SettledReport { number, birth, exceptions })
    }
}

/// What a group states about the transactions that were born below its horizon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HorizonReport {
    /// The group votes for no transaction that was born below this.
    pub horizon: Timestamp,
    /// Those of them that it has prepared, without a durable end, in order.
    pub prepared: Vec<TxnId>,
}

impl HorizonReport {
    /// Encodes the report.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = ByteWriter(&mut bytes);
        writer.timestamp(self.horizon);
        for txn in &self.prepared {
            writer.txn(*txn);
        }
        bytes
    }

    /// Decodes a report.
    pub fn decode(bytes: &[u8]) -> Result<HorizonReport, Malformed> {
        let mut reader = ByteReader::new(bytes);
        let (horizon, mut prepared) = (reader.timestamp()?, Vec::new());
        while !reader.is_done() {
            let (before, txn) = (reader, reader.txn()?);
            if prepared.last() >= Some(&txn) {
                return Err(before.malformed("transactions out of order"));
            }
            prepared.push(txn);
        }
        Ok(HorizonReport { horizon, prepared })
    }
}

/// Transactions of one client, with their births and participants, in the order of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionList<'a> {
    bytes: &'a [u8],
}

impl<'a> TransactionList<'a> {
    /// Appends a transaction, whose number must be above the last one's.
    pub fn push(bytes: &mut Vec<u8>, number: u64, birth: Timestamp, participants: &[ServerId]) {
        ByteWriter(bytes).number(number).timestamp(birth).bytes(&Participants::encode(participants));
    }

    fn next(reader: &mut ByteReader<'a>) -> Result<(u64, Timestamp, Participants<'a>), Malformed> {
        Ok((reader.number()?, reader.timestamp()?, Participants::decode(reader.bytes()?)?))
    }

    /// Decodes and checks a list.
    pub fn decode(bytes: &'a [u8]) -> Result<TransactionList<'a>, Malformed> {
        let (mut reader, mut last) = (ByteReader::new(bytes), None);
        while !reader.is_done() {
            let before = reader;
            let (number, ..) = TransactionList::next(&mut reader)?;
            if last >= Some(number) {
                return Err(before.malformed("transactions out of order"));
            }
            last = Some(number);
        }
        Ok(TransactionList { bytes })
    }

    /// The encoded list.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Iterates over numbers, births and participants.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Timestamp, Participants<'a>)> + use<'a> {
        let mut reader = ByteReader::new(self.bytes);
        std::iter::from_fn(move || TransactionList::next(&mut reader).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(number: u64, exceptions: &[u64]) -> SettledReport {
        SettledReport { number, birth: Timestamp(number), exceptions: exceptions.to_vec() }
    }

    /// Reports overtake each other; the order in which they arrive does not matter.
    #[test]
    fn reports_merge_in_any_order() {
        for (older, newer, merged) in [
            (report(5, &[2, 4]), report(9, &[4, 7]), report(9, &[4, 7])),
            (report(5, &[4]), report(9, &[2, 4, 7]), report(9, &[4, 7])),
            (report(9, &[2, 4]), report(9, &[4]), report(9, &[4])),
            (report(0, &[]), report(3, &[1]), report(3, &[1])),
        ] {
            let [mut one, mut other] = [older.clone(), newer.clone()];
            one.merge(&newer);
            other.merge(&older);
            assert_eq!((&one, &other), (&merged, &merged));
        }
        assert!(report(9, &[4]).covers(9) && !report(9, &[4]).covers(4) && !report(9, &[4]).covers(10));
    }

    #[test]
    fn reports_of_groups_round_trip() {
        let txn = |number| TxnId { client: 3, number };
        for report in [
            HorizonReport::default(),
            HorizonReport { horizon: Timestamp(7), prepared: vec![txn(1), txn(300)] },
        ] {
            let bytes = report.encode();
            assert_eq!(HorizonReport::decode(&bytes), Ok(report));
            assert!(HorizonReport::decode(&[&bytes[..], &[1]].concat()).is_err());
        }
        let twice = HorizonReport { horizon: Timestamp(7), prepared: vec![txn(1), txn(1)] };
        assert!(HorizonReport::decode(&twice.encode()).is_err());
    }
}
