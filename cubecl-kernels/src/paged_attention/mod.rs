//! Attention of a few new tokens of each sequence to all of its tokens, whose keys and values are kept in pages:
//! generation's form of attention.
//!
//! A pool of pages is shared by the sequences of a batch, and a block table says which pages hold a sequence. A
//! sequence grows by a page at a time, wherever there is a free one, so that no memory is set aside for the longest.
//! The keys of a sequence are cut into splits, each read by cubes of its own, so that a batch of one fills the device
//! too; a second kernel then joins the splits.

pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
pub(crate) mod launch;
pub mod reference;

use burn::tensor::{Int, Tensor, backend::Backend};

use crate::KernelBackend;
use crate::error::{Check, KernelError};
use crate::precision::compute_type;

/// The keys and values of a batch of sequences, in the pages of a pool.
#[derive(Clone, Debug)]
pub struct PagedCache<B: Backend> {
    /// `[pages, page_size, kv_heads, d_head]`
    pub keys: Tensor<B, 4>,
    /// As `keys`.
    pub values: Tensor<B, 4>,
    /// `[batch, most_pages]`: which pages hold each sequence, in the order of its tokens. Entries after the sequence's
    /// last page are not used; an entry that is not a page of the pool hides its keys.
    pub block_table: Tensor<B, 2, Int>,
    /// `[batch]`: the tokens of each sequence, the queries' own included.
    pub lengths: Tensor<B, 1, Int>,
}

/// What is done with the scores.
#[derive(Clone, Debug)]
pub struct PagedOptions<B: Backend> {
    /// What the products of queries and keys are multiplied by; `1 / √d_head` as a rule.
    pub scale: f64,
    /// ALiBi's slopes, `[heads]`, in f32, or in f64 where the query is in f64: `slope · (key − query)`, of their
    /// positions, is added to the scaled score.
    pub slopes: Option<Tensor<B, 1>>,
    /// How many keys a query sees at most: the last ones up to itself. Those before them are not read.
    pub window: Option<usize>,
}

impl<B: Backend> PagedOptions<B> {
    /// Scores that are only scaled.
    pub fn new(scale: f64) -> Self {
        Self {
            scale,
            slopes: None,
            window: None,
        }
    }
}

/// The sizes of a paged attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagedSizes {
    /// Sequences.
    pub batch: usize,
    /// New tokens of each sequence.
    pub queries: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of the keys, and of the values.
    pub kv_heads: usize,
    /// Elements of a head.
    pub d_head: usize,
    /// Pages of the pool.
    pub pages: usize,
    /// Tokens of a page.
    pub page_size: usize,
    /// Pages of a sequence, at most.
    pub most_pages: usize,
}

impl PagedSizes {
    /// The sizes of a query and its cache.
    pub fn of<B: Backend>(query: &Tensor<B, 4>, cache: &PagedCache<B>) -> Self {
        let [batch, queries, heads, d_head] = query.dims();
        let [pages, page_size, kv_heads, _] = cache.keys.dims();
        let [_, most_pages] = cache.block_table.dims();
        Self {
            batch,
            queries,
            heads,
            kv_heads,
            d_head,
            pages,
            page_size,
            most_pages,
        }
    }

    /// The tokens of a sequence, at most.
    pub fn most_keys(self) -> usize {
        self.most_pages * self.page_size
    }

    /// The heads of the queries for each of the keys.
    pub fn group(self) -> usize {
        self.heads / self.kv_heads.max(1)
    }
}

/// Applies attention to the newest tokens of each sequence: token `i` of `queries` sees all tokens up to itself, the
/// first `length - queries + i + 1`.
///
/// Heads share keys and values in groups if there are fewer of these: head `h` of the queries has key head
/// `h * kv_heads / heads`. A query that sees no key is 0 throughout. There is no fused backward pass: an autodiff
/// backend differentiates the [reference](mod@reference).
///
/// # Shapes
/// - `query`: `[batch, queries, heads, d_head]`
/// - `cache`: as [`PagedCache`] says, holding the queries' own keys and values
/// - output: as `query`
///
/// # Errors
/// When shapes or types do not fit each other, or the scale is not a finite number above 0. Lengths and block tables
/// are on the device and not checked: a length beyond the block table counts as its end.
///
/// # Reference
/// Kwon et al. 2023, arXiv:2309.06180 (pages); Dao et al. 2023, "Flash-Decoding for long-context inference" (splits).
pub fn paged_attention<B: KernelBackend>(
    query: Tensor<B, 4>,
    cache: PagedCache<B>,
    scale: f64,
) -> Result<Tensor<B, 4>, KernelError> {
    checked(Check("paged_attention"), query, cache, PagedOptions::new(scale))
}

/// As [`paged_attention`], with a bias of the distance between query and key, and a window, where there are these.
///
/// # Shapes
/// As [`paged_attention`].
///
/// # Errors
/// As [`paged_attention`], and when there are other many slopes than heads, they have another type, or the window has
/// no keys.
///
/// # Reference
/// Press et al. 2022, arXiv:2108.12409 (slopes); Jiang et al. 2023, arXiv:2310.06825 (windows).
pub fn paged_attention_with_options<B: KernelBackend>(
    query: Tensor<B, 4>,
    cache: PagedCache<B>,
    options: PagedOptions<B>,
) -> Result<Tensor<B, 4>, KernelError> {
    checked(Check("paged_attention_with_options"), query, cache, options)
}

fn checked<B: KernelBackend>(
    check: Check,
    query: Tensor<B, 4>,
    cache: PagedCache<B>,
    options: PagedOptions<B>,
) -> Result<Tensor<B, 4>, KernelError> {
    let scale = options.scale;
    let sizes = PagedSizes::of(&query, &cache);
    check.float::<B>("the query", query.dtype(), &query.device())?;
    let expected = [sizes.pages, sizes.page_size, sizes.kv_heads, sizes.d_head];
    check.shape("the keys", &cache.keys.dims(), &expected)?;
    check.shape("the values", &cache.values.dims(), &expected)?;
    check.same_type("the keys", cache.keys.dtype(), query.dtype())?;
    check.same_type("the values", cache.values.dtype(), query.dtype())?;
    let expected = [sizes.batch, sizes.most_pages];
    check.shape("the block table", &cache.block_table.dims(), &expected)?;
    check.shape("the lengths", &cache.lengths.dims(), &[sizes.batch])?;
    let is_group = sizes.kv_heads > 0 && sizes.heads.is_multiple_of(sizes.kv_heads);
    check.value("the number of key heads", sizes.kv_heads as f64, is_group, || {
        format!("a divisor of that of the query heads, {}", sizes.heads)
    })?;
    check.value("the scale", scale, scale.is_finite() && scale > 0.0, || {
        "finite and above 0".to_owned()
    })?;
    if let Some(slopes) = &options.slopes {
        check.shape("the slopes", &slopes.dims(), &[sizes.heads])?;
        check.same_type("the slopes", slopes.dtype(), compute_type(query.dtype()))?;
    }
    if let Some(window) = options.window {
        check.value("the window", window as f64, window > 0, || "at least 1".to_owned())?;
    }
    Ok(B::paged_attention(query, cache, options))
}
