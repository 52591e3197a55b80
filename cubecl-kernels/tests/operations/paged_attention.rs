//! `paged_attention` against its host version.

use anyhow::ensure;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cubecl_kernels::paged_attention::host::{self, HostOptions};
use cubecl_kernels::paged_attention::{PagedCache, PagedOptions, PagedSizes, paged_attention_with_options};
use cubecl_kernels::precision::{compute_type, is_half};
use libtest_mimic::Trial;

use crate::support::compare::{expect_close, normal, over};
use crate::support::setting::{Claim, Setting, trials_of, trials_of_nothing};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<MatchesTheHost>();
    trials.extend(trials_of::<AddsSlopesWithinAWindow>());
    trials.extend(trials_of::<LongSequencesMatchTheHost>());
    trials.extend(trials_of::<PagesOutsideThePoolAreHidden>());
    trials.extend(trials_of_nothing::<NothingIsTheAttentionOfNothing>());
    trials
}

/// Sequences of some lengths, their pages in a drawn order in a pool that has others too.
struct Case {
    sizes: PagedSizes,
    lengths: Vec<i64>,
    block_table: Vec<i64>,
}

impl Case {
    fn new(sizes: PagedSizes, lengths: Vec<i64>) -> Self {
        let used = sizes.batch * sizes.most_pages;
        let pages = 2 * used + 1;
        // Every other page, from the last to the first.
        let block_table = (0..used).map(|entry| (2 * (used - entry) - 1) as i64).collect();
        Self {
            sizes: PagedSizes { pages, ..sizes },
            lengths,
            block_table,
        }
    }

    fn pool_shape(&self) -> [usize; 4] {
        let sizes = self.sizes;
        [sizes.pages, sizes.page_size, sizes.kv_heads, sizes.d_head]
    }

    /// Numbers for the tokens of the sequences; NaN in all other places of the pool.
    fn pool(&self, values: &[f64]) -> Vec<f64> {
        let sizes = self.sizes;
        let token_size = sizes.kv_heads * sizes.d_head;
        let mut pool = vec![f64::NAN; values.len()];
        for (sample, &length) in self.lengths.iter().enumerate() {
            let keys = usize::try_from(length).unwrap_or(0).min(sizes.most_keys());
            for key in 0..keys {
                let page = self.block_table[sample * sizes.most_pages + key / sizes.page_size];
                let Some(page) = usize::try_from(page).ok().filter(|page| *page < sizes.pages) else {
                    continue;
                };
                let token = (page * sizes.page_size + key % sizes.page_size) * token_size;
                pool[token..token + token_size].copy_from_slice(&values[token..token + token_size]);
            }
        }
        pool
    }

    /// Compares the output with the host's.
    fn check(&self, setting: &Setting) -> anyhow::Result<()> {
        self.check_with(setting, false, None)
    }

    /// As [`check`](Self::check), with slopes of heads, or with a window.
    fn check_with(&self, setting: &Setting, has_slopes: bool, window: Option<usize>) -> anyhow::Result<()> {
        let wide = setting.inner(compute_type(setting.dtype));
        let slopes: Option<Vec<f64>> =
            has_slopes.then(|| (1..=self.sizes.heads).map(|head| 0.5f64.powi(head as i32)).collect());
        let setting = &setting.inner(setting.dtype);
        let sizes = self.sizes;
        let query_shape = [sizes.batch, sizes.queries, sizes.heads, sizes.d_head];
        let query = setting.rounded(&normal(query_shape.iter().product(), 1));
        let [keys, values] = [2, 3].map(|seed| {
            let drawn = setting.rounded(&normal(self.pool_shape().iter().product(), seed));
            self.pool(&drawn)
        });
        let scale = (sizes.d_head.max(1) as f64).powf(-0.5);
        let inputs = [&query[..], &keys, &values];
        let options = HostOptions {
            scale,
            slopes: slopes.as_deref(),
            window,
        };
        let expected = host::forward(sizes, inputs, &self.block_table, &self.lengths, &options);
        let cache = PagedCache {
            keys: setting.tensor(&keys, self.pool_shape()),
            values: setting.tensor(&values, self.pool_shape()),
            block_table: integers(&self.block_table, [sizes.batch, sizes.most_pages], &setting.device),
            lengths: integers(&self.lengths, [sizes.batch], &setting.device),
        };
        // burn takes no view of no elements.
        let query = match query.len() {
            0 => setting.tensor(&query, query_shape),
            _ => setting.view(&query, query_shape),
        };
        let options = PagedOptions {
            scale,
            slopes: slopes.as_ref().map(|slopes| wide.tensor(slopes, [sizes.heads])),
            window,
        };
        let output = paged_attention_with_options(query, cache, options)?;
        ensure!(output.dims() == query_shape, "{:?} for {sizes:?}", output.dims());
        if expected.is_empty() {
            // CUDA has no copy of nothing.
            return Ok(());
        }
        // A score is a sum of up to 256 products, and its error a relative one of its weight; numbers of 16 bits are
        // added up in f32, so that only the result is rounded.
        let roundings = if is_half(setting.dtype) { 1.0 } else { 24.0 };
        expect_close("output", output, &expected, roundings, 1.0)
            .map_err(|error| error.context(format!("{sizes:?}, lengths {:?}, window {window:?}", self.lengths)))
    }
}

fn integers<const D: usize>(values: &[i64], shape: [usize; D], device: &Device) -> Tensor<D, Int> {
    if values.is_empty() {
        return Tensor::empty(shape, device);
    }
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "paged_attention_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        // Batch, queries, key heads, heads for each of them, elements of a head, tokens of a page, pages.
        let shapes = (
            1usize..4,
            1usize..9,
            1usize..3,
            1usize..4,
            1usize..40,
            1usize..20,
            1usize..9,
        );
        let edges = [
            (1, 1, 1, 1, 1, 1, 1),
            (2, 1, 2, 4, 64, 16, 3),
            (1, 8, 1, 8, 128, 16, 2),
            (2, 3, 1, 1, 250, 7, 5),
        ];
        over(edges, 8, shapes, |shape| {
            let (batch, queries, kv_heads, group, d_head, page_size, most_pages) = shape;
            let sizes = PagedSizes {
                batch,
                queries,
                heads: kv_heads * group,
                kv_heads,
                d_head,
                pages: 0,
                page_size,
                most_pages,
            };
            // From one token to all of the block table, and more than that.
            let most = sizes.most_keys();
            let lengths = (0..batch).map(|sample| (1 + (most * (sample + 1)) / batch) as i64);
            Case::new(sizes, lengths.collect()).check(setting)
        })
    }
}

struct AddsSlopesWithinAWindow;

impl Claim for AddsSlopesWithinAWindow {
    const NAME: &'static str = "paged_attention_adds_slopes_within_a_window";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let sizes = PagedSizes {
            batch: 4,
            queries: 3,
            heads: 6,
            kv_heads: 2,
            d_head: 24,
            pages: 0,
            page_size: 16,
            most_pages: 40,
        };
        // Fewer tokens than queries, none, and several blocks.
        let case = Case::new(sizes, vec![640, 2, 0, 301]);
        let forms = [
            (false, Some(1)),
            (true, Some(200)),
            (true, None),
            (false, Some(130)),
            (true, Some(usize::MAX)),
        ];
        let few = if setting.takes_few() { 2 } else { forms.len() };
        for (has_slopes, window) in forms.into_iter().take(few) {
            case.check_with(setting, has_slopes, window)?;
        }
        Ok(())
    }
}

struct LongSequencesMatchTheHost;

impl Claim for LongSequencesMatchTheHost {
    const NAME: &'static str = "paged_attention_of_long_and_empty_sequences_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let sizes = PagedSizes {
            batch: 5,
            queries: 2,
            heads: 4,
            kv_heads: 2,
            d_head: 16,
            pages: 0,
            page_size: 16,
            most_pages: 70,
        };
        Case::new(sizes, vec![1120, 0, 1, 640, 257]).check(setting)
    }
}

struct PagesOutsideThePoolAreHidden;

impl Claim for PagesOutsideThePoolAreHidden {
    const NAME: &'static str = "paged_attention_hides_pages_outside_the_pool";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let sizes = PagedSizes {
            batch: 2,
            queries: 1,
            heads: 2,
            kv_heads: 2,
            d_head: 8,
            pages: 0,
            page_size: 4,
            most_pages: 3,
        };
        let mut case = Case::new(sizes, vec![12, 9]);
        case.block_table[1] = -1;
        case.block_table[3] = case.sizes.pages as i64;
        case.check(setting)
    }
}

struct NothingIsTheAttentionOfNothing;

impl Claim for NothingIsTheAttentionOfNothing {
    const NAME: &'static str = "paged_attention_of_no_elements_has_none";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        for (batch, queries, most_pages) in [(0, 1, 2), (2, 0, 2), (2, 1, 0)] {
            let sizes = PagedSizes {
                batch,
                queries,
                heads: 2,
                kv_heads: 1,
                d_head: 4,
                pages: 0,
                page_size: 3,
                most_pages,
            };
            Case::new(sizes, vec![2; batch]).check(setting)?;
        }
        Ok(())
    }
}
