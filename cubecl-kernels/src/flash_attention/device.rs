//! The arguments of every attention kernel, and the dropout of weights.

use cubecl::prelude::*;

use crate::cube::dropout::{DroppedRows, dropout_factors, dropout_row, dropout_words};

/// Sizes, and what is done with scores.
#[derive(CubeType, CubeLaunch)]
pub struct Problem {
    /// Queries of a sample.
    pub queries: usize,
    /// Keys of a sample.
    pub keys: usize,
    /// Heads of the queries for each of the keys.
    pub group: usize,
    /// Elements of a head.
    pub d_head: usize,
    /// 1 where a query sees the keys up to its own position alone; 0 where [ranges](KeyRanges) say what it sees.
    pub is_causal: u32,
    /// Factor of scores.
    pub scale: f32,
    /// −∞, which not every shader language has a literal for.
    pub nothing: f32,
}

/// Where the heads of a tensor `[batch, seq, n, d_head]` are in its buffer, in elements. The elements of a head are
/// adjacent.
///
/// Numbers rather than a tensor's own strides: those are copied to the device at each launch, and kernels load them.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct HeadsAt {
    /// The first element.
    pub start: usize,
    /// From one sample to the next.
    pub sample: usize,
    /// From one row to the next.
    pub row: usize,
    /// From one head to the next.
    pub head: usize,
}

#[cube]
impl HeadsAt {
    /// The first element of a row of a head.
    pub fn element(&self, sample: usize, row: usize, head: usize) -> usize {
        self.start + sample * self.sample + row * self.row + head * self.head
    }

    /// The rows of a head.
    pub fn rows(&self, sample: usize, head: usize, count: usize, d_head: usize) -> HeadRows {
        HeadRows {
            start: self.element(sample, 0usize, head),
            stride: self.row,
            count,
            d_head,
        }
    }
}

/// Where the inputs and the output of a forward pass are.
#[derive(CubeType, CubeLaunch)]
pub struct ForwardPlaces {
    pub query: HeadsAt,
    pub key: HeadsAt,
    pub value: HeadsAt,
    pub output: HeadsAt,
}

/// Where the inputs of a backward pass and the output's gradient are, and the gradients of the inputs.
#[derive(CubeType, CubeLaunch)]
pub struct BackwardPlaces {
    pub query: HeadsAt,
    pub key: HeadsAt,
    pub value: HeadsAt,
    pub gradient: HeadsAt,
    pub of_query: HeadsAt,
    pub of_key: HeadsAt,
    pub of_value: HeadsAt,
}

/// The rows of a head in a tensor's buffer.
#[derive(CubeType, Clone, Copy)]
pub struct HeadRows {
    /// The first element.
    pub start: usize,
    /// Elements from one row to the next.
    pub stride: usize,
    /// How many rows there are.
    pub count: usize,
    /// Elements of a row.
    pub d_head: usize,
}

/// Keys that each query sees, where that is something else than all keys, or all up to its own.
#[derive(CubeType, CubeLaunch)]
pub struct KeyRanges {
    /// First key that each query of a sample sees and the one after its last; then the first query that sees each key
    /// and the one after its last. Neither decreases from one query or key to the next.
    pub bounds: Box<[u32]>,
    /// From one sample's to the next one's, 0 where all samples are alike.
    pub sample: usize,
}

/// A number that is added to the scaled score of each head and each distance between key and query.
#[derive(CubeType, CubeLaunch)]
pub struct RelativeBias {
    /// `[heads, queries + keys - 1]`
    pub table: Box<[f32]>,
}

/// Some keys or queries of a sample: from `from` up to `to`, which is not one of them.
#[derive(CubeType, Clone, Copy)]
pub struct Span {
    pub from: usize,
    pub to: usize,
}

/// Blocks of keys begin at multiples of this: dropout draws the weights of neighbouring keys at once.
pub const KEYS_ALIGNED: usize = 8;

/// A pair of the table.
#[cube]
fn span(ranges: &KeyRanges, sample: usize, place: usize) -> Span {
    let at = sample * ranges.sample + place * 2;
    Span {
        from: ranges.bounds[at] as usize,
        to: ranges.bounds[at + 1] as usize,
    }
}

/// The keys that a query sees, those of the last query for those beyond; all keys where there are no ranges.
#[cube]
pub fn keys_of(ranges: &ComptimeOption<KeyRanges>, problem: &Problem, sample: usize, query: usize) -> Span {
    if comptime!(ranges.is_some()) {
        let query = select(query < problem.queries, query, problem.queries - 1);
        span(ranges.as_ref().unwrap(), sample, query)
    } else {
        Span {
            from: 0usize,
            to: problem.keys,
        }
    }
}

/// The queries that see a key, those of the last key for those beyond; all queries where there are no ranges.
#[cube]
fn queries_of(ranges: &ComptimeOption<KeyRanges>, problem: &Problem, sample: usize, key: usize) -> Span {
    if comptime!(ranges.is_some()) {
        let key = select(key < problem.keys, key, problem.keys - 1);
        span(ranges.as_ref().unwrap(), sample, problem.queries + key)
    } else {
        Span {
            from: 0usize,
            to: problem.queries,
        }
    }
}

/// The keys that all queries from `first` up to `end` see.
#[cube]
pub fn common_keys(
    ranges: &ComptimeOption<KeyRanges>,
    problem: &Problem,
    sample: usize,
    first: usize,
    end: usize,
) -> Span {
    Span {
        from: keys_of(ranges, problem, sample, end - 1).from,
        to: keys_of(ranges, problem, sample, first).to,
    }
}

/// The queries that see all keys from `first` up to `end`.
#[cube]
pub fn common_queries(
    ranges: &ComptimeOption<KeyRanges>,
    problem: &Problem,
    sample: usize,
    first: usize,
    end: usize,
) -> Span {
    Span {
        from: queries_of(ranges, problem, sample, end - 1).from,
        to: queries_of(ranges, problem, sample, first).to,
    }
}

/// Returns whether one of those from `first` up to `end` is not in a span; never, where there are no ranges.
#[cube]
pub fn is_outside(ranges: &ComptimeOption<KeyRanges>, span: &Span, first: usize, end: usize) -> bool {
    if comptime!(ranges.is_some()) {
        first < span.from || end > span.to
    } else {
        false.runtime()
    }
}

/// The keys that queries from `first` up to `end` see, at least one of them each.
#[cube]
pub fn keys_seen(
    ranges: &ComptimeOption<KeyRanges>,
    problem: &Problem,
    sample: usize,
    first: usize,
    end: usize,
) -> Span {
    if comptime!(ranges.is_some()) {
        Span {
            from: keys_of(ranges, problem, sample, first).from / KEYS_ALIGNED * KEYS_ALIGNED,
            to: keys_of(ranges, problem, sample, end - 1).to,
        }
    } else {
        let to = select(problem.is_causal != 0 && end < problem.keys, end, problem.keys);
        Span { from: 0usize, to }
    }
}

/// The queries that see keys from `first` up to `end`, at least one of them each, from the beginning of a block of
/// `length` queries on.
#[cube]
pub fn queries_seeing(
    ranges: &ComptimeOption<KeyRanges>,
    problem: &Problem,
    sample: usize,
    first: usize,
    end: usize,
    #[comptime] length: usize,
) -> Span {
    if comptime!(ranges.is_some()) {
        let from = queries_of(ranges, problem, sample, first).from;
        let to = queries_of(ranges, problem, sample, end - 1).to;
        Span {
            // Of keys that no query sees there is no block.
            from: select(from < to, from / length * length, to),
            to,
        }
    } else {
        let is_causal = problem.is_causal != 0;
        Span {
            // Queries before the first key see none of the keys.
            from: select(is_causal, first / length * length, 0usize),
            to: problem.queries,
        }
    }
}

/// The bias of a query and a key; of those beyond the last ones any.
#[cube]
pub fn bias_of(bias: &ComptimeOption<RelativeBias>, problem: &Problem, head: usize, query: usize, key: usize) -> f32 {
    let bias = bias.as_ref().unwrap();
    let distances = problem.queries + problem.keys - 1;
    // Of a query far beyond the last one it is below 0, which is a large number.
    let distance = key + problem.queries - 1 - query;
    bias.table[head * distances + select(distance < distances, distance, 0usize)]
}

/// Returns the factors of the weights of a query, from the key `first` on, a multiple of their number.
#[cube]
pub fn factors<C: Size>(
    dropped: &ComptimeOption<DroppedRows>,
    problem: &Problem,
    sample: usize,
    query: usize,
    head: usize,
    first: usize,
) -> Vector<f32, C> {
    let dropped = dropped.as_ref().unwrap();
    // A query past the last one has no place; nothing of it is used.
    let query = select(query < problem.queries, query, 0usize);
    let row = dropout_row(dropped, sample * problem.queries + query, head as u32);
    dropout_factors::<C>(&dropped.dropout, &row, first as u32)
}

/// Returns the factors of the four weights of an accumulator fragment of a matrix unit: two of row `lane / 4`, two of
/// the row eight below; `query` and `key` are the first of the tile of 16 by 8.
///
/// Two adjacent lanes hold four keys of both rows. One draws the four words of the first row, the other those of the
/// second, and they exchange halves.
#[cube]
pub fn fragment_factors(
    dropped: &ComptimeOption<DroppedRows>,
    problem: &Problem,
    query: usize,
    head: usize,
    key: usize,
) -> Array<f32> {
    let dropped = dropped.as_ref().unwrap();
    // Not `UNIT_POS_PLANE`, which divides by a number that the compiler does not know.
    let lane = UNIT_POS % 32;
    let is_second = lane % 2 == 1;
    let query = query + (lane / 4) as usize + select(is_second, 8usize, 0usize);
    // A query past the last one has no place; nothing of it is used.
    let query = select(query < problem.queries, query, 0usize);
    let row = dropout_row(dropped, CUBE_POS_Z as usize * problem.queries + query, head as u32);
    let words = dropout_words(&dropped.dropout, &row, (key / 4) as u32 + lane % 4 / 2);
    let given_0 = plane_shuffle_xor(select(is_second, words.extract(0usize), words.extract(2usize)), 1u32);
    let given_1 = plane_shuffle_xor(select(is_second, words.extract(1usize), words.extract(3usize)), 1u32);
    let threshold = dropped.dropout.threshold;
    let scale = dropped.dropout.scale;
    let mut kept = Array::<f32>::new(4usize);
    kept[0] = select(
        select(is_second, given_0, words.extract(0usize)) >= threshold,
        scale,
        0.0f32,
    );
    kept[1] = select(
        select(is_second, given_1, words.extract(1usize)) >= threshold,
        scale,
        0.0f32,
    );
    kept[2] = select(
        select(is_second, words.extract(2usize), given_0) >= threshold,
        scale,
        0.0f32,
    );
    kept[3] = select(
        select(is_second, words.extract(3usize), given_1) >= threshold,
        scale,
        0.0f32,
    );
    kept
}
