//! Which kernels run for an attention, on what tiles; called by the CubeCL backends' `KernelBackend`.

use burn::tensor::{DType, Shape, Tensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::client::ComputeClient;
use cubecl::features::{MmaConfig, Plane};
use cubecl::prelude::*;

use super::device::ProblemLaunch;
use super::host::AttentionSizes;
use super::matrix::{self, tile::LOAD};
use super::portable::tile::{Pass, Tile};
use super::portable::{SIDE, UNITS, backward, forward};
use super::reference::is_nothing;
use super::{AttentionForward, AttentionOptions, PackedHeads, Sight, reference, unpack};
use crate::cube::dropout::{DropoutLaunch, DroppedRowsLaunch, dropped_rows_argument};
use crate::precision::is_half;
use crate::tape::{float, primitive};

type Backend<R, F, I, BT> = CubeBackend<R, F, I, BT>;

/// The most cubes in each dimension that every runtime takes.
const MOST_CUBES: usize = 65_535;
/// The shared memory that the kernels use at most, in bytes.
const SHARED_MEMORY: usize = 32 * 1024;

/// Queries, keys, values or gradients: some of the heads of a tensor `[batch, seq, n, d_head]`.
#[derive(Clone)]
struct Heads<R: CubeRuntime> {
    tensor: CubeTensor<R>,
    /// Which is the first one.
    first: usize,
}

impl<R: CubeRuntime> Heads<R> {
    /// Those of a tensor whose last dimension may not lie contiguous.
    fn new(tensor: CubeTensor<R>, first: usize) -> Self {
        let is_dense = tensor.meta.strides()[3] == 1 || tensor.meta.shape()[3] == 1;
        let tensor = if is_dense { tensor } else { into_contiguous(tensor) };
        Self { tensor, first }
    }

    /// Where the first element lies.
    fn start(&self) -> usize {
        self.first * self.tensor.meta.strides()[2]
    }

    /// Whether every head begins at a multiple of this many elements.
    fn is_aligned(&self, size: usize) -> bool {
        let (shape, strides) = (self.tensor.meta.shape(), self.tensor.meta.strides());
        let are_strides = (0..3).all(|dim| shape[dim] <= 1 || strides[dim].is_multiple_of(size));
        are_strides && self.start().is_multiple_of(size)
    }

    fn arg(&self) -> TensorArg<R> {
        self.tensor.clone().into_tensor_arg()
    }
}

/// One attention on a device.
struct Launch<'a, R: CubeRuntime> {
    sizes: AttentionSizes,
    options: &'a AttentionOptions,
    inputs: [Heads<R>; 3],
}

impl<'a, R: CubeRuntime> Launch<'a, R> {
    /// Where the kernels run for these inputs; elsewhere the reference does.
    fn new(inputs: [Heads<R>; 3], sizes: AttentionSizes, options: &'a AttentionOptions) -> Option<Self> {
        let [query, ..] = &inputs;
        let (client, dtype) = (&query.tensor.client, query.tensor.dtype);
        let properties = client.properties();
        let is_computed = matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
            && properties.supports_type(StorageType::from(dtype));
        let hardware = &properties.hardware;
        let is_room = hardware.max_shared_memory_size >= SHARED_MEMORY && hardware.max_units_per_cube as usize >= UNITS;
        let AttentionSizes {
            batch,
            queries,
            keys,
            heads,
            ..
        } = sizes;
        let blocks = queries.max(keys).div_ceil(SIDE);
        let are_cubes = [batch, heads, blocks].into_iter().all(|count| count <= MOST_CUBES);
        (is_computed && is_room && are_cubes).then_some(Self { sizes, options, inputs })
    }

    fn client(&self) -> &ComputeClient<R> {
        &self.inputs[0].tensor.client
    }

    fn dtype(&self) -> DType {
        self.inputs[0].tensor.dtype
    }

    fn empty(&self, shape: [usize; 4], dtype: DType) -> CubeTensor<R> {
        let tensor = &self.inputs[0].tensor;
        empty_device_contiguous_dtype(
            tensor.client.clone(),
            tensor.device.clone(),
            Shape::from(shape.to_vec()),
            dtype,
        )
    }

    fn statistics(&self) -> CubeTensor<R> {
        let AttentionSizes {
            batch, queries, heads, ..
        } = self.sizes;
        let tensor = &self.inputs[0].tensor;
        let shape = Shape::from(vec![batch, heads, queries]);
        empty_device_contiguous_dtype(tensor.client.clone(), tensor.device.clone(), shape, DType::F32)
    }

    /// Numbers to a load: as many as lie aligned in all tensors that are read.
    fn vector_size(&self, others: &[&Heads<R>]) -> usize {
        let mut sizes = self.client().io_optimized_vector_sizes(self.dtype().size());
        let fits = |size: &usize| {
            let mut tensors = self.inputs.iter().chain(others.iter().copied());
            self.sizes.d_head.is_multiple_of(*size) && tensors.all(|heads| heads.is_aligned(*size))
        };
        sizes.find(fits).unwrap_or(1)
    }

    /// The type that indexes all these tensors.
    fn address_type(&self, others: &[&CubeTensor<R>]) -> AddressType {
        let tensors = self.inputs.iter().map(|heads| &heads.tensor);
        let types = tensors
            .chain(others.iter().copied())
            .map(CubeTensor::required_address_type);
        types.max().unwrap_or_default()
    }

    fn cubes(&self, length: usize, block: usize, heads: usize) -> CubeCount {
        let blocks = length.div_ceil(block);
        CubeCount::Static(blocks as u32, heads as u32, self.sizes.batch as u32)
    }

    fn tile(&self, pass: Pass) -> Tile {
        Tile::new(pass, self.sizes.d_head, self.options.dropout.is_some())
    }

    /// What the kernels are told; `results` are where gradients go.
    fn problem(&self, results: [usize; 3]) -> ProblemLaunch<R> {
        let [query, key, value] = self.inputs.each_ref().map(Heads::start);
        let [of_query, of_key, of_value] = results;
        let is_causal = self.options.sight == Sight::Causal;
        ProblemLaunch::new(
            self.sizes.queries,
            self.sizes.keys,
            self.sizes.heads / self.sizes.kv_heads,
            self.sizes.d_head,
            u32::from(is_causal),
            self.options.scale as f32,
            f32::NEG_INFINITY,
            query,
            key,
            value,
            of_query,
            of_key,
            of_value,
        )
    }

    fn dropped(&self) -> DroppedRowsLaunch<R> {
        match &self.options.dropout {
            Some(dropout) => dropped_rows_argument(self.client(), dropout),
            None => {
                // SAFETY: kernels without dropout do not read it, so that any buffer does.
                let places = unsafe { ArrayArg::from_raw_parts(self.inputs[0].tensor.handle.clone(), 1) };
                DroppedRowsLaunch::new(DropoutLaunch::new(0, 0, 0, 0, 1.0, 0), places)
            }
        }
    }

    /// Whether the matrix units take these inputs: 16 bits, heads of whole loads, and what the kernels are made of.
    fn has_matrix_units(&self, tile: matrix::tile::Tile) -> bool {
        let dtype = self.dtype();
        let storage = StorageType::from(dtype);
        let product = MmaConfig {
            a_type: storage,
            b_type: storage,
            cd_type: StorageType::from(DType::F32),
            m: 16,
            n: 8,
            k: 16,
        };
        let properties = self.client().properties();
        let hardware = &properties.hardware;
        let features = &properties.features;
        is_half(dtype)
            && features.matmul.mma.contains(&product)
            && features.matmul.ldmatrix.contains(&storage)
            && features.copy_async
            && features.plane.contains(Plane::Ops)
            && hardware.max_shared_memory_size >= tile.shared_memory()
            && (hardware.plane_size_min, hardware.plane_size_max) == (32, 32)
    }

    /// As [`forward`](Self::forward), on matrix units.
    fn matrix_forward(&self, tile: matrix::tile::Tile) -> [CubeTensor<R>; 2] {
        let AttentionSizes {
            batch,
            queries,
            heads,
            d_head,
            ..
        } = self.sizes;
        let output = self.empty([batch, queries, heads, d_head], self.dtype());
        let log_sum_exp = self.statistics();
        let [query, key, value] = &self.inputs;
        // SAFETY: every index is checked against queries, keys and `d_head`, whose tensors these are.
        unsafe {
            matrix::forward::attend_mma::launch_unchecked::<R>(
                self.client(),
                self.cubes(queries, tile.staying(), heads),
                CubeDim::new_1d(tile.units() as u32),
                self.address_type(&[&output]),
                LOAD,
                2,
                query.arg(),
                key.arg(),
                value.arg(),
                output.clone().into_tensor_arg(),
                log_sum_exp.clone().into_tensor_arg(),
                self.problem([0; 3]),
                self.dropped(),
                tile,
                self.dtype().into(),
            );
        }
        [output, log_sum_exp]
    }

    /// The gradients of keys and values, and of queries, on matrix units; `statistics` are the rows' `log Σ exp` and the
    /// products of outputs and their gradients.
    fn matrix_backward(
        &self,
        tile: matrix::tile::Tile,
        gradient: &Heads<R>,
        statistics: [CubeTensor<R>; 2],
        results: &[Heads<R>; 3],
        address_type: AddressType,
    ) {
        let [query, key, value] = &self.inputs;
        let [of_query, of_key, of_value] = results;
        let AttentionSizes {
            batch,
            queries,
            keys,
            heads,
            kv_heads,
            ..
        } = self.sizes;
        let parts = tile.width.div_ceil(tile.part());
        for (keeps_keys, length, kept_heads, kept, passing, of) in [
            (
                true,
                keys,
                kv_heads,
                [key, value],
                [query, gradient],
                [of_key, of_value],
            ),
            (
                false,
                queries,
                heads,
                [query, gradient],
                [key, value],
                [of_query, of_query],
            ),
        ] {
            let blocks = length.div_ceil(tile.staying()) * parts;
            // SAFETY: every index is checked against queries, keys and `d_head`, whose tensors these are.
            unsafe {
                matrix::backward::gradients_mma::launch_unchecked::<R>(
                    self.client(),
                    CubeCount::Static(blocks as u32, kept_heads as u32, batch as u32),
                    CubeDim::new_1d(tile.units() as u32),
                    address_type,
                    LOAD,
                    2,
                    kept[0].arg(),
                    kept[1].arg(),
                    passing[0].arg(),
                    passing[1].arg(),
                    statistics[0].clone().into_tensor_arg(),
                    statistics[1].clone().into_tensor_arg(),
                    of[0].arg(),
                    of[1].arg(),
                    self.problem(results.each_ref().map(Heads::start)),
                    self.dropped(),
                    tile,
                    keeps_keys,
                    self.dtype().into(),
                );
            }
        }
    }

    /// Output and statistics.
    fn forward(&self) -> [CubeTensor<R>; 2] {
        let AttentionSizes {
            batch,
            queries,
            heads,
            d_head,
            ..
        } = self.sizes;
        let vector_size = self.vector_size(&[]);
        let matrix_tile = matrix::tile::Tile::forward(d_head, self.options.dropout.is_some());
        if vector_size == LOAD && self.has_matrix_units(matrix_tile) {
            return self.matrix_forward(matrix_tile);
        }
        let output = self.empty([batch, queries, heads, d_head], self.dtype());
        let log_sum_exp = self.statistics();
        let tile = self.tile(Pass::Forward);
        let [query, key, value] = &self.inputs;
        // SAFETY: every index is checked against queries, keys and `d_head`, whose tensors these are.
        unsafe {
            forward::attend::launch_unchecked::<R>(
                self.client(),
                self.cubes(queries, tile.queries, heads),
                CubeDim::new_1d(UNITS as u32),
                self.address_type(&[&output]),
                vector_size,
                query.arg(),
                key.arg(),
                value.arg(),
                output.clone().into_tensor_arg(),
                log_sum_exp.clone().into_tensor_arg(),
                self.problem([0; 3]),
                self.dropped(),
                tile,
                self.dtype().into(),
            );
        }
        [output, log_sum_exp]
    }

    /// Writes the gradients into `results`.
    fn backward(
        &self,
        output: CubeTensor<R>,
        log_sum_exp: CubeTensor<R>,
        gradient: CubeTensor<R>,
        results: &[Heads<R>; 3],
    ) {
        let AttentionSizes {
            batch,
            queries,
            keys,
            heads,
            kv_heads,
            d_head,
        } = self.sizes;
        let (output, gradient) = (Heads::new(output, 0), Heads::new(gradient, 0));
        let vector_size = self.vector_size(&[&output, &gradient]);
        let log_sum_exp = into_contiguous(log_sum_exp);
        let along = self.statistics();
        let rows = batch * heads * queries;
        let blocks = rows.div_ceil(SIDE);
        let width = blocks.min(MOST_CUBES);
        let cubes = CubeCount::Static(width as u32, blocks.div_ceil(width) as u32, 1);
        let address_type = self.address_type(&[
            &output.tensor,
            &gradient.tensor,
            &results[0].tensor,
            &results[1].tensor,
            &results[2].tensor,
        ]);
        let dim = CubeDim::new_1d(UNITS as u32);
        let [query, key, value] = &self.inputs;
        let [of_query, of_key, of_value] = results;
        let starts = results.each_ref().map(Heads::start);
        // SAFETY: every index is checked against rows, queries, keys and `d_head`, whose tensors these are.
        unsafe {
            backward::dot::launch_unchecked::<R>(
                self.client(),
                cubes,
                dim,
                address_type,
                vector_size,
                output.arg(),
                gradient.arg(),
                along.clone().into_tensor_arg(),
                queries,
                heads,
                rows,
                d_head,
                self.dtype().into(),
            );
            let matrix_tile = matrix::tile::Tile::backward(d_head, self.options.dropout.is_some());
            if vector_size == LOAD && self.has_matrix_units(matrix_tile) {
                return self.matrix_backward(matrix_tile, &gradient, [log_sum_exp, along], results, address_type);
            }
            let tile = self.tile(Pass::KeyGradients);
            backward::key_gradients::launch_unchecked::<R>(
                self.client(),
                self.cubes(keys, tile.keys, kv_heads),
                dim,
                address_type,
                vector_size,
                query.arg(),
                key.arg(),
                value.arg(),
                gradient.arg(),
                log_sum_exp.clone().into_tensor_arg(),
                along.clone().into_tensor_arg(),
                of_key.arg(),
                of_value.arg(),
                self.problem(starts),
                self.dropped(),
                tile,
                self.dtype().into(),
            );
            let tile = self.tile(Pass::QueryGradients);
            backward::query_gradients::launch_unchecked::<R>(
                self.client(),
                self.cubes(queries, tile.queries, heads),
                dim,
                address_type,
                vector_size,
                query.arg(),
                key.arg(),
                value.arg(),
                gradient.arg(),
                log_sum_exp.into_tensor_arg(),
                along.into_tensor_arg(),
                of_query.arg(),
                self.problem(starts),
                self.dropped(),
                tile,
                self.dtype().into(),
            );
        }
    }
}

/// The sizes of an attention of three tensors.
fn sizes(query: [usize; 4], key: [usize; 4]) -> AttentionSizes {
    let [batch, queries, heads, d_head] = query;
    let [_, keys, kv_heads, _] = key;
    AttentionSizes {
        batch,
        queries,
        keys,
        heads,
        kv_heads,
        d_head,
    }
}

/// The three parts of a packed tensor.
fn parts<R: CubeRuntime>(packed: CubeTensor<R>, heads: PackedHeads) -> [Heads<R>; 3] {
    let packed = Heads::new(packed, 0).tensor;
    [0, heads.queries, heads.queries + heads.keys].map(|first| Heads {
        tensor: packed.clone(),
        first,
    })
}

/// The sizes of an attention of a packed tensor.
fn packed_sizes([batch, seq, _, d_head]: [usize; 4], heads: PackedHeads) -> AttentionSizes {
    AttentionSizes {
        batch,
        queries: seq,
        keys: seq,
        heads: heads.queries,
        kv_heads: heads.keys,
        d_head,
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
    let sizes = sizes(inputs[0].dims(), inputs[1].dims());
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
    let sizes = sizes(inputs[0].dims(), inputs[1].dims());
    let heads = inputs.clone().map(|input| Heads::new(primitive(input), 0));
    let Some(launch) = Launch::new(heads, sizes, options) else {
        return reference::backward(inputs, gradient, options);
    };
    let results = inputs.map(|input| Heads {
        tensor: launch.empty(input.dims(), launch.dtype()),
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
        let sizes = packed_sizes(packed.dims(), heads);
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
    let (dims, sizes) = (packed.dims(), packed_sizes(packed.dims(), heads));
    let inputs = parts(primitive(packed.clone()), heads);
    let Some(launch) = Launch::new(inputs, sizes, options) else {
        let gradients = reference::backward(unpack(packed, heads), gradient, options);
        return Tensor::cat(gradients.to_vec(), 2);
    };
    let result = launch.empty(dims, launch.dtype());
    launch.backward(
        primitive(forward.output),
        primitive(forward.log_sum_exp),
        primitive(gradient),
        &parts(result.clone(), heads),
    );
    float(result)
}
