//! Which kernels run for an attention, on what tiles; called by the CubeCL backends' `KernelBackend`.

mod backward_on_matrix_units;
mod heads;
mod on_matrix_units;
mod portable;
mod problem;

use burn::tensor::Tensor;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::prelude::AddressType;

use super::host::AttentionSizes;
use super::matrix::{self, tile::LOAD};
use super::reference::is_nothing;
use super::{AttentionForward, AttentionOptions, PackedHeads, reference, unpack};
use crate::cube::launch::{empty_beside, into_contiguous};
use crate::tape::{float, primitive};
use heads::{Heads, parts};
pub(crate) use problem::check;
use problem::{Backward, Launch};

type Backend<R, F, I, BT> = CubeBackend<R, F, I, BT>;

impl<R: CubeRuntime> Launch<'_, R> {
    /// Output and statistics.
    fn forward(&self) -> [CubeTensor<R>; 2] {
        let vector_size = self.vector_size(&[]);
        let has_dropout = self.options.dropout.is_some();
        let is_short = self.address_type(&[]) == AddressType::U64 || self.options.documents.is_some();
        let tile = matrix::tile::Tile::forward(self.sizes.d_head, has_dropout, is_short);
        let has_blocks =
            self.sizes.queries <= tile.staying() * self.client().properties().hardware.max_cube_count.1 as usize;
        if vector_size == LOAD && self.has_matrix_units(tile) && has_blocks {
            self.matrix_forward(tile)
        } else {
            self.portable_forward(vector_size)
        }
    }

    /// Writes the gradients into `results`.
    fn backward(
        &self,
        output: CubeTensor<R>,
        log_sum_exp: CubeTensor<R>,
        gradient: CubeTensor<R>,
        results: &[Heads<R>; 3],
    ) {
        let (output, gradient) = (Heads::new(output, 0), Heads::new(gradient, 0));
        let vector_size = self.vector_size(&[&output, &gradient]);
        let on_matrix_units = self.matrix_backward_plan(vector_size);
        let query_sums = on_matrix_units.as_ref().and_then(|plan| plan.query_sums.as_ref());
        let [of_query, of_key, of_value] = results.each_ref().map(|heads| &heads.tensor);
        let mut tensors = vec![&output.tensor, &gradient.tensor, of_query, of_key, of_value];
        tensors.extend(query_sums);
        let address_type = self.address_type(&tensors);
        let pass = Backward {
            gradient: &gradient,
            log_sum_exp: into_contiguous(log_sum_exp),
            along: self.row_products(&output, &gradient, query_sums, vector_size, address_type),
            results,
            vector_size,
            address_type,
        };
        match on_matrix_units {
            Some(plan) => self.matrix_backward(&plan, &pass),
            None => self.portable_backward(&pass),
        }
    }
}

fn result<R, F, I, BT>([output, log_sum_exp]: [CubeTensor<R>; 2]) -> AttentionForward<Backend<R, F, I, BT>>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    AttentionForward {
        output: float(output),
        log_sum_exp: float(log_sum_exp),
    }
}

pub(crate) fn separate_forward<R, F, I, BT>(
    inputs: [Tensor<Backend<R, F, I, BT>, 4>; 3],
    options: &AttentionOptions,
) -> AttentionForward<Backend<R, F, I, BT>>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    if is_nothing(&inputs[0], &inputs[1]) {
        return reference::forward(inputs, options);
    }
    let sizes = AttentionSizes::of(inputs[0].dims(), inputs[1].dims());
    let heads = inputs.clone().map(|input| Heads::new(primitive(input), 0));
    match Launch::new(heads, sizes, options) {
        Some(launch) => result(launch.forward()),
        None => reference::forward(inputs, options),
    }
}

pub(crate) fn separate_backward<R, F, I, BT>(
    inputs: [Tensor<Backend<R, F, I, BT>, 4>; 3],
    forward: AttentionForward<Backend<R, F, I, BT>>,
    gradient: Tensor<Backend<R, F, I, BT>, 4>,
    options: &AttentionOptions,
) -> [Tensor<Backend<R, F, I, BT>, 4>; 3]
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    if is_nothing(&inputs[0], &inputs[1]) {
        return reference::backward(inputs, gradient, options);
    }
    let sizes = AttentionSizes::of(inputs[0].dims(), inputs[1].dims());
    let heads = inputs.clone().map(|input| Heads::new(primitive(input), 0));
    let Some(launch) = Launch::new(heads, sizes, options) else {
        return reference::backward(inputs, gradient, options);
    };
    let results = inputs.map(|input| Heads {
        tensor: empty_beside(&launch.inputs[0].tensor, &input.dims(), launch.dtype()),
        first: 0,
    });
    launch.backward(
        primitive(forward.output),
        primitive(forward.log_sum_exp),
        primitive(gradient),
        &results,
    );
    results.map(|heads| float(heads.tensor))
}

pub(crate) fn packed_forward<R, F, I, BT>(
    packed: Tensor<Backend<R, F, I, BT>, 4>,
    heads: PackedHeads,
    options: &AttentionOptions,
) -> AttentionForward<Backend<R, F, I, BT>>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    if packed.shape().num_elements() > 0 {
        let sizes = AttentionSizes::of_packed(packed.dims(), heads);
        let parts = parts(primitive(packed.clone()), heads);
        if let Some(launch) = Launch::new(parts, sizes, options) {
            return result(launch.forward());
        }
    }
    reference::forward(unpack(packed, heads), options)
}

pub(crate) fn packed_backward<R, F, I, BT>(
    packed: Tensor<Backend<R, F, I, BT>, 4>,
    heads: PackedHeads,
    forward: AttentionForward<Backend<R, F, I, BT>>,
    gradient: Tensor<Backend<R, F, I, BT>, 4>,
    options: &AttentionOptions,
) -> Tensor<Backend<R, F, I, BT>, 4>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    if packed.shape().num_elements() == 0 {
        return packed;
    }
    let (dims, sizes) = (packed.dims(), AttentionSizes::of_packed(packed.dims(), heads));
    let inputs = parts(primitive(packed.clone()), heads);
    let Some(launch) = Launch::new(inputs, sizes, options) else {
        let gradients = reference::backward(unpack(packed, heads), gradient, options);
        return Tensor::cat(gradients.to_vec(), 2);
    };
    let result = empty_beside(&launch.inputs[0].tensor, &dims, launch.dtype());
    launch.backward(
        primitive(forward.output),
        primitive(forward.log_sum_exp),
        primitive(gradient),
        &parts(result.clone(), heads),
    );
    float(result)
}
