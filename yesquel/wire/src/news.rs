//! What a server must know of a client without asking.

use crate::{Malformed, Reader, Writer};
use yesquel_model::Timestamp;

/// What a client says of itself, as the message with number
/// [`NUMBER`](Self::NUMBER), whenever it has changed. It has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct News {
    /// The oldest snapshot that one of its transactions reads, and the next one:
    /// there is none in between.
    pub oldest: [Option<Timestamp>; 2],
    /// Whether there are others above these two.
    pub more: bool,
    /// It knows how all its transactions up to this number ended.
    pub known: u64,
}

impl News {
    /// No request has this number.
    pub const NUMBER: u64 = 0;

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(27);
        let [oldest, next] = self.oldest.map(Option::unwrap_or_default);
        Writer(&mut bytes).timestamp(oldest).timestamp(next).number(self.known).byte(self.more.into());
        bytes
    }

    /// What some bytes say.
    pub fn decode(bytes: &[u8]) -> Result<News, Malformed> {
        let mut reader = Reader::new(bytes);
        let oldest = [reader.timestamp()?, reader.timestamp()?];
        let oldest = oldest.map(|oldest| Some(oldest).filter(|oldest| *oldest != Timestamp::ZERO));
        let (known, before) = (reader.number()?, reader);
        let more = match reader.byte()? {
            0 => false,
            1 => true,
            _ => return Err(before.malformed("neither that there are more nor that there are not")),
        };
        let news = News { oldest, more, known };
        reader.finish()?;
        Ok(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_come_back() {
        for news in [
            News::default(),
            News { oldest: [Some(Timestamp(9)), Some(Timestamp(12))], more: true, known: u64::MAX },
        ] {
            assert_eq!(News::decode(&news.encode()), Ok(news));
        }
        assert!(News::decode(&[0; 17]).is_err() && News::decode(&[0; 19]).is_err());
        let mut bytes = News::default().encode();
        assert_eq!(bytes.len(), 18);
        bytes[17] = 2;
        assert!(News::decode(&bytes).is_err());
    }
}
