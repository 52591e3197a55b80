//! How the ranks of a save act as one: they learn of each other's failures, and rank 0 of everybody's plans.

use super::error::Cause;
use crate::collectives::{CollectiveError, ProcessGroup};
use crate::context::{broadcast_bytes, gather_bytes};

/// The longest message of a failure.
const MAX_CAUSE_BYTES: usize = 16 << 10;
/// The largest message to rank 0, in bytes: a plan, or checksums.
const MAX_MESSAGE_BYTES: usize = 512 << 20;

/// Returns the outcome of this rank if no rank has failed, and the failure of the first rank that has otherwise: the
/// same on every rank.
///
/// # Communication
/// An all-gather of 8 bytes; after a failure, another of its message.
pub(super) fn agree<T>(group: &ProcessGroup, outcome: Result<T, Cause>) -> Result<Result<T, Cause>, CollectiveError> {
    let message = outcome.as_ref().err().map_or_else(Vec::new, encode);
    let mut lengths = vec![0_i64; group.size()];
    group.all_gather(&[message.len() as i64], &mut lengths)?;
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let longest = longest.clamp(0, MAX_CAUSE_BYTES as i64) as usize;
    if longest == 0 {
        return Ok(outcome);
    }
    let mut padded = message;
    padded.resize(longest, b' ');
    let mut all = vec![0; longest * group.size()];
    group.all_gather(&padded, &mut all)?;
    let mut failed = all.chunks(longest).zip(&lengths).filter(|(_, length)| **length > 0);
    let cause = failed.next().and_then(|(text, _)| serde_json::from_slice(text).ok());
    Ok(Err(cause.unwrap_or_else(|| {
        Cause::Other("a rank failed and could not say why".into())
    })))
}

fn encode(cause: &Cause) -> Vec<u8> {
    let encoded = serde_json::to_vec(cause).expect("a cause is text");
    if encoded.len() <= MAX_CAUSE_BYTES {
        return encoded;
    }
    // Escaping makes a character at most six bytes.
    let text = format!("{cause:?}");
    let shortened = Cause::Other(text.chars().take(MAX_CAUSE_BYTES / 24).collect());
    serde_json::to_vec(&shortened).expect("a cause is text")
}

/// Returns the message of every rank on the group's first, nothing on the others.
///
/// # Communication
/// Each other rank sends its message to the first.
pub(super) fn gather(group: &ProcessGroup, message: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, CollectiveError> {
    gather_bytes(message, MAX_MESSAGE_BYTES, group)
}

/// Returns the message of the group's first rank on every rank.
///
/// # Communication
/// A broadcast of 8 bytes, and one of the message.
pub(super) fn share(group: &ProcessGroup, message: Option<&str>) -> Result<String, CollectiveError> {
    let message = message.unwrap_or_default().as_bytes().to_vec();
    let bytes = broadcast_bytes(message, 0, MAX_MESSAGE_BYTES, group)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
