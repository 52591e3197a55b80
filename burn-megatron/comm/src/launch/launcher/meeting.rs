//! [`Meeting`]: where the ranks of one start meet.

use super::job_store::JobStore;
use crate::launch::identity::JobToken;

/// The store that the ranks are about to meet at.
pub(super) struct Meeting {
    pub(super) store: JobStore,
    pub(super) master: (String, u16),
    pub(super) job_id: String,
    pub(super) token: JobToken,
    /// How many times the ranks have been started before.
    pub(super) restarts: usize,
}
