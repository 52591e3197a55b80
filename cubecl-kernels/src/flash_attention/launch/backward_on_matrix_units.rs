//! The backward pass on matrix units.

use burn::tensor::{DType, Shape};
use burn_cubecl::ops::numeric::zeros_client;
use burn_cubecl::ops::reshape;
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::features::AtomicUsage;
use cubecl::ir::{FloatKind, Type};
use cubecl::prelude::*;

use super::heads::array;
use super::problem::{BackwardLaunch, Launch};
use crate::cube::launch::empty_beside;
use crate::flash_attention::AttentionSizes;
use crate::flash_attention::matrix::backward::split::{Extras, KeysTile};
use crate::flash_attention::matrix::backward::{keys, queries, store};
use crate::flash_attention::matrix::tile::{LOAD, Tile};

/// A backward pass on matrix units.
pub(super) struct MatrixBackward {
    /// Tile of the kernel that keeps keys.
    keys: KeysTile,
    /// Tile of the kernel that keeps queries.
    queries: Tile,
    /// Sums of the gradients of queries, if these have no kernel of their own.
    pub query_sums: Option<CubeTensor>,
    /// Sums of the gradient of the bias, if it has no kernel of its own.
    pub bias_sums: Option<CubeTensor>,
}

impl Launch<'_> {
    /// Returns how the backward pass runs on matrix units, if it does.
    pub fn matrix_backward_plan(&self, vector_size: usize, is_bias_wanted: bool) -> Option<MatrixBackward> {
        let hardware = &self.client().properties().hardware;
        let has_dropout = self.options.dropout.is_some();
        let extras = Extras {
            has_dropout,
            has_bias: self.bias.is_some(),
        };
        let keys = KeysTile::new(self.sizes.d_head, extras, hardware.max_shared_memory_size)?;
        let queries = Tile::backward(self.sizes.d_head, has_dropout);
        let blocks = [
            self.sizes.keys.div_ceil(keys.keys),
            self.sizes.queries.div_ceil(queries.staying()),
        ];
        let fits = vector_size == LOAD
            && self.has_matrix_units(queries)
            && blocks
                .iter()
                .all(|&blocks| blocks <= hardware.max_cube_count.1 as usize);
        let adds = !self.options.is_deterministic && self.adds_in_memory();
        fits.then(|| MatrixBackward {
            keys,
            queries,
            query_sums: adds.then(|| self.query_sums(&keys)),
            bias_sums: (adds && is_bias_wanted).then(|| self.bias_sums()),
        })
    }

    /// Returns whether cubes can add to the same numbers of f32.
    fn adds_in_memory(&self) -> bool {
        let number = Type::atomic(Type::new(FloatKind::F32));
        let usage = self.client().properties().atomic_type_usage(number);
        usage.contains(AtomicUsage::Add)
    }

    /// A place for the sums of the gradients of queries, not yet written.
    fn query_sums(&self, tile: &KeysTile) -> CubeTensor {
        let AttentionSizes {
            batch, heads, queries, ..
        } = self.sizes;
        let shape = [batch, heads, tile.query_rows(queries), tile.width];
        empty_beside(&self.inputs[0].tensor, &shape, DType::F32)
    }

    /// A place for the sums of the gradient of the bias, all 0.
    fn bias_sums(&self) -> CubeTensor {
        let (tensor, distances) = (&self.inputs[0].tensor, self.sizes.distances());
        let (client, device) = (tensor.client.clone(), tensor.device.clone());
        // Rows of a matrix would not follow each other.
        let numbers = Shape::from([self.sizes.heads * distances]);
        let sums = zeros_client(client, device, numbers, DType::F32);
        reshape(sums, Shape::from([self.sizes.heads, distances]))
    }

    /// The gradients of keys and values, and of queries.
    pub fn matrix_backward(&self, plan: &MatrixBackward, pass: &BackwardLaunch<'_>) {
        self.matrix_key_gradients(plan, pass);
        match &plan.query_sums {
            Some(sums) => self.finish_query_gradients(plan, sums, pass),
            None => self.matrix_query_gradients(plan, pass),
        }
    }

    /// The gradients of keys and values; adds those of queries to their sums, if there are any.
    fn matrix_key_gradients(&self, plan: &MatrixBackward, pass: &BackwardLaunch<'_>) {
        let tile = plan.keys;
        let [query, key, value] = &self.inputs;
        let [_, of_key, of_value] = pass.results;
        let blocks = self.sizes.keys.div_ceil(tile.keys);
        // SAFETY: every index is checked against queries, keys and `d_head`, whose tensors these are.
        unsafe {
            keys::gradients_mma::launch_unchecked(
                self.client(),
                self.heads_first(self.sizes.kv_heads, blocks),
                CubeDim::new_1d(tile.units() as u32),
                pass.address_type,
                LOAD,
                2,
                query.array(),
                key.array(),
                value.array(),
                pass.gradient.array(),
                array(&pass.log_sum_exp),
                array(&pass.along),
                plan.query_sums.as_ref().map(array).into(),
                plan.bias_sums.as_ref().map(array).into(),
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
    }

    /// The gradients of queries from their sums.
    fn finish_query_gradients(&self, plan: &MatrixBackward, sums: &CubeTensor, pass: &BackwardLaunch<'_>) {
        let AttentionSizes {
            batch,
            queries,
            heads,
            d_head,
            ..
        } = self.sizes;
        let [of_query, ..] = pass.results;
        let units = batch * heads * queries * (d_head / LOAD);
        let dim = CubeDim::new_1d(256);
        // SAFETY: every index is checked against rows and `d_head`, whose tensors these are.
        unsafe {
            store::finish_queries::launch_unchecked(
                self.client(),
                calculate_cube_count_elemwise(self.client(), units, dim),
                dim,
                pass.address_type,
                LOAD,
                array(sums),
                of_query.array(),
                of_query.places(),
                queries,
                heads,
                plan.keys.query_rows(queries),
                d_head,
                units,
                self.options.scale as f32,
                plan.keys.width,
                self.elem_type(),
            );
        }
    }

    /// The gradients of queries, each summed in one order.
    fn matrix_query_gradients(&self, plan: &MatrixBackward, pass: &BackwardLaunch<'_>) {
        let tile = plan.queries;
        let [query, key, value] = &self.inputs;
        let [of_query, ..] = pass.results;
        let blocks = self.sizes.queries.div_ceil(tile.staying());
        // SAFETY: as of the gradients of keys and values.
        unsafe {
            queries::query_gradients_mma::launch_unchecked(
                self.client(),
                self.heads_first(self.sizes.heads, blocks),
                CubeDim::new_1d(tile.units() as u32),
                pass.address_type,
                LOAD,
                2,
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

    /// A cube for each block of each head of each sample: heads side by side, so that long blocks start before short
    /// ones of any head.
    fn heads_first(&self, heads: usize, blocks: usize) -> CubeCount {
        CubeCount::Static(heads as u32, blocks as u32, self.sizes.batch as u32)
    }
}
