//! burn's clipping for programs that train tensor-parallel layers without the data-parallel wrapper.
//!
//! [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel) does this by itself.

use std::collections::HashMap;

use burn::grad_clipping::GradientClipping;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, FloatDType, Tensor};

use super::clipping::norm_coefficient;
use crate::collectives::{CollectiveError, ReduceOp};
use crate::context::ParallelContext;
use crate::parameters::{Declaration, Distribution};

/// Clips the gradient of each parameter by itself: by value, or by the norm of the whole parameter, of which a
/// tensor-parallel rank may hold a part.
///
/// For a loop of one's own, before the optimizer's step, with an optimizer that does not clip: burn's would clip by the
/// norm of what this rank holds. Where gradients are partial sums,
/// [`sum_partial_gradients`](crate::data_parallel::sum_partial_gradients) comes first, and with data-parallel ranks so
/// does their average.
///
/// # Communication
/// For `Norm` one all-reduce of one number per parameter over the tensor group, for `Value` none.
///
/// # Errors
/// When that fails.
pub fn clip_each_gradient<M>(
    gradients: &mut GradientsParams,
    module: &M,
    clipping: &GradientClipping,
    context: &ParallelContext,
) -> Result<(), CollectiveError>
where
    M: Module,
{
    let mut coefficients = Vec::new();
    if let GradientClipping::Norm(threshold) = clipping {
        let mut squares = Squares {
            gradients,
            context,
            squares: Vec::new(),
            wholes: Vec::new(),
            first_of: HashMap::new(),
        };
        module.visit(&mut squares);
        let Squares {
            mut squares, wholes, ..
        } = squares;
        if squares.is_empty() {
            return Ok(());
        }
        context.tensor_group().all_reduce(&mut squares, ReduceOp::Sum)?;
        let mut sums = vec![0.0; squares.len()];
        for (part, &whole) in squares.iter().zip(&wholes) {
            sums[whole] += part;
        }
        coefficients = (wholes.iter())
            .map(|&whole| norm_coefficient(sums[whole].sqrt(), *threshold))
            .collect();
    }
    module.visit(&mut Clipper {
        gradients,
        clipping,
        coefficients: coefficients.into_iter(),
    });
    Ok(())
}

/// By parameter, what this rank adds to the sum of the squares of its gradient.
struct Squares<'a> {
    gradients: &'a GradientsParams,
    context: &'a ParallelContext,
    squares: Vec<f64>,
    /// The number of the first parameter that is a part of the same one: a rank may hold several parts, under one name.
    wholes: Vec<usize>,
    first_of: HashMap<String, usize>,
}

impl ModuleVisitor for Squares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let declared = self.context.registry().declaration(param.id);
        let distribution = (declared.as_ref()).map_or(Distribution::Replicated, |declared| declared.distribution);
        let is_counted = distribution.is_first_holder(self.context.tensor_group().rank());
        let number = self.squares.len();
        let name = declared.as_ref().map(|declared| declared.name.clone());
        self.wholes
            .push(name.map_or(number, |name| *self.first_of.entry(name).or_insert(number)));
        let gradient = self.gradients.get::<D>(param.id);
        let squares = gradient
            .filter(|_| is_counted)
            .map(|gradient| sum_of_squares(gradient, declared));
        self.squares.push(squares.unwrap_or(0.0));
    }
}

/// Without padding.
fn sum_of_squares<const D: usize>(gradient: Tensor<D>, declared: Option<Declaration>) -> f64 {
    let gradient = match gradient.dtype() {
        DType::F64 => gradient,
        _ => gradient.cast(FloatDType::F32),
    };
    let padded = declared.filter(|declared| declared.placement.has_padding());
    let Some(Declaration { placement, .. }) = padded else {
        return gradient.square().sum().into_data().iter::<f64>().sum();
    };
    let values: Vec<f64> = gradient.into_data().iter::<f64>().collect();
    let runs = placement.runs().into_iter();
    runs.flat_map(|run| &values[run.local..run.local + run.length])
        .map(|value| value * value)
        .sum()
}

struct Clipper<'a> {
    gradients: &'a mut GradientsParams,
    clipping: &'a GradientClipping,
    /// Of each parameter, where its norm decides.
    coefficients: std::vec::IntoIter<f64>,
}

impl ModuleVisitor for Clipper<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let coefficient = self.coefficients.next();
        let Some(gradient) = self.gradients.remove::<D>(param.id) else {
            return;
        };
        let clipped = match (self.clipping, coefficient) {
            (GradientClipping::Norm(_), Some(coefficient)) if coefficient < 1.0 => gradient.mul_scalar(coefficient),
            (GradientClipping::Norm(_), _) => gradient,
            (GradientClipping::Value(_), _) => self.clipping.clip_gradient(gradient),
        };
        self.gradients.register(param.id, clipped);
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn gradients_of_one_rank_are_clipped_as_by_burn() {
        let device = Device::flex().autodiff();
        let layer: Linear = LinearConfig::new(3, 2).init(&device);
        let input = Tensor::<2>::from_floats([[1.0, -2.0, 3.0], [0.5, 0.0, 4.0]], &device);
        for clipping in [
            GradientClipping::Norm(0.7),
            GradientClipping::Norm(1e6),
            GradientClipping::Value(0.3),
        ] {
            let gradients = layer.forward(input.clone()).powi_scalar(2).sum().backward();
            let whole = layer.weight.grad(&gradients).expect("it is used");
            let mut params = GradientsParams::from_grads(gradients, &layer);
            clip_each_gradient(&mut params, &layer, &clipping, &ParallelContext::single(1)).expect("one rank");
            let found = params.remove::<2>(layer.weight.id).expect("it was there");
            let difference = (found - clipping.clip_gradient(whole)).abs().max().into_scalar::<f32>();
            assert!(difference < 1e-6, "{difference}");
        }
    }
}
