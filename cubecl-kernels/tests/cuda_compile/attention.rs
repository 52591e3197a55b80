//! Attention: which kernels run is chosen by type, head size and layout.

use burn::tensor::DType;
use cubecl_kernels::flash_attention::{
    AttentionMask, AttentionOptions, PackedHeads, flash_attention, flash_attention_packed,
};

use crate::operations::{List, MANY_ROWS, SAMPLES, TOKENS, tokens_dropout};

/// Head sizes, and heads as models of them have.
const HEADS: [(usize, usize); 8] = [
    (48, 16),
    (24, 32),
    (12, 64),
    (32, 80),
    (24, 96),
    (16, 128),
    (160, 160),
    (8, 256),
];
/// The kernels of 16-bit numbers: forward, the products of outputs and gradients, the gradients of keys and values,
/// those of queries.
const ON_MATRIX_UNITS: &[&str] = &["attend_mma", "dot", "gradients_mma", "gradients_mma"];
/// The same without matrix units.
const PORTABLE: &[&str] = &["attend", "dot", "key_gradients", "query_gradients"];

pub fn list(list: &mut List) {
    let kernels = match list.dtype {
        DType::F32 => PORTABLE,
        _ => ON_MATRIX_UNITS,
    };
    let d_heads: &[usize] = match list.dtype {
        DType::BF16 => &[16, 32, 64, 80, 96, 128, 160, 256],
        // Conversions are all that differs.
        DType::F16 => &[64, 128],
        _ => &[16, 64, 128, 256],
    };
    for (heads, d_head) in HEADS.into_iter().filter(|(_, d_head)| d_heads.contains(d_head)) {
        packed(list, kernels, SAMPLES, [heads, heads, d_head], false);
        // With dropout there are other tiles from each of these on.
        if [64, 96, 128, 256].contains(&d_head) {
            packed(list, kernels, SAMPLES, [heads, heads, d_head], true);
        }
    }
    for (heads, d_head) in [(12, 64), (16, 128)] {
        for (mask, has_dropout, name) in [
            (AttentionMask::Causal, false, "flash_attention, causal"),
            (AttentionMask::Full, true, "flash_attention, full, dropout"),
        ] {
            let shape = format!("{SAMPLES} x {heads} heads x {TOKENS} x {d_head}");
            list.add_with_kernels(name, shape, kernels, move |setting| {
                let [query, key, value] = [(); 3].map(|()| setting.leaf([SAMPLES, TOKENS, heads, d_head]));
                let options = options(SAMPLES, d_head, mask, has_dropout);
                flash_attention(query, key, value, options)?.backward();
                Ok(())
            });
        }
    }
    packed(list, kernels, SAMPLES, [32, 8, 128], false);
    if list.dtype == DType::BF16 {
        // Indexed by 64 bits.
        packed(list, kernels, MANY_ROWS / TOKENS, [16, 16, 64], false);
    }
}

/// Adds causal attention of a packed tensor, of heads, key heads and elements of a head.
fn packed(
    list: &mut List,
    kernels: &'static [&'static str],
    samples: usize,
    [heads, kv_heads, d_head]: [usize; 3],
    has_dropout: bool,
) {
    let name = match (has_dropout, heads == kv_heads) {
        (false, true) => "flash_attention, packed, causal",
        (true, true) => "flash_attention, packed, causal, dropout",
        (_, false) => "flash_attention, packed, causal, grouped queries",
    };
    let shape = format!("{samples} x {heads} heads x {TOKENS} x {d_head}");
    list.add_with_kernels(name, shape, kernels, move |setting| {
        let counts = PackedHeads {
            queries: heads,
            keys: kv_heads,
        };
        let tensor = setting.leaf([samples, TOKENS, counts.total(), d_head]);
        let options = options(samples, d_head, AttentionMask::Causal, has_dropout);
        flash_attention_packed(tensor, counts, options)?.backward();
        Ok(())
    });
}

fn options(samples: usize, d_head: usize, mask: AttentionMask, has_dropout: bool) -> AttentionOptions {
    AttentionOptions {
        mask,
        scale: 1.0 / (d_head as f64).sqrt(),
        dropout: has_dropout.then(|| tokens_dropout(samples * TOKENS)),
    }
}
