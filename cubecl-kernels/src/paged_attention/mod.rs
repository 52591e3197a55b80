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
mod launch;
mod reference;

use burn::backend::DispatchTensor;
use burn::tensor::{Int, Tensor};
#[cfg(feature = "cubecl")]
use burn_cubecl::tensor::CubeTensor;
#[cfg(feature = "cubecl")]
use cubecl::client::Client;

use crate::error::{Check, KernelError};
use crate::operation::{Operation, Spec, Tensors, apply};
use crate::precision::compute_type;
use crate::tape::{inner, node_id};

/// The keys and values of a batch of sequences, in the pages of a pool.
#[derive(Clone, Debug)]
pub struct PagedCache {
    /// `[pages, page_size, kv_heads, d_head]`
    pub keys: Tensor<4>,
    /// Values, in the shape of `keys`.
    pub values: Tensor<4>,
    /// `[batch, most_pages]`: which pages hold each sequence, in the order of its tokens. Entries after the sequence's
    /// last page are not used; an entry that is not a page of the pool hides its keys.
    pub block_table: Tensor<2, Int>,
    /// `[batch]`: the tokens of each sequence, the queries' own included.
    pub lengths: Tensor<1, Int>,
}

impl Tensors for PagedCache {
    type Of<T: Send + Sync> = [T; 4];

    fn into_dispatch(self) -> [DispatchTensor; 4] {
        let [keys, values] = [self.keys, self.values].map(Tensor::into_dispatch);
        [
            keys,
            values,
            self.block_table.into_dispatch(),
            self.lengths.into_dispatch(),
        ]
    }

    fn from_dispatch([keys, values, block_table, lengths]: [DispatchTensor; 4]) -> Self {
        Self {
            keys: Tensor::from_dispatch(keys),
            values: Tensor::from_dispatch(values),
            block_table: Tensor::from_dispatch(block_table),
            lengths: Tensor::from_dispatch(lengths),
        }
    }

    fn map<T: Send + Sync, U: Send + Sync>(of: [T; 4], each: &mut impl FnMut(T) -> U) -> [U; 4] {
        of.map(each)
    }

    fn by_ref<T: Send + Sync>(of: &[T; 4]) -> [&T; 4] {
        of.each_ref()
    }
}

/// Treatment of the scores.
#[derive(Clone, Debug)]
pub struct PagedOptions {
    /// Factor of the products of queries and keys; `1 / √d_head` as a rule.
    pub scale: f64,
    /// ALiBi's slopes, `[heads]`, in f32, or in f64 where the query is in f64: `slope · (key − query)`, of their
    /// positions, is added to the scaled score.
    pub slopes: Option<Tensor<1>>,
    /// How many keys a query sees at most: the last ones up to itself. Those before them are not read.
    pub window: Option<usize>,
}

impl PagedOptions {
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
    pub fn of(query: &Tensor<4>, cache: &PagedCache) -> Self {
        Self::of_dims(query.dims(), cache.keys.dims(), cache.block_table.dims())
    }

    fn of_dims(query: [usize; 4], keys: [usize; 4], block_table: [usize; 2]) -> Self {
        let [batch, queries, heads, d_head] = query;
        let [pages, page_size, kv_heads, _] = keys;
        let [_, most_pages] = block_table;
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
/// `h * kv_heads / heads`. A query that sees no key is 0 throughout. There is no fused backward pass: where
/// something is tracked, burn's own operations run, which burn differentiates.
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
pub fn paged_attention(query: Tensor<4>, cache: PagedCache, scale: f64) -> Result<Tensor<4>, KernelError> {
    checked(Check("paged_attention"), query, cache, PagedOptions::new(scale))
}

/// Applies [`paged_attention`] with a bias of the distance between query and key, and a window, where there are these.
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
pub fn paged_attention_with_options(
    query: Tensor<4>,
    cache: PagedCache,
    options: PagedOptions,
) -> Result<Tensor<4>, KernelError> {
    checked(Check("paged_attention_with_options"), query, cache, options)
}

fn checked(check: Check, query: Tensor<4>, cache: PagedCache, options: PagedOptions) -> Result<Tensor<4>, KernelError> {
    let scale = options.scale;
    let sizes = PagedSizes::of(&query, &cache);
    check.float("the query", query.dtype(), &query.device())?;
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
    let PagedOptions { scale, slopes, window } = options;
    let (attend, inputs) = (Attend { scale, window }, (query, cache, slopes));
    let (query, cache, slopes) = &inputs;
    let is_tracked = [query, &cache.keys, &cache.values]
        .map(node_id)
        .iter()
        .any(Option::is_some);
    Ok(
        if is_tracked || slopes.as_ref().is_some_and(|slopes| node_id(slopes).is_some()) {
            attend.reference(inputs)
        } else {
            apply(&attend, inner(&inputs))
        },
    )
}

/// A query, its cache and the slopes to the output.
#[derive(Clone, Debug)]
struct Attend {
    scale: f64,
    window: Option<usize>,
}

impl Operation for Attend {
    type Inputs = (Tensor<4>, PagedCache, Option<Tensor<1>>);
    type Outputs = Tensor<4>;

    const NAME: &'static str = "paged_attention";

    fn outputs(&self, (query, ..): (Spec, [Spec; 4], Option<Spec>)) -> Spec {
        query
    }

    fn reference(&self, (query, cache, slopes): Self::Inputs) -> Tensor<4> {
        let (scale, window) = (self.scale, self.window);
        reference::forward(query, cache, PagedOptions { scale, slopes, window })
    }

    #[cfg(feature = "cubecl")]
    fn is_taken(&self, client: &Client, (query, cache, _): (Spec, [Spec; 4], Option<Spec>)) -> bool {
        let [keys, _, block_table, lengths] = cache;
        let sizes = PagedSizes::of_dims(query.0.dims(), keys.0.dims(), block_table.0.dims());
        block_table.1 == lengths.1 && launch::fits(client, sizes)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (query, cache, slopes): (CubeTensor, [CubeTensor; 4], Option<CubeTensor>)) -> CubeTensor {
        launch::forward(query, cache, slopes, self)
    }
}
