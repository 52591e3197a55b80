//! Storms of faults and of kills.

pub mod kill_storm;
pub mod storm;
