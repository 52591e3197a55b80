//! [`or_give_up`]: an error of one rank that ends the run on all ranks.

use std::error::Error;
use std::iter::successors;

use super::super::mesh::Mesh;
use super::CompareError;
use super::exchange::own_rank;

/// What ends with a rank's number and its error where a rank gives its groups up. Errors of collectives repeat it.
const CAUSE: &str = "a comparison ended with an error of rank ";

/// What ranks report of an error: with what others say around it, it fits into the reason of a group that fails.
const MESSAGE_BYTES: usize = 500;

/// Runs a part of a comparison that has collectives. If it fails, this rank gives its groups up: the others may wait
/// for it anywhere, in collectives of the program too, which then fail at once, and end in the error of the rank that
/// failed first. A rank that hears of it passes it on to its own groups, which reach the ranks that share none with the
/// first.
pub(super) fn or_give_up<T>(mesh: &Mesh, run: impl FnOnce() -> Result<T, CompareError>) -> Result<T, CompareError> {
    run().map_err(|error| {
        let error = first_cause(error);
        let (rank, message) = match &error {
            CompareError::OtherRank { rank, message } => (*rank, message.clone()),
            own => (own_rank(mesh), message_of(own)),
        };
        mesh.give_up(&format!("{CAUSE}{rank}: {message}"));
        error
    })
}

/// An error in words, the beginning of them, which ranks report.
pub(super) fn message_of(error: &CompareError) -> String {
    let mut message = error.to_string();
    message.truncate(message.floor_char_boundary(MESSAGE_BYTES));
    message
}

/// The error of the rank that failed first, if this one has come of a group that was given up for it.
fn first_cause(error: CompareError) -> CompareError {
    let errors = successors(Some(&error as &(dyn Error + 'static)), |&error| error.source());
    let known = errors.map(ToString::to_string).find_map(|text| {
        let (_, heard) = text.rsplit_once(CAUSE)?;
        let (rank, message) = heard.split_once(": ")?;
        Some((rank.parse().ok()?, message.to_owned()))
    });
    match known {
        Some((rank, message)) => CompareError::OtherRank { rank, message },
        None => error,
    }
}
