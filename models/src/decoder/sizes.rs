//! Figures of a [`BlockConfig`]: parameters, activations and FLOPs. Pure.

use burn_megatron::topology::{ParallelConfig, key_head_copies};

use crate::layers::{BlockConfig, CausalSelfAttentionConfig, MlpActivation, NormType, Residual};

/// The sizes of an attention.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadSizes {
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub d_head: usize,
}

impl HeadSizes {
    pub fn of(attention: &CausalSelfAttentionConfig) -> Self {
        let n_heads = attention.n_heads;
        Self {
            n_heads,
            n_kv_heads: attention.n_kv_heads.unwrap_or(n_heads),
            d_head: attention.d_head.unwrap_or(attention.d_model / n_heads.max(1)),
        }
    }

    /// The columns of the query-key-value projection.
    pub fn qkv_width(self) -> usize {
        (self.n_heads + 2 * self.n_kv_heads) * self.d_head
    }

    /// The rows of the output projection.
    pub fn width(self) -> usize {
        self.n_heads * self.d_head
    }
}

/// The elements of a layer's matrices, and the parameters of a whole layer.
pub(super) fn layer_weights_and_parameters(block: &BlockConfig) -> [usize; 2] {
    let (attention, mlp, d) = (&block.attention, &block.mlp, block.attention.d_model);
    let heads = HeadSizes::of(attention);
    let (inputs, hidden) = (mlp.activation.num_inputs(), mlp.d_hidden);
    let weights = d * heads.qkv_width() + heads.width() * d + (inputs + 1) * d * hidden;
    let others = [
        (attention.qkv_bias, heads.qkv_width()),
        (attention.output_bias, d),
        (attention.qk_norm_epsilon.is_some(), 2 * heads.d_head),
        (mlp.bias, inputs * hidden + d),
        (true, 2 * block.norm.num_parameters(d)),
    ];
    let others = others.into_iter().filter(|(has, _)| *has).map(|(_, count)| count);
    [weights, weights + others.sum::<usize>()]
}

/// The numbers that a layer holds for its backward pass, per element of its input on a rank. With layer norms
/// `5 + (4 + 2f/h)/t`, f the MLP's hidden size, and under sequence parallelism all of it over t.
///
/// The paper counts bytes of 16-bit elements, two per number. Where it has 5as/2h for attention's core, the fused one
/// holds nothing that grows with s²; burn's own operations ([`Kernels::Plain`](cubecl_kernels::Kernels::Plain)) hold
/// more. By the tensors that are held, outside of the tensor group one is less where both sublayers read one stream, or
/// norms have no mean. Inside are queries, keys and values as they are turned, queries and keys before their norms, the
/// attention's output, and the MLP's hidden size twice, three times with a gate, and four times with GELU by the error
/// function, which is no kernel. Keys and values that several ranks hold count for each.
///
/// # Reference
/// Korthikanti et al. 2022, arXiv:2205.05198, equations 1, 2 and 4.
pub(super) fn activations_per_element(block: &BlockConfig, parallel: &ParallelConfig) -> f64 {
    let (attention, mlp, heads) = (&block.attention, &block.mlp, HeadSizes::of(&block.attention));
    let tensor = parallel.tensor_parallel_size as f64;
    let outside = match (block.norm, block.residual) {
        (NormType::RmsNorm, _) | (_, Residual::Parallel) => 4.0,
        (NormType::LayerNorm, Residual::Sequential | Residual::PostNorm) => 5.0,
    };
    let normed = if attention.qk_norm_epsilon.is_some() {
        heads.n_heads + heads.n_kv_heads
    } else {
        0
    };
    let copies = key_head_copies("", heads.n_kv_heads, heads.n_heads, parallel.tensor_parallel_size).unwrap_or(1);
    let copied = 2 * (copies - 1) * heads.n_kv_heads * heads.d_head;
    let of_hidden = match mlp.activation {
        MlpActivation::Gelu | MlpActivation::Relu => 2,
        MlpActivation::SwiGlu | MlpActivation::GeGlu => 3,
        MlpActivation::GeluErf => 4,
    };
    let inside = copied + heads.qkv_width() + heads.width() + normed * heads.d_head + of_hidden * mlp.d_hidden;
    let outside = if parallel.sequence_parallel {
        outside / tensor
    } else {
        outside
    };
    outside + inside as f64 / attention.d_model as f64 / tensor
}

/// Returns those of these numbers that burn's operations hold: with GELU by the error function three of its input.
pub(super) fn unfused_per_element(block: &BlockConfig, parallel: &ParallelConfig) -> f64 {
    let mlp = &block.mlp;
    let of_hidden = if mlp.activation == MlpActivation::GeluErf {
        3.0
    } else {
        0.0
    };
    of_hidden * mlp.d_hidden as f64 / mlp.d_model as f64 / parallel.tensor_parallel_size as f64
}

/// The FLOPs of a layer's forward pass per token of a sample: two per weight, and 4sh of all heads in `QKᵀ` and its
/// matmul with V, with s at most the window. With an MLP of f that are 8h² + 4hf + 4sh, 24h² + 4sh if f is 4h.
///
/// # Reference
/// Korthikanti et al. 2022, arXiv:2205.05198, appendix A.
pub(super) fn layer_flops_per_token(block: &BlockConfig, seq_length: usize) -> f64 {
    let [weights, _] = layer_weights_and_parameters(block);
    let (s, width) = (seq_length as f64, HeadSizes::of(&block.attention).width() as f64);
    let seen = block.attention.window.map_or(s, |window| s.min(window as f64));
    2.0 * weights as f64 + 4.0 * seen * width
}
