//! The kernels that multiply on matrix units.

use burn::tensor::DType;
use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::tensor::CubeTensor;
use cubecl::features::{MmaConfig, Plane};
use cubecl::prelude::*;

use super::heads::{Heads, array};
use super::problem::Launch;
use crate::flash_attention::AttentionSizes;
use crate::flash_attention::matrix::{self, tile::LOAD};
use crate::precision::is_half;

impl Launch<'_> {
    /// Returns whether the matrix units take these inputs: 16 bits, heads of whole loads, and what the kernels are made
    /// of.
    pub fn has_matrix_units(&self, tile: matrix::tile::Tile) -> bool {
        let dtype = self.dtype();
        let (number, wide) = (self.elem_type(), dtype_to_elem_type(DType::F32));
        let product = MmaConfig {
            a_type: number,
            b_type: number,
            cd_type: wide,
            m: 16,
            n: 8,
            k: 16,
        };
        let properties = self.client().properties();
        let hardware = &properties.hardware;
        let features = &properties.features;
        is_half(dtype)
            && features.matmul.mma.contains(&product)
            && features.matmul.ldmatrix.contains(&number)
            && features.copy_async
            && features.plane.contains(Plane::Ops)
            && hardware.max_shared_memory_size >= tile.shared_memory()
            && (hardware.plane_size_min, hardware.plane_size_max) == (32, 32)
    }

    /// Output and statistics.
    pub fn matrix_forward(&self, tile: matrix::tile::Tile) -> [CubeTensor; 2] {
        let [output, log_sum_exp] = self.outputs();
        let [query, key, value] = &self.inputs;
        let AttentionSizes {
            batch, queries, heads, ..
        } = self.sizes;
        let blocks = queries.div_ceil(tile.staying());
        let output_heads = Heads::new(output.clone(), 0);
        // SAFETY: every index is checked against queries, keys and `d_head`, whose tensors these are.
        unsafe {
            matrix::forward::attend_mma::launch_unchecked(
                self.client(),
                CubeCount::Static(heads as u32, blocks as u32, batch as u32),
                CubeDim::new_1d(tile.units() as u32),
                self.address_type(&[&output]),
                LOAD,
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
}
