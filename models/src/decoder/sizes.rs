//! [`BiasedSizes`]: what follows from the sizes of a decoder whose layers all have biases. Pure.

use burn_megatron::topology::{ParallelConfig, TopologyError, check_divides};

use crate::layers::MlpActivation;
use crate::model_config::ForwardFlops;
use crate::vocabulary::check_padded_vocab;

/// The sizes of a decoder with layer norms, a key head for each head, and an MLP of one matrix to its hidden layer and
/// one back; all layers have biases. GPT, GPT-NeoX, BLOOM and, but for its embeddings and head, BERT are such.
#[derive(Clone, Copy, Debug)]
pub struct BiasedSizes {
    pub n_layers: usize,
    pub d_model: usize,
    pub n_heads: usize,
    pub d_hidden: usize,
    pub max_seq_length: usize,
    /// The size of the vocabulary, without padding.
    pub vocab_size: usize,
    /// The most tokens whose logits are in one buffer.
    pub logit_chunk_tokens: Option<usize>,
}

impl BiasedSizes {
    /// Checks that the sizes, and that of the vocabulary with padding, fit each other and the layout.
    ///
    /// # Errors
    /// The rule that is broken, the values, and the nearest valid ones.
    pub fn validate(&self, padded_vocab_size: usize, parallel: &ParallelConfig) -> Result<(), TopologyError> {
        for (name, size) in [
            ("n_layers", self.n_layers),
            ("d_model", self.d_model),
            ("n_heads", self.n_heads),
            ("d_hidden", self.d_hidden),
            ("max_seq_length", self.max_seq_length),
            ("vocab_size", self.vocab_size),
            ("logit_chunk_tokens", self.logit_chunk_tokens.unwrap_or(1)),
        ] {
            if size == 0 {
                return Err(TopologyError::Zero { name });
            }
        }
        check_divides("d_model", self.d_model, "n_heads", self.n_heads)?;
        parallel.check_tensor_divides("the number of attention heads", self.n_heads)?;
        parallel.check_tensor_divides("the MLP's hidden size", self.d_hidden)?;
        check_padded_vocab(self.vocab_size, padded_vocab_size, parallel)
    }

    /// The sizes by flag, or in words, and their values.
    pub fn shown(&self) -> Vec<(&'static str, String)> {
        vec![
            ("--num-layers", self.n_layers.to_string()),
            ("--hidden-size", self.d_model.to_string()),
            ("--num-attention-heads", self.n_heads.to_string()),
            ("--seq-length", self.max_seq_length.to_string()),
            ("the MLP's hidden size", self.d_hidden.to_string()),
        ]
    }

    pub fn layer_parameters(&self) -> usize {
        let (d, hidden) = (self.d_model, self.d_hidden);
        let attention = 3 * d * d + 3 * d + d * d + d;
        let mlp = d * hidden + hidden + hidden * d + d;
        let norms = 4 * d;
        attention + mlp + norms
    }

    /// The numbers that a layer holds for its backward pass, per element of its input on a rank: `outside`, of what
    /// tensor-parallel ranks share out under sequence parallelism alone, and `(4 + 2f/h)/t` with f the MLP's hidden
    /// size, `(4 + 4f/h)/t` with GELU by the error function, which is no kernel and holds its input four times.
    ///
    /// # Reference
    /// Korthikanti et al. 2022, arXiv:2205.05198, equations 1, 2 and 4.
    pub fn activations_per_element(&self, parallel: &ParallelConfig, outside: f64, activation: MlpActivation) -> f64 {
        let tensor = parallel.tensor_parallel_size as f64;
        let outside = if parallel.sequence_parallel {
            outside / tensor
        } else {
            outside
        };
        let of_hidden = if activation == MlpActivation::GeluErf { 4.0 } else { 2.0 };
        outside + (4.0 + of_hidden * self.d_hidden as f64 / self.d_model as f64) / tensor
    }

    /// Of these numbers, those that burn's operations hold: with GELU by the error function three of its input.
    pub fn unfused_per_element(&self, parallel: &ParallelConfig, activation: MlpActivation) -> f64 {
        let tensor = parallel.tensor_parallel_size as f64;
        let of_hidden = if activation == MlpActivation::GeluErf { 3.0 } else { 0.0 };
        of_hidden * self.d_hidden as f64 / self.d_model as f64 / tensor
    }

    /// The FLOPs of one sample's forward pass. Per token a layer has 8h² + 4hf in its four weights, with f the MLP's
    /// hidden size (24h² if that is 4h), and 4sh in `QKᵀ` and its matmul with V; the head has 2hV.
    ///
    /// # Reference
    /// Korthikanti et al. 2022, arXiv:2205.05198, appendix A.
    pub fn forward_flops(&self, seq_length: usize) -> ForwardFlops {
        let [l, h, hidden, v, s] =
            [self.n_layers, self.d_model, self.d_hidden, self.vocab_size, seq_length].map(|size| size as f64);
        ForwardFlops {
            layers: s * l * (8.0 * h * h + 4.0 * h * hidden + 4.0 * s * h),
            head: s * 2.0 * h * v,
        }
    }
}
