//! [`OverlapSizes`]: in how many chunks a linear layer's rows are communicated while it multiplies.

use burn::tensor::Tensor;
use cubecl_kernels::linear::multiplies_in_library;
use cubecl_kernels::tape::inner;

use crate::collectives::RowChunks;
use crate::context::TensorOverlap;

/// What an A100 multiplies in a second, in 16 bits, in large matmuls.
const FLOPS: f64 = 215e12;
/// Its multiprocessors, each of which computes one tile of a matmul at a time.
const MULTIPROCESSORS: usize = 108;
/// Rows and columns of a tile.
const TILE: [usize; 2] = [128, 256];
/// What each rank sends in a second in a collective of NCCL over NVLink (12 links of the third generation), in bytes:
/// about what nccl-tests report of a DGX A100.
const BYTES_PER_SECOND: f64 = 230e9;
/// Between the start of a collective and its first byte, in seconds.
const LATENCY: f64 = 15e-6;
/// The part of the multiprocessors that a collective takes from a matmul at the same time.
const TAKEN: f64 = 1.0 / 8.0;
/// The most chunks: with more, the first of them is no longer what is waited for.
const MOST: usize = 8;
/// What must be saved of the whole layer's time.
const LEAST_SAVED: f64 = 0.02;

/// The sizes of a linear layer's matmul, and of what is communicated with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlapSizes {
    /// The tensor-parallel ranks.
    pub ranks: usize,
    /// The rows of each, before they are gathered or after they are scattered.
    pub rows: usize,
    /// The columns of the matmul's input on this rank.
    pub d_input: usize,
    /// The columns of its output on this rank.
    pub d_output: usize,
    /// The columns of what is communicated: of the input where it is gathered, of the output where it is
    /// reduce-scattered.
    pub communicated: usize,
    /// The bytes of each element.
    pub element_bytes: usize,
}

impl OverlapSizes {
    /// Returns the number of chunks in which the layer takes the least time, 1 if chunks do not pay.
    ///
    /// With `t` ranks, `r` rows on each, a matmul of `[t r, k] · [k, n]` and `w` columns of `e` bytes communicated, in
    /// numbers of an A100 with NVLink:
    ///
    /// - The collective takes `(t − 1) r w e` bytes / 235 GB/s + 15 µs, the matmul `2 t r k n` FLOPs / 215 TFLOP/s.
    ///   One after the other they cost the sum. In `c` chunks the shorter of the two overlaps with the longer, except
    ///   for one chunk: `(1 − 1/c)` of it is saved.
    /// - Of that, an eighth is lost again, because NCCL computes on some of the GPU's 108 multiprocessors.
    /// - Each further chunk costs 15 µs.
    /// - A matmul computes tiles of 128 × 256 in waves of 108, and its last wave takes as long as a full one. A chunk
    ///   has `t · ⌈r / c / 128⌉ · ⌈n / 256⌉` tiles; where `r / c` is no multiple of 128, or the tiles of a chunk are
    ///   not nearly a multiple of 108, chunks together have more waves than the whole. A wave takes
    ///   `2 · 128 · 256 · k · 108` FLOPs / 215 TFLOP/s: 62 µs for `k = 1880`, as much as 14 MB over NVLink.
    ///
    /// So chunks pay where the collective takes some 100 µs. For the attention's output projection of 22 billion
    /// parameters on 8 ranks (`r = 1024`, `k = 768`, `n = w = 6144`), the collective takes 400 µs and the matmul 360
    /// µs, and four chunks save about a quarter of both. For that of a model of width 1024 with sequences of 1024 on
    /// two ranks, each takes less than 25 µs: whole.
    ///
    /// Faster GPUs gain more: an H100 multiplies three times as fast, its NVLink carries less than twice as much.
    pub fn num_chunks(&self) -> usize {
        if self.ranks < 2 || self.rows == 0 {
            return 1;
        }
        let whole = self.seconds(1);
        let most = MOST.min(self.rows);
        let (seconds, chunks) = (2..=most)
            .map(|chunks| (self.seconds(chunks), chunks))
            .min_by(|(a, _), (b, _)| a.total_cmp(b))
            .unwrap_or((whole, 1));
        if seconds < whole * (1.0 - LEAST_SAVED) {
            chunks
        } else {
            1
        }
    }

    /// What the layer takes in this number of chunks.
    fn seconds(&self, chunks: usize) -> f64 {
        let communication = LATENCY + self.bytes() / BYTES_PER_SECOND;
        let waves: usize = RowChunks::new(self.rows, chunks)
            .ranges()
            .iter()
            .map(|range| self.waves(range.len()))
            .sum();
        let matmul = waves as f64 * self.seconds_of_wave();
        let hidden = communication.min(matmul) * (1.0 - 1.0 / chunks as f64);
        let further = (chunks - 1) as f64 * LATENCY;
        communication + matmul + further - hidden * (1.0 - TAKEN)
    }

    /// The bytes that each rank sends.
    fn bytes(&self) -> f64 {
        ((self.ranks - 1) * self.rows) as f64 * (self.communicated * self.element_bytes) as f64
    }

    /// The waves of tiles of a chunk with this number of rows of each rank.
    fn waves(&self, rows: usize) -> usize {
        let [tile_rows, tile_columns] = TILE;
        let tiles = self.ranks * rows.div_ceil(tile_rows) * self.d_output.div_ceil(tile_columns);
        tiles.div_ceil(MULTIPROCESSORS)
    }

    fn seconds_of_wave(&self) -> f64 {
        2.0 * (TILE[0] * TILE[1] * MULTIPROCESSORS) as f64 * self.d_input as f64 / FLOPS
    }
}

/// Returns the chunks of a layer for an input.
pub(super) fn chunks_of<const D: usize>(overlap: TensorOverlap, input: &Tensor<D>, sizes: OverlapSizes) -> RowChunks {
    let is_empty = [sizes.d_input, sizes.d_output].contains(&0);
    let is_known = multiplies_in_library(&inner(input).device()) && input.dtype().size() == 2;
    let count = match overlap {
        _ if is_empty => 1,
        TensorOverlap::Off => 1,
        TensorOverlap::WhereItPays if is_known => sizes.num_chunks(),
        TensorOverlap::WhereItPays => 1,
        TensorOverlap::Chunks(count) => count.get(),
    };
    RowChunks::new(sizes.rows, count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The attention's output projection, whose output is reduce-scattered.
    fn projection(ranks: usize, tokens: usize, d_model: usize) -> OverlapSizes {
        OverlapSizes {
            ranks,
            rows: tokens / ranks,
            d_input: d_model / ranks,
            d_output: d_model,
            communicated: d_model,
            element_bytes: 2,
        }
    }

    #[test]
    fn known_layers_are_chunked_where_it_pays() {
        let found = |ranks, tokens, d_model| projection(ranks, tokens, d_model).num_chunks();
        assert!((3..=8).contains(&found(8, 8192, 6144)), "22 B on 8 ranks");
        assert!((2..=8).contains(&found(8, 2048, 12288)), "175 B on 8 ranks");
        assert_eq!(found(2, 1024, 1024), 1, "small");
        assert_eq!(found(1, 8192, 6144), 1, "one rank");
        assert_eq!(found(8, 0, 6144), 1, "no rows");
    }

    #[test]
    fn the_documented_figures_are_the_models() {
        let sizes = projection(8, 8192, 6144);
        let communication = LATENCY + sizes.bytes() / BYTES_PER_SECOND;
        assert!((400e-6 - communication).abs() < 5e-6, "{communication}");
        let matmul = 2.0 * (8192.0 * 6144.0 * 768.0) / FLOPS;
        assert!((360e-6 - matmul).abs() < 5e-6, "{matmul}");
        let saved = 1.0 - sizes.seconds(4) / sizes.seconds(1);
        assert!((0.22..0.27).contains(&saved), "{saved}");
    }

    fn sizes() -> impl Strategy<Value = OverlapSizes> {
        let columns = 1_usize..30_000;
        (
            1_usize..17,
            0_usize..20_000,
            columns.clone(),
            columns.clone(),
            columns,
            1_usize..5,
        )
            .prop_map(
                |(ranks, rows, d_input, d_output, communicated, element_bytes)| OverlapSizes {
                    ranks,
                    rows,
                    d_input,
                    d_output,
                    communicated,
                    element_bytes,
                },
            )
    }

    proptest! {
        #[test]
        fn chunks_are_chosen_where_they_save_time(sizes in sizes()) {
            let chunks = sizes.num_chunks();
            prop_assert!((1..=MOST).contains(&chunks) && chunks <= sizes.rows.max(1));
            if chunks > 1 {
                prop_assert!(sizes.seconds(chunks) < sizes.seconds(1) * (1.0 - LEAST_SAVED));
                // No number of chunks hides more than the shorter of the two.
                let communication = LATENCY + sizes.bytes() / BYTES_PER_SECOND;
                prop_assert!(sizes.seconds(chunks) > communication.max(sizes.seconds(1) - communication));
            }
        }

        #[test]
        fn what_takes_less_than_the_calls_stays_whole(sizes in sizes()) {
            let least = 2.0 * LATENCY * BYTES_PER_SECOND;
            let few = OverlapSizes { rows: sizes.rows % 64, communicated: sizes.communicated % 512, ..sizes };
            prop_assert!(few.bytes() < least);
            prop_assert_eq!(few.num_chunks(), 1);
        }
    }
}
