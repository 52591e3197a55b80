//! A [`ShardedOptimizer`](super::ShardedOptimizer) some of whose pieces are offloaded: which these are, how they are
//! read and replaced, and the update of the module.

#[cfg(any(feature = "checkpoint", feature = "learner"))]
mod held;
mod pieces;
mod step;
#[cfg(test)]
mod tests;
