//! [`clip_gradients`]: clipping by the norm of the gradient of the whole model.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use super::mesh::Mesh;
use super::placement::AxisPlacement;
use super::slot::{opened, or_panic};
use crate::collectives::{CollectiveError, ReduceOp};
use crate::data_parallel::clip_coefficient;

/// Scales gradients that [`backward`](super::backward) has placed so that the norm of all of them together is at most
/// `max_norm`, and returns the norm that it was. Each element counts once, wherever it is; the sum is in f64.
///
/// burn's own clipping, `with_grad_clipping`, goes parameter by parameter, and works on placed gradients as on others.
///
/// # Communication
/// Per axis of the mesh, one all-reduce of 8 bytes.
///
/// # Errors
/// When that fails.
///
/// # Panics
/// When a gradient has not been placed, or is on another device than one of [`device`](super::device()).
///
/// # Reference
/// Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063, section 3.2.
pub fn clip_gradients<M: Module>(
    gradients: &mut GradientsParams,
    model: &M,
    mesh: &Mesh,
    max_norm: f64,
) -> Result<f64, CollectiveError> {
    let mut squares = Squares {
        gradients,
        mesh,
        sum: 0.0,
    };
    model.visit(&mut squares);
    let mut sum = [squares.sum];
    for axis in 0..mesh.shape().num_axes() {
        if mesh.shape().size(axis) > 1 {
            let group = mesh.group(axis).labelled("norm of sharded gradients");
            group.all_reduce(&mut sum, ReduceOp::Sum)?;
        }
    }
    let norm = sum[0].sqrt();
    let coefficient = clip_coefficient(norm, max_norm);
    if coefficient < 1.0 {
        model.visit(&mut Scale { gradients, coefficient });
    }
    Ok(norm)
}

/// Adds up the squares of the elements that count on this rank.
struct Squares<'a> {
    gradients: &'a GradientsParams,
    mesh: &'a Mesh,
    sum: f64,
}

impl ModuleVisitor for Squares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.get::<D>(param.id) else {
            return;
        };
        let (tensor, placing) = or_panic(opened(gradient));
        let (gradient, mesh) = (placing.look(tensor), self.mesh);
        let places = gradient.operand().places;
        assert!(
            places.iter().all(|place| !place.is_partial()),
            "a gradient is a sum that has not been made, {gradient:?}: place it with sharded::place_gradients first"
        );
        // Of those that have the same, the first counts.
        let counts = (0..mesh.shape().num_axes())
            .all(|axis| places[axis] != AxisPlacement::Replicated || mesh.ranks()[axis] == 0);
        if counts {
            let data = gradient.part();
            self.sum += data.iter::<f64>().map(|value| value * value).sum::<f64>();
        }
    }
}

/// Multiplies every gradient.
pub(super) struct Scale<'a> {
    pub(super) gradients: &'a mut GradientsParams,
    pub(super) coefficient: f64,
}

impl ModuleVisitor for Scale<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.remove::<D>(param.id) {
            self.gradients.register(param.id, gradient.mul_scalar(self.coefficient));
        }
    }
}
