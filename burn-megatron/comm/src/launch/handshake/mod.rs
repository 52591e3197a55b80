//! The handshake of every connection in a job, to the store and between ranks: each end proves that it knows the job's
//! token, and the token itself never travels.
//!
//! ```text
//! initiator                                             acceptor
//!   magic, claim, challenge                        ->
//!                                                  <-   magic, challenge
//!   HMAC(token, "initiator", both messages)        ->
//!                                                  <-   verdict, HMAC(token, "acceptor", both messages) or zeros
//! ```
//!
//! HMAC is HMAC-SHA256. The challenges are fresh, so nothing can be replayed; the two labels differ, so nothing can be
//! sent back to its author. An acceptor, which every stranger reaches, gives its proof only to who has proved itself: a
//! weak token cannot be guessed from what a stranger is given. What follows the handshake is neither encrypted nor
//! signed: it keeps strangers and other jobs out, not somebody who can change packets on the way.
//!
//! The claim says what the connection is for, and is signed with the rest. The verdict says that the acceptor keeps the
//! connection.
//!
//! Every message has a fixed length, so a stranger makes neither end allocate anything, and nothing that it sends is
//! taken for a length. The magic comes first in both directions and ends with the version of all that goes over the
//! job's connections, the store's messages included: an acceptor answers another version with its own magic.

#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing;
#[cfg(test)]
mod tests;

use std::io::{self, Read, Write};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// First bytes in both directions: the protocol's name, and a digit for its version.
pub const MAGIC: [u8; 8] = *b"BURNMEG4";
const CHALLENGE_BYTES: usize = 32;
const PROOF_BYTES: usize = 32;
const CLAIM_BYTES: usize = 42;
const GREETING_BYTES: usize = MAGIC.len() + CLAIM_BYTES + CHALLENGE_BYTES;
const ANSWER_BYTES: usize = MAGIC.len() + CHALLENGE_BYTES;
const VERDICT_BYTES: usize = 1 + PROOF_BYTES;

const ACCEPTED: u8 = 1;

/// What a connection is for: its first byte says of what kind the others are.
pub(crate) type Claim = [u8; CLAIM_BYTES];
type Greeting = [u8; GREETING_BYTES];
type Answer = [u8; ANSWER_BYTES];

/// The claim of a connection to the store.
pub(super) const TO_STORE: Claim = [0; CLAIM_BYTES];

/// Why a handshake did not succeed, as the initiator sees it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("the other end does not speak burn-megatron's protocol")]
    OtherProtocol,
    #[error("the other end speaks version {theirs:?} of the protocol, and this one {:?}", char::from(MAGIC[7]))]
    OtherVersion { theirs: char },
    #[error("the other end does not know the job's token")]
    TokenRefused,
    /// The connection broke, or time ran out.
    #[error(transparent)]
    Broken(#[from] io::Error),
}

/// Carries out the initiator's part on a blocking stream, whose own time limits bound it.
pub(crate) fn initiate(stream: &mut (impl Read + Write), claim: &Claim, token: &[u8]) -> Result<(), HandshakeError> {
    let ours = greeting(claim)?;
    stream.write_all(&ours)?;

    let mut theirs: Answer = [0; ANSWER_BYTES];
    stream.read_exact(&mut theirs[..MAGIC.len()])?;
    check_magic(&theirs)?; // before the rest: another protocol may say less
    stream.read_exact(&mut theirs[MAGIC.len()..])?;

    stream.write_all(&proof(Side::Initiator, token, &ours, &theirs).finalize().into_bytes())?;

    let mut verdict = [0; VERDICT_BYTES];
    stream.read_exact(&mut verdict)?;
    let [ACCEPTED, their_proof @ ..] = &verdict else {
        return Err(HandshakeError::TokenRefused);
    };
    let proof = proof(Side::Acceptor, token, &ours, &theirs).verify_slice(their_proof);
    proof.map_err(|_| HandshakeError::TokenRefused)
}

/// The acceptor's part, fed with bytes as they come: it need not wait for a stranger. `T` is what it reads in a claim.
#[derive(Debug)]
pub(crate) struct Acceptance<T> {
    received: Greeting,
    length: usize,
    /// The initiator's greeting, our answer, and what is claimed, once we have answered.
    answered: Option<(Greeting, Answer, T)>,
    reply: Answer,
    reply_length: usize,
}

/// What the acceptor does next, once it has sent its [`reply`](Acceptance::reply).
#[derive(Debug)]
pub(crate) enum Next<T> {
    /// Wait for more bytes.
    Wait,
    /// Keep the connection: the initiator has proved what it claims.
    Welcome(T),
    /// Close the connection, for this reason.
    Drop(&'static str),
}

impl<T: Copy> Acceptance<T> {
    /// Returns the acceptance of a connection on which nothing has come yet.
    pub(crate) fn new() -> Self {
        Self {
            received: [0; GREETING_BYTES],
            length: 0,
            answered: None,
            reply: [0; ANSWER_BYTES],
            reply_length: 0,
        }
    }

    /// Returns where the next bytes go. Never empty while the handshake is in progress.
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        let wanted = self.wanted();
        &mut self.received[self.length..wanted]
    }

    /// Takes note of `bytes` more bytes in the buffer. `read` returns what is claimed, or why it is not expected.
    pub(crate) fn advance(
        &mut self,
        bytes: usize,
        token: &[u8],
        read: impl FnOnce(&Claim) -> Result<T, &'static str>,
    ) -> Next<T> {
        self.reply_length = 0;
        let wanted = self.wanted();
        self.length += bytes;
        if self.length < wanted {
            return Next::Wait;
        }
        match self.answered {
            None if self.length == MAGIC.len() => match check_magic(&self.received) {
                Ok(()) => Next::Wait,
                Err(HandshakeError::OtherVersion { .. }) => {
                    self.say(&MAGIC);
                    Next::Drop("it speaks another version of this protocol")
                }
                Err(_) => Next::Drop("it does not speak this protocol"),
            },
            None => self.answer(read),
            Some((greeting, answer, claimed)) => self.judge(token, &greeting, &answer, claimed),
        }
    }

    /// Returns what is to be sent to the initiator after the last [`advance`](Self::advance).
    pub(crate) fn reply(&self) -> &[u8] {
        &self.reply[..self.reply_length]
    }

    fn answer(&mut self, read: impl FnOnce(&Claim) -> Result<T, &'static str>) -> Next<T> {
        let claim = self.received[MAGIC.len()..]
            .first_chunk()
            .expect("a greeting holds a claim");
        let claimed = match read(claim) {
            Ok(claimed) => claimed,
            Err(reason) => return Next::Drop(reason),
        };
        let mut answer: Answer = [0; ANSWER_BYTES];
        answer[..MAGIC.len()].copy_from_slice(&MAGIC);
        if getrandom::fill(&mut answer[MAGIC.len()..]).is_err() {
            return Next::Drop("no random numbers for a challenge");
        }
        self.say(&answer);
        self.answered = Some((self.received, answer, claimed));
        self.length = 0;
        Next::Wait
    }

    fn judge(&mut self, token: &[u8], greeting: &Greeting, answer: &Answer, claimed: T) -> Next<T> {
        let mut verdict = [0; VERDICT_BYTES];
        let theirs = &self.received[..PROOF_BYTES];
        let next = match proof(Side::Initiator, token, greeting, answer).verify_slice(theirs) {
            Ok(()) => {
                verdict[0] = ACCEPTED;
                verdict[1..].copy_from_slice(&proof(Side::Acceptor, token, greeting, answer).finalize().into_bytes());
                Next::Welcome(claimed)
            }
            Err(_) => Next::Drop("it does not know the job's token"),
        };
        self.say(&verdict);
        next
    }

    fn say(&mut self, bytes: &[u8]) {
        self.reply[..bytes.len()].copy_from_slice(bytes);
        self.reply_length = bytes.len();
    }

    fn wanted(&self) -> usize {
        match self.answered {
            None if self.length < MAGIC.len() => MAGIC.len(),
            None => GREETING_BYTES,
            Some(_) => PROOF_BYTES,
        }
    }
}

fn greeting(claim: &Claim) -> io::Result<Greeting> {
    let mut greeting = [0; GREETING_BYTES];
    greeting[..MAGIC.len()].copy_from_slice(&MAGIC);
    greeting[MAGIC.len()..][..CLAIM_BYTES].copy_from_slice(claim);
    getrandom::fill(&mut greeting[MAGIC.len() + CLAIM_BYTES..])?;
    Ok(greeting)
}

fn check_magic(message: &[u8]) -> Result<(), HandshakeError> {
    let (name, version) = message[..MAGIC.len()].split_at(MAGIC.len() - 1);
    if message.starts_with(&MAGIC) {
        Ok(())
    } else if MAGIC.starts_with(name) {
        let theirs = char::from(version[0]);
        Err(HandshakeError::OtherVersion { theirs })
    } else {
        Err(HandshakeError::OtherProtocol)
    }
}

/// Who signs. The side is part of what is signed: no proof can be sent back as the other's.
#[derive(Clone, Copy)]
enum Side {
    Initiator,
    Acceptor,
}

/// The proof that `side` knows the token, over the first message of each.
fn proof(side: Side, token: &[u8], greeting: &Greeting, answer: &Answer) -> Hmac<Sha256> {
    let side: &[u8] = match side {
        Side::Initiator => b"initiator",
        Side::Acceptor => b"acceptor",
    };
    let hmac = Hmac::<Sha256>::new_from_slice(token).expect("HMAC takes keys of any length");
    hmac.chain_update(side).chain_update(greeting).chain_update(answer)
}
