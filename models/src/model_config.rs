//! [`ModelConfig`]: the sizes of a model, and its parameters, activations and FLOPs. Pure.

use std::fmt::Debug;

use burn_megatron::topology::{ParallelConfig, TopologyError};

use crate::architecture::Architecture;
use crate::layers::LayerRecompute;

/// The sizes of a model, and what follows from them.
///
/// `s` are the tokens of a sample, `b` the samples of a micro-batch, `h` is `d_model`, `t` the tensor-parallel size.
pub trait ModelConfig: Debug {
    /// The family's name on the command line and in checkpoints.
    fn family_name(&self) -> &'static str;

    /// The number of layers that pipeline stages share.
    fn n_layers(&self) -> usize;

    /// The longest sequence, in tokens.
    fn max_seq_length(&self) -> usize;

    /// Returns false if the model computes longer sequences as well: it knows distances, and no positions.
    fn limits_length(&self) -> bool {
        true
    }

    /// The size of the vocabulary, without padding.
    fn vocab_size(&self) -> usize;

    /// The size of each token's activation, `h`.
    fn d_model(&self) -> usize;

    fn n_heads(&self) -> usize;

    fn objective(&self) -> Objective {
        Objective::NextToken
    }

    /// Which layers keep their input only, and run again before their backward pass.
    fn layer_recompute(&self) -> LayerRecompute;

    /// Checks that the model's sizes fit each other and the layout.
    ///
    /// # Errors
    /// The rule that is broken, the values, and the nearest valid ones.
    fn validate(&self, parallel: &ParallelConfig) -> Result<(), TopologyError>;

    /// Returns the sizes that the parameters and what they compute depend on, by flag, or in words if no flag asks for
    /// one, and the values: a checkpoint of other values is of another model.
    fn sizes(&self) -> Vec<(&'static str, String)>;

    /// Returns the parts of the model, in the words of flags; nothing if the family does not say.
    fn architecture(&self) -> Architecture {
        Architecture::default()
    }

    /// The numbers of parameters, padding not counted.
    fn parameter_counts(&self) -> ParameterCounts;

    /// The numbers that a layer holds from its forward to its backward pass, per element of its input (`sbh`).
    fn activations_per_element(&self, parallel: &ParallelConfig) -> f64;

    /// Returns those of these numbers that burn's operations hold: they stay on the device where activations are
    /// offloaded.
    fn unfused_per_element(&self, _parallel: &ParallelConfig) -> f64 {
        0.0
    }

    /// The FLOPs of one sample's forward pass; attention is not halved for causality.
    fn forward_flops(&self, seq_length: usize) -> ForwardFlops;

    /// Returns the number of parameters, padding not counted.
    fn num_parameters(&self) -> usize {
        let counts = self.parameter_counts();
        let head = if counts.is_tied { 0 } else { counts.head };
        self.n_layers() * counts.layer + counts.first + counts.last + head
    }

    /// Returns the FLOPs of the forward and backward passes of a global batch. Recomputation does not count.
    fn flops_per_iteration(&self, seq_length: usize, global_batch_size: usize) -> f64 {
        let ForwardFlops { layers, head } = self.forward_flops(seq_length);
        // The backward pass of a matmul is two matmuls.
        3.0 * (layers + head) * global_batch_size as f64
    }
}

/// The objective of training: which samples a model is trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Each token's successor.
    NextToken,
    /// Tokens that were masked, as BERT.
    MaskedTokens {
        /// True if it also tells if a second segment follows the first.
        tells_pairs: bool,
    },
    /// The spans that were left out of a text, as T5.
    Spans {
        /// The tokens that they have together, with what tells them apart.
        decoder_seq_length: usize,
    },
}

/// The numbers of a model's parameters, padding not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterCounts {
    pub layer: usize,
    /// Parameters before the first layer: the embeddings.
    pub first: usize,
    /// Parameters after the last layer, without the head: the final norm.
    pub last: usize,
    pub head: usize,
    /// True if the head is the token embedding. The last pipeline stage has a copy of it then.
    pub is_tied: bool,
}

/// The FLOPs of one sample's forward pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForwardFlops {
    pub layers: f64,
    pub head: f64,
}
