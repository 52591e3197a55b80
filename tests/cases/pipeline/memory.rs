//! x
use super::Check;
pub const CHECKS: &[Check] = &[];
