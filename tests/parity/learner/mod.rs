//! burn-train's `Learner` on several ranks against burn-train's own in one process: metrics, parameters, checkpoints,
//! stopping; and `average_gradients`.
//!
//! Every case runs in real processes; see [`harness`].

pub mod cases;
mod net;
mod recording;

use tests::harness;

pub const RANKS: harness::Ranks = harness::Ranks {
    before_join: cases::before_join,
    change_environment: cases::change_environment,
    run: cases::run,
};
