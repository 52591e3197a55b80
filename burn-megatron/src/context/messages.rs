//! Messages of any length between the ranks of a group, whose length goes before them.

use crate::collectives::{CollectiveError, ProcessGroup};

/// Returns what each rank gives, in rank order, on the group's first rank; none on the others.
///
/// A message of more than `limit` bytes is an error of the transfer.
///
/// # Communication
/// From each other rank two messages to the first: a length of 8 bytes, and the bytes.
#[cfg(any(feature = "checkpoint", feature = "learner"))]
pub(crate) fn gather_bytes(
    bytes: Vec<u8>,
    limit: usize,
    group: &ProcessGroup,
) -> Result<Option<Vec<Vec<u8>>>, CollectiveError> {
    if group.rank() > 0 {
        group.send(&[bytes.len() as i64], 0)?;
        if !bytes.is_empty() {
            group.send(&bytes, 0)?;
        }
        return Ok(None);
    }
    let mut all = vec![bytes];
    for rank in 1..group.size() {
        let mut length = [0_i64];
        group.recv(&mut length, rank)?;
        let mut received = vec![0; bounded(length[0], limit)];
        if !received.is_empty() {
            group.recv(&mut received, rank)?;
        }
        all.push(received);
    }
    Ok(Some(all))
}

/// Returns the bytes of the rank at `root` on every rank; those of the others do not count.
///
/// A message of more than `limit` bytes is an error of the transfer.
///
/// # Communication
/// A broadcast of 8 bytes, and one of the message.
pub(crate) fn broadcast_bytes(
    mut bytes: Vec<u8>,
    root: usize,
    limit: usize,
    group: &ProcessGroup,
) -> Result<Vec<u8>, CollectiveError> {
    let mut length = [bytes.len() as i64];
    group.broadcast(&mut length, root)?;
    bytes.resize(bounded(length[0], limit), 0);
    if !bytes.is_empty() {
        group.broadcast(&mut bytes, root)?;
    }
    Ok(bytes)
}

fn bounded(length: i64, limit: usize) -> usize {
    usize::try_from(length).unwrap_or(0).min(limit)
}
