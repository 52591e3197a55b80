//! What must hold whatever comes over a connection between ranks; see [`crate::fuzzing`].

use super::super::super::call::{CallDescriptor, GroupLabel, Operation, ReduceOp};
use super::super::super::element::ElementType;
use super::handshake::{self, Acceptance, Hello, Next, WELCOME};
use crate::fuzzing::Script;
use std::io::{self, Read, Write};

const TOKEN: &[u8] = b"a token that no input can guess";

/// No peer is welcomed or trusted without the token: neither for made-up bytes nor for those of an earlier handshake
/// that succeeded. However its bytes are cut, a handshake takes the same course.
pub fn rank_handshake(data: &[u8]) {
    let mut script = Script::new(data);
    let (mode, cut) = (script.byte(), script.byte());
    let said = script.rest();
    if let Some(bytes) = said.first_chunk::<{ Hello::BYTES }>()
        && let Some(hello) = Hello::from_bytes(bytes)
    {
        assert_eq!(&hello.to_bytes(), bytes);
    }
    let said = match mode % 3 {
        0 => said.to_vec(),
        // A true hello, then the input.
        1 => [&hello().to_bytes(), said].concat(),
        // An earlier handshake, from where the input takes its place.
        _ => {
            let (mut recorded, _) = record();
            let from = usize::from(cut) % (recorded.len() + 1);
            recorded[from..]
                .iter_mut()
                .zip(said)
                .for_each(|(place, byte)| *place = *byte);
            recorded
        }
    };
    let whole = course(&said, usize::MAX);
    assert_eq!(whole, course(&said, usize::from(cut).max(1)));

    let mut heard = said;
    if mode % 3 == 2 {
        heard = record().1;
    }
    let trusted = handshake::initiate(&mut Scripted(&heard), &hello(), TOKEN);
    assert!(trusted.is_err(), "a rank trusts one that does not know the token");
}

/// A true hello, an earlier handshake, garbage.
pub fn rank_handshake_seeds() -> Vec<Vec<u8>> {
    let (initiator, acceptor) = record();
    vec![
        [&[0, 7], &initiator[..]].concat(),
        [&[0, 200], &acceptor[..]].concat(),
        [&[1, 1], &initiator[Hello::BYTES..]].concat(),
        vec![2, 255],
        vec![2, 90, 1, 2, 3],
    ]
}

/// What the acceptor did with these bytes, fed in pieces of at most `cut` bytes.
fn course(mut said: &[u8], cut: usize) -> Vec<&'static str> {
    let mut acceptance = Acceptance::new();
    let mut course = Vec::new();
    while !said.is_empty() {
        let buffer = acceptance.buffer();
        assert!(!buffer.is_empty(), "there is no room although the handshake continues");
        let count = buffer.len().min(said.len()).min(cut);
        buffer[..count].copy_from_slice(&said[..count]);
        said = &said[count..];
        match acceptance.advance(count, TOKEN, |hello| hello.to == 0) {
            Next::Wait => {}
            Next::Answer(_) => course.push("answer"),
            Next::Welcome(hello) => panic!("{hello:?} was welcomed without a proof"),
            Next::Drop(reason) => {
                course.push(reason);
                break;
            }
        }
    }
    course
}

/// Carries out a true handshake, and returns what the two ends said.
fn record() -> (Vec<u8>, Vec<u8>) {
    let mut pair = Pair {
        acceptance: Acceptance::new(),
        said: Vec::new(),
        answered: Vec::new(),
        heard: 0,
    };
    handshake::initiate(&mut pair, &hello(), TOKEN).expect("both ends know the token");
    for said in [&pair.said, &pair.answered] {
        assert!(
            !said
                .windows(8)
                .any(|piece| TOKEN.windows(8).any(|secret| secret == piece))
        );
    }
    (pair.said, pair.answered)
}

/// An acceptor as the initiator's stream.
struct Pair {
    acceptance: Acceptance,
    said: Vec<u8>,
    answered: Vec<u8>,
    heard: usize,
}

impl Write for Pair {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.said.extend(bytes);
        let buffer = self.acceptance.buffer();
        buffer[..bytes.len()].copy_from_slice(bytes);
        match self.acceptance.advance(bytes.len(), TOKEN, |_| true) {
            Next::Wait => {}
            Next::Answer(answer) => self.answered.extend(answer),
            Next::Welcome(_) => self.answered.push(WELCOME),
            Next::Drop(reason) => return Err(io::Error::other(reason)),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Pair {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (&self.answered[self.heard..]).read(buffer)?;
        self.heard += count;
        Ok(count)
    }
}

/// A stream that returns these bytes, whatever is written to it.
struct Scripted<'a>(&'a [u8]);

impl Read for Scripted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Scripted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn hello() -> Hello {
    let mut challenge = [0; 32];
    getrandom::fill(&mut challenge).expect("random numbers");
    Hello {
        group: [7; 32],
        from: 1,
        to: 0,
        channel: 1,
        challenge,
    }
}

/// A descriptor has one encoding, and whatever another rank says can be compared and put into words.
pub fn call_descriptor(data: &[u8]) {
    let label = GroupLabel {
        name: "all".into(),
        ranks: [0, 1, 5].into(),
        rank: 0,
    };
    let (blocks, _) = data.as_chunks::<{ CallDescriptor::BYTES }>();
    let mut calls = Vec::new();
    for block in blocks.iter().take(label.size()) {
        let Some(call) = CallDescriptor::from_bytes(block) else {
            continue;
        };
        assert_eq!(&call.to_bytes(), block, "{call:?} has two encodings");
        assert_eq!(CallDescriptor::decode(call.encode()), Some(call));
        assert!(!label.describe(&call).is_empty());
        calls.push(call);
    }
    if let [first, .., last] = &calls[..] {
        assert_eq!(
            label.compare_calls(&calls).is_ok(),
            calls.iter().all(|call| call == first)
        );
        let index = calls.len() - 1;
        if label.compare_transfer((index, last), (0, first)).is_ok() {
            assert_eq!((last.length, last.element_type), (first.length, first.element_type));
            assert_eq!((last.operation, last.peer), (Operation::Send, Some(0)));
        }
    }
}

/// Every operation, in pairs that agree and pairs that do not.
pub fn call_descriptor_seeds() -> Vec<Vec<u8>> {
    let call = |operation, peer, reduce_op| CallDescriptor {
        sequence: 3,
        operation,
        element_type: ElementType::F32,
        length: 64,
        peer,
        reduce_op,
        buffer: None,
    };
    let calls = [
        call(Operation::AllReduce, None, Some(ReduceOp::Sum)),
        call(Operation::AllGather, None, None),
        call(Operation::ReduceScatter, None, Some(ReduceOp::Mean)),
        call(Operation::Broadcast, Some(1), None),
        call(Operation::Recv, Some(1), None),
        call(Operation::Send, Some(0), None),
        CallDescriptor {
            buffer: Some(1),
            ..call(Operation::AllReduceShared, None, Some(ReduceOp::Sum))
        },
        call(Operation::Barrier, None, None),
    ];
    let bytes = calls.map(CallDescriptor::to_bytes);
    let same = bytes.iter().map(|one| [&one[..], one].concat());
    same.chain(bytes.windows(2).map(|pair| pair.concat())).collect()
}
