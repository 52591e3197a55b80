//! Where a kernel finds the heads that it reads or writes.

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::flash_attention::device::HeadsAtLaunch;
use crate::flash_attention::projections::Projections;

/// Queries, keys, values or gradients: some of the heads of a tensor `[batch, seq, n, d_head]`.
#[derive(Clone)]
pub(super) struct Heads {
    pub tensor: CubeTensor,
    /// Number of the first one.
    pub first: usize,
}

impl Heads {
    /// Heads of a tensor whose last dimension may not be contiguous.
    pub fn new(tensor: CubeTensor, first: usize) -> Self {
        let is_dense = tensor.meta.strides()[3] == 1 || tensor.meta.shape()[3] == 1;
        let tensor = if is_dense { tensor } else { into_contiguous(tensor) };
        Self { tensor, first }
    }

    /// Heads of queries, keys and values.
    pub fn of(inputs: Projections<CubeTensor>) -> [Self; 3] {
        match inputs {
            Projections::Separate(tensors) => tensors.map(|tensor| Self::new(tensor, 0)),
            Projections::Packed(packed, heads) => {
                let tensor = Self::new(packed, 0).tensor;
                heads.parts().map(|(first, _)| Self {
                    tensor: tensor.clone(),
                    first,
                })
            }
        }
    }

    /// Returns the offset of the first element.
    fn start(&self) -> usize {
        self.first * self.tensor.meta.strides()[2]
    }

    /// Returns whether every head begins at a multiple of this many elements.
    pub fn is_aligned(&self, size: usize) -> bool {
        let (shape, strides) = (self.tensor.meta.shape(), self.tensor.meta.strides());
        let are_strides = (0..3).all(|dim| shape[dim] <= 1 || strides[dim].is_multiple_of(size));
        are_strides && self.start().is_multiple_of(size)
    }

    /// The whole buffer.
    pub fn array(&self) -> BufferArg {
        array(&self.tensor)
    }

    /// Where the heads are in it.
    pub fn places(&self) -> HeadsAtLaunch {
        let strides = self.tensor.meta.strides();
        HeadsAtLaunch::new(self.start(), strides[0], strides[1], strides[2])
    }
}

/// A tensor's buffer, for kernels that take the strides as numbers: no shape is copied to the device then.
pub(super) fn array(tensor: &CubeTensor) -> BufferArg {
    let numbers = tensor.handle.size_in_used() as usize / tensor.dtype.size();
    // SAFETY: the buffer holds them.
    unsafe { BufferArg::from_raw_parts(tensor.handle.clone(), numbers) }
}
