//! [`Run`]: what the members of a group have said, equal words once.

use serde::{Deserialize, Serialize};

use super::encoding;

/// The value of adjacent members of a group: mostly all say the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) members: usize,
    #[serde(with = "encoding::bytes")]
    pub(crate) value: Vec<u8>,
}

impl Run {
    /// Returns the runs of the members' values.
    pub(in crate::launch) fn all_of(values: impl Iterator<Item = Vec<u8>>) -> Vec<Run> {
        let mut runs: Vec<Run> = vec![];
        for value in values {
            match runs.last_mut() {
                Some(last) if last.value == value => last.members += 1,
                _ => runs.push(Run { members: 1, value }),
            }
        }
        runs
    }

    /// Returns whether these are of `size` members: a message may say anything.
    pub(in crate::launch) fn are_of(runs: &[Run], size: usize) -> bool {
        let members = runs.iter().try_fold(0_usize, |sum, run| sum.checked_add(run.members));
        members == Some(size) && runs.iter().all(|run| run.members > 0)
    }
}
