//! Calls of a group in their order: first in, first out, the thread that makes them, and results to wait on.

pub(super) mod blocked_time;
pub(super) mod lane;
pub(super) mod owner;
pub(super) mod pending;
