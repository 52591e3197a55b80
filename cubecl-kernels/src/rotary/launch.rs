//! Launches the kernels of the split and the rotation, for tensors that have elements.

use burn::tensor::DType;
use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;

use super::kernel::{self, SizesLaunch};
use super::{Angles, Direction, RotaryHeads};
use crate::cube::launch::{address_type, empty_beside};
use crate::cube::walk::RowWalk;

/// Returns all query heads, all key heads and all value heads; queries and keys rotated.
pub(crate) fn forward(input: CubeTensor, angles: Option<Angles<CubeTensor>>) -> CubeTensor {
    let shape @ [tokens, _, _, d_head] = [0, 1, 2, 3].map(|dimension| input.meta.shape()[dimension]);
    let heads = RotaryHeads::of(shape);
    let output = empty_beside(&input, &[tokens, heads.total(), d_head], input.dtype);
    let pass = Pass {
        tokens,
        heads,
        d_head,
        direction: Direction::Forward,
    };
    pass.run(input, angles, output)
}

/// Returns the input's gradient for the output's.
pub(crate) fn backward(gradient: CubeTensor, heads: RotaryHeads, angles: Option<Angles<CubeTensor>>) -> CubeTensor {
    let [tokens, d_head] = [0, 2].map(|dimension| gradient.meta.shape()[dimension]);
    let shape = [tokens, heads.groups, heads.queries + 2, d_head];
    let output = empty_beside(&gradient, &shape, gradient.dtype);
    let pass = Pass {
        tokens,
        heads,
        d_head,
        direction: Direction::Backward,
    };
    pass.run(gradient, angles, output)
}

/// A pass over all tokens' heads.
struct Pass {
    tokens: usize,
    heads: RotaryHeads,
    d_head: usize,
    direction: Direction,
}

impl Pass {
    fn run(self, input: CubeTensor, angles: Option<Angles<CubeTensor>>, output: CubeTensor) -> CubeTensor {
        let input = into_contiguous(input);
        let (client, dtype) = (input.client.clone(), input.dtype);
        let half = angles.as_ref().map_or(0, |angles| angles.cosine.meta.shape()[1]);
        let vector_size = self.vector_size(&client, dtype, half);
        let vectors = self.d_head / vector_size;
        let pairs = vectors.div_ceil(2);
        let walk = RowWalk::of_vectors(&client, self.tokens, vector_size, self.heads.total() * pairs);
        let sizes = SizesLaunch::new(
            self.tokens,
            self.heads.groups,
            self.heads.queries,
            vectors,
            pairs,
            half / vector_size,
        );
        let Some(angles) = angles else {
            // SAFETY: the kernel bounds tokens and vectors by those of the input, which the output has too.
            unsafe {
                kernel::split::launch_unchecked(
                    &client,
                    walk.cube_count(),
                    walk.cube_dim(),
                    address_type(&[&input]),
                    vector_size,
                    input.into_buffer_arg(),
                    output.clone().into_buffer_arg(),
                    sizes,
                    self.direction,
                    dtype_to_elem_type(dtype),
                );
            }
            return output;
        };
        let num_positions = angles.cosine.meta.shape()[0];
        let [cosine, sine, positions] = [angles.cosine, angles.sine, angles.positions].map(into_contiguous);
        let dtypes = [dtype, positions.dtype].map(dtype_to_elem_type);
        // SAFETY: as above; there is a position for each token, and rows of the tables are bounded by their number.
        unsafe {
            kernel::rotate::launch_unchecked(
                &client,
                walk.cube_count(),
                walk.cube_dim(),
                address_type(&[&input, &cosine]),
                vector_size,
                input.into_buffer_arg(),
                cosine.into_buffer_arg(),
                sine.into_buffer_arg(),
                positions.into_buffer_arg(),
                output.clone().into_buffer_arg(),
                sizes,
                num_positions,
                angles.layout,
                self.direction,
                dtypes,
            );
        }
        output
    }

    /// The most elements that the device loads at once and that divide a head and half a turn.
    fn vector_size(&self, client: &Client, dtype: DType, half: usize) -> usize {
        let mut sizes = client.io_optimized_vector_sizes(dtype.size());
        let fits = |size: &usize| self.d_head.is_multiple_of(*size) && half.is_multiple_of(*size);
        sizes.find(fits).unwrap_or(1)
    }
}
