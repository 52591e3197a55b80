//! Attention: which kernels run is chosen by type, head size and layout.

use burn::tensor::DType;
use cubecl_kernels::flash_attention::{
    AttentionMask, AttentionOptions, Documents, PackedHeads, flash_attention, flash_attention_packed,
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
/// The kernels of 16-bit numbers: forward, the products of outputs and gradients, the gradients of keys and values with
/// the sums of those of queries, these gradients.
const ON_MATRIX_UNITS: &[&str] = &["attend_mma", "dot", "gradients_mma", "finish_queries"];
/// The same where the order of every sum is fixed: the gradients of queries have a kernel of their own.
const DETERMINISTIC: &[&str] = &["attend_mma", "dot", "gradients_mma", "query_gradients_mma"];
/// The same without matrix units.
const PORTABLE: &[&str] = &["attend", "dot", "key_gradients", "query_gradients"];

/// What distinguishes attentions of packed tensors beyond their sizes.
#[derive(Clone, Copy, Default)]
pub struct Form {
    pub has_dropout: bool,
    pub is_deterministic: bool,
    pub has_documents: bool,
}

pub fn list(list: &mut List) {
    let d_heads: &[usize] = match list.dtype {
        DType::BF16 => &[16, 32, 64, 80, 96, 128, 160, 256],
        // Conversions are all that differs.
        DType::F16 => &[64, 128],
        _ => &[16, 64, 128, 256],
    };
    let is_half = list.dtype != DType::F32;
    for (heads, d_head) in HEADS.into_iter().filter(|(_, d_head)| d_heads.contains(d_head)) {
        for is_deterministic in [false, true] {
            if is_deterministic && !is_half {
                continue;
            }
            let form = Form {
                is_deterministic,
                ..Form::default()
            };
            // With dropout there are other tiles from each of these on.
            let dropouts: &[bool] = if [64, 96, 128, 256].contains(&d_head) {
                &[false, true]
            } else {
                &[false]
            };
            for &has_dropout in dropouts {
                packed(list, SAMPLES, [heads, heads, d_head], Form { has_dropout, ..form });
                if has_documents(list.dtype, d_head) {
                    let form = Form {
                        has_dropout,
                        has_documents: true,
                        ..form
                    };
                    packed(list, SAMPLES, [heads, heads, d_head], form);
                }
            }
        }
    }
    for (heads, d_head) in [(12, 64), (16, 128)] {
        for (mask, has_dropout, name) in [
            (AttentionMask::Causal, false, "flash_attention, causal"),
            (AttentionMask::Full, true, "flash_attention, full, dropout"),
        ] {
            let form = Form {
                has_dropout,
                ..Form::default()
            };
            let shape = format!("{SAMPLES} x {heads} heads x {TOKENS} x {d_head}");
            list.add_with_kernels(name, shape, kernels(list.dtype, form), move |setting| {
                let [query, key, value] = [(); 3].map(|()| setting.leaf([SAMPLES, TOKENS, heads, d_head]));
                let options = options(SAMPLES, d_head, mask, form);
                flash_attention(query, key, value, options)?.backward();
                Ok(())
            });
        }
    }
    packed(list, SAMPLES, [32, 8, 128], Form::default());
    if list.dtype == DType::BF16 {
        // Indexed by 64 bits.
        packed(list, MANY_ROWS / TOKENS, [16, 16, 64], Form::default());
        let form = Form {
            is_deterministic: true,
            ..Form::default()
        };
        packed(list, MANY_ROWS / TOKENS, [16, 16, 64], form);
    }
}

/// Whether documents are tried: in one type of 16 bits, on all tiles, and on one tile of f32.
fn has_documents(dtype: DType, d_head: usize) -> bool {
    match dtype {
        DType::BF16 => true,
        DType::F32 => d_head == 64,
        _ => false,
    }
}

/// What an attention launches, forward and backward.
fn kernels(dtype: DType, form: Form) -> &'static [&'static str] {
    match (dtype, form.is_deterministic) {
        (DType::F32, _) => PORTABLE,
        (_, false) => ON_MATRIX_UNITS,
        (_, true) => DETERMINISTIC,
    }
}

/// Adds causal attention of a packed tensor, of heads, key heads and elements of a head.
fn packed(list: &mut List, samples: usize, [heads, kv_heads, d_head]: [usize; 3], form: Form) {
    let name = match (form.has_dropout, form.is_deterministic, form.has_documents) {
        _ if heads != kv_heads => "flash_attention, packed, causal, grouped queries",
        (false, false, false) => "flash_attention, packed, causal",
        (true, false, false) => "flash_attention, packed, causal, dropout",
        (false, true, false) => "flash_attention, packed, causal, deterministic",
        (true, true, false) => "flash_attention, packed, causal, dropout, deterministic",
        (false, false, true) => "flash_attention, packed, causal, documents",
        (true, false, true) => "flash_attention, packed, causal, dropout, documents",
        (false, true, true) => "flash_attention, packed, causal, deterministic, documents",
        (true, true, true) => "flash_attention, packed, causal, dropout, deterministic, documents",
    };
    let shape = format!("{samples} x {heads} heads x {TOKENS} x {d_head}");
    list.add_with_kernels(name, shape, kernels(list.dtype, form), move |setting| {
        let counts = PackedHeads {
            queries: heads,
            keys: kv_heads,
        };
        let tensor = setting.leaf([samples, TOKENS, counts.total(), d_head]);
        let options = options(samples, d_head, AttentionMask::Causal, form);
        flash_attention_packed(tensor, counts, options)?.backward();
        Ok(())
    });
}

/// Returns the options of an attention.
pub fn options(samples: usize, d_head: usize, mask: AttentionMask, form: Form) -> AttentionOptions {
    AttentionOptions {
        mask,
        scale: 1.0 / (d_head as f64).sqrt(),
        dropout: form.has_dropout.then(|| tokens_dropout(samples * TOKENS)),
        documents: form.has_documents.then(|| documents(samples)),
        is_deterministic: form.is_deterministic,
    }
}

/// A sample of documents for each, such as a corpus has them; the kernels do not depend on their lengths.
fn documents(samples: usize) -> Documents {
    Documents::from_lengths(TOKENS, &vec![vec![300, 24, 700]; samples]).expect("lengths of whole samples")
}
