//! What must hold whatever comes over a connection that is not yet proved; see [`crate::fuzzing`].

use std::io::{self, Read, Write};

use super::{ANSWER_BYTES, Acceptance, CLAIM_BYTES, Claim, GREETING_BYTES, HandshakeError, MAGIC, Next, initiate};
use crate::fuzzing::Script;

const TOKEN: &[u8] = b"a token that no input can guess";
const CLAIM: Claim = [7; CLAIM_BYTES];

/// No peer passes the handshake without the token, at either end: neither with made-up bytes nor with those of an
/// earlier handshake that succeeded. However its bytes are cut, it takes the same course, and hears no proof.
pub fn handshake(data: &[u8]) {
    let mut script = Script::new(data);
    let (mode, cut) = (script.byte(), script.byte());
    let said = script.rest();
    let mut heard = said.to_vec();
    let said = match mode % 4 {
        0 => said.to_vec(),
        // The right beginning, then the input.
        1 => [&MAGIC, said].concat(),
        2 => [&record().0[..GREETING_BYTES], said].concat(),
        // An earlier handshake, from where the input takes its place.
        _ => {
            let (mut recorded, answered) = record();
            let from = usize::from(cut) % (recorded.len() + 1);
            for (place, byte) in recorded[from..].iter_mut().zip(said) {
                *place = *byte;
            }
            heard = answered;
            recorded
        }
    };
    assert_eq!(course(&said, usize::MAX), course(&said, usize::from(cut).max(1)));
    for heard in [&heard, &said] {
        match initiate(&mut Scripted(heard), &CLAIM, TOKEN) {
            Ok(()) => panic!("an initiator trusts an acceptor that does not know the token"),
            Err(HandshakeError::OtherProtocol) => assert!(!heard.starts_with(&MAGIC[..7])),
            Err(HandshakeError::OtherVersion { .. }) => assert!(!heard.starts_with(&MAGIC)),
            Err(HandshakeError::TokenRefused | HandshakeError::Broken(_)) => {}
        }
    }
}

/// Recorded handshakes, parts of them, garbage.
pub fn handshake_seeds() -> Vec<Vec<u8>> {
    let (initiator, acceptor) = record();
    vec![
        [&[0, 7], &initiator[..]].concat(),
        [&[0, 200], &acceptor[..]].concat(),
        [&[1, 90], &initiator[MAGIC.len()..]].concat(),
        [&[1, 1], &acceptor[MAGIC.len()..]].concat(),
        [&[2, 1], &initiator[GREETING_BYTES..]].concat(),
        vec![3, 255],
        vec![3, 90, 1, 2, 3],
    ]
}

/// What the acceptor did with these bytes, fed in pieces of at most `cut` bytes.
fn course(mut said: &[u8], cut: usize) -> (usize, &'static str) {
    let mut acceptance = Acceptance::new();
    let mut heard: Vec<u8> = Vec::new();
    let mut end = "waits";
    while !said.is_empty() && end == "waits" {
        let buffer = acceptance.buffer();
        assert!(!buffer.is_empty(), "there is no room although the handshake continues");
        let count = buffer.len().min(said.len()).min(cut);
        buffer[..count].copy_from_slice(&said[..count]);
        said = &said[count..];
        match acceptance.advance(count, TOKEN, |claim| {
            (claim[0] == CLAIM[0]).then_some(()).ok_or("unexpected")
        }) {
            Next::Wait => {}
            Next::Welcome(()) => panic!("welcomed without a proof"),
            Next::Drop(reason) => end = reason,
        }
        heard.extend(acceptance.reply());
    }
    // Magic and challenge, then a refusal of zeros.
    assert!(heard.len() <= ANSWER_BYTES + 33 && heard.iter().skip(ANSWER_BYTES).all(|byte| *byte == 0));
    (heard.len(), end)
}

/// Carries out a true handshake, and returns what the two ends said.
fn record() -> (Vec<u8>, Vec<u8>) {
    let mut pair = Pair {
        acceptance: Acceptance::new(),
        said: Vec::new(),
        answered: Vec::new(),
        heard: 0,
    };
    initiate(&mut pair, &CLAIM, TOKEN).expect("both ends know the token");
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
    acceptance: Acceptance<()>,
    said: Vec<u8>,
    answered: Vec<u8>,
    heard: usize,
}

impl Write for Pair {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let buffer = self.acceptance.buffer();
        let count = buffer.len().min(bytes.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        self.said.extend(&bytes[..count]);
        let next = self.acceptance.advance(count, TOKEN, |_| Ok(()));
        self.answered.extend(self.acceptance.reply());
        match next {
            Next::Wait | Next::Welcome(()) => Ok(count),
            Next::Drop(reason) => Err(io::Error::other(reason)),
        }
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
