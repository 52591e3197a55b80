pub use super::*; // re-export test types

mod ops;
