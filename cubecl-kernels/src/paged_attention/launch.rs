//! Launches the kernels of paged attention.

use burn::tensor::DType;
use burn_cubecl::{CubeRuntime, tensor::CubeTensor};
use cubecl::calculate_cube_count_elemwise;
use cubecl::client::ComputeClient;
use cubecl::prelude::*;

use super::PagedSizes;
use super::kernel::{self, ProblemLaunch, Tile, UNITS};
use crate::cube::launch::{address_type, empty_beside, into_contiguous, is_integer, is_supported, vector_size};

/// Rows of a cube, at most.
const MOST_ROWS: usize = 8;
/// Cubes for each multiprocessor, where there are enough keys.
const CUBES_EACH: usize = 4;
/// Keys of a split, at least, if there is more than one.
const LEAST_SPLIT: usize = 2 * UNITS;

/// Query, keys and values, block table and lengths.
pub(crate) struct Inputs<R: CubeRuntime> {
    pub tensors: [CubeTensor<R>; 3],
    pub block_table: CubeTensor<R>,
    pub lengths: CubeTensor<R>,
    pub slopes: Option<CubeTensor<R>>,
}

/// What is done with the scores.
#[derive(Clone, Copy)]
pub(crate) struct Scores {
    pub scale: f64,
    /// The keys that a query sees at most.
    pub window: Option<usize>,
}

/// Whether the kernels take these inputs.
pub(crate) fn runs<R: CubeRuntime>(inputs: &Inputs<R>, sizes: PagedSizes) -> bool {
    let query = &inputs.tensors[0];
    let (_, y, z) = query.client.properties().hardware.max_cube_count;
    let elements = sizes.batch * sizes.queries * sizes.heads * sizes.d_head * sizes.pages * sizes.most_keys();
    is_supported(&query.client, query.dtype)
        && is_integer(inputs.lengths.dtype)
        && inputs.block_table.dtype == inputs.lengths.dtype
        && sizes.kv_heads * row_tiles(sizes) <= y as usize
        && sizes.batch <= z as usize
        && u32::try_from(sizes.pages * sizes.page_size).is_ok()
        && elements > 0
}

/// Returns the output.
pub(crate) fn forward<R: CubeRuntime>(inputs: Inputs<R>, sizes: PagedSizes, scores: Scores) -> CubeTensor<R> {
    let inputs = Inputs {
        tensors: inputs.tensors.map(into_contiguous),
        block_table: into_contiguous(inputs.block_table),
        lengths: into_contiguous(inputs.lengths),
        slopes: inputs.slopes.map(into_contiguous),
    };
    let query = &inputs.tensors[0];
    let (client, dtype) = (query.client.clone(), query.dtype);
    let splits = Splits::of(&client, sizes);
    let dims = [sizes.batch, sizes.queries, sizes.heads, sizes.d_head];
    let output = empty_beside(query, &dims, dtype);
    if splits.count == 1 {
        // Nothing is written of the statistics.
        let statistics = empty_beside(query, &[1], DType::F32);
        attend(inputs, sizes, splits, scores, [output.clone(), statistics]);
        return output;
    }
    let rows = sizes.batch * sizes.queries * sizes.heads;
    let parts = empty_beside(query, &[splits.count, rows, sizes.d_head], DType::F32);
    let statistics = empty_beside(query, &[splits.count, rows], DType::F32);
    attend(inputs, sizes, splits, scores, [parts.clone(), statistics.clone()]);
    join(parts, statistics, &output, [rows, sizes.d_head], splits.count);
    output
}

/// How the keys are cut.
#[derive(Clone, Copy)]
struct Splits {
    count: usize,
    keys: usize,
}

impl Splits {
    /// Enough to fill the device, of whole blocks of keys.
    fn of<R: CubeRuntime>(client: &ComputeClient<R>, sizes: PagedSizes) -> Self {
        let processors = client.properties().hardware.num_streaming_multiprocessors.unwrap_or(16);
        let wanted = processors as usize * CUBES_EACH;
        let cubes = sizes.batch * sizes.kv_heads * row_tiles(sizes);
        let most = sizes.most_keys().div_ceil(LEAST_SPLIT);
        let count = wanted.div_ceil(cubes).min(most).max(1);
        let keys = sizes.most_keys().div_ceil(count).next_multiple_of(UNITS);
        Self {
            count: sizes.most_keys().div_ceil(keys),
            keys,
        }
    }
}

/// The rows of a cube: a power of two.
fn tile_rows(sizes: PagedSizes) -> usize {
    (sizes.queries * sizes.group()).next_power_of_two().min(MOST_ROWS)
}

/// The cubes for all rows of a key head.
fn row_tiles(sizes: PagedSizes) -> usize {
    (sizes.queries * sizes.group()).div_ceil(tile_rows(sizes))
}

fn attend<R: CubeRuntime>(
    inputs: Inputs<R>,
    sizes: PagedSizes,
    splits: Splits,
    scores: Scores,
    [output, statistics]: [CubeTensor<R>; 2],
) {
    let [query, keys, values] = inputs.tensors;
    let (client, dtype) = (query.client.clone(), query.dtype);
    let vector_size = vector_size(&client, dtype, sizes.d_head);
    let tile = Tile {
        rows: tile_rows(sizes),
        page_size: sizes.page_size,
        vectors: sizes.d_head / vector_size,
        is_split: splits.count > 1,
        has_window: scores.window.is_some(),
    };
    let problem = ProblemLaunch::new(
        sizes.queries,
        sizes.kv_heads,
        sizes.group(),
        sizes.pages,
        sizes.most_pages,
        row_tiles(sizes),
        splits.keys,
        sizes.batch * sizes.queries * sizes.heads,
        // One that is longer than all keys hides none of them.
        scores.window.map_or(0, |window| window.min(sizes.most_keys())),
        scores.scale as f32,
        f32::NEG_INFINITY,
    );
    let dtypes = [dtype.into(), output.dtype.into(), inputs.lengths.dtype.into()];
    // SAFETY: rows, pages and keys are bounded by the sizes of the tensors, which they are.
    unsafe {
        kernel::attend::launch_unchecked::<R>(
            &client,
            CubeCount::Static(
                splits.count as u32,
                (sizes.kv_heads * row_tiles(sizes)) as u32,
                sizes.batch as u32,
            ),
            CubeDim::new_1d(UNITS as u32),
            address_type(&[&query, &keys, &output]),
            vector_size,
            query.into_array_arg(),
            keys.into_array_arg(),
            values.into_array_arg(),
            inputs.block_table.into_array_arg(),
            inputs.lengths.into_array_arg(),
            inputs.slopes.map(CubeTensor::into_array_arg).into(),
            output.into_array_arg(),
            statistics.into_array_arg(),
            problem,
            tile,
            dtypes,
        );
    }
}

fn join<R: CubeRuntime>(
    parts: CubeTensor<R>,
    statistics: CubeTensor<R>,
    output: &CubeTensor<R>,
    [rows, d_head]: [usize; 2],
    splits: usize,
) {
    let client = parts.client.clone();
    let vector_size = vector_size(&client, DType::F32, d_head).min(vector_size(&client, output.dtype, d_head));
    let vectors = d_head / vector_size;
    let cube_dim = CubeDim::new_1d(UNITS as u32);
    // SAFETY: each unit checks that its vector is one of the output's; the parts have the same number for each split.
    unsafe {
        kernel::join::launch_unchecked::<R>(
            &client,
            calculate_cube_count_elemwise(&client, rows * vectors, cube_dim),
            cube_dim,
            address_type(&[&parts, output]),
            vector_size,
            parts.into_array_arg(),
            statistics.into_array_arg(),
            output.clone().into_array_arg(),
            rows,
            vectors,
            splits,
            output.dtype.into(),
        );
    }
}
