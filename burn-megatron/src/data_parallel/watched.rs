//! [`watched`]: a forward pass whose first parallel layer compares its input over the tensor group.

use super::error::DataParallelError;
use crate::collectives::watch_input;

/// Runs a forward pass. Where it `is_compared`, so is the first input of a parallel layer, over the tensor group, and
/// the second value says whether the ranks were given the same.
pub(crate) fn watched<R>(is_compared: bool, run: impl FnOnce() -> R) -> (R, Result<(), DataParallelError>) {
    if !is_compared {
        return (run(), Ok(()));
    }
    let (result, difference) = watch_input(run);
    let difference = difference.map(DataParallelError::InputsDiffer);
    (result, difference.map_or(Ok(()), Err))
}
