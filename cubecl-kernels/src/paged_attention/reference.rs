//! Paged attention in burn's operations: the pages are gathered, and their attention is computed as a tensor.

use burn::tensor::{Bool, FloatDType, Int, Tensor};

use super::{PagedCache, PagedOptions, PagedSizes};
use crate::precision::{narrow, widen, zeros_like};
use crate::softmax;

/// Returns the output.
pub fn forward(query: Tensor<4>, cache: PagedCache, options: PagedOptions) -> Tensor<4> {
    let sizes = PagedSizes::of(&query, &cache);
    if query.dims().contains(&0) || sizes.pages * sizes.most_keys() == 0 {
        return zeros_like(&query);
    }
    let dtype = query.dtype();
    let hidden = hidden_keys(sizes, &cache);
    let gathered = |pool| by_head(sizes, widen(pool), &cache.block_table, hidden.clone());
    let [keys, values] = [cache.keys.clone(), cache.values.clone()].map(gathered);

    let mut scores = grouped(sizes, widen(query)).matmul(keys.transpose());
    let mut scale = options.scale;
    let distances = distances(sizes, &cache);
    if let Some(slopes) = options.slopes {
        let of_scores = FloatDType::from(scores.dtype());
        let bias = of_rows(sizes, slopes) * distances.clone().float().cast(of_scores);
        scores = scores.mul_scalar(scale) + bias;
        scale = 1.0;
    }
    let unseen = unseen_keys(sizes, distances, hidden, options.window);
    let of_scores = softmax::Forward {
        is_causal: false,
        scale,
    };
    let output = softmax::reference::forward(scores, Some(unseen), &of_scores).matmul(values);
    narrow(ungrouped(sizes, output), dtype)
}

/// `[batch, most_keys]`: whether a key is after the sequence's last one, or its page not one of the pool.
fn hidden_keys(sizes: PagedSizes, cache: &PagedCache) -> Tensor<2, Bool> {
    let (batch, keys) = (sizes.batch, sizes.most_keys());
    let table = cache.block_table.clone();
    let is_outside = table
        .clone()
        .lower_elem(0)
        .bool_or(table.greater_equal_elem(sizes.pages as i64));
    let is_outside = is_outside
        .unsqueeze_dim::<3>(2)
        .expand([batch, sizes.most_pages, sizes.page_size])
        .reshape([batch, keys]);
    let lengths = cache.lengths.clone().unsqueeze_dim::<2>(1).expand([batch, keys]);
    positions(keys, cache).greater_equal(lengths).bool_or(is_outside)
}

/// `[batch, 1, queries * group, most_keys]`: a key's position less that of a query.
fn distances(sizes: PagedSizes, cache: &PagedCache) -> Tensor<4, Int> {
    let (batch, keys, rows) = (sizes.batch, sizes.most_keys(), sizes.queries * sizes.group());
    let dims = [batch, 1, rows, keys];
    let nth: Vec<i64> = (0..rows).map(|row| (row / sizes.group()) as i64).collect();
    let nth = Tensor::<1, Int>::from_data(nth.as_slice(), &cache.lengths.device());
    let most = cache
        .lengths
        .clone()
        .clamp_max(keys as i64)
        .sub_scalar(sizes.queries as i64);
    let own = most.reshape([batch, 1, 1, 1]).expand(dims) + nth.reshape([1, 1, rows, 1]).expand(dims);
    positions(keys, cache).reshape([batch, 1, 1, keys]).expand(dims) - own
}

/// `[batch, 1, queries * group, most_keys]`: whether a query does not see a key.
fn unseen_keys(
    sizes: PagedSizes,
    distances: Tensor<4, Int>,
    hidden: Tensor<2, Bool>,
    window: Option<usize>,
) -> Tensor<4, Bool> {
    let dims = distances.dims();
    let mut unseen = distances.clone().greater_elem(0);
    if let Some(window) = window {
        // One that is longer than all keys hides none of them.
        let window = window.min(sizes.most_keys()) as i64;
        unseen = unseen.bool_or(distances.lower_equal_elem(-window));
    }
    unseen.bool_or(hidden.reshape([sizes.batch, 1, 1, sizes.most_keys()]).expand(dims))
}

/// `[1, kv_heads, queries * group, 1]`: each row's slope.
fn of_rows(sizes: PagedSizes, slopes: Tensor<1>) -> Tensor<4> {
    let (kv_heads, group) = (sizes.kv_heads, sizes.group());
    slopes
        .reshape([kv_heads, 1, group])
        .expand([kv_heads, sizes.queries, group])
        .reshape([1, kv_heads, sizes.queries * group, 1])
}

/// `[batch, keys]`: the keys' positions.
fn positions(keys: usize, cache: &PagedCache) -> Tensor<2, Int> {
    let [batch] = cache.lengths.dims();
    Tensor::<1, Int>::arange(0..keys as i64, &cache.lengths.device())
        .unsqueeze::<2>()
        .expand([batch, keys])
}

/// `[pages, page_size, kv_heads, d_head]` to the sequences' `[batch, kv_heads, most_keys, d_head]`, 0 where hidden.
fn by_head(sizes: PagedSizes, pool: Tensor<4>, block_table: &Tensor<2, Int>, hidden: Tensor<2, Bool>) -> Tensor<4> {
    let PagedSizes {
        batch,
        kv_heads,
        d_head,
        pages,
        ..
    } = sizes;
    let keys = sizes.most_keys();
    let pages = block_table
        .clone()
        .clamp(0, pages as i64 - 1)
        .reshape([batch * sizes.most_pages]);
    let hidden = hidden
        .reshape([batch, 1, keys, 1])
        .expand([batch, kv_heads, keys, d_head]);
    let gathered = pool.select(0, pages).reshape([batch, keys, kv_heads, d_head]);
    gathered.swap_dims(1, 2).mask_fill(hidden, 0.0)
}

/// `[batch, queries, heads, d_head]` to `[batch, kv_heads, queries * group, d_head]`.
fn grouped(sizes: PagedSizes, query: Tensor<4>) -> Tensor<4> {
    let PagedSizes {
        batch,
        queries,
        kv_heads,
        d_head,
        ..
    } = sizes;
    query
        .reshape([batch, queries, kv_heads, sizes.group(), d_head])
        .swap_dims(1, 2)
        .reshape([batch, kv_heads, queries * sizes.group(), d_head])
}

/// The way back of [`grouped`].
fn ungrouped(sizes: PagedSizes, output: Tensor<4>) -> Tensor<4> {
    let PagedSizes {
        batch,
        queries,
        heads,
        kv_heads,
        d_head,
        ..
    } = sizes;
    output
        .reshape([batch, kv_heads, queries, sizes.group(), d_head])
        .swap_dims(1, 2)
        .reshape([batch, queries, heads, d_head])
}
