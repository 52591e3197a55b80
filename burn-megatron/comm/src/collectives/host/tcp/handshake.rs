//! The proof, on a new connection, that both ends belong to the job.
//!
//! Both know the job's token and neither sends it: each sends a random challenge and answers the
//! other's with an HMAC-SHA256 under the token. All messages have a fixed size, so nothing that a
//! stranger sends is ever taken for a length.
//!
//! ```text
//! initiator                                       acceptor
//! Hello: group, ranks, channel, challenge  ---->
//!                                          <----  challenge, HMAC("acceptor", Hello, challenge)
//! HMAC("initiator", Hello, challenge)      ---->
//!                                          <----  one byte: welcome
//! ```
//!
//! The last byte tells the initiator that the acceptor keeps the connection; without it the
//! initiator tries again.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::io::{self, Read, Write};

/// Size of a challenge.
const CHALLENGE_BYTES: usize = 32;
/// Size of an HMAC-SHA256.
const PROOF_BYTES: usize = 32;
/// Says what protocol this is, and its version.
const MAGIC: [u8; 8] = *b"BURNMEG1";
/// The acceptor's last word.
pub(super) const WELCOME: u8 = 0x06;
/// Size of the acceptor's answer.
const ANSWER_BYTES: usize = CHALLENGE_BYTES + PROOF_BYTES;

/// Random bytes that the other end has to sign.
pub(super) type Challenge = [u8; CHALLENGE_BYTES];
/// The signature.
pub(super) type Proof = [u8; PROOF_BYTES];

/// Returns a new challenge.
///
/// # Errors
/// When the system has no random numbers.
pub(super) fn new_challenge() -> io::Result<Challenge> {
    let mut challenge = [0; CHALLENGE_BYTES];
    getrandom::fill(&mut challenge)?;
    Ok(challenge)
}

/// The first message of the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// The digest of the group.
    pub group: [u8; 32],
    /// Group index of the initiator.
    pub from: u32,
    /// Group index of the acceptor.
    pub to: u32,
    /// Which of the connections between the two this is to be.
    pub channel: u8,
    /// What the acceptor has to sign.
    pub challenge: Challenge,
}

impl Hello {
    /// Size of the message.
    pub const BYTES: usize = 8 + 32 + 4 + 4 + 1 + CHALLENGE_BYTES;

    /// Returns the message.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..40].copy_from_slice(&self.group);
        bytes[40..44].copy_from_slice(&self.from.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.to.to_le_bytes());
        bytes[48] = self.channel;
        bytes[49..].copy_from_slice(&self.challenge);
        bytes
    }

    /// Reads the message; `None` when it is not one.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        Some(Self {
            group: bytes[8..40].try_into().ok()?,
            from: u32::from_le_bytes(bytes[40..44].try_into().ok()?),
            to: u32::from_le_bytes(bytes[44..48].try_into().ok()?),
            channel: bytes[48],
            challenge: bytes[49..].try_into().ok()?,
        })
        .filter(|_| bytes[..8] == MAGIC)
    }
}

/// Carries out the initiator's part on a blocking stream.
///
/// # Errors
/// When the stream fails, or the other end does not know the token.
pub(super) fn initiate(stream: &mut (impl Read + Write), hello: &Hello, token: &[u8]) -> io::Result<()> {
    stream.write_all(&hello.to_bytes())?;
    let mut answer = [0; ANSWER_BYTES];
    stream.read_exact(&mut answer)?;
    let (challenge, proof) = answer.split_at(CHALLENGE_BYTES);
    if !Side::Acceptor.verify(token, hello, challenge, proof) {
        return Err(io::Error::other("the other end does not know the job's token"));
    }
    stream.write_all(&Side::Initiator.prove(token, hello, challenge))?;
    let mut welcome = [0];
    stream.read_exact(&mut welcome)?;
    match welcome[0] {
        WELCOME => Ok(()),
        byte => Err(io::Error::other(format!("expected a welcome, got {byte:#x}"))),
    }
}

/// The acceptor's part, fed with bytes as they come: it must not block for a stranger.
#[derive(Debug)]
pub(super) struct Acceptance {
    received: [u8; Hello::BYTES],
    length: usize,
    /// The initiator's hello and our challenge, once we have answered.
    answered: Option<(Hello, Challenge)>,
}

/// What the acceptor does next.
#[derive(Debug)]
pub(super) enum Next {
    /// Wait for more bytes.
    Wait,
    /// Send these, then wait for more.
    Answer([u8; ANSWER_BYTES]),
    /// Welcome the initiator: it has proved what it says.
    Welcome(Hello),
    /// Close the connection, for this reason.
    Drop(&'static str),
}

impl Acceptance {
    /// Returns the acceptance of a connection on which nothing has come yet.
    pub fn new() -> Self {
        Self {
            received: [0; Hello::BYTES],
            length: 0,
            answered: None,
        }
    }

    /// Returns where the next bytes go. Never empty while the handshake is in progress.
    pub fn buffer(&mut self) -> &mut [u8] {
        let wanted = self.wanted();
        &mut self.received[self.length..wanted]
    }

    /// Takes note of `bytes` more bytes in the buffer. `is_expected` says whether such a rank is
    /// waited for.
    pub fn advance(&mut self, bytes: usize, token: &[u8], is_expected: impl FnOnce(&Hello) -> bool) -> Next {
        self.length += bytes;
        if self.length < self.wanted() {
            return Next::Wait;
        }
        self.length = 0;
        match self.answered {
            None => self.answer(token, is_expected),
            Some((hello, challenge)) => {
                let proof = &self.received[..PROOF_BYTES];
                if Side::Initiator.verify(token, &hello, &challenge, proof) {
                    Next::Welcome(hello)
                } else {
                    Next::Drop("it does not know the job's token")
                }
            }
        }
    }

    fn answer(&mut self, token: &[u8], is_expected: impl FnOnce(&Hello) -> bool) -> Next {
        let Some(hello) = Hello::from_bytes(&self.received) else {
            return Next::Drop("it does not speak this protocol");
        };
        if !is_expected(&hello) {
            return Next::Drop("no such rank of this group is expected");
        }
        let Ok(challenge) = new_challenge() else {
            return Next::Drop("no random numbers for a challenge");
        };
        let mut answer = [0; ANSWER_BYTES];
        answer[..CHALLENGE_BYTES].copy_from_slice(&challenge);
        answer[CHALLENGE_BYTES..].copy_from_slice(&Side::Acceptor.prove(token, &hello, &challenge));
        self.answered = Some((hello, challenge));
        Next::Answer(answer)
    }

    /// Returns whether the initiator claims to be the same, for the same channel, as that of `other`.
    pub fn is_of(&self, other: &Hello) -> bool {
        let is_same = |hello: &Hello| (hello.from, hello.channel) == (other.from, other.channel);
        self.answered.as_ref().is_some_and(|(hello, _)| is_same(hello))
    }

    fn wanted(&self) -> usize {
        match self.answered {
            None => Hello::BYTES,
            Some(_) => PROOF_BYTES,
        }
    }
}

/// Who signs. The side is part of what is signed: no answer can be sent back as the other's.
#[derive(Clone, Copy)]
enum Side {
    Initiator,
    Acceptor,
}

impl Side {
    fn mac(self, token: &[u8], hello: &Hello, challenge: &[u8]) -> Hmac<Sha256> {
        let side: &[u8] = match self {
            Side::Initiator => b"initiator",
            Side::Acceptor => b"acceptor",
        };
        let mut mac = Hmac::new_from_slice(token).expect("HMAC takes a key of any length");
        mac.update(side);
        mac.update(&hello.to_bytes());
        mac.update(challenge);
        mac
    }

    fn prove(self, token: &[u8], hello: &Hello, challenge: &[u8]) -> Proof {
        self.mac(token, hello, challenge).finalize().into_bytes().into()
    }

    /// Compares in constant time.
    fn verify(self, token: &[u8], hello: &Hello, challenge: &[u8], proof: &[u8]) -> bool {
        self.mac(token, hello, challenge).verify_slice(proof).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOKEN: &[u8] = b"the token of the job";

    fn hello(challenge: Challenge) -> Hello {
        Hello {
            group: [7; 32],
            from: 2,
            to: 0,
            channel: 1,
            challenge,
        }
    }

    /// Feeds bytes in pieces of these lengths; what the acceptor did about each whole message.
    fn feed(acceptance: &mut Acceptance, mut bytes: &[u8], pieces: &[usize], answers: &mut Vec<Next>) {
        let mut pieces = pieces.iter().cycle();
        while !bytes.is_empty() {
            let buffer = acceptance.buffer();
            let count = (*pieces.next().expect("a cycle"))
                .clamp(1, buffer.len())
                .min(bytes.len());
            buffer[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            match acceptance.advance(count, TOKEN, |_| true) {
                Next::Wait => {}
                Next::Drop(why) => return answers.push(Next::Drop(why)),
                next => answers.push(next),
            }
        }
    }

    proptest! {
        #[test]
        fn what_a_stranger_sends_is_never_welcomed(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            speaks_the_protocol in any::<bool>(),
            pieces in proptest::collection::vec(1usize..64, 1..8),
        ) {
            let mut message = Vec::new();
            if speaks_the_protocol {
                message.extend(hello([3; CHALLENGE_BYTES]).to_bytes());
            }
            message.extend(bytes);
            let mut answers = Vec::new();
            feed(&mut Acceptance::new(), &message, &pieces, &mut answers);
            prop_assert!(answers.iter().all(|next| !matches!(next, Next::Welcome(_))));
        }

        #[test]
        fn a_member_is_welcomed_however_its_bytes_are_cut(
            challenge in any::<[u8; CHALLENGE_BYTES]>(),
            pieces in proptest::collection::vec(1usize..64, 1..8),
        ) {
            let hello = hello(challenge);
            let mut acceptance = Acceptance::new();
            let mut answers = Vec::new();
            feed(&mut acceptance, &hello.to_bytes(), &pieces, &mut answers);
            let Some(Next::Answer(answer)) = answers.pop() else {
                return Err(TestCaseError::fail("no answer to a hello"));
            };
            let (theirs, proof) = answer.split_at(CHALLENGE_BYTES);
            prop_assert!(Side::Acceptor.verify(TOKEN, &hello, theirs, proof));
            // The acceptor's own proof, sent back to it, is no proof of the other side.
            prop_assert!(!Side::Initiator.verify(TOKEN, &hello, theirs, proof));
            feed(&mut acceptance, &Side::Initiator.prove(TOKEN, &hello, theirs), &pieces, &mut answers);
            prop_assert!(matches!(answers.pop(), Some(Next::Welcome(welcomed)) if welcomed == hello));
        }
    }

    #[test]
    fn another_token_is_no_proof() {
        let hello = hello([3; CHALLENGE_BYTES]);
        let proof = Side::Initiator.prove(b"another token", &hello, &[5; CHALLENGE_BYTES]);
        assert!(!Side::Initiator.verify(TOKEN, &hello, &[5; CHALLENGE_BYTES], &proof));
    }
}
