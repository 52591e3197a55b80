//! Paged attention on the host in f64: what the tests compare with.

use super::PagedSizes;

/// What is done with the scores, as [`PagedOptions`](super::PagedOptions) says.
#[derive(Clone, Copy, Debug)]
pub struct HostOptions<'a> {
    /// What the products are multiplied by.
    pub scale: f64,
    /// Those of the heads.
    pub slopes: Option<&'a [f64]>,
    /// The keys that a query sees at most.
    pub window: Option<usize>,
}

/// Returns the output for contiguous tensors in the layouts of [`paged_attention`](super::paged_attention()).
pub fn forward(
    sizes: PagedSizes,
    [query, keys, values]: [&[f64]; 3],
    block_table: &[i64],
    lengths: &[i64],
    options: &HostOptions<'_>,
) -> Vec<f64> {
    let PagedSizes {
        queries, heads, d_head, ..
    } = sizes;
    let mut output = vec![0.0; query.len()];
    for (row, output) in output.chunks_exact_mut(d_head.max(1)).enumerate() {
        let (sample, nth, head) = (row / heads / queries, row / heads % queries, row % heads);
        let length = usize::try_from(lengths[sample]).unwrap_or(0).min(sizes.most_keys());
        let seen = (length + nth + 1).saturating_sub(queries);
        let first = options.window.map_or(0, |window| seen.saturating_sub(window));
        let table = &block_table[sample * sizes.most_pages..];
        let keys_at: Vec<_> = (first..seen)
            .filter_map(|key| Some((key, place(sizes, table, key, head)?)))
            .collect();
        let query = &query[row * d_head..][..d_head];
        let score = |&(key, place): &(usize, usize)| {
            let product: f64 = query.iter().zip(&keys[place..]).map(|(a, b)| a * b).sum();
            let slope = options.slopes.map_or(0.0, |slopes| slopes[head]);
            options.scale * product - slope * (seen - 1 - key) as f64
        };
        let scores: Vec<f64> = keys_at.iter().map(score).collect();
        let maximum = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let exponentials: Vec<f64> = scores.iter().map(|score| (score - maximum).exp()).collect();
        let sum: f64 = exponentials.iter().sum();
        for (weight, &(_, place)) in exponentials.iter().zip(&keys_at) {
            for (output, value) in output.iter_mut().zip(&values[place..]) {
                *output += weight / sum * value;
            }
        }
    }
    output
}

/// Where a key begins; `None` if its page is not one of the pool.
fn place(sizes: PagedSizes, block_table: &[i64], key: usize, head: usize) -> Option<usize> {
    let page = usize::try_from(block_table[key / sizes.page_size]).ok()?;
    let token = page * sizes.page_size + key % sizes.page_size;
    (page < sizes.pages).then_some((token * sizes.kv_heads + head / sizes.group()) * sizes.d_head)
}
