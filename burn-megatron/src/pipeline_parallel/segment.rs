//! A segment: a stretch of a stage with a graph of its own, from an input that came from elsewhere to an output that
//! goes elsewhere.
//!
//! The gradient of the output is not known when the forward pass ends, and may come while other micro-batches are in
//! flight. So the graph ends in a root of ONE element, whose backward step puts the gradient in once it is there, and
//! the output itself can be sent and freed at once. The input is a leaf, followed by a tap that catches its gradient,
//! so that nothing except what the backward pass needs keeps the input alive.
//!
//! Segments share no node of burn's: their inputs are leaves of their own, and so are hooked parameters.
//!
//! A `backward()` inside a backward step hangs, as burn keeps one table of graphs per process: so recomputation, too,
//! is a segment, run again by `pass` before its backward pass, and not a step in a graph.

use burn::tensor::Tensor;

use crate::autodiff::{GradientSlot, enter, leave};

/// A segment between its forward and its backward pass.
pub(super) struct Segment<const D: usize> {
    root: Tensor<1>,
    /// None where the root is a loss.
    output_gradient: Option<GradientSlot<D>>,
    /// None where the segment has no input from elsewhere.
    input_gradient: Option<GradientSlot<D>>,
}

impl<const D: usize> Segment<D> {
    /// Returns the input as the start of a new graph, and where its gradient will be.
    pub(super) fn enter(input: Tensor<D>) -> (Tensor<D>, GradientSlot<D>) {
        let slot = GradientSlot::default();
        (enter(input, &slot), slot)
    }

    /// Ends a graph in an output; returns the segment and the output's elements, which it does not keep.
    pub(super) fn leave(output: Tensor<D>, input_gradient: Option<GradientSlot<D>>) -> (Self, Tensor<D>) {
        let slot = GradientSlot::default();
        let segment = Self {
            root: leave(output.clone(), &slot),
            output_gradient: Some(slot),
            input_gradient,
        };
        (segment, output.inner())
    }

    /// Returns the segment of a graph that ends in a loss of one element.
    pub(super) fn of_loss(loss: Tensor<1>, input_gradient: Option<GradientSlot<D>>) -> Self {
        Self {
            root: loss,
            output_gradient: None,
            input_gradient,
        }
    }

    /// Runs the backward pass, which frees the graph, and returns the gradient of the input, if there is an input.
    ///
    /// `gradient` is that of the output; none where the segment ends in a loss.
    ///
    /// # Panics
    /// When there is no gradient for an output.
    pub(super) fn backward(self, gradient: Option<Tensor<D>>) -> Option<Tensor<D>> {
        if let Some(slot) = &self.output_gradient {
            slot.put(gradient.expect("an output has a gradient"));
        }
        // A segment without a tracked parameter and without an input has nothing to compute.
        if self.root.is_tracked() {
            self.root.backward();
        }
        self.input_gradient
            .map(|slot| slot.take().expect("the output of a stage depends on its input"))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_to_vec().unwrap()
    }

    #[test]
    fn two_segments_give_the_gradients_of_one_graph_while_another_micro_batch_is_under_way() {
        let device = Device::flex();
        let weight = Tensor::<2>::from_floats([[1.0, -2.0], [0.5, 3.0]], &device)
            .autodiff()
            .require_grad();
        let inputs = [[[1.0, 2.0]], [[-3.0, 0.25]]].map(|rows| Tensor::<2>::from_floats(rows, &device));
        let run = |input: &Tensor<2>| {
            let (entered, slot) = Segment::enter(input.clone());
            let (first, middle) = Segment::leave(entered.matmul(weight.clone()).tanh(), Some(slot));
            let (entered, slot) = Segment::enter(middle);
            let second = Segment::of_loss((entered.clone() * entered).sum(), Some(slot));
            (first, second)
        };
        let passes = [run(&inputs[0]), run(&inputs[1])];
        // The first micro-batch goes back first.
        let gradients = passes.map(|(first, second)| {
            let middle = second.backward(None);
            first.backward(middle).unwrap()
        });
        for (input, gradient) in inputs.into_iter().zip(gradients) {
            let input = input.autodiff().require_grad();
            let middle = input.clone().matmul(weight.clone()).tanh();
            let whole = (middle.clone() * middle).sum().backward();
            assert_eq!(values(gradient), values(input.grad(&whole).unwrap()));
        }
    }

    #[test]
    fn the_root_does_not_keep_the_output() {
        let device = Device::flex();
        let weight = Tensor::<1>::from_floats([2.0, 3.0], &device).autodiff().require_grad();
        let (segment, output) = Segment::leave(weight.clone() + 1.0, None);
        assert_eq!(segment.root.dims(), [1]);
        assert_eq!(values(output), [3.0, 4.0]);
        let gradient = Tensor::<1>::from_floats([5.0, 7.0], &device);
        assert!(segment.backward(Some(gradient)).is_none());
    }
}
