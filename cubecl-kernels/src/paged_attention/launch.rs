//! Launches the kernels of paged attention.

use burn::tensor::DType;
use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::client::Client;
use cubecl::prelude::*;

use super::kernel::{self, ProblemLaunch, Tile, UNITS};
use super::{Attend, PagedSizes};
use crate::cube::launch::{address_type, empty_beside, vector_size};

/// Rows of a cube, at most.
const MOST_ROWS: usize = 8;
/// Cubes for each multiprocessor, where there are enough keys.
const CUBES_EACH: usize = 4;
/// Keys of a split, at least, if there is more than one.
const LEAST_SPLIT: usize = 2 * UNITS;

/// Returns whether the kernels take an attention of these sizes.
pub fn fits(client: &Client, sizes: PagedSizes) -> bool {
    let (_, y, z) = client.properties().hardware.max_cube_count;
    sizes.kv_heads * row_tiles(sizes) <= y as usize
        && sizes.batch <= z as usize
        && u32::try_from(sizes.pages * sizes.page_size).is_ok()
}

/// One attention.
struct Launch<'a> {
    query: CubeTensor,
    /// Keys, values, block table and lengths.
    cache: [CubeTensor; 4],
    slopes: Option<CubeTensor>,
    sizes: PagedSizes,
    splits: Splits,
    attend: &'a Attend,
}

/// Returns the output.
pub fn forward(query: CubeTensor, cache: [CubeTensor; 4], slopes: Option<CubeTensor>, attend: &Attend) -> CubeTensor {
    let (query, cache) = (into_contiguous(query), cache.map(into_contiguous));
    let [keys, _, block_table, _] = &cache;
    let dims = query.meta.shape().dims();
    let sizes = PagedSizes::of_dims(dims, keys.meta.shape().dims(), block_table.meta.shape().dims());
    let splits = Splits::of(&query.client, sizes);
    let output = empty_beside(&query, &dims, query.dtype);
    let empty = |shape: &[usize]| empty_beside(&output, shape, DType::F32);
    let launch = Launch {
        query,
        cache,
        slopes: slopes.map(into_contiguous),
        sizes,
        splits,
        attend,
    };
    if splits.count == 1 {
        // Nothing is written of the statistics.
        launch.run([output.clone(), empty(&[1])]);
        return output;
    }
    let rows = sizes.batch * sizes.queries * sizes.heads;
    let (parts, statistics) = (empty(&[splits.count, rows, sizes.d_head]), empty(&[splits.count, rows]));
    launch.run([parts.clone(), statistics.clone()]);
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
    fn of(client: &Client, sizes: PagedSizes) -> Self {
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

impl Launch<'_> {
    fn run(self, [output, statistics]: [CubeTensor; 2]) {
        let Self {
            query,
            cache: [keys, values, block_table, lengths],
            slopes,
            sizes,
            splits,
            attend,
        } = self;
        let client = query.client.clone();
        let vector_size = vector_size(&client, query.dtype, sizes.d_head);
        let tile = Tile {
            rows: tile_rows(sizes),
            page_size: sizes.page_size,
            vectors: sizes.d_head / vector_size,
            is_split: splits.count > 1,
            has_window: attend.window.is_some(),
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
            attend.window.map_or(0, |window| window.min(sizes.most_keys())),
            attend.scale as f32,
            f32::NEG_INFINITY,
        );
        let dtypes = [query.dtype, output.dtype, lengths.dtype].map(dtype_to_elem_type);
        // SAFETY: rows, pages and keys are bounded by the sizes of the tensors, which they are.
        unsafe {
            kernel::attend::launch_unchecked(
                &client,
                CubeCount::Static(
                    splits.count as u32,
                    (sizes.kv_heads * row_tiles(sizes)) as u32,
                    sizes.batch as u32,
                ),
                CubeDim::new_1d(UNITS as u32),
                address_type(&[&query, &keys, &output]),
                vector_size,
                query.into_buffer_arg(),
                keys.into_buffer_arg(),
                values.into_buffer_arg(),
                block_table.into_buffer_arg(),
                lengths.into_buffer_arg(),
                slopes.map(CubeTensor::into_buffer_arg).into(),
                output.into_buffer_arg(),
                statistics.into_buffer_arg(),
                problem,
                tile,
                dtypes,
            );
        }
    }
}

fn join(parts: CubeTensor, statistics: CubeTensor, output: &CubeTensor, [rows, d_head]: [usize; 2], splits: usize) {
    let client = parts.client.clone();
    let vector_size = vector_size(&client, DType::F32, d_head).min(vector_size(&client, output.dtype, d_head));
    let vectors = d_head / vector_size;
    let cube_dim = CubeDim::new_1d(UNITS as u32);
    // SAFETY: each unit checks that its vector is one of the output's; the parts have the same number for each split.
    unsafe {
        kernel::join::launch_unchecked(
            &client,
            calculate_cube_count_elemwise(&client, rows * vectors, cube_dim),
            cube_dim,
            address_type(&[&parts, output]),
            vector_size,
            parts.into_buffer_arg(),
            statistics.into_buffer_arg(),
            output.clone().into_buffer_arg(),
            rows,
            vectors,
            splits,
            dtype_to_elem_type(output.dtype),
        );
    }
}
