//! [`StepPlan`]: what all ranks do in a step, as rank 0 decides it; and how it comes to them.

use burn_megatron::collectives::{CollectiveError, ProcessGroup};
use serde::{Deserialize, Serialize};

use super::error::GenerationError;
use super::sampling::SamplingConfig;

/// Bytes of the first message: a plan of a step without a new prompt fits in it.
const FIRST_BYTES: usize = 4096;
/// Bytes of the length before the plan.
const LENGTH_BYTES: usize = 8;
/// The most bytes of a plan.
const MOST_BYTES: usize = 1 << 28;

/// What all ranks do in a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StepPlan {
    /// Sequences that have ended, by their numbers.
    pub(super) removed: Vec<u64>,
    /// Sequences that begin.
    pub(super) admitted: Vec<Admission>,
    /// Sequences that compute new tokens, and how many: those of one token first.
    pub(super) work: Vec<(u64, usize)>,
    pub(super) is_last: bool,
}

/// A sequence that begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Admission {
    /// Its number: no other sequence has had it.
    pub(super) sequence: u64,
    pub(super) prompt: Vec<u32>,
    /// Its pages, enough for all that it will store.
    pub(super) pages: Vec<usize>,
    pub(super) sampling: SamplingConfig,
    /// The request's number among the draws.
    pub(super) number: u64,
    /// The sample's number in the request.
    pub(super) sample: u32,
    pub(super) top_log_probabilities: usize,
    pub(super) scores_prompt: bool,
}

/// Returns the plan of rank 0 on every rank of a group, whose first rank it is.
///
/// # Communication
/// One broadcast of 4 KiB, and one of the rest if the plan is longer.
pub(super) fn share(plan: StepPlan, group: &ProcessGroup) -> Result<StepPlan, GenerationError> {
    if group.size() == 1 {
        return Ok(plan);
    }
    let broken = |what: String| GenerationError::Plan {
        rank: group.ranks()[group.rank()],
        what,
    };
    if group.rank() == 0 {
        let bytes = serde_json::to_vec(&plan).map_err(|error| broken(error.to_string()))?;
        if bytes.len() > MOST_BYTES {
            return Err(broken(format!(
                "it has {} bytes, at most {MOST_BYTES} are sent",
                bytes.len()
            )));
        }
        broadcast(bytes, group)?;
        return Ok(plan);
    }
    let bytes = broadcast(Vec::new(), group)?;
    serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))
}

/// Returns the bytes of the group's first rank.
fn broadcast(bytes: Vec<u8>, group: &ProcessGroup) -> Result<Vec<u8>, CollectiveError> {
    let mut first = (bytes.len() as u64).to_le_bytes().to_vec();
    let split = bytes.len().min(FIRST_BYTES - LENGTH_BYTES);
    first.extend(&bytes[..split]);
    first.resize(FIRST_BYTES, 0);
    group.broadcast(&mut first, 0)?;
    let mut length = [0; LENGTH_BYTES];
    length.copy_from_slice(&first[..LENGTH_BYTES]);
    let length = usize::try_from(u64::from_le_bytes(length))
        .unwrap_or(usize::MAX)
        .min(MOST_BYTES);
    let mut all = first.split_off(LENGTH_BYTES);
    all.truncate(length);
    if length > all.len() {
        let mut rest = match group.rank() {
            0 => bytes[split..].to_vec(),
            _ => vec![0; length - all.len()],
        };
        group.broadcast(&mut rest, 0)?;
        all.extend(rest);
    }
    Ok(all)
}
