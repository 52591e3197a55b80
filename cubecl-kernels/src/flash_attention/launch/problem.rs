//! Arguments of every kernel of an attention, whichever units it runs on.

use burn::tensor::{DType, Device};
use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::prelude::*;

use super::heads::{Heads, array};
use super::ranges::ranges_argument;
use crate::cube::dropout::{DroppedRows, dropped_rows_argument};
use crate::cube::launch::{address_type, client_of, empty_beside, is_supported};
use crate::error::{Check, KernelError};
use crate::flash_attention::device::{
    BackwardPlacesLaunch, ForwardPlacesLaunch, KeyRanges, ProblemLaunch, RelativeBias, RelativeBiasLaunch,
};
use crate::flash_attention::portable::UNITS;
use crate::flash_attention::portable::tile::{Pass, Tile};
use crate::flash_attention::projections::Projections;
use crate::flash_attention::{AttentionOptions, AttentionSizes};

/// The shared memory that the portable kernels use at most, in bytes.
const SHARED_MEMORY: usize = 32 * 1024;

/// One attention on a device.
pub(super) struct Launch<'a> {
    pub sizes: AttentionSizes,
    pub options: &'a AttentionOptions,
    pub inputs: [Heads; 3],
    /// The relative bias, contiguous.
    pub bias: Option<CubeTensor>,
}

impl<'a> Launch<'a> {
    /// An attention whose sizes are [checked](check).
    pub fn new(inputs: Projections<CubeTensor>, bias: Option<CubeTensor>, options: &'a AttentionOptions) -> Self {
        Self {
            sizes: inputs.sizes(|input| input.meta.shape().dims()),
            options,
            inputs: Heads::of(inputs),
            bias: bias.map(into_contiguous),
        }
    }

    pub fn client(&self) -> &Client {
        &self.inputs[0].tensor.client
    }

    pub fn dtype(&self) -> DType {
        self.inputs[0].tensor.dtype
    }

    pub fn elem_type(&self) -> ElemType {
        dtype_to_elem_type(self.dtype())
    }

    /// A place for a number in f32 for each query of each head.
    pub fn statistics(&self) -> CubeTensor {
        let AttentionSizes {
            batch, queries, heads, ..
        } = self.sizes;
        empty_beside(&self.inputs[0].tensor, &[batch, heads, queries], DType::F32)
    }

    /// Places for output and row statistics.
    pub fn outputs(&self) -> [CubeTensor; 2] {
        let AttentionSizes {
            batch,
            queries,
            heads,
            d_head,
            ..
        } = self.sizes;
        let shape = [batch, queries, heads, d_head];
        let output = empty_beside(&self.inputs[0].tensor, &shape, self.dtype());
        [output, self.statistics()]
    }

    /// Returns the numbers per load: the most that are aligned in all tensors that are read.
    pub fn vector_size(&self, others: &[&Heads]) -> usize {
        let mut sizes = self.client().io_optimized_vector_sizes(self.dtype().size());
        let fits = |size: &usize| {
            let mut tensors = self.inputs.iter().chain(others.iter().copied());
            self.sizes.d_head.is_multiple_of(*size) && tensors.all(|heads| heads.is_aligned(*size))
        };
        sizes.find(fits).unwrap_or(1)
    }

    /// The type that indexes all these tensors.
    pub fn address_type(&self, others: &[&CubeTensor]) -> AddressType {
        let [query, key, value] = self.inputs.each_ref().map(|heads| &heads.tensor);
        let bias: Vec<&CubeTensor> = self.bias.iter().collect();
        address_type(&[&[query, key, value], others, &bias].concat())
    }

    /// A cube for each block of each head of each sample.
    pub fn cubes(&self, length: usize, block: usize, heads: usize) -> CubeCount {
        let blocks = length.div_ceil(block);
        CubeCount::Static(blocks as u32, heads as u32, self.sizes.batch as u32)
    }

    /// Places of a forward pass's inputs and output.
    pub fn forward_places(&self, output: &Heads) -> ForwardPlacesLaunch {
        let [query, key, value] = self.inputs.each_ref().map(Heads::places);
        ForwardPlacesLaunch::new(query, key, value, output.places())
    }

    /// Places of a backward pass's inputs and of the gradients.
    pub fn backward_places(&self, pass: &BackwardLaunch<'_>) -> BackwardPlacesLaunch {
        let [query, key, value] = self.inputs.each_ref().map(Heads::places);
        let [of_query, of_key, of_value] = pass.results.each_ref().map(Heads::places);
        BackwardPlacesLaunch::new(query, key, value, pass.gradient.places(), of_query, of_key, of_value)
    }

    /// Returns what the kernels know of the attention.
    pub fn problem(&self) -> ProblemLaunch {
        let is_causal = self.options.mask.is_causal() && !self.options.has_ranges();
        ProblemLaunch::new(
            self.sizes.queries,
            self.sizes.keys,
            self.sizes.heads / self.sizes.kv_heads,
            self.sizes.d_head,
            u32::from(is_causal),
            self.options.scale as f32,
            f32::NEG_INFINITY,
        )
    }

    /// Keys that queries see, where the mask does not say it all.
    pub fn ranges(&self) -> ComptimeOptionArgs<KeyRanges> {
        let has_ranges = self.options.has_ranges();
        has_ranges
            .then(|| ranges_argument(self.client(), self.options, self.sizes))
            .into()
    }

    /// The relative bias, where there is one.
    pub fn bias(&self) -> ComptimeOptionArgs<RelativeBias> {
        let bias = self.bias.as_ref();
        bias.map(|bias| RelativeBiasLaunch::new(array(bias))).into()
    }

    /// The dropout of the weights, where there is one.
    pub fn dropped(&self) -> ComptimeOptionArgs<DroppedRows> {
        let dropout = self.options.dropout.as_ref();
        dropout
            .map(|dropout| dropped_rows_argument(self.client(), dropout))
            .into()
    }
}

/// Checks that a device takes attention of these sizes, forward and backward: that its kernels do, if it has them.
///
/// Tiles for matrix units are larger than the portable ones, and devices that have them take more blocks than memory
/// holds.
pub(in super::super) fn check(
    device: &Device,
    check: Check,
    dtype: DType,
    sizes: AttentionSizes,
) -> Result<(), KernelError> {
    let Some(client) = client_of(device).filter(|client| is_supported(client, dtype)) else {
        return Ok(());
    };
    let hardware = &client.properties().hardware;
    let memory = hardware.max_shared_memory_size;
    check.value(
        "the device's shared memory in bytes",
        memory as f64,
        memory >= SHARED_MEMORY,
        || format!("{SHARED_MEMORY} or more"),
    )?;
    let units = hardware.max_units_per_cube;
    check.value(
        "the device's units of a cube",
        units.into(),
        units as usize >= UNITS,
        || format!("{UNITS} or more"),
    )?;
    let tile = |pass| Tile::new(pass, sizes.d_head, false);
    let queries = tile(Pass::Forward).queries.min(tile(Pass::QueryGradients).queries);
    let (x, y, z) = hardware.max_cube_count;
    for (what, count, most) in [
        ("the batch", sizes.batch, z as usize),
        ("the number of query heads", sizes.heads, y as usize),
        ("the number of queries", sizes.queries, x as usize * queries),
        (
            "the number of keys",
            sizes.keys,
            x as usize * tile(Pass::KeyGradients).keys,
        ),
    ] {
        check.value(what, count as f64, count <= most, || {
            format!("at most {most} on this device")
        })?;
    }
    Ok(())
}

/// Tensors that a backward pass reads in addition to the inputs, and those that it writes.
pub(super) struct BackwardLaunch<'a> {
    /// Gradient of the output.
    pub gradient: &'a Heads,
    /// `log Σ exp` of the rows of scores.
    pub log_sum_exp: CubeTensor,
    /// The products of outputs and their gradients.
    pub along: CubeTensor,
    /// The gradients of queries, keys and values.
    pub results: &'a [Heads; 3],
    /// Numbers to a load.
    pub vector_size: usize,
    /// Type that indexes all these tensors.
    pub address_type: AddressType,
}
