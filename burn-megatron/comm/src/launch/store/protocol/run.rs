//! [`Runs`]: what the members of a group have said, equal words once.

use serde::{Deserialize, Serialize};

use super::encoding;

/// What the members of a group have said, in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Runs(#[serde(deserialize_with = "encoding::list")] pub(crate) Vec<Run>);

/// The value of adjacent members of a group: mostly all say the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) members: usize,
    #[serde(with = "encoding::bytes")]
    pub(crate) value: Vec<u8>,
}

impl Runs {
    /// Returns the runs of the members' values.
    pub(in crate::launch) fn of(values: impl IntoIterator<Item = Vec<u8>>) -> Runs {
        let mut runs: Vec<Run> = vec![];
        for value in values {
            match runs.last_mut() {
                Some(last) if last.value == value => last.members += 1,
                _ => runs.push(Run { members: 1, value }),
            }
        }
        Runs(runs)
    }

    /// Returns whether these are of `size` members: a message may say anything.
    pub(in crate::launch) fn are_of(&self, size: usize) -> bool {
        let Self(runs) = self;
        let members = runs.iter().try_fold(0_usize, |sum, run| sum.checked_add(run.members));
        members == Some(size) && runs.iter().all(|run| run.members > 0)
    }

    /// Returns the bytes of these in a message.
    #[cfg(feature = "tcp")]
    pub(in crate::launch) fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("values were checked")
    }

    /// Returns the value of each member.
    pub(crate) fn values(&self) -> impl Iterator<Item = &[u8]> {
        let Self(runs) = self;
        runs.iter()
            .flat_map(|run| std::iter::repeat_n(&*run.value, run.members))
    }
}
