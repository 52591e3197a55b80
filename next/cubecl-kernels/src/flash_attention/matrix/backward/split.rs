//! How the work of a backward pass is split: blocks over cubes, products over planes.

use super::super::tile::{COLUMNS, LOAD, PLANE, SIDE, Tile};

/// What a plane computes of a product of two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// Planes that share the product's rows; the others share its columns.
    pub row_planes: usize,
    /// Tiles of 16 rows.
    pub rows: usize,
    /// Tiles of 8 columns, an even number.
    pub columns: usize,
    /// Steps of 16 inner elements.
    pub steps: usize,
}

impl Share {
    /// That of each of `planes` planes, of which `row_planes` share the rows.
    fn of([rows, columns, inner]: [usize; 3], planes: usize, row_planes: usize) -> Self {
        Self {
            row_planes,
            rows: rows / row_planes / SIDE,
            columns: columns * row_planes / planes / COLUMNS,
            steps: inner / SIDE,
        }
    }

    /// The accumulators of a unit: each holds a pair of numbers.
    pub fn accumulators(&self) -> usize {
        self.rows * self.columns * 2
    }
}

/// What takes registers, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extras {
    /// What is drawn for dropout.
    pub has_dropout: bool,
    /// Where a relative bias is.
    pub has_bias: bool,
}

/// How large the blocks are where a cube keeps keys and values and goes over blocks of queries, and how many of the
/// cube's planes share the rows of each product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeysTile {
    /// Planes of a cube.
    pub planes: usize,
    /// Queries of a block.
    pub queries: usize,
    /// Keys that a cube keeps.
    pub keys: usize,
    /// Elements of a head, rounded up; those beyond the head's are zeros.
    pub width: usize,
    /// Planes that share the queries of the scores.
    pub score_planes: usize,
    /// Planes that share the keys of the gradients of keys and values.
    pub key_planes: usize,
    /// Planes that share the queries of their gradients.
    pub query_planes: usize,
    /// Whether weights are dropped.
    pub has_dropout: bool,
}

impl KeysTile {
    /// The largest tile for heads of `d_head` elements that fits the shared memory, in bytes, if there is one.
    pub fn new(d_head: usize, extras: Extras, shared_memory: usize) -> Option<Self> {
        let Extras { has_dropout, has_bias } = extras;
        // Planes, queries, keys, and the planes that share rows: of scores, of keys' and of queries' gradients.
        let (width, splits): (usize, &[[usize; 6]]) = match d_head {
            ..=32 if has_dropout => (32, &[[4, 64, 64, 2, 2, 2]]),
            33..=64 if has_dropout || has_bias => (64, &[[4, 64, 64, 2, 2, 2]]),
            97..=128 if has_dropout => (128, &[[8, 32, 128, 2, 4, 2], [4, 32, 64, 2, 2, 2]]),
            ..=32 => (32, &[[8, 128, 128, 4, 4, 4], [4, 64, 64, 2, 2, 2]]),
            33..=64 => (64, &[[8, 128, 128, 4, 4, 4], [4, 64, 64, 2, 2, 2]]),
            65..=96 => (96, &[[8, 64, 128, 2, 4, 4], [4, 32, 64, 2, 2, 2]]),
            97..=128 => (128, &[[8, 64, 128, 2, 4, 2], [4, 32, 64, 2, 2, 2]]),
            129..=160 => (160, &[[8, 64, 64, 4, 4, 4], [4, 32, 64, 2, 2, 2]]),
            161..=192 => (192, &[[8, 64, 64, 4, 4, 4]]),
            _ => (256, &[[8, 32, 64, 2, 4, 2]]),
        };
        let tiles = splits.iter().map(
            |&[planes, queries, keys, score_planes, key_planes, query_planes]| Self {
                planes,
                queries,
                keys,
                width,
                score_planes,
                key_planes,
                query_planes,
                has_dropout,
            },
        );
        tiles.into_iter().find(|tile| tile.shared_memory() <= shared_memory)
    }

    /// Units of a cube.
    pub fn units(&self) -> usize {
        self.planes * PLANE
    }

    /// What a plane computes of a block's scores, queries by keys, and of the gradients of the weights.
    pub fn scores(&self) -> Share {
        Share::of([self.queries, self.keys, self.width], self.planes, self.score_planes)
    }

    /// What a plane sums of the gradients of keys, keys by elements, and of those of values.
    pub fn key_gradients(&self) -> Share {
        Share::of([self.keys, self.width, self.queries], self.planes, self.key_planes)
    }

    /// What a plane computes of a block's part in the gradients of its queries, queries by elements.
    pub fn query_gradients(&self) -> Share {
        Share::of([self.queries, self.width, self.keys], self.planes, self.query_planes)
    }

    /// The layout in shared memory of rows of a head.
    pub fn rows(&self) -> Tile {
        Tile {
            planes: self.planes,
            row_tiles: 1,
            passing: self.queries,
            kept: 2,
            buffers: 4,
            width: self.width,
            has_dropout: self.has_dropout,
        }
    }

    /// The layout in shared memory of a block's weights, a row for each query.
    pub fn weights(&self) -> Tile {
        Tile {
            width: self.keys,
            ..self.rows()
        }
    }

    /// The shared memory of a cube, in bytes: keys and values, two blocks of queries, of their gradients and of two
    /// numbers for each query, the weights and their gradients.
    pub fn shared_memory(&self) -> usize {
        let rows = 2 * self.keys + 4 * self.queries;
        let halves = rows * self.width + 2 * self.queries * self.keys;
        halves * size_of::<u16>() + 4 * self.queries * size_of::<f32>()
    }

    /// The rows of a head's sums of the gradients of queries, whose number is rounded up to whole blocks.
    ///
    /// The sums are in f32, `[batch, heads, rows, width]`, in tiles of 16 rows by 8 columns, each in the order of the
    /// accumulators, so that what a plane adds at once is adjacent: four times 32 numbers, of which each lane has one,
    /// two of row `lane / 4`, two of the row eight below.
    pub fn query_rows(&self, queries: usize) -> usize {
        queries.next_multiple_of(self.queries)
    }

    /// Loads of a row of a head, in shared memory.
    pub fn vectors(&self) -> usize {
        self.width / LOAD
    }
}

/// What a plane computes of a block's scores where a cube keeps queries.
pub fn query_scores(tile: Tile) -> Share {
    Share::of([tile.row_tiles * SIDE, tile.passing, tile.width], 1, 1)
}

/// What a plane sums of its queries' gradients where a cube keeps queries.
pub fn query_sums(tile: Tile) -> Share {
    Share::of([tile.row_tiles * SIDE, tile.width, tile.passing], 1, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of an A100, of smaller GPUs of its generation.
    const SHARED_MEMORY: [usize; 2] = [163 * 1024, 99 * 1024];

    #[test]
    fn planes_share_whole_products() {
        let cases = (1..=256).flat_map(|d_head| SHARED_MEMORY.map(|memory| (d_head, memory)));
        let extras = [(false, false), (true, false), (false, true), (true, true)];
        let extras = extras.map(|(has_dropout, has_bias)| Extras { has_dropout, has_bias });
        for ((d_head, shared_memory), extras) in cases.flat_map(|case| extras.map(|extras| (case, extras))) {
            let Some(tile) = KeysTile::new(d_head, extras, shared_memory) else {
                assert!(d_head > 160 && shared_memory < SHARED_MEMORY[0], "heads of {d_head}");
                continue;
            };
            assert!(
                tile.width >= d_head && tile.shared_memory() <= shared_memory,
                "{tile:?}"
            );
            for (share, rows, columns) in [
                (tile.scores(), tile.queries, tile.keys),
                (tile.key_gradients(), tile.keys, tile.width),
                (tile.query_gradients(), tile.queries, tile.width),
            ] {
                assert_eq!(share.rows * SIDE * share.row_planes, rows, "{tile:?}");
                let column_planes = tile.planes / share.row_planes;
                assert_eq!(share.columns * COLUMNS * column_planes, columns, "{tile:?}");
                assert!(share.columns.is_multiple_of(2), "{tile:?}");
            }
        }
    }
}
