pub use super::*; // re-export test types

mod cov;
mod display;
mod eye;
mod median;
mod var;
