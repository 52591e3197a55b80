//! The kernels that need no matrix units and no plane operations, and the one that both backward passes begin with.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::heads::{Heads, array};
use super::problem::{BackwardLaunch, Launch};
use crate::cube::launch::empty_beside;
use crate::flash_attention::AttentionSizes;
use crate::flash_attention::portable::tile::{Pass, Tile};
use crate::flash_attention::portable::{SIDE, UNITS, backward, bias, forward};

impl Launch<'_> {
    fn tile(&self, pass: Pass) -> Tile {
        Tile::new(pass, self.sizes.d_head, self.options.dropout.is_some())
    }

    /// Output and statistics.
    pub fn portable_forward(&self, vector_size: usize) -> [CubeTensor; 2] {
        let [output, log_sum_exp] = self.outputs();
        let output_heads = Heads::new(output.clone(), 0);
        let tile = self.tile(Pass::Forward);
        let [query, key, value] = &self.inputs;
        // SAFETY: every index is checked against queries, keys and `d_head`, whose tensors these are.
        unsafe {
            forward::attend::launch_unchecked(
                self.client(),
                self.cubes(self.sizes.queries, tile.queries, self.sizes.heads),
                CubeDim::new_1d(UNITS as u32),
                self.address_type(&[&output]),
                vector_size,
                query.array(),
                key.array(),
                value.array(),
                output_heads.array(),
                array(&log_sum_exp),
                self.forward_places(&output_heads),
                self.problem(),
                self.ranges(),
                self.bias(),
                self.dropped(),
                tile,
                self.elem_type(),
            );
        }
        [output, log_sum_exp]
    }

    /// Each query's product of its output and the output's gradient; makes `query_sums` 0.
    pub fn row_products(
        &self,
        output: &Heads,
        gradient: &Heads,
        query_sums: Option<&CubeTensor>,
        vector_size: usize,
        address_type: AddressType,
    ) -> CubeTensor {
        let AttentionSizes {
            batch,
            queries,
            heads,
            d_head,
            ..
        } = self.sizes;
        let along = self.statistics();
        let rows = batch * heads * queries;
        let blocks = rows.div_ceil(SIDE);
        let width = blocks.min(self.client().properties().hardware.max_cube_count.0 as usize);
        // SAFETY: every index is checked against rows, `d_head` and the number of sums, whose tensors these are.
        unsafe {
            backward::dot::launch_unchecked(
                self.client(),
                CubeCount::Static(width as u32, blocks.div_ceil(width) as u32, 1),
                CubeDim::new_1d(UNITS as u32),
                address_type,
                vector_size,
                output.array(),
                gradient.array(),
                array(&along),
                query_sums.map(array).into(),
                output.places(),
                gradient.places(),
                query_sums.map_or(0, |sums| sums.meta.shape().num_elements() / 4),
                queries,
                heads,
                rows,
                d_head,
                self.elem_type(),
            );
        }
        along
    }

    /// The gradients of keys and values, and of queries.
    pub fn portable_backward(&self, pass: &BackwardLaunch<'_>) {
        let dim = CubeDim::new_1d(UNITS as u32);
        let [query, key, value] = &self.inputs;
        let [of_query, of_key, of_value] = pass.results;
        let tile = self.tile(Pass::KeyGradients);
        // SAFETY: every index is checked against queries, keys and `d_head`, whose tensors these are.
        unsafe {
            backward::key_gradients::launch_unchecked(
                self.client(),
                self.cubes(self.sizes.keys, tile.keys, self.sizes.kv_heads),
                dim,
                pass.address_type,
                pass.vector_size,
                query.array(),
                key.array(),
                value.array(),
                pass.gradient.array(),
                array(&pass.log_sum_exp),
                array(&pass.along),
                of_key.array(),
                of_value.array(),
                self.backward_places(pass),
                self.problem(),
                self.ranges(),
                self.bias(),
                self.dropped(),
                tile,
                self.elem_type(),
            );
        }
        let tile = self.tile(Pass::QueryGradients);
        // SAFETY: as above.
        unsafe {
            backward::query_gradients::launch_unchecked(
                self.client(),
                self.cubes(self.sizes.queries, tile.queries, self.sizes.heads),
                dim,
                pass.address_type,
                pass.vector_size,
                query.array(),
                key.array(),
                value.array(),
                pass.gradient.array(),
                array(&pass.log_sum_exp),
                array(&pass.along),
                of_query.array(),
                self.backward_places(pass),
                self.problem(),
                self.ranges(),
                self.bias(),
                self.dropped(),
                tile,
                self.elem_type(),
            );
        }
    }

    /// The gradient of the bias.
    pub fn bias_gradient(&self, pass: &BackwardLaunch<'_>) -> CubeTensor {
        let AttentionSizes { batch, heads, .. } = self.sizes;
        let [query, key, value] = &self.inputs;
        let distances = self.sizes.distances();
        let of_bias = empty_beside(&query.tensor, &[heads, distances], DType::F32);
        let bands = distances.div_ceil(bias::BAND);
        // SAFETY: every index is checked against queries, keys, `d_head` and distances, whose tensors these are.
        unsafe {
            bias::bias_gradient::launch_unchecked(
                self.client(),
                CubeCount::Static(bands as u32, heads as u32, 1),
                CubeDim::new_1d(UNITS as u32),
                pass.address_type,
                pass.vector_size,
                query.array(),
                key.array(),
                value.array(),
                pass.gradient.array(),
                array(&pass.log_sum_exp),
                array(&pass.along),
                array(&of_bias),
                self.backward_places(pass),
                self.problem(),
                self.ranges(),
                self.bias(),
                self.dropped(),
                batch,
                self.tile(Pass::QueryGradients),
                self.elem_type(),
            );
        }
        of_bias
    }
}
