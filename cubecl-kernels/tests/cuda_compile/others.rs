//! Softmax, embeddings, rotary positions, the loss, the optimizer and the gradients' norm.

use burn::tensor::{Bool, DType, Int, Tensor};
use cubecl_kernels::accumulate::{GradientPlace, GradientSums, accumulate};
use cubecl_kernels::adamw::{AdamWBuffers, AdamWRanges, AdamWStep, adamw, adamw_ranges};
use cubecl_kernels::cross_entropy::cross_entropy;
use cubecl_kernels::embedding::{TokenRange, add_rows, embedding};
use cubecl_kernels::l2_norm::sum_of_squares;
use cubecl_kernels::paged_attention::{PagedCache, PagedOptions, paged_attention_with_options};
use cubecl_kernels::ranges::{BufferRange, RangeTarget, clear_ranges, gather_ranges, scatter_ranges};
use cubecl_kernels::rotary::{RotaryAngles, RotaryLayout, rotary};
use cubecl_kernels::softmax::{SoftmaxMask, scaled_masked_softmax};

use crate::operations::{List, MANY_ROWS, ROWS, SAMPLES, Setting, TOKENS};

/// GPT-2's vocabulary, and what it is padded to.
const VOCABULARY: [usize; 2] = [50257, 50304];
/// Rows of logits that 32 bits do not count.
const MANY_LOGITS: usize = 86016;
/// A pool of keys and values.
const PAGES: usize = 1024;
const PAGE_SIZE: usize = 16;
/// An optimizer's buffer.
const ELEMENTS: usize = 1 << 24;

pub fn list(list: &mut List) {
    for keys in [1024, 2048, 16384] {
        softmaxes(list, keys);
    }
    for (queries, heads, kv_heads, d_head) in [(1, 16, 16, 128), (1, 32, 4, 128), (4, 12, 12, 64)] {
        paged_attention_of(list, queries, [heads, kv_heads], d_head);
    }
    // Llama 3's heads; GPT-NeoX's, of which a quarter turns; heads of which half a turn is 20 elements.
    for (groups, queries, d_head, rotated) in [(8, 4, 128, 128), (64, 1, 96, 24), (12, 1, 80, 40)] {
        rotations(list, ROWS, [groups, queries], [d_head, rotated]);
    }
    losses(list, ROWS);
    for columns in [768, 12288] {
        embeddings(list, columns);
    }
    optimizer(list, ELEMENTS);
    if list.dtype == DType::BF16 {
        // Indexed by 64 bits.
        losses(list, MANY_LOGITS);
        rotations(list, MANY_ROWS, [4, 2], [64, 64]);
    }
}

/// Adds softmaxes with equal numbers of queries and keys.
fn softmaxes(list: &mut List, keys: usize) {
    let (samples, heads) = if keys <= 2048 { (SAMPLES, 12) } else { (1, 1) };
    let dims @ [_, _, queries, _] = [samples, heads, keys, keys];
    let shape = dims.map(|size| size.to_string()).join(" x ");
    list.add("softmax, causal", shape.clone(), move |setting| {
        scaled_masked_softmax(setting.leaf(dims), SoftmaxMask::Causal, 0.125)?.backward();
        Ok(())
    });
    list.add("softmax", shape.clone(), move |setting| {
        scaled_masked_softmax(setting.leaf(dims), SoftmaxMask::Nothing, 0.125)?.backward();
        Ok(())
    });
    list.add("softmax, given mask", shape, move |setting| {
        let mask = Tensor::<4, Bool>::empty([samples, 1, queries, keys], &setting.device);
        scaled_masked_softmax(setting.leaf(dims), SoftmaxMask::Given(mask), 0.125)?.backward();
        Ok(())
    });
}

/// Adds attention to sequences in pages, whose keys are split.
fn paged_attention_of(list: &mut List, queries: usize, [heads, kv_heads]: [usize; 2], d_head: usize) {
    let shape = format!("{SAMPLES} x {queries} x {heads}/{kv_heads} x {d_head}");
    for (name, is_biased) in [("paged_attention", false), ("paged_attention, slopes, window", true)] {
        list.add(name, shape.clone(), move |setting| {
            paged(setting, [queries, heads, kv_heads, d_head], is_biased)
        });
    }
}

fn paged(setting: &Setting, [queries, heads, kv_heads, d_head]: [usize; 4], is_biased: bool) -> anyhow::Result<()> {
    let pool = || setting.plain([PAGES, PAGE_SIZE, kv_heads, d_head], setting.dtype);
    let cache = PagedCache {
        keys: pool(),
        values: pool(),
        block_table: Tensor::empty([SAMPLES, PAGES / SAMPLES], &setting.plain_device()),
        lengths: Tensor::empty([SAMPLES], &setting.plain_device()),
    };
    let query = setting.plain([SAMPLES, queries, heads, d_head], setting.dtype);
    let options = PagedOptions {
        scale: 0.125,
        slopes: is_biased.then(|| setting.plain([heads], DType::F32)),
        window: is_biased.then_some(512),
    };
    paged_attention_with_options(query, cache, options)?;
    Ok(())
}

/// Adds the split of a projection's heads, with a rotation in each layout and without.
fn rotations(list: &mut List, tokens: usize, [groups, queries]: [usize; 2], [d_head, rotated]: [usize; 2]) {
    let shape = format!("{tokens} x {groups} x ({queries} + 2) x {d_head}");
    for (name, layout) in [
        ("rotary", Some(RotaryLayout::Halves)),
        ("rotary, interleaved", Some(RotaryLayout::Interleaved)),
        ("rotary, no angles", None),
    ] {
        list.add(name, shape.clone(), move |setting| {
            let table = || Tensor::<2>::empty([TOKENS, rotated / 2], (&setting.device, DType::F32));
            let angles = layout.map(|layout| RotaryAngles {
                cosine: table(),
                sine: table(),
                positions: Tensor::empty([tokens], &setting.device),
                layout,
            });
            rotary(setting.leaf([tokens, groups, queries + 2, d_head]), angles)?.backward();
            Ok(())
        });
    }
}

fn losses(list: &mut List, rows: usize) {
    let [valid, columns] = VOCABULARY;
    list.add("cross_entropy", format!("{rows} x {columns}"), move |setting| {
        let targets = Tensor::<1, Int>::empty([rows], &setting.device);
        cross_entropy(setting.leaf([rows, columns]), targets, valid, |own| own)?.backward();
        Ok(())
    });
}

fn optimizer(list: &mut List, elements: usize) {
    let step = AdamWStep {
        learning_rate: 1e-3,
        beta_1: 0.9,
        beta_2: 0.95,
        epsilon: 1e-8,
        weight_decay: 0.1,
        gradient_scale: 1.0,
        time: 1,
    };
    for (name, has_copy) in [("adamw", false), ("adamw, with a copy in the type", true)] {
        list.add(name, format!("{elements}"), move |setting| {
            let main = || setting.plain([elements], DType::F32);
            let buffers = AdamWBuffers {
                parameter: main(),
                moment_1: main(),
                moment_2: main(),
            };
            let gradient = setting.plain([elements], setting.dtype);
            adamw(buffers, gradient, &step, has_copy.then_some(setting.dtype))?;
            Ok(())
        });
    }
    for (name, offset, is_first) in [
        ("accumulate, the first", 0, true),
        ("accumulate", 0, false),
        ("accumulate, where no vector begins", 1, false),
    ] {
        list.add(name, format!("{elements}"), move |setting| {
            let sums = GradientSums {
                sums: setting.plain([offset + elements], DType::F32),
                non_finite: setting.plain([1], DType::F32),
            };
            let place = GradientPlace {
                offset,
                parameter: 0,
                is_first,
            };
            accumulate(sums, setting.plain([elements], setting.dtype), place)?;
            Ok(())
        });
    }
    list.add("adamw_ranges", format!("{elements}"), move |setting| {
        let main = || setting.plain([elements], DType::F32);
        let buffers = AdamWBuffers::from_array([main(), main(), main()]);
        let steps = [0..elements / 2, elements / 2..elements].map(|range| AdamWRanges {
            step,
            ranges: vec![range],
        });
        adamw_ranges(buffers, main(), &steps, setting.dtype)?;
        Ok(())
    });
    list.add("sum_of_squares", format!("{elements}"), move |setting| {
        let buffers = [elements, 1000].map(|elements| setting.plain([elements], setting.dtype));
        sum_of_squares(buffers.to_vec())?;
        Ok(())
    });
    list.add("ranges", format!("{elements}"), move |setting| {
        let (buffer, range) = (0, 0..elements);
        let all = [BufferRange {
            buffer,
            range: range.clone(),
        }];
        let whole = || setting.plain([elements], setting.dtype);
        let values = gather_ranges(vec![whole()], &all)?.expect("there is a buffer");
        let buffer = scatter_ranges(
            whole(),
            values,
            &[RangeTarget {
                range: range.clone(),
                start: 0,
            }],
        )?;
        clear_ranges(buffer, &[range])?;
        Ok(())
    });
}

fn embeddings(list: &mut List, columns: usize) {
    let [count, rows] = VOCABULARY;
    list.add("embedding", format!("{ROWS} x {columns}"), move |setting| {
        let tokens = Tensor::<1, Int>::empty([ROWS], &setting.device);
        embedding(setting.leaf([rows, columns]), tokens, TokenRange { first: 0, count })?.backward();
        Ok(())
    });
    list.add("add_rows", format!("{ROWS} x {columns}"), move |setting| {
        let tokens = Tensor::empty([ROWS], &setting.plain_device());
        let sums = setting.plain([rows * columns], DType::F32);
        let gradient = setting.plain([ROWS, columns], setting.dtype);
        add_rows(sums, 0, tokens, gradient, TokenRange { first: 0, count })?;
        Ok(())
    });
}
