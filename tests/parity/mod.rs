//! Parity: of every layout with one rank, with PyTorch and with plain burn layers, and faults; of burn's `Learner`, of
//! plain models in placements, of lessons and of programs.
//!
//! Every case runs in real processes ([`harness`]).

pub mod cases;
pub mod evaluation;
pub mod existing_model;
pub mod learner;
pub mod lessons;
pub mod sharded_models;

use tests::harness;

pub const RANKS: harness::Ranks = harness::Ranks {
    before_join: cases::before_join,
    change_environment: cases::change_environment,
    run: cases::run,
};
