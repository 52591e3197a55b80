//! The kernels of paged attention: a part of the output for each split of the keys, and then their sum.
//!
//! A cube has the rows of one key head: some queries of its group of heads. It goes over blocks of keys. A unit
//! computes the scores of one key with all rows, so that no operation over planes is needed; then it adds up its own
//! elements of the values of some of the block's keys. The units that share an element add up what they have at the
//! end.

use cubecl::prelude::*;

use crate::cube::reduce::vector_sum;

/// Units of a cube, and keys of a block.
pub(super) const UNITS: usize = 128;
/// The parts in which a row's maximum is looked for.
const PARTS: usize = 16;

/// The sizes that kernels are specialised for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    /// Rows of a cube; at most `UNITS / PARTS`.
    pub rows: usize,
    /// Tokens of a page.
    pub page_size: usize,
    /// Vectors of a head.
    pub vectors: usize,
    /// True if the parts of several splits are to be added up.
    pub is_split: bool,
    /// True if queries see the last keys alone.
    pub has_window: bool,
}

impl Tile {
    /// Units that share an element of a row.
    fn slots(&self) -> usize {
        (UNITS / self.vectors).max(1)
    }

    /// Vectors of a head that a unit has.
    fn columns(&self) -> usize {
        self.vectors.div_ceil(UNITS)
    }
}

/// The sizes that kernels are given.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct Problem {
    pub queries: usize,
    pub kv_heads: usize,
    /// Heads of the queries for each of the keys.
    pub group: usize,
    pub pages: usize,
    pub most_pages: usize,
    /// Cubes for all rows of a key head.
    pub row_tiles: usize,
    /// Keys of a split, a multiple of [`UNITS`].
    pub split_keys: usize,
    /// The sequences' rows, all queries' and heads'.
    pub rows: usize,
    /// The keys that a query sees at most, where there is a window.
    pub window: usize,
    pub scale: f32,
    /// −∞, which not every shader language has a literal for.
    pub nothing: f32,
}

/// Rows and tokens that a cube works on.
#[derive(CubeType, Clone, Copy)]
struct Part {
    sample: usize,
    kv_head: usize,
    /// The first of its rows among those of the key head.
    first_row: usize,
    /// The sequence's tokens.
    length: usize,
}

/// Writes each split's output and `log Σ exp` of its scores; the whole output if there is one split.
///
/// Cubes: splits, key heads and tiles of their rows, samples.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn attend<F: Float, O: Float, I: Int, N: Size>(
    query: &[Vector<F, N>],
    keys: &[Vector<F, N>],
    values: &[Vector<F, N>],
    block_table: &[I],
    lengths: &[I],
    slopes: ComptimeOption<&[f32]>,
    output: &mut [Vector<O, N>],
    log_sum_exp: &mut [f32],
    problem: Problem,
    #[comptime] tile: Tile,
    #[define(F, O, I)] _dtypes: [ElemType; 3],
) {
    let rows = tile.rows;
    let unit = UNIT_POS as usize;
    let part = own_part::<I>(lengths, &problem, tile);
    let mut queries = Shared::<[Vector<f32, N>]>::new_slice(comptime!(tile.rows * tile.vectors));
    load_queries::<F, N>(query, &mut queries, &part, &problem, tile);
    sync_cube();

    // Where the tokens of a block are in the pool.
    let mut places = Shared::<[u32]>::new_slice(UNITS);
    let mut weights = Shared::<[f32]>::new_slice(comptime!(tile.rows * UNITS));
    let mut maxima = Array::<f32>::new(rows);
    let mut totals = Array::<f32>::new(rows);
    let mut sums = Array::<Vector<f32, N>>::new(comptime!(tile.rows * tile.columns()));
    #[unroll]
    for row in 0..rows {
        maxima[row] = f32::new(f32::MIN);
        totals[row] = f32::new(0.0);
        #[unroll]
        for column in 0..comptime!(tile.columns()) {
            sums[row * comptime!(tile.columns()) + column] = Vector::new(f32::new(0.0));
        }
    }

    let mut first = CUBE_POS_X as usize * problem.split_keys;
    let end = min(first + problem.split_keys, part.length);
    if comptime!(tile.has_window) {
        // The first query's first key, or the beginning of its block.
        let position = position_of(0usize, &part, &problem);
        let hidden = select(position > problem.window, position - problem.window, 0usize);
        first = max(first, hidden / UNITS * UNITS);
    }
    while first < end {
        let key = first + unit;
        let place = place_of::<I>(block_table, key, &part, &problem, tile);
        places[unit] = place as u32;
        let scores = scores_of::<F, N>(&queries, keys, place, &part, &problem, tile);
        #[unroll]
        for row in 0..rows {
            let is_seen = is_token(place, &problem, tile) && sees(key, row, &part, &problem, tile);
            let mut score = scores[row] * problem.scale;
            #[comptime]
            if let ComptimeOption::Some(slopes) = slopes {
                // What is not seen may be any number.
                let distance = position_of(row, &part, &problem) - (key + 1);
                score -= slopes[head_of(row, &part, &problem)] * f32::cast_from(distance);
            }
            weights[row * UNITS + unit] = select(is_seen, score, problem.nothing);
        }
        weigh::<N>(&mut weights, &mut maxima, &mut totals, &mut sums, tile);
        add_values::<F, N>(values, &places, &weights, &mut totals, &mut sums, &part, &problem, tile);
        sync_cube();
        first += UNITS;
    }
    store::<O, N>(output, log_sum_exp, &maxima, &totals, &sums, &part, &problem, tile);
}

/// Returns the rows and tokens that this cube works on.
#[cube]
fn own_part<I: Int>(lengths: &[I], problem: &Problem, #[comptime] tile: Tile) -> Part {
    let sample = CUBE_POS_Z as usize;
    let tiles = CUBE_POS_Y as usize;
    let length = lengths[sample];
    let most = problem.most_pages * tile.page_size;
    // Compared in its own type, because it may not fit another.
    let is_within = length >= I::from_int(0) && length < I::cast_from(most);
    let is_longer = length >= I::cast_from(most);
    let known = select(is_within, u32::cast_from(length) as usize, 0usize);
    Part {
        sample,
        kv_head: tiles / problem.row_tiles,
        first_row: tiles % problem.row_tiles * tile.rows,
        length: select(is_longer, most, known),
    }
}

/// Copies the cube's rows of the query into shared memory, in f32; those past the last are the last.
#[cube]
fn load_queries<F: Float, N: Size>(
    query: &[Vector<F, N>],
    queries: &mut Shared<[Vector<f32, N>]>,
    part: &Part,
    problem: &Problem,
    #[comptime] tile: Tile,
) {
    let mut index = UNIT_POS as usize;
    while index < comptime!(tile.rows * tile.vectors) {
        let row = row_of(index / comptime!(tile.vectors), part, problem);
        queries[index] = Vector::cast_from(query[row * comptime!(tile.vectors) + index % comptime!(tile.vectors)]);
        index += UNITS;
    }
}

/// Returns the head of a row of the cube; of rows past the last, that of another one.
#[cube]
fn head_of(row: usize, part: &Part, problem: &Problem) -> usize {
    part.kv_head * problem.group + (part.first_row + row) % problem.group
}

/// Returns how many keys there are up to the query of a row of the cube, itself included; 0 where it is before the
/// first key.
#[cube]
fn position_of(row: usize, part: &Part, problem: &Problem) -> usize {
    let end = part.length + (part.first_row + row) / problem.group + 1;
    select(end > problem.queries, end - problem.queries, 0usize)
}

/// Returns the number of a row of the cube among those of query and output.
#[cube]
fn row_of(row: usize, part: &Part, problem: &Problem) -> usize {
    let most = problem.queries * problem.group - 1;
    let row = min(part.first_row + row, most);
    let head = part.kv_head * problem.group + row % problem.group;
    let query = part.sample * problem.queries + row / problem.group;
    query * problem.kv_heads * problem.group + head
}

/// Returns whether a row of the cube sees a key.
#[cube]
fn sees(key: usize, row: usize, part: &Part, problem: &Problem, #[comptime] tile: Tile) -> bool {
    let query = (part.first_row + row) / problem.group;
    let is_before = key < part.length && key + problem.queries < part.length + query + 1;
    if comptime!(tile.has_window) {
        is_before && key + problem.window >= position_of(row, part, problem)
    } else {
        is_before
    }
}

/// Returns which token of the pool a key is; the pool's end if it is none.
#[cube]
fn place_of<I: Int>(block_table: &[I], key: usize, part: &Part, problem: &Problem, #[comptime] tile: Tile) -> usize {
    let mut place = problem.pages * tile.page_size;
    if key < part.length {
        let page = block_table[part.sample * problem.most_pages + key / tile.page_size];
        if page >= I::from_int(0) && page < I::cast_from(problem.pages) {
            place = u32::cast_from(page) as usize * tile.page_size + key % tile.page_size;
        }
    }
    place
}

/// Returns whether a place is a token of the pool.
#[cube]
fn is_token(place: usize, problem: &Problem, #[comptime] tile: Tile) -> bool {
    place < problem.pages * tile.page_size
}

/// Returns the first vector of a token's head in keys and values.
#[cube]
fn start_of(place: usize, part: &Part, problem: &Problem, #[comptime] tile: Tile) -> usize {
    (place * problem.kv_heads + part.kv_head) * tile.vectors
}

/// Returns the products of the rows with a key; 0 if it is none.
#[cube]
fn scores_of<F: Float, N: Size>(
    queries: &Shared<[Vector<f32, N>]>,
    keys: &[Vector<F, N>],
    place: usize,
    part: &Part,
    problem: &Problem,
    #[comptime] tile: Tile,
) -> Array<f32> {
    let rows = tile.rows;
    let mut products = Array::<Vector<f32, N>>::new(rows);
    #[unroll]
    for row in 0..rows {
        products[row] = Vector::new(f32::new(0.0));
    }
    if is_token(place, problem, tile) {
        let start = start_of(place, part, problem, tile);
        for vector in 0..tile.vectors {
            let key = Vector::<f32, N>::cast_from(keys[start + vector]);
            #[unroll]
            for row in 0..rows {
                products[row] += queries[row * tile.vectors + vector] * key;
            }
        }
    }
    let mut scores = Array::<f32>::new(rows);
    #[unroll]
    for row in 0..rows {
        scores[row] = vector_sum(products[row]);
    }
    scores
}

/// Turns a block's scores into weights under the rows' maxima so far, and scales what has been added up to these.
#[cube]
fn weigh<N: Size>(
    weights: &mut Shared<[f32]>,
    maxima: &mut Array<f32>,
    totals: &mut Array<f32>,
    sums: &mut Array<Vector<f32, N>>,
    #[comptime] tile: Tile,
) {
    let columns = comptime!(tile.columns());
    let unit = UNIT_POS as usize;
    let mut parts = Shared::<[f32]>::new_slice(comptime!(tile.rows * PARTS));
    sync_cube();
    if unit < comptime!(tile.rows * PARTS) {
        let start = unit / PARTS * UNITS + unit % PARTS;
        let mut largest = f32::new(f32::MIN);
        #[unroll]
        for step in 0..comptime!(UNITS / PARTS) {
            largest = max(largest, weights[start + step * PARTS]);
        }
        parts[unit] = largest;
    }
    sync_cube();
    #[unroll]
    for row in 0..tile.rows {
        let mut largest = maxima[row];
        #[unroll]
        for part in 0..PARTS {
            largest = max(largest, parts[row * PARTS + part]);
        }
        let shrink = f32::exp(maxima[row] - largest);
        maxima[row] = largest;
        totals[row] *= shrink;
        #[unroll]
        for column in 0..columns {
            sums[row * columns + column] *= Vector::new(shrink);
        }
        let own = row * UNITS + unit;
        weights[own] = f32::exp(weights[own] - largest);
    }
    sync_cube();
}

/// Adds the values of this unit's keys of a block, by their weights, to its vectors of the rows' sums.
#[cube]
fn add_values<F: Float, N: Size>(
    values: &[Vector<F, N>],
    places: &Shared<[u32]>,
    weights: &Shared<[f32]>,
    totals: &mut Array<f32>,
    sums: &mut Array<Vector<f32, N>>,
    part: &Part,
    problem: &Problem,
    #[comptime] tile: Tile,
) {
    let columns = comptime!(tile.columns());
    let unit = UNIT_POS as usize;
    let mut key = unit / tile.vectors;
    if key >= comptime!(tile.slots()) {
        key = UNITS.runtime();
    }
    while key < UNITS {
        let place = places[key] as usize;
        if is_token(place, problem, tile) {
            let start = start_of(place, part, problem, tile);
            #[unroll]
            for column in 0..columns {
                let vector = unit % tile.vectors + column * UNITS;
                if vector < tile.vectors {
                    let value = Vector::<f32, N>::cast_from(values[start + vector]);
                    #[unroll]
                    for row in 0..tile.rows {
                        sums[row * columns + column] += value * Vector::new(weights[row * UNITS + key]);
                    }
                }
            }
            #[unroll]
            for row in 0..tile.rows {
                totals[row] += weights[row * UNITS + key];
            }
        }
        key += comptime!(tile.slots());
    }
}

/// Adds up what the units have of each row, and writes it.
#[cube]
fn store<O: Float, N: Size>(
    output: &mut [Vector<O, N>],
    log_sum_exp: &mut [f32],
    maxima: &Array<f32>,
    totals: &Array<f32>,
    sums: &Array<Vector<f32, N>>,
    part: &Part,
    problem: &Problem,
    #[comptime] tile: Tile,
) {
    let columns = comptime!(tile.columns());
    let slots = comptime!(tile.slots());
    let unit = UNIT_POS as usize;
    let slot = unit / tile.vectors;
    let mut shared_sums = Shared::<[Vector<f32, N>]>::new_slice(comptime!(tile.slots() * tile.vectors));
    let mut shared_totals = Shared::<[f32]>::new_slice(slots);
    #[unroll]
    for row in 0..tile.rows {
        sync_cube();
        if slot < slots {
            #[unroll]
            for column in 0..columns {
                let vector = unit % tile.vectors + column * UNITS;
                if vector < tile.vectors {
                    shared_sums[slot * tile.vectors + vector] = sums[row * columns + column];
                }
            }
            shared_totals[slot] = totals[row];
        }
        sync_cube();
        if slot == 0 && part.first_row + row < problem.queries * problem.group {
            let mut total = f32::new(0.0);
            for slot in 0..slots {
                total += shared_totals[slot];
            }
            let share = select(total == f32::new(0.0), f32::new(0.0), f32::new(1.0) / total);
            let place = CUBE_POS_X as usize * problem.rows + row_of(row, part, problem);
            #[unroll]
            for column in 0..columns {
                let vector = unit + column * UNITS;
                if vector < tile.vectors {
                    let mut sum = Vector::<f32, N>::new(f32::new(0.0));
                    for slot in 0..slots {
                        sum += shared_sums[slot * tile.vectors + vector];
                    }
                    output[place * tile.vectors + vector] = Vector::cast_from(sum * Vector::new(share));
                }
            }
            if comptime!(tile.is_split) && unit == 0 {
                let statistic = maxima[row] + f32::ln(total);
                log_sum_exp[place] = select(total == f32::new(0.0), problem.nothing, statistic);
            }
        }
    }
}

/// Writes the mean of the splits' outputs, each by its share of the sum of exponentials. A unit for each vector.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn join<F: Float, N: Size>(
    parts: &[Vector<f32, N>],
    log_sum_exp: &[f32],
    output: &mut [Vector<F, N>],
    rows: usize,
    vectors: usize,
    splits: usize,
    #[define(F)] _dtype: ElemType,
) {
    let vector = ABSOLUTE_POS;
    if vector >= rows * vectors {
        terminate!();
    }
    let row = vector / vectors;
    let mut largest = f32::new(f32::MIN);
    for split in 0..splits {
        largest = max(largest, log_sum_exp[split * rows + row]);
    }
    let mut total = f32::new(0.0);
    let mut sum = Vector::<f32, N>::new(f32::new(0.0));
    for split in 0..splits {
        let weight = f32::exp(log_sum_exp[split * rows + row] - largest);
        total += weight;
        sum += parts[split * rows * vectors + vector] * Vector::new(weight);
    }
    let share = select(total == f32::new(0.0), f32::new(0.0), f32::new(1.0) / total);
    output[vector] = Vector::cast_from(sum * Vector::new(share));
}
