//! Choice of kernels for an attention, and of their tiles.

mod backward_on_matrix_units;
mod heads;
mod on_matrix_units;
mod portable;
mod problem;
mod ranges;

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::AddressType;

use self::heads::Heads;
pub(super) use self::problem::check;
use self::problem::{BackwardLaunch, Launch};
use super::AttentionOptions;
use super::matrix::tile::{LOAD, Tile};
use super::projections::Projections;
use super::{Backward, BackwardInputs};
use crate::cube::launch::empty_beside;
use crate::operation::Of;

impl Launch<'_> {
    /// Output and statistics.
    fn forward(&self) -> [CubeTensor; 2] {
        let vector_size = self.vector_size(&[]);
        let has_dropout = self.options.dropout.is_some();
        let is_short = self.address_type(&[]) == AddressType::U64 || self.options.has_ranges() || self.bias.is_some();
        let tile = Tile::forward(self.sizes.d_head, has_dropout, is_short);
        let has_blocks =
            self.sizes.queries <= tile.staying() * self.client().properties().hardware.max_cube_count.1 as usize;
        if vector_size == LOAD && self.has_matrix_units(tile) && has_blocks {
            self.matrix_forward(tile)
        } else {
            self.portable_forward(vector_size)
        }
    }

    /// Writes the gradients into `results`, and returns that of the bias where it is wanted.
    fn backward(&self, given: Given, results: &[Heads; 3]) -> Option<CubeTensor> {
        let Given { output, gradient, .. } = given;
        let vector_size = self.vector_size(&[&output, &gradient]);
        let on_matrix_units = self.matrix_backward_plan(vector_size, given.is_bias_wanted);
        let query_sums = on_matrix_units.as_ref().and_then(|plan| plan.query_sums.as_ref());
        let [of_query, of_key, of_value] = results.each_ref().map(|heads| &heads.tensor);
        let mut tensors = vec![&output.tensor, &gradient.tensor, of_query, of_key, of_value];
        tensors.extend(query_sums);
        let address_type = self.address_type(&tensors);
        let pass = BackwardLaunch {
            gradient: &gradient,
            log_sum_exp: given.log_sum_exp,
            along: self.row_products(&output, &gradient, query_sums, vector_size, address_type),
            results,
            vector_size,
            address_type,
        };
        match &on_matrix_units {
            Some(plan) => self.matrix_backward(plan, &pass),
            None => self.portable_backward(&pass),
        }
        let bias_sums = on_matrix_units.and_then(|plan| plan.bias_sums);
        bias_sums.or_else(|| given.is_bias_wanted.then(|| self.bias_gradient(&pass)))
    }
}

/// Tensors that a backward pass reads in addition to the inputs.
struct Given {
    output: Heads,
    /// Contiguous.
    log_sum_exp: CubeTensor,
    /// Gradient of the output.
    gradient: Heads,
    is_bias_wanted: bool,
}

/// Returns output and row statistics.
pub(super) fn forward(
    inputs: Projections<CubeTensor>,
    bias: Option<CubeTensor>,
    options: &AttentionOptions,
) -> (CubeTensor, CubeTensor) {
    let [output, log_sum_exp] = Launch::new(inputs, bias, options).forward();
    (output, log_sum_exp)
}

/// Returns the gradients of queries, keys and values for the output's, and of the bias where it is wanted.
pub(super) fn backward(
    (inputs, bias, output, log_sum_exp, gradient): Of<BackwardInputs, CubeTensor>,
    pass: &Backward,
) -> (Projections<CubeTensor>, Option<CubeTensor>) {
    let results = inputs
        .by_ref()
        .map(|input| empty_beside(input, input.meta.shape(), input.dtype));
    let launch = Launch::new(inputs, bias, &pass.options);
    let given = Given {
        output: Heads::new(output, 0),
        log_sum_exp: into_contiguous(log_sum_exp),
        gradient: Heads::new(gradient, 0),
        is_bias_wanted: pass.is_bias_wanted,
    };
    let of_bias = launch.backward(given, &Heads::of(results.clone()));
    (results, of_bias)
}
