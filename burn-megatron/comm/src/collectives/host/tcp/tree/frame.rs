//! What two neighbours in the tree say to each other: frames of a kind, a length and a body.

use super::super::readiness::moved;
use crate::collectives::call::CallDescriptor;
use std::io::{self, Read};
use strum::VariantArray;

/// The kind and the length of a frame.
const HEADER_BYTES: usize = 8;
/// The most ranks that a list of ranks has.
pub(super) const MAX_LISTED: usize = 64;
/// What is read at a time, before memory is taken for more.
const READ_BYTES: usize = 64 * 1024;
/// Size of a run of calls.
const RUN_BYTES: usize = 4 + CallDescriptor::BYTES;

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
pub(super) enum Kind {
    /// Up: all ranks that the sender stands for have come, with these calls; then what they contribute.
    Calls,
    /// Down: the result.
    Result,
    /// Down: the calls of all ranks, which differ.
    Differ,
    /// Up or down: the sender waits, for these ranks.
    Waits,
    /// Up or down: the sender has waited too long for these ranks.
    TimedOut,
}

/// Ranks next to each other that make the same call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub ranks: usize,
    pub call: CallDescriptor,
}

/// Adds the next ranks to runs.
pub(super) fn extend(runs: &mut Vec<Run>, next: &[Run]) {
    for run in next {
        match runs.last_mut() {
            Some(last) if last.call == run.call => last.ranks += run.ranks,
            _ => runs.push(*run),
        }
    }
}

/// Returns a frame.
pub(super) fn encode(kind: Kind, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut frame = Vec::with_capacity(HEADER_BYTES + length);
    frame.extend((kind as u32).to_le_bytes());
    frame.extend((length as u32).to_le_bytes());
    for part in parts {
        frame.extend_from_slice(part);
    }
    frame
}

/// Returns the beginning of a body with calls.
pub(super) fn encode_runs(runs: &[Run]) -> Vec<u8> {
    let mut bytes = (runs.len() as u32).to_le_bytes().to_vec();
    for run in runs {
        bytes.extend((run.ranks as u32).to_le_bytes());
        bytes.extend(run.call.to_bytes());
    }
    bytes
}

/// Returns the calls of `ranks` ranks with which a body begins, and the rest; `None` when it does not begin so.
pub(super) fn decode_runs(body: &[u8], ranks: usize) -> Option<(Vec<Run>, &[u8])> {
    let (count, rest) = body.split_first_chunk()?;
    let count = u32::from_le_bytes(*count) as usize;
    let (bytes, rest) = rest.split_at_checked(count.checked_mul(RUN_BYTES)?)?;
    let mut runs = Vec::with_capacity(count);
    let mut left = ranks;
    for bytes in bytes.chunks_exact(RUN_BYTES) {
        let (ranks, call) = bytes.split_first_chunk()?;
        let ranks = u32::from_le_bytes(*ranks) as usize;
        left = left.checked_sub(ranks).filter(|_| ranks > 0)?;
        let call = CallDescriptor::from_bytes(call.try_into().ok()?)?;
        runs.push(Run { ranks, call });
    }
    (left == 0).then_some((runs, rest))
}

/// Returns the longest body of a frame with calls of `ranks` ranks and `payload` more bytes.
pub(super) fn longest_calls(ranks: usize, payload: usize) -> usize {
    4 + ranks * RUN_BYTES + payload
}

/// Returns a body that lists ranks.
pub(super) fn encode_list(ranks: &[usize]) -> Vec<u8> {
    let listed = ranks.iter().take(MAX_LISTED);
    listed.flat_map(|&rank| (rank as u32).to_le_bytes()).collect()
}

/// Returns the ranks of a list, ascending; `None` when it is none of ranks below `size`.
pub(super) fn decode_list(body: &[u8], size: usize) -> Option<Vec<usize>> {
    let (words, rest) = body.as_chunks::<4>();
    let ranks: Vec<usize> = words.iter().map(|word| u32::from_le_bytes(*word) as usize).collect();
    let is_list = rest.is_empty()
        && ranks.len() <= MAX_LISTED
        && ranks.iter().all(|&rank| rank < size)
        && ranks.is_sorted_by(|rank, next| rank < next);
    is_list.then_some(ranks)
}

/// Takes frames from a stream, and nothing after them.
#[derive(Debug)]
pub(super) struct FrameReader {
    header: [u8; HEADER_BYTES],
    /// Of header and body.
    received: usize,
    body: Vec<u8>,
    /// The longest body that is taken.
    longest: usize,
}

/// What a look at a stream has brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The socket has no more.
    Nothing,
    /// A part of a frame.
    Part,
    /// A whole frame.
    Frame(Kind, Vec<u8>),
}

impl FrameReader {
    pub fn new(longest: usize) -> Self {
        Self {
            header: [0; HEADER_BYTES],
            received: 0,
            body: Vec::new(),
            longest,
        }
    }

    /// Takes what one read brings.
    ///
    /// # Errors
    /// When the connection is broken, or this is no frame.
    pub fn take(&mut self, mut stream: impl Read) -> io::Result<Taken> {
        let room = match self.received.checked_sub(HEADER_BYTES) {
            None => &mut self.header[self.received..],
            Some(of_body) => {
                let (_, length) = self.parse_header()?;
                self.body.resize(length.min(of_body + READ_BYTES), 0);
                &mut self.body[of_body..]
            }
        };
        match moved(stream.read(room))? {
            0 => return Ok(Taken::Nothing),
            bytes => self.received += bytes,
        }
        let Some(of_body) = self.received.checked_sub(HEADER_BYTES) else {
            return Ok(Taken::Part);
        };
        let (kind, length) = self.parse_header()?;
        if of_body < length {
            return Ok(Taken::Part);
        }
        self.received = 0;
        Ok(Taken::Frame(kind, std::mem::take(&mut self.body)))
    }

    fn parse_header(&self) -> io::Result<(Kind, usize)> {
        let (words, _) = self.header.as_chunks::<4>();
        let [kind, length] = [0, 1].map(|index| u32::from_le_bytes(words[index]) as usize);
        match Kind::VARIANTS.get(kind) {
            Some(kind) if length <= self.longest => Ok((*kind, length)),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it sent something that is no part of a call",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::call::{Operation, ReduceOp};
    use crate::collectives::element::ElementType;
    use proptest::prelude::*;

    fn call(sequence: u64) -> CallDescriptor {
        CallDescriptor {
            sequence,
            operation: Operation::AllReduce,
            element_type: ElementType::F32,
            length: 3,
            peer: None,
            reduce_op: Some(ReduceOp::Sum),
            buffer: None,
        }
    }

    /// Gives at most `step` bytes at a time.
    struct Slowly<'a> {
        bytes: &'a [u8],
        step: usize,
    }

    impl Read for Slowly<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(self.step);
            self.bytes.read(&mut buffer[..count])
        }
    }

    proptest! {
        #[test]
        fn frames_come_as_they_were_sent(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..8),
            step in 1..50_usize,
        ) {
            let kind = |index: usize| Kind::VARIANTS[index % Kind::VARIANTS.len()];
            let frame = |(index, body): (usize, &Vec<u8>)| encode(kind(index), &[&body[..], b"end"]);
            let frames = bodies.iter().enumerate().map(frame);
            let sent: Vec<u8> = frames.flatten().collect();
            let mut stream = Slowly { bytes: &sent, step };
            let mut reader = FrameReader::new(203);
            for (index, body) in bodies.iter().enumerate() {
                let frame = loop {
                    match reader.take(&mut stream).unwrap() {
                        Taken::Part => {}
                        other => break other,
                    }
                };
                prop_assert_eq!(frame, Taken::Frame(kind(index), [&body[..], b"end"].concat()));
            }
            prop_assert!(stream.bytes.is_empty());
        }

        #[test]
        fn runs_and_lists_survive_encoding(
            ranks in proptest::collection::vec(1..5_usize, 1..20),
            listed in proptest::collection::btree_set(0..5000_usize, 0..64),
        ) {
            let run = |(index, &ranks)| Run { ranks, call: call(index as u64) };
            let runs: Vec<_> = ranks.iter().enumerate().map(run).collect();
            let total = ranks.iter().sum();
            let body = [encode_runs(&runs), b"payload".to_vec()].concat();
            prop_assert!(body.len() <= longest_calls(total, 7));
            prop_assert_eq!(decode_runs(&body, total), Some((runs, &b"payload"[..])));
            prop_assert_eq!(decode_runs(&body, total + 1), None);
            let listed: Vec<_> = listed.into_iter().collect();
            prop_assert_eq!(decode_list(&encode_list(&listed), 5000), Some(listed.clone()));
            let beyond = listed.last().is_some_and(|&last| decode_list(&encode_list(&listed), last).is_some());
            prop_assert!(!beyond);
        }

        #[test]
        fn garbage_is_refused(body in proptest::collection::vec(any::<u8>(), 0..200), ranks in 0..10_usize) {
            decode_runs(&body, ranks);
            decode_list(&body, ranks);
            let mut reader = FrameReader::new(100);
            let mut stream = &body[..];
            while let Ok(Taken::Part | Taken::Frame(..)) = reader.take(&mut stream) {}
        }
    }

    #[test]
    fn a_frame_that_is_longer_than_expected_takes_no_memory() {
        let mut reader = FrameReader::new(100);
        let frame = encode(Kind::Result, &[&[0; 101]]);
        let mut stream = &frame[..];
        let error = reader.take(&mut stream).unwrap_err();
        assert!(error.to_string().contains("no part of a call"), "{error}");
        assert_eq!(reader.body.capacity(), 0);
    }

    #[test]
    fn ranks_with_the_same_call_are_one_run() {
        let mut runs = Vec::new();
        let [first, second] = [call(1), call(2)];
        for call in [first, first, second, first] {
            extend(&mut runs, &[Run { ranks: 2, call }]);
        }
        let expected = [(4, first), (2, second), (2, first)].map(|(ranks, call)| Run { ranks, call });
        assert_eq!(runs, expected);
    }
}
