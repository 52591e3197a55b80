//! [`PagedKeyValues`]: the keys and values that generation keeps of a layer, in pages; [`PagedTokens`]: which of its
//! places the new tokens of a step have; and the attention of new tokens to all of their sequence.

use std::ops::Range;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use cubecl_kernels::flash_attention::PackedHeads;
use cubecl_kernels::paged_attention::{PagedCache, PagedOptions, paged_attention_with_options};
use cubecl_kernels::ranges::{RangeTarget, scatter_ranges};

use super::CausalSelfAttention;
use super::rotary::RotaryPositions;
use crate::tensor_parallel::checked;

/// The sizes of a layer's pool of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSizes {
    /// Pages of the pool, which all sequences share.
    pub num_pages: usize,
    /// Tokens of a page.
    pub page_tokens: usize,
}

/// The keys and values of one layer, of this rank's heads, in the pages of a pool.
#[derive(Debug)]
pub struct PagedKeyValues {
    /// `[num_pages * page_tokens * heads * d_head]` each. Taken out while they are written to, so that nothing else
    /// holds them and no copy is made.
    pools: Option<[Tensor<1>; 2]>,
    pages: PageSizes,
    heads: usize,
    d_head: usize,
}

/// A sequence in a step: where it is stored, and how many of its tokens are new.
#[derive(Clone, Copy, Debug)]
pub struct PagedSequence<'a> {
    /// Its pages, in the order of its tokens; more than it needs now, maybe.
    pub pages: &'a [usize],
    /// Tokens whose keys and values are in them.
    pub cached: usize,
    /// Tokens after these, which the step computes.
    pub new: usize,
}

/// The new tokens of a step, sequence after sequence: where their keys and values are stored, and which they attend
/// to.
#[derive(Clone, Debug)]
pub struct PagedTokens {
    /// Runs of tokens that are next to each other in the pool: the first place there, and the rows.
    runs: Vec<(usize, Range<usize>)>,
    batches: Vec<QueryBatch>,
    count: usize,
    positions: Tensor<1, Int>,
}

/// Sequences that one call of attention computes.
#[derive(Clone, Debug)]
enum QueryBatch {
    /// A whole prompt, which attends to itself.
    Whole(Range<usize>),
    /// Sequences of the same number of new tokens.
    Cached {
        rows: Range<usize>,
        block_table: Tensor<2, Int>,
        lengths: Tensor<1, Int>,
    },
}

impl PagedTokens {
    /// Returns the new tokens of sequences, one after the other. Consecutive sequences of one new token each are
    /// computed together.
    ///
    /// # Panics
    /// When a sequence has no new token, or more tokens than its pages hold.
    pub fn new(sequences: &[PagedSequence], page_tokens: usize, device: &Device) -> Self {
        let places = sequences
            .iter()
            .flat_map(|sequence| sequence.cached..sequence.cached + sequence.new);
        let places: Vec<i32> = places.map(|place| place as i32).collect();
        let count = places.len();
        let mut tokens = Self {
            runs: Vec::new(),
            batches: Vec::new(),
            count: 0,
            positions: Tensor::from_data(TensorData::new(places, [count]), (device, DType::I32)),
        };
        for together in sequences.chunk_by(|left, right| left.new == 1 && right.new == 1) {
            let begin = tokens.count;
            for sequence in together {
                tokens.add_runs(sequence, page_tokens);
            }
            let rows = begin..tokens.count;
            tokens.batches.push(match together {
                [whole] if whole.cached == 0 => QueryBatch::Whole(rows),
                _ => cached_batch(together, rows, page_tokens, device),
            });
        }
        tokens
    }

    /// The number of new tokens.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The place of each token in its sequence, from 0: `[tokens]`.
    pub fn positions(&self) -> Tensor<1, Int> {
        self.positions.clone()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn add_runs(&mut self, sequence: &PagedSequence, page_tokens: usize) {
        let &PagedSequence { pages, cached, new } = sequence;
        let held = pages.len() * page_tokens;
        assert!(new > 0, "a sequence of a step must have a new token");
        assert!(
            cached + new <= held,
            "{cached} + {new} tokens do not fit {} pages of {page_tokens}",
            pages.len()
        );
        let mut position = cached;
        while position < cached + new {
            let (page, offset) = (position / page_tokens, position % page_tokens);
            let count = (page_tokens - offset).min(cached + new - position);
            let place = pages[page] * page_tokens + offset;
            self.runs.push((place, self.count..self.count + count));
            self.count += count;
            position += count;
        }
    }
}

fn cached_batch(sequences: &[PagedSequence], rows: Range<usize>, page_tokens: usize, device: &Device) -> QueryBatch {
    let used = |sequence: &PagedSequence| (sequence.cached + sequence.new).div_ceil(page_tokens);
    let most_pages = sequences.iter().map(used).max().unwrap_or(0);
    let mut table = Vec::with_capacity(sequences.len() * most_pages);
    for sequence in sequences {
        let used = used(sequence);
        table.extend(sequence.pages[..used].iter().map(|page| *page as i32));
        // No page: what is there is hidden.
        table.extend(std::iter::repeat_n(-1, most_pages - used));
    }
    let lengths: Vec<i32> = (sequences.iter())
        .map(|sequence| (sequence.cached + sequence.new) as i32)
        .collect();
    QueryBatch::Cached {
        rows,
        block_table: Tensor::from_data(
            TensorData::new(table, [sequences.len(), most_pages]),
            (device, DType::I32),
        ),
        lengths: Tensor::from_data(TensorData::new(lengths, [sequences.len()]), (device, DType::I32)),
    }
}

impl PagedKeyValues {
    /// Returns an empty pool for keys and values of `heads` heads of `d_head` elements.
    pub fn new(pages: PageSizes, heads: usize, d_head: usize, dtype: DType, device: &Device) -> Self {
        let elements = pages.num_pages * pages.page_tokens * heads * d_head;
        let pool = || Tensor::zeros([elements], (device, dtype));
        Self {
            pools: Some([pool(), pool()]),
            pages,
            heads,
            d_head,
        }
    }

    /// Stores the keys and values of new tokens, `[tokens, heads * d_head]` each.
    fn write(&mut self, keys_and_values: [Tensor<2>; 2], tokens: &PagedTokens) {
        let width = self.heads * self.d_head;
        let target = |(place, rows): &(usize, Range<usize>)| RangeTarget {
            range: place * width..(place + rows.len()) * width,
            start: rows.start * width,
        };
        let targets: Vec<_> = tokens.runs.iter().map(target).collect();
        let [keys, values] = self.pools.take().expect("put back after each write");
        let [new_keys, new_values] = keys_and_values.map(|new| new.reshape([tokens.count * width]));
        self.pools = Some([
            checked(scatter_ranges(keys, new_keys, &targets)),
            checked(scatter_ranges(values, new_values, &targets)),
        ]);
    }

    /// The pool with the block table of a batch.
    fn view(&self, block_table: Tensor<2, Int>, lengths: Tensor<1, Int>) -> PagedCache {
        let dims = [self.pages.num_pages, self.pages.page_tokens, self.heads, self.d_head];
        let [keys, values] = self.pools.clone().expect("put back after each write");
        PagedCache {
            keys: keys.reshape(dims),
            values: values.reshape(dims),
            block_table,
            lengths,
        }
    }
}

impl CausalSelfAttention {
    /// Returns an empty pool for this rank's heads of this layer.
    pub fn paged_key_values(&self, pages: PageSizes, device: &Device) -> PagedKeyValues {
        let dtype = self.qkv.weight.val().dtype();
        PagedKeyValues::new(pages, self.n_kv_heads, self.d_head, dtype, device)
    }

    /// Applies attention of new tokens to all tokens of their sequences so far, and stores their keys and values in
    /// `cache`. The last bias is returned separately and is yet to be added.
    ///
    /// Nothing is dropped. Whole prompts attend by
    /// [`flash_attention_packed_with_bias`](cubecl_kernels::flash_attention::flash_attention_packed_with_bias), which
    /// reads nothing of the cache, later tokens by [`paged_attention_with_options`].
    ///
    /// # Shapes
    /// - `input`: `[tokens, d_model]`, the same on every tensor-parallel rank
    /// - output: as `input`
    ///
    /// # Communication
    /// That of a column-parallel and of a row-parallel layer.
    ///
    /// # Panics
    /// When a collective fails, or the tokens are not those of the input.
    pub fn forward_paged_without_bias(
        &self,
        input: Tensor<2>,
        tokens: &PagedTokens,
        cache: &mut PagedKeyValues,
    ) -> (Tensor<2>, Option<Tensor<1>>) {
        self.output
            .forward_without_bias(self.forward_paged_heads(input, tokens, cache))
    }

    /// As [`forward_paged_without_bias`](Self::forward_paged_without_bias), before the projection back.
    ///
    /// # Shapes
    /// - `input`: `[tokens, d_model]`, the same on every tensor-parallel rank
    /// - output: `[tokens, heads / tp * d_head]`
    ///
    /// # Communication
    /// That of a column-parallel layer.
    ///
    /// # Panics
    /// As [`forward_paged_without_bias`](Self::forward_paged_without_bias).
    pub fn forward_paged_heads(&self, input: Tensor<2>, tokens: &PagedTokens, cache: &mut PagedKeyValues) -> Tensor<2> {
        let qkv = self.qkv.forward(input);
        assert_eq!(qkv.dims()[0], tokens.len(), "rows against new tokens");
        let qkv = self.pack(qkv, RotaryPositions::OnDevice(tokens.positions()));
        let (PackedHeads { queries, keys }, d_head) = (self.parts(), self.d_head);
        // [tokens, (heads + 2 * kv_heads) * d_head]
        let qkv = qkv.reshape([tokens.len(), (queries + 2 * keys) * d_head]);
        let part = |first: usize, heads: usize| qkv.clone().narrow(1, first * d_head, heads * d_head);
        cache.write([part(queries, keys), part(queries + keys, keys)], tokens);
        let outputs = tokens.batches.iter().map(|batch| match batch {
            QueryBatch::Whole(rows) => self.attend_whole(rows_of(&qkv, rows)),
            QueryBatch::Cached {
                rows,
                block_table,
                lengths,
            } => {
                let query = rows_of(&part(0, queries), rows);
                self.attend_paged(query, cache.view(block_table.clone(), lengths.clone()))
            }
        });
        Tensor::cat(outputs.collect(), 0)
    }

    /// `[tokens, (heads + 2 * kv_heads) * d_head]` of a whole prompt to `[tokens, heads * d_head]`.
    fn attend_whole(&self, qkv: Tensor<2>) -> Tensor<2> {
        let (heads, d_head, [tokens, _]) = (self.n_heads, self.d_head, qkv.dims());
        let parts = self.parts();
        let qkv = qkv.reshape([1, tokens, parts.queries + 2 * parts.keys, d_head]);
        let output = self.attend_packed(qkv, None, None, None);
        output.reshape([tokens, heads * d_head])
    }

    /// `[sequences * new, heads * d_head]`, queries and then what they give.
    fn attend_paged(&self, query: Tensor<2>, cache: PagedCache) -> Tensor<2> {
        let (heads, d_head, [tokens, width]) = (self.n_heads, self.d_head, query.dims());
        let [sequences] = cache.lengths.dims();
        let query = query.reshape([sequences, tokens / sequences, heads, d_head]);
        let alibi = self.alibi.as_ref();
        let options = PagedOptions {
            scale: self.scale,
            slopes: alibi.map(|alibi| alibi.slopes(query.dtype(), &query.device())),
            window: self.window,
        };
        let output = checked(paged_attention_with_options(query, cache, options));
        output.reshape([tokens, width])
    }
}

fn rows_of(tensor: &Tensor<2>, rows: &Range<usize>) -> Tensor<2> {
    tensor.clone().narrow(0, rows.start, rows.len())
}
