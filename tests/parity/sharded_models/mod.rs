//! Plain burn models and one of fused operations, each trained in every layout by the placement of its parameters,
//! against one rank.
//!
//! The models know nothing of ranks: they are in `examples/plain_models`, a crate outside the workspace, but for one of
//! odd sizes.

pub mod cases;
mod checks;
mod compared;
mod layouts;
mod learner;
mod loading;
mod mistakes;
mod passes;
mod records;
mod subjects;
mod suggested;
mod training;
mod wrapped;

use tests::harness;

/// Seed of what burn draws.
const SEED: u64 = 11;

pub const RANKS: harness::Ranks = harness::Ranks {
    before_join: |_| Ok(()),
    change_environment: |_, _| {},
    run: cases::run,
};
