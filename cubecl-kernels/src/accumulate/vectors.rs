//! Vectors whose gradients are added straight to their sums, by the kernel that computes them: they are neither rounded
//! to the vectors' type nor written and read again.
//!
//! As [`linear::destination`](crate::linear::destination) for weights. What receives a vector's gradient
//! [redirects](redirect) the vector's node to a sink; an operation whose vectors all go to one sink borrows the sums
//! in the backward pass, and gives the graph a zero in each gradient's place.

use std::fmt::Debug;
use std::sync::Arc;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::{Tensor, backend::Backend, ops::FloatTensor};

use super::{GradientPlace, GradientSums};
use crate::KernelBackend;
use crate::tape::{GradientRedirect, lead, led, primitive, zero};

/// Sums that the gradients of an operation's vectors, its biases and a norm's weight, are added to.
#[derive(Clone, Debug)]
pub struct VectorSums<B: Backend> {
    /// Given up by the caller, so that they can be written in place.
    pub sums: GradientSums<B>,
    /// The place of each vector, in the operation's order.
    pub places: Vec<GradientPlace>,
}

impl<B: KernelBackend> VectorSums<B> {
    /// Returns the sums with each vector's gradient added to its place, one after the other.
    pub(crate) fn add(self, gradients: impl IntoIterator<Item = Tensor<B, 1>>) -> GradientSums<B> {
        let each = self.places.into_iter().zip(gradients);
        each.fold(self.sums, |sums, (place, gradient)| {
            B::accumulate(sums, gradient, place)
        })
    }
}

/// Where the gradients of a module's vectors are added up.
pub trait VectorSink<B: Backend>: Debug + Send + Sync {
    /// Whether the sums of all these parameters can be lent at once.
    fn lends(&self, parameters: &[usize]) -> bool;

    /// Gives the sums, with the place of each of these parameters, to `add`, and takes back what it returns.
    fn lend(&self, parameters: &[usize], add: &mut dyn FnMut(VectorSums<B>) -> GradientSums<B>);
}

/// A sink, and the vector's number in it.
type Led<B> = (Arc<dyn VectorSink<B>>, usize);

/// Leads the gradient of a vector, parameter number `parameter`, to a sink. Its node then receives zeros that have one
/// element, and the sums of these with the gradients of what else the vector is used for.
pub fn redirect<B: Backend, C: CheckpointStrategy>(
    vector: &FloatTensor<Autodiff<B, C>>,
    sink: Arc<dyn VectorSink<B>>,
    parameter: usize,
) -> GradientRedirect {
    let led: Led<B> = (sink, parameter);
    lead(vector.node.id, led)
}

/// Where the gradients of all vectors of an operation go.
pub(crate) struct VectorDestination<B: Backend> {
    sink: Arc<dyn VectorSink<B>>,
    parameters: Vec<usize>,
}

impl<B: Backend> VectorDestination<B> {
    /// Returns the destination, if all of an operation's vectors are led to one sink.
    pub fn of<C: CheckpointStrategy>(vectors: &[&FloatTensor<Autodiff<B, C>>]) -> Option<Self> {
        let found: Option<Vec<Led<B>>> = vectors.iter().map(|vector| led(vector.node.id)).collect();
        let (sinks, parameters): (Vec<_>, Vec<_>) = found?.into_iter().unzip();
        let (first, others) = sinks.split_first()?;
        let is_one = others.iter().all(|other| Arc::ptr_eq(first, other));
        (is_one && first.lends(&parameters)).then(|| Self {
            sink: first.clone(),
            parameters,
        })
    }

    /// Lets an operation add its vectors' gradients, and returns what it computes apart from these.
    pub fn add<T>(&self, add: impl FnOnce(VectorSums<B>) -> (T, GradientSums<B>)) -> T {
        let (mut add, mut result) = (Some(add), None);
        self.sink.lend(&self.parameters, &mut |to| {
            let (others, sums) = add.take().expect("sums are lent once")(to);
            result = Some(others);
            sums
        });
        result.expect("sums are lent")
    }

    /// What the graph is given in a vector's place, by an operation on a tensor.
    pub fn nothing<const D: usize>(&self, of: &Tensor<B, D>) -> FloatTensor<B> {
        primitive(zero::<B, 1>(&of.device(), of.dtype()))
    }
}
