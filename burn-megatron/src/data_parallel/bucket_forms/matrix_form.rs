//! `MatrixForm`: what an optimizer does with whole matrices, apart from what it does with each element.

use burn::optim::{LearningRate, Optimizer};
use burn::tensor::Tensor;

/// An optimizer's update of matrices, in three parts, of which only the second needs whole ones.
///
/// A [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer) calls the first for this rank's piece of each parameter,
/// brings the pieces of a matrix together on some rank for the second, and takes pieces of its result to where the
/// parameters are, for the third: `p ← keep · p − rate · direction`.
pub struct MatrixForm<O: Optimizer> {
    /// Takes the gradient of any part of a parameter, `[elements]`, and the state of this part; returns what the
    /// direction is made of, `[elements]`, and the new state.
    pub momentum: Momentum<O>,
    /// Returns the directions of matrices, `[matrices, inputs, outputs]`, of what the first part has made.
    pub direction: fn(&O, Tensor<3>) -> Tensor<3>,
    /// Returns by what parameters and directions are multiplied in a step of a learning rate.
    pub factors: fn(&O, LearningRate) -> MatrixFactors,
}

/// What takes an optimizer, a gradient and a state, and returns a momentum and the new state.
type Momentum<O> = fn(&O, Tensor<1>, Option<State<O>>) -> (Tensor<1>, State<O>);

/// An optimizer's state of elements in a row.
type State<O> = <O as Optimizer>::State<1>;

/// By what a parameter and its direction are multiplied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatrixFactors {
    /// What is kept of the parameter.
    pub keep: f64,
    /// What is taken off in the direction.
    pub rate: f64,
}

impl<O: Optimizer> Clone for MatrixForm<O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: Optimizer> Copy for MatrixForm<O> {}
