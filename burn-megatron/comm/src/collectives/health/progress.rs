//! How far the ranks have come when their calls do not fit together: each says so through the store.
//!
//! A mismatch shows two calls. What led to it is most often that one rank has made a step more, or an update that the
//! other has not, and that only the rank itself knows.

use std::time::Duration;

use super::GroupHealth;
use super::notes::Notes;
use crate::collectives::error::CollectiveError;

/// How long a rank waits for what the other says: it has met the same mismatch, or is about to.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(1);

impl GroupHealth {
    /// Returns the error with how far both of its ranks have come, as far as they have said so by
    /// [`note_progress`](crate::collectives::ProcessGroup::note_progress). `note` is what the caller calls its call.
    pub fn with_progress(&self, mut error: CollectiveError, note: Option<&str>) -> CollectiveError {
        let Some(notes) = &self.notes else {
            return error;
        };
        let here = self.flight_recorder.progress();
        match &mut error {
            CollectiveError::Mismatch {
                rank,
                other_rank,
                progress,
                ..
            } => {
                let note = note.map_or(String::new(), |note| format!(" [{note}]"));
                let here = here.map(|progress| format!("{progress}{note}")).unwrap_or_default();
                let key = format!("progress/{}/{:?}", self.label.name, self.label.ranks);
                let came = notes.exchange_progress(&key, [*rank, *other_rank], here);
                let came = came.map(|(rank, came)| format!("; rank {rank} has made {came}"));
                *progress = came.collect::<String>().into();
            }
            CollectiveError::PeerLeft { cause, .. } => {
                if let Some(here) = here {
                    cause.push_str(&format!("; rank {} has made {here}", notes.rank));
                }
            }
            _ => {}
        }
        error
    }
}

impl Notes {
    /// Tells the others how far this rank has come, and returns what `ranks` tell. Nothing is said of a rank that has
    /// not said anything, or not in time.
    fn exchange_progress(&self, key: &str, ranks: [usize; 2], here: String) -> impl Iterator<Item = (usize, String)> {
        let key_of = |rank: usize| format!("{key}/{rank}");
        // Without the store the calls must do.
        let written = self
            .store
            .set_within(&key_of(self.rank), here.as_bytes(), EXCHANGE_LIMIT);
        let read = |rank: usize| {
            if rank == self.rank {
                return here.clone();
            }
            if written.is_err() {
                return String::new();
            }
            let bytes = self.store.read_note(&key_of(rank), EXCHANGE_LIMIT).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let came = ranks.map(|rank| (rank, read(rank)));
        came.into_iter().filter(|(_, came)| !came.is_empty())
    }
}
