//! Carries a collective's error through forward and backward passes, which cannot return one.
//!
//! Raised by differentiable regions, caught by whoever runs a whole pass.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::collectives::CollectiveError;

/// Unwinds with the error itself as payload, for places that cannot return one.
///
/// The panic hook is not called: nothing is wrong with this rank, and whoever catches the error reports it.
pub fn unwrap_or_unwind<T>(result: Result<T, CollectiveError>) -> T {
    result.unwrap_or_else(|error| resume_unwind(Box::new(error)))
}

/// Returns what `run` returns, or the collective error that ended it in a forward or a backward pass.
///
/// # Errors
/// The [`CollectiveError`] of the first collective that failed.
///
/// # Panics
/// Passes every other panic on.
pub fn catch_collective_error<T>(run: impl FnOnce() -> T) -> Result<T, CollectiveError> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| match payload.downcast::<CollectiveError>() {
        Ok(error) => *error,
        Err(other) => resume_unwind(other),
    })
}
