//! Attention: which kernels run is chosen by type, head size and layout.

use burn::tensor::{DType, Tensor};
use cubecl_kernels::flash_attention::{
    AttentionMask, AttentionOptions, Documents, PackedHeads, flash_attention, flash_attention_packed_with_bias,
};

use crate::operations::{List, MANY_ROWS, SAMPLES, Setting, TOKENS, tokens_dropout};

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

/// The same with a relative bias whose gradient is summed in one order, which takes a kernel of its own.
const DETERMINISTIC_WITH_BIAS: &[&str] = &[
    "attend_mma",
    "dot",
    "gradients_mma",
    "query_gradients_mma",
    "bias_gradient",
];
const PORTABLE_WITH_BIAS: &[&str] = &["attend", "dot", "key_gradients", "query_gradients", "bias_gradient"];

/// What distinguishes attentions of packed tensors beyond their sizes.
#[derive(Clone, Copy, Default)]
pub struct Form {
    pub has_dropout: bool,
    pub is_deterministic: bool,
    pub has_documents: bool,
    /// Whether a relative bias is added, which is tracked.
    pub has_bias: bool,
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
            list.is_for_a_release = is_deterministic || ![64, 128].contains(&d_head);
            // With dropout there are other tiles from each of these on.
            let dropouts: &[bool] = if [64, 96, 128, 256].contains(&d_head) {
                &[false, true]
            } else {
                &[false]
            };
            for &has_dropout in dropouts {
                packed(list, SAMPLES, [heads, heads, d_head], Form { has_dropout, ..form });
                if has_biases(list.dtype, d_head) {
                    let form = Form {
                        has_dropout,
                        has_bias: true,
                        ..form
                    };
                    packed(list, SAMPLES, [heads, heads, d_head], form);
                }
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
    list.is_for_a_release = false;
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

/// Whether a relative bias is tried: as documents are, and once with numbers of f16.
fn has_biases(dtype: DType, d_head: usize) -> bool {
    has_documents(dtype, d_head) || (dtype == DType::F16 && d_head == 64)
}

/// What an attention launches, forward and backward.
fn kernels(dtype: DType, form: Form) -> &'static [&'static str] {
    match (dtype, form.is_deterministic, form.has_bias) {
        (DType::F32, _, false) => PORTABLE,
        (DType::F32, _, true) => PORTABLE_WITH_BIAS,
        (_, false, _) => ON_MATRIX_UNITS,
        (_, true, false) => DETERMINISTIC,
        (_, true, true) => DETERMINISTIC_WITH_BIAS,
    }
}

/// A relative bias of heads, if the form has one.
pub fn bias(setting: &Setting, heads: usize, tokens: usize, form: Form) -> Option<Tensor<2>> {
    let options = (&setting.device, DType::F32);
    form.has_bias
        .then(|| Tensor::empty([heads, 2 * tokens - 1], options).require_grad())
}

/// Adds causal attention of a packed tensor, of heads, key heads and elements of a head.
fn packed(list: &mut List, samples: usize, [heads, kv_heads, d_head]: [usize; 3], form: Form) {
    let name = match (
        form.has_dropout,
        form.is_deterministic,
        form.has_documents,
        form.has_bias,
    ) {
        _ if heads != kv_heads => "flash_attention, packed, causal, grouped queries",
        (false, false, false, false) => "flash_attention, packed, causal",
        (true, false, false, false) => "flash_attention, packed, causal, dropout",
        (false, true, false, false) => "flash_attention, packed, causal, deterministic",
        (true, true, false, false) => "flash_attention, packed, causal, dropout, deterministic",
        (false, false, true, false) => "flash_attention, packed, causal, documents",
        (true, false, true, false) => "flash_attention, packed, causal, dropout, documents",
        (false, true, true, false) => "flash_attention, packed, causal, deterministic, documents",
        (true, true, true, false) => "flash_attention, packed, causal, dropout, deterministic, documents",
        (false, false, false, true) => "flash_attention, packed, causal, bias",
        (true, false, false, true) => "flash_attention, packed, causal, dropout, bias",
        (false, true, false, true) => "flash_attention, packed, causal, deterministic, bias",
        (true, true, false, true) => "flash_attention, packed, causal, dropout, deterministic, bias",
        (_, _, true, true) => "flash_attention, packed, causal, documents, bias",
    };
    let shape = format!("{samples} x {heads} heads x {TOKENS} x {d_head}");
    list.add_with_kernels(name, shape, kernels(list.dtype, form), move |setting| {
        let counts = PackedHeads {
            queries: heads,
            keys: kv_heads,
        };
        let tensor = setting.leaf([samples, TOKENS, counts.total(), d_head]);
        let options = options(samples, d_head, AttentionMask::Causal, form);
        let bias = bias(setting, heads, TOKENS, form);
        flash_attention_packed_with_bias(tensor, counts, bias, options)?.backward();
        Ok(())
    });
}

pub fn options(samples: usize, d_head: usize, mask: AttentionMask, form: Form) -> AttentionOptions {
    AttentionOptions {
        mask,
        scale: 1.0 / (d_head as f64).sqrt(),
        dropout: form.has_dropout.then(|| tokens_dropout(samples * TOKENS)),
        documents: form.has_documents.then(|| documents(samples)),
        key_lengths: None,
        is_deterministic: form.is_deterministic,
    }
}

/// A sample of documents for each, such as a corpus has them; the kernels do not depend on their lengths.
fn documents(samples: usize) -> Documents {
    Documents::from_lengths(TOKENS, &vec![vec![300, 24, 700]; samples]).expect("lengths of whole samples")
}
