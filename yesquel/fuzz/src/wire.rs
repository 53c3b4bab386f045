//! Fuzz target for bytes from a connection: greetings, frames, messages.

use crate::input::Input;
use yesquel_wire::{
    Answer, AnswerWriter, ByteWriter, Cells, ClientHeartbeat, Correction, Destination, HorizonReport,
    JoinToken, Lookup, Operations, Participants, Question, Questions, Reply, Request, TransactionList, Vote,
    frame::{FRAME_BYTES_MAX, FrameError, HEAD_BYTES, Inbox, Message, Outbox},
    greeting::{GREETING_BYTES_MAX, GreetingError, Hello, Welcome},
};

/// Bytes fed to an inbox at most, to keep inputs fast.
const FED_BYTES_MAX: usize = 256 << 10;

/// Arbitrary bytes must not cause a panic, or hold more memory than they have; what decodes must
/// encode to the same bytes.
pub fn check(bytes: &[u8]) {
    let mut input = Input(bytes);
    match input.below(5) {
        0 => message(input.rest()),
        1 => greeting(&mut input),
        2 => {
            let cuts = cuts(&mut input);
            frames(input.rest(), cuts);
        }
        3 => {
            let cuts = cuts(&mut input);
            frames(&made(&mut input), cuts);
        }
        _ => sent(&mut input),
    }
}

/// Checks that each message has one encoding.
fn message(bytes: &[u8]) {
    let lookup = Request::lookup(bytes);
    if let Some(Lookup { snapshot, seen, node, key }) = lookup {
        let mut again = Vec::new();
        Request::write_read(&mut ByteWriter(&mut again), snapshot, seen, [Question::Lookup { node, key }]);
        assert_eq!(again, bytes, "{lookup:?}");
    }
    if let Ok(request) = Request::decode(bytes) {
        let mut again = Vec::new();
        request.write(&mut ByteWriter(&mut again));
        assert_eq!(again, bytes, "{request:?}");
        match request {
            Request::Read { questions: asked, .. } => questions(&asked),
            Request::Commit { operations: done, .. } => operations(&done),
            Request::Prepare { operations: done, participants: taking_part, .. } => {
                operations(&done);
                participants(&taking_part);
            }
            Request::Decide { participants: taking_part, .. }
            | Request::Resolve { participants: taking_part, .. } => participants(&taking_part),
            Request::Ended { transactions, .. } => {
                let mut again = Vec::new();
                for (number, birth, taking_part) in transactions.iter() {
                    let servers: Vec<_> = taking_part.iter().collect();
                    TransactionList::push(&mut again, number, birth, &servers);
                }
                assert_eq!(again, transactions.bytes());
            }
            _ => {}
        }
    }
    if let Ok((destination, request)) = Destination::split(bytes) {
        assert_eq!([destination.encode().bytes(), request].concat(), bytes, "{destination:?}");
    }
    let correction = Correction::of(bytes).map(Reply::Corrected);
    if let Ok(reply) = Reply::decode(bytes) {
        let mut again = Vec::new();
        reply.write(&mut again);
        assert_eq!(again, bytes, "{reply:?}");
        assert_eq!(correction, Some(reply).filter(|reply| matches!(reply, Reply::Corrected(_))));
        match reply {
            Reply::Answers { .. } => answers(&reply, bytes),
            Reply::Vote(Vote::Yes { participants: taking_part, .. }) => participants(&taking_part),
            _ => {}
        }
    }
    if let Ok(report) = HorizonReport::decode(bytes) {
        assert_eq!(report.encode(), bytes, "{report:?}");
    }
    if let Ok(token) = JoinToken::decode(bytes) {
        assert_eq!(token.encode(), bytes, "{token:?}");
        assert_eq!(token.to_string().parse(), Ok(token));
    }
    if let Ok(news) = ClientHeartbeat::decode(bytes) {
        assert_eq!(news.encode(), bytes, "{news:?}");
    }
}

fn operations(operations: &Operations<'_>) {
    let all: Vec<_> = operations.iter().collect();
    assert_eq!(all.len(), operations.len());
    assert_eq!(operations.is_empty(), all.is_empty());
    assert_eq!(Operations::encode(&all), operations.bytes(), "{all:?}");
}

fn questions(questions: &Questions<'_>) {
    let all: Vec<_> = questions.iter().collect();
    assert_eq!(all.len(), questions.len());
    assert_eq!(questions.is_empty(), all.is_empty());
    let mut again = Vec::new();
    all.iter().for_each(|question| question.write(&mut ByteWriter(&mut again)));
    assert_eq!(again, questions.bytes(), "{all:?}");
}

fn participants(participants: &Participants<'_>) {
    let all: Vec<_> = participants.iter().collect();
    assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
    assert_eq!(Participants::encode(&all), participants.bytes(), "{all:?}");
}

fn answers(reply: &Reply<'_>, bytes: &[u8]) {
    let Reply::Answers { snapshot, answers } = reply else { return };
    let mut again = Vec::new();
    Reply::write_answers(&mut again, *snapshot, |mut writer| {
        answers.iter().for_each(|written| answer(&written, &mut writer));
    });
    assert_eq!(again, bytes, "{reply:?}");
}

fn cells(found: &Cells<'_>) -> Vec<u8> {
    let mut cells = Vec::new();
    found.iter().for_each(|(key, value)| AnswerWriter::cell(&mut cells, key, value));
    cells
}

fn answer(answer: &Answer<'_>, writer: &mut AnswerWriter<'_>) {
    match answer {
        Answer::Absent => writer.absent(),
        Answer::Value(value) => writer.value(value),
        Answer::Large(large) => writer.large(&large.encode()),
        Answer::Moved(to) => writer.moved(to.as_ref().map(|moved| (&moved.range, moved.to))),
        Answer::Cells(found) => writer.cells(found.kind, &found.fence, found.more, &cells(found)),
        Answer::Followed(followed) => {
            let (found, mut rows) = (&followed.cells, Vec::new());
            followed.iter().for_each(|row| self::answer(&row, &mut AnswerWriter(ByteWriter(&mut rows))));
            writer.followed(&found.fence, found.more, (&cells(found), &rows));
        }
        Answer::Same => writer.same(),
        Answer::Differs(value, other) => {
            writer.differs(value);
            match other {
                None => writer.moved(None),
                Some(found) => writer.cells(found.kind, &found.fence, found.more, &cells(found)),
            }
        }
    }
}

/// Checks that a greeting's result does not depend on later bytes, and needs all of its own.
fn greeting(input: &mut Input<'_>) {
    let (cut, bytes) = (input.short(), input.rest());
    let begun = &bytes[..cut % (bytes.len() + 1)];
    let (hello, welcome) = (Hello::decode(bytes), Welcome::decode(bytes));
    match Hello::decode(begun) {
        Ok(None) => {}
        found => assert_eq!(found, hello, "as soon as it is known"),
    }
    match Welcome::decode(begun) {
        Ok(None) => {}
        found => assert_eq!(found, welcome, "as soon as it is known"),
    }
    if let Ok(Some((hello, length))) = hello {
        assert_eq!(Hello::decode(&bytes[..length - 1]), Ok(None));
        let again = hello.encode();
        assert_eq!(Hello::decode(&again), Ok(Some((hello, again.len()))));
        // A later version may append fields, and an earlier one has fewer, which count as zero.
        let (body, again) = (&bytes[HEAD..length], &again[HEAD..]);
        let (same, added) = again.split_at(body.len().min(again.len()));
        assert!(body.starts_with(same) && added.iter().all(|byte| *byte == 0), "{hello:?}");
    }
    if let Ok(Some((welcome, length))) = welcome {
        assert_eq!(Welcome::decode(&bytes[..length - 1]), Ok(None));
        let again = welcome.encode();
        match Welcome::decode(&again) {
            // Each byte that is not UTF-8 was replaced by three.
            Err(GreetingError::TooLong(length)) => assert!(length as usize > GREETING_BYTES_MAX),
            found => assert_eq!(found, Ok(Some((welcome, again.len())))),
        }
    }
}

/// Length of a greeting's header.
const HEAD: usize = 12;

/// Draws the lengths of the pieces in which bytes arrive.
fn cuts(input: &mut Input<'_>) -> Vec<usize> {
    let count = 1 + input.below(4);
    (0..count).map(|_| 1 + input.short()).collect()
}

/// Builds frames with valid headers, so that their bodies are decoded.
fn made(input: &mut Input<'_>) -> Vec<u8> {
    let mut all = Vec::new();
    while !input.is_done() {
        // Some are repeated.
        let (often, length) = (input.one_of(&[1, 1, 1, 2, 70]), input.short());
        let body = input.bytes(length);
        for _ in 0..often {
            if all.len() + body.len() + HEAD_BYTES > FED_BYTES_MAX {
                break;
            }
            all.extend_from_slice(&(body.len() as u32).to_le_bytes());
            all.extend_from_slice(&crc32fast::hash(body).to_le_bytes());
            all.extend_from_slice(body);
        }
    }
    all
}

/// Feeds an inbox. Returns the messages, and the error that ends it.
fn fed(bytes: &[u8], cuts: &[usize], reads: bool) -> (Vec<Message>, Option<FrameError>) {
    let (mut inbox, mut found, mut given, mut rest) = (Inbox::default(), Vec::new(), 0, bytes);
    let mut out = 0;
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        // A long input in single bytes would be slow.
        let cut = (*cut).max(bytes.len() / 500);
        let (mut now, later) = rest.split_at(cut.min(rest.len()));
        given += now.len();
        rest = later;
        if reads {
            while !now.is_empty() {
                let left = now.len();
                let (count, more) = inbox.read_from(&mut now).expect("memory can be read");
                assert_eq!(count, left - now.len());
                assert!(more || now.is_empty());
            }
        } else {
            inbox.feed(now);
        }
        let outcome = inbox.take(|number, bytes| {
            out += bytes.len();
            found.push((number, bytes.to_vec()));
        });
        if let Err(error) = outcome {
            // The last frame may be held twice.
            assert!(inbox.held() <= given + FRAME_BYTES_MAX, "{} held of {given}", inbox.held());
            return (found, Some(error));
        }
        assert!(inbox.held() <= given, "{} held of {given}", inbox.held());
        // Less than a frame is waiting.
        assert!(inbox.unread().len() < HEAD_BYTES + FRAME_BYTES_MAX, "{}", inbox.unread().len());
        assert!(out <= given, "{out} bytes came of {given}");
    }
    (found, None)
}

/// Checks that the pieces do not matter.
fn frames(bytes: &[u8], cuts: Vec<usize>) {
    let bytes = &bytes[..bytes.len().min(FED_BYTES_MAX)];
    let whole = fed(bytes, &[bytes.len().max(1)], false);
    assert_eq!(fed(bytes, &cuts, false), whole, "cut at {cuts:?}");
    assert_eq!(fed(bytes, &cuts, true), whole, "read at {cuts:?}");
    whole.0.iter().for_each(|(_, bytes)| message(bytes));
}

/// Checks that messages arrive as sent, or fail if a byte has changed.
fn sent(input: &mut Input<'_>) {
    let cuts = cuts(input);
    let (place, change) = (input.short(), input.byte());
    let (mut outbox, mut wire, mut expected): (_, _, Vec<Message>) =
        (Outbox::default(), Vec::new(), Vec::new());
    let mut filled = Vec::new();
    while !input.is_done() && wire.len() + outbox.held() < FED_BYTES_MAX {
        match input.below(4) {
            0 => {
                outbox.fill(&mut filled);
                wire.append(&mut filled);
            }
            kind => {
                let (length, byte) = (input.short(), input.byte());
                let bytes = match kind {
                    1 => input.bytes(length).to_vec(),
                    2 => vec![byte; length],
                    _ => vec![byte; 4 * length],
                };
                // The number identifies the body.
                let number = expected.len() as u64;
                outbox.push(number, &bytes);
                expected.push((number, bytes));
            }
        }
    }
    while outbox.fill(&mut filled) {
        wire.append(&mut filled);
    }
    assert_eq!(outbox.held(), 0);
    let (mut found, error) = fed(&wire, &cuts, false);
    assert_eq!(error, None);
    // Short messages overtake long ones.
    found.sort_by_key(|(number, _)| *number);
    assert!(found == expected, "{} messages of {}", found.len(), expected.len());
    if change > 0 && !wire.is_empty() {
        let place = place % wire.len();
        wire[place] ^= change;
        let (found, _) = fed(&wire, &cuts, false);
        let is_sent = |message: &Message| expected.get(message.0 as usize) == Some(message);
        assert!(found.iter().all(is_sent), "a byte has changed at {place}, and no check has found it");
        assert!(found.len() < expected.len(), "a byte has changed at {place}, and nothing is missing");
    }
}
