//! Vectors whose gradients are added straight to their sums, by the kernel that computes them: they are neither rounded
//! to the vectors' type nor written and read again.
//!
//! The receiver of a vector's gradient [redirects](redirect) the vector's node to a sink; an operation whose vectors
//! all go to one sink borrows the sums in the backward pass, and gives the graph a zero in each gradient's place. For
//! weights, [`linear::destination`](crate::linear::destination) does the same.

use std::fmt::Debug;
use std::sync::Arc;

use burn::tensor::Tensor;

use super::{Accumulate, GradientPlace, GradientSums};
use crate::operation::apply;
use crate::tape::{GradientRedirect, lead, led, node_id, zero};

/// Sums that the gradients of an operation's vectors, its biases and a norm's weight, are added to.
#[derive(Clone, Debug)]
pub struct VectorSums {
    /// Given up by the caller, so that they can be written in place.
    pub sums: GradientSums,
    /// The place of each vector, in the operation's order.
    pub places: Vec<GradientPlace>,
}

/// Returns sums with each vector's gradient added to its place, one after the other.
pub(crate) fn add_each(
    sums: GradientSums,
    places: &[GradientPlace],
    gradients: impl IntoIterator<Item = Tensor<1>>,
) -> GradientSums {
    let each = places.iter().zip(gradients);
    each.fold(sums, |sums, (&place, gradient)| {
        apply(&Accumulate(place), (sums, gradient))
    })
}

/// Sums of the gradients of a module's vectors.
pub trait VectorSink: Debug + Send + Sync {
    /// Returns whether the sums of all these parameters can be lent at once.
    fn lends(&self, parameters: &[usize]) -> bool;

    /// Gives the sums, with the place of each of these parameters, to `add`, and takes back what it returns.
    fn lend(&self, parameters: &[usize], add: &mut dyn FnMut(VectorSums) -> GradientSums);
}

/// A sink, and the vector's number in it.
type Led = (Arc<dyn VectorSink>, usize);

/// Leads the gradient of a vector, parameter number `parameter`, to a sink. Its node then receives zeros that have one
/// element, and the sums of these with the gradients of what else the vector is used for.
///
/// `None` if the vector is not tracked.
pub fn redirect(vector: &Tensor<1>, sink: Arc<dyn VectorSink>, parameter: usize) -> Option<GradientRedirect> {
    let led: Led = (sink, parameter);
    Some(lead(node_id(vector)?, led))
}

/// Sink of the gradients of all vectors of an operation.
pub(crate) struct VectorDestination {
    sink: Arc<dyn VectorSink>,
    parameters: Vec<usize>,
}

impl VectorDestination {
    /// Returns the destination, if those of an operation's vectors that are there are all led to one sink.
    pub fn of<const N: usize>(vectors: [Option<&Tensor<1>>; N]) -> Option<Self> {
        let found: Option<Vec<Led>> = vectors
            .into_iter()
            .flatten()
            .map(|vector| led(node_id(vector)?))
            .collect();
        let (sinks, parameters): (Vec<_>, Vec<_>) = found?.into_iter().unzip();
        let (first, others) = sinks.split_first()?;
        let is_one = others.iter().all(|other| Arc::ptr_eq(first, other));
        (is_one && first.lends(&parameters)).then(|| Self {
            sink: first.clone(),
            parameters,
        })
    }

    /// Lets an operation add its vectors' gradients, and returns what it computes apart from these.
    pub fn add<T>(&self, add: impl FnOnce(VectorSums) -> (T, GradientSums)) -> T {
        let (mut add, mut result) = (Some(add), None);
        self.sink.lend(&self.parameters, &mut |to| {
            let (others, sums) = add.take().expect("sums are lent once")(to);
            result = Some(others);
            sums
        });
        result.expect("sums are lent")
    }

    /// Returns what the graph is given in a vector's place, by an operation on a tensor.
    pub fn nothing<const D: usize>(&self, of: &Tensor<D>) -> Tensor<1> {
        zero(&of.device(), of.dtype())
    }
}
