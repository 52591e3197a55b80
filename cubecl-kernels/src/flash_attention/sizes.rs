//! `AttentionSizes`: the sizes of an attention's tensors.

use super::PackedHeads;

/// The sizes of an attention; its tensors are contiguous, in the layouts of
/// [`flash_attention`](super::flash_attention()).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionSizes {
    /// Samples.
    pub batch: usize,
    /// Queries of a sample.
    pub queries: usize,
    /// Keys, and values, of a sample.
    pub keys: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of the keys, and of the values.
    pub kv_heads: usize,
    /// Elements of a head.
    pub d_head: usize,
}

impl AttentionSizes {
    /// Those of tensors of these shapes; the values' is the keys'.
    pub(super) fn of(query: [usize; 4], key: [usize; 4]) -> Self {
        let ([batch, queries, heads, d_head], [_, keys, kv_heads, _]) = (query, key);
        Self {
            batch,
            queries,
            keys,
            heads,
            kv_heads,
            d_head,
        }
    }

    /// Those of a packed tensor of this shape.
    pub(super) fn of_packed([batch, seq, _, d_head]: [usize; 4], heads: PackedHeads) -> Self {
        Self::of([batch, seq, heads.queries, d_head], [batch, seq, heads.keys, d_head])
    }

    /// How many distances there are between a key and a query: the columns of a relative bias.
    pub(super) fn distances(self) -> usize {
        (self.queries + self.keys).saturating_sub(1)
    }
}
