//! The handshake: each end proves that it knows the job's token, and the token itself never travels.
//!
//! ```text
//! client                                             server
//!   magic, client_nonce                      ->
//!                                            <-  magic, server_nonce
//!   HMAC(token, "client", both nonces)       ->
//!                                            <-  verdict, HMAC(token, "server", both nonces) or zeros
//! ```
//!
//! HMAC is HMAC-SHA256. The nonces are fresh, so nothing can be replayed; the two labels differ, so nothing can be
//! sent back to its author. What follows the handshake is neither encrypted nor signed: it keeps strangers and
//! other jobs out, not somebody who can change packets on the way.
//!
//! Every message has a fixed length, so a stranger makes neither end allocate anything.

use std::io::{self, Read, Write};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
#[cfg(feature = "tcp")]
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::launch::identity::JobToken;

/// First bytes in both directions: name and version of the protocol.
pub(in crate::launch) const MAGIC: [u8; 8] = *b"BMSTORE1";
const NONCE_BYTES: usize = 32;
const PROOF_BYTES: usize = 32;
const GREETING_BYTES: usize = MAGIC.len() + NONCE_BYTES;

const ACCEPTED: u8 = 1;
#[cfg(feature = "tcp")]
const REFUSED: u8 = 0;

pub(in crate::launch) type Greeting = [u8; GREETING_BYTES];

/// Why a handshake did not succeed.
#[derive(Debug)]
pub(in crate::launch) enum HandshakeError {
    /// The other end speaks another protocol.
    NotAStore,
    /// The two ends have different tokens.
    TokenRefused,
    /// The connection broke, or time ran out.
    Broken(io::Error),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        HandshakeError::Broken(error)
    }
}

/// The client's side, blocking; the stream's own time limits bound it.
pub(in crate::launch) fn connect(stream: &mut (impl Read + Write), token: &JobToken) -> Result<(), HandshakeError> {
    let ours = greeting()?;
    stream.write_all(&ours)?;

    let mut theirs: Greeting = [0; GREETING_BYTES];
    stream.read_exact(&mut theirs[..MAGIC.len()])?;
    check_magic(&theirs)?; // before the rest: another protocol may say less
    stream.read_exact(&mut theirs[MAGIC.len()..])?;

    stream.write_all(&proof(token, b"client", &ours, &theirs).finalize().into_bytes())?;

    let mut verdict = [0; 1 + PROOF_BYTES];
    stream.read_exact(&mut verdict)?;
    let [ACCEPTED, server_proof @ ..] = &verdict else {
        return Err(HandshakeError::TokenRefused);
    };
    proof(token, b"server", &ours, &theirs)
        .verify_slice(server_proof)
        .map_err(|_| HandshakeError::TokenRefused)
}

/// The server's side; the caller bounds its time.
#[cfg(feature = "tcp")]
pub(in crate::launch) async fn accept(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    token: &JobToken,
) -> Result<(), HandshakeError> {
    let mut theirs: Greeting = [0; GREETING_BYTES];
    stream.read_exact(&mut theirs).await?;
    check_magic(&theirs)?;

    let ours = greeting()?;
    stream.write_all(&ours).await?;

    let mut client_proof = [0; PROOF_BYTES];
    stream.read_exact(&mut client_proof).await?;

    let mut verdict = [REFUSED; 1 + PROOF_BYTES];
    if proof(token, b"client", &theirs, &ours)
        .verify_slice(&client_proof)
        .is_err()
    {
        stream.write_all(&verdict).await?;
        return Err(HandshakeError::TokenRefused);
    }
    verdict[0] = ACCEPTED;
    verdict[1..].copy_from_slice(&proof(token, b"server", &theirs, &ours).finalize().into_bytes());
    stream.write_all(&verdict).await?;
    Ok(())
}

pub(in crate::launch) fn greeting() -> io::Result<Greeting> {
    let mut greeting = [0; GREETING_BYTES];
    greeting[..MAGIC.len()].copy_from_slice(&MAGIC);
    getrandom::fill(&mut greeting[MAGIC.len()..])?;
    Ok(greeting)
}

fn check_magic(greeting: &Greeting) -> Result<(), HandshakeError> {
    if greeting.starts_with(&MAGIC) {
        Ok(())
    } else {
        Err(HandshakeError::NotAStore)
    }
}

/// The proof that `side` knows the token, over both greetings, the client's first.
pub(in crate::launch) fn proof(token: &JobToken, side: &[u8], client: &Greeting, server: &Greeting) -> Hmac<Sha256> {
    let hmac = Hmac::<Sha256>::new_from_slice(token.as_bytes()).expect("HMAC takes keys of any length");
    hmac.chain_update(side).chain_update(client).chain_update(server)
}
