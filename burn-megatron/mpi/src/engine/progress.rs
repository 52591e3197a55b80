//! Bounded waiting for requests: when to look again, and when to give up.
//!
//! Every wait of the engine is a loop that tests its requests and then asks [`Progress`] whether to continue. MPI works
//! only while it is called, and a thread cannot sleep on it, so a wait looks without pause at first and less often
//! later.

use super::MpiEngine;
use burn_megatron_comm::collectives::external::WaitDeadline;
use burn_megatron_comm::collectives::{CallDescriptor, CollectiveError};
use std::time::{Duration, Instant};

/// Looks in vain before the processor is yielded between looks.
const SPINS: u32 = 50;
/// Looks in vain before a sleep between looks.
const LOOKS: u32 = 2000;
/// The sleep between looks.
const SLEEP: Duration = Duration::from_micros(100);
/// Looks in vain between two looks at disconnect reasons.
const DISCONNECT_REASON_LOOKS: u32 = 64;
/// What a rank sent before its disconnect reason may still be on its way: so long after the disconnect reason it is not
/// any more.
const GRACE: Duration = Duration::from_millis(100);

/// One wait.
pub(super) struct Progress<'a> {
    engine: &'a MpiEngine,
    call: &'a CallDescriptor,
    deadline: WaitDeadline<'a>,
    vain_looks: u32,
    /// When the disconnect reason of a rank that is waited for was first seen.
    disconnect_seen: Option<Instant>,
}

impl<'a> Progress<'a> {
    pub fn new(engine: &'a MpiEngine, call: &'a CallDescriptor) -> Self {
        Self {
            engine,
            call,
            deadline: engine.health.deadline(Some(call)),
            vain_looks: 0,
            disconnect_seen: None,
        }
    }

    /// Decides, after a look at all requests, whether to look again; pauses where that is wise. `missing` gives the
    /// group indices still waited for.
    ///
    /// # Errors
    /// A timeout, a failed rank, an earlier error of the group, a rank that has given the group up.
    pub fn look_again(
        &mut self,
        has_moved: bool,
        mut missing: impl FnMut() -> Vec<usize>,
    ) -> Result<(), CollectiveError> {
        if has_moved {
            self.vain_looks = 0;
            self.disconnect_seen = None;
            self.deadline.renew();
            return self.engine.health.check(Some(self.call));
        }
        self.deadline.check(&mut missing)?;
        self.vain_looks = self.vain_looks.saturating_add(1);
        if self.vain_looks.is_multiple_of(DISCONNECT_REASON_LOOKS) {
            self.look_for_disconnect_reasons(&missing())?;
        }
        match self.vain_looks {
            0..SPINS => std::hint::spin_loop(),
            SPINS..LOOKS => std::thread::yield_now(),
            _ => std::thread::sleep(self.deadline.slice(SLEEP)),
        }
        Ok(())
    }

    fn look_for_disconnect_reasons(&mut self, missing: &[usize]) -> Result<(), CollectiveError> {
        let disconnect_reason = |&peer: &usize| Some((peer, self.engine.disconnect_reasons.of(peer)?));
        let Some((peer, cause)) = missing.iter().find_map(disconnect_reason) else {
            return Ok(());
        };
        if self.disconnect_seen.get_or_insert_with(Instant::now).elapsed() < GRACE {
            return Ok(());
        }
        let label = &self.engine.health.label;
        Err(CollectiveError::PeerLeft {
            group: label.to_string(),
            call: label.describe(self.call),
            rank: label.ranks[peer],
            cause: cause.to_string(),
        })
    }
}
