//! Which kernels run for an attention, on what tiles; called by the CubeCL backends' `KernelBackend`.

mod backward_on_matrix_units;
mod heads;
mod on_matrix_units;
mod portable;
mod problem;
mod ranges;

use burn::tensor::Tensor;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::AddressType;

use super::matrix::{self, tile::LOAD};
use super::reference::is_nothing;
use super::{AttentionBackward, AttentionForward, AttentionOptions, PackedHeads, reference, unpack};
use crate::cube::launch::{OnCube, empty_beside, into_contiguous};
use crate::flash_attention::AttentionSizes;
use crate::precision::zeros_like;
use crate::tape::{float, primitive};
use heads::{Heads, parts};
pub(crate) use problem::check;
use problem::{Backward, Launch};

impl<R: CubeRuntime> Launch<'_, R> {
    /// Output and statistics.
    fn forward(&self) -> [CubeTensor<R>; 2] {
        let vector_size = self.vector_size(&[]);
        let has_dropout = self.options.dropout.is_some();
        let is_short = self.address_type(&[]) == AddressType::U64 || self.options.has_ranges() || self.bias.is_some();
        let tile = matrix::tile::Tile::forward(self.sizes.d_head, has_dropout, is_short);
        let has_blocks =
            self.sizes.queries <= tile.staying() * self.client().properties().hardware.max_cube_count.1 as usize;
        if vector_size == LOAD && self.has_matrix_units(tile) && has_blocks {
            self.matrix_forward(tile)
        } else {
            self.portable_forward(vector_size)
        }
    }

    /// Writes the gradients into `results`, and returns that of the bias where it is wanted.
    fn backward(&self, given: Given<R>, results: &[Heads<R>; 3]) -> Option<CubeTensor<R>> {
        let (output, gradient) = (Heads::new(given.output, 0), Heads::new(given.gradient, 0));
        let vector_size = self.vector_size(&[&output, &gradient]);
        let on_matrix_units = self.matrix_backward_plan(vector_size, given.is_bias_wanted);
        let query_sums = on_matrix_units.as_ref().and_then(|plan| plan.query_sums.as_ref());
        let [of_query, of_key, of_value] = results.each_ref().map(|heads| &heads.tensor);
        let mut tensors = vec![&output.tensor, &gradient.tensor, of_query, of_key, of_value];
        tensors.extend(query_sums);
        let address_type = self.address_type(&tensors);
        let pass = Backward {
            gradient: &gradient,
            log_sum_exp: into_contiguous(given.log_sum_exp),
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

/// What a backward pass is given.
struct Given<R: CubeRuntime> {
    output: CubeTensor<R>,
    log_sum_exp: CubeTensor<R>,
    /// The output's.
    gradient: CubeTensor<R>,
    is_bias_wanted: bool,
}

impl<R: CubeRuntime> Given<R> {
    /// Of a pass, with its bias.
    fn of<B: OnCube<R>>(pass: AttentionBackward<B>) -> (Self, Option<CubeTensor<R>>) {
        let given = Self {
            output: primitive(pass.forward.output),
            log_sum_exp: primitive(pass.forward.log_sum_exp),
            gradient: primitive(pass.gradient),
            is_bias_wanted: pass.bias.as_ref().is_some_and(|bias| bias.is_wanted),
        };
        (given, pass.bias.map(|bias| primitive(bias.table)))
    }
}

fn result<R: CubeRuntime, B: OnCube<R>>([output, log_sum_exp]: [CubeTensor<R>; 2]) -> AttentionForward<B> {
    AttentionForward {
        output: float(output),
        log_sum_exp: float(log_sum_exp),
    }
}

pub(crate) fn separate_forward<R: CubeRuntime, B: OnCube<R>>(
    inputs: [Tensor<B, 4>; 3],
    bias: Option<Tensor<B, 2>>,
    options: &AttentionOptions,
) -> AttentionForward<B> {
    if is_nothing(&inputs[0], &inputs[1]) {
        return reference::forward(inputs, bias, options);
    }
    let sizes = AttentionSizes::of(inputs[0].dims(), inputs[1].dims());
    let heads = inputs.clone().map(|input| Heads::new(primitive(input), 0));
    match Launch::new(heads, bias.clone().map(primitive), sizes, options) {
        Some(launch) => result(launch.forward()),
        None => reference::forward(inputs, bias, options),
    }
}

pub(crate) fn separate_backward<R: CubeRuntime, B: OnCube<R>>(
    inputs: [Tensor<B, 4>; 3],
    pass: AttentionBackward<B>,
    options: &AttentionOptions,
) -> ([Tensor<B, 4>; 3], Option<Tensor<B, 2>>) {
    if is_nothing(&inputs[0], &inputs[1]) {
        return reference::backward(inputs, pass, options);
    }
    let sizes = AttentionSizes::of(inputs[0].dims(), inputs[1].dims());
    let heads = inputs.clone().map(|input| Heads::new(primitive(input), 0));
    let (given, bias) = Given::of(pass.clone());
    let Some(launch) = Launch::new(heads, bias, sizes, options) else {
        return reference::backward(inputs, pass, options);
    };
    drop(pass);
    let results = inputs.map(|input| Heads {
        tensor: empty_beside(&launch.inputs[0].tensor, &input.dims(), launch.dtype()),
        first: 0,
    });
    let of_bias = launch.backward(given, &results);
    (results.map(|heads| float(heads.tensor)), of_bias.map(float))
}

pub(crate) fn packed_forward<R: CubeRuntime, B: OnCube<R>>(
    packed: Tensor<B, 4>,
    heads: PackedHeads,
    bias: Option<Tensor<B, 2>>,
    options: &AttentionOptions,
) -> AttentionForward<B> {
    if packed.shape().num_elements() > 0 {
        let sizes = AttentionSizes::of_packed(packed.dims(), heads);
        let parts = parts(primitive(packed.clone()), heads);
        if let Some(launch) = Launch::new(parts, bias.clone().map(primitive), sizes, options) {
            return result(launch.forward());
        }
    }
    reference::forward(unpack(packed, heads), bias, options)
}

pub(crate) fn packed_backward<R: CubeRuntime, B: OnCube<R>>(
    packed: Tensor<B, 4>,
    heads: PackedHeads,
    pass: AttentionBackward<B>,
    options: &AttentionOptions,
) -> (Tensor<B, 4>, Option<Tensor<B, 2>>) {
    if packed.shape().num_elements() == 0 {
        let wanted = pass.bias.filter(|bias| bias.is_wanted);
        return (packed, wanted.map(|bias| zeros_like(&bias.table)));
    }
    let (dims, sizes) = (packed.dims(), AttentionSizes::of_packed(packed.dims(), heads));
    let inputs = parts(primitive(packed.clone()), heads);
    let (given, bias) = Given::of(pass.clone());
    let Some(launch) = Launch::new(inputs, bias, sizes, options) else {
        let (gradients, of_bias) = reference::backward(unpack(packed, heads), pass, options);
        return (Tensor::cat(gradients.to_vec(), 2), of_bias);
    };
    drop(pass);
    let result = empty_beside(&launch.inputs[0].tensor, &dims, launch.dtype());
    let of_bias = launch.backward(given, &parts(result.clone(), heads));
    (float(result), of_bias.map(float))
}
