//! [`ModelFamily`]: what training programs know of a kind of model. [`ModelConfig`] is the part without tensors.

use std::fmt::Debug;

use burn::module::AutodiffModule;
use burn_megatron::context::ParallelContext;
use burn_megatron::pipeline_parallel::{LayerLayout, PipelineBackend};
use burn_megatron::topology::{ParallelConfig, TopologyError};
use burn_megatron::training::LanguageModel;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::huggingface::HuggingFaceFormat;
use crate::layers::{LayerRecompute, ModelError};
use crate::memory::{self, MemorySetting};

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

    /// The size of the vocabulary, without padding.
    fn vocab_size(&self) -> usize;

    /// The size of each token's activation, `h`.
    fn d_model(&self) -> usize;

    /// The number of attention heads.
    fn n_heads(&self) -> usize;

    /// Which layers keep their input only, and run again before their backward pass.
    fn layer_recompute(&self) -> LayerRecompute;

    /// Checks that the model's sizes fit each other and the layout.
    ///
    /// # Errors
    /// The rule that is broken, the values, and the nearest valid ones.
    fn validate(&self, parallel: &ParallelConfig) -> Result<(), TopologyError>;

    /// What the parameters depend on, by flag or in words, and the values: a checkpoint of other values is of another
    /// model.
    fn sizes(&self) -> Vec<(&'static str, String)>;

    /// The numbers of parameters, padding not counted.
    fn parameter_counts(&self) -> ParameterCounts;

    /// The numbers that a layer holds from its forward to its backward pass, per element of its input (`sbh`).
    fn activations_per_element(&self, parallel: &ParallelConfig) -> f64;

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

    /// Returns about how many bytes a rank of each stage needs to train: see [`memory`](crate::memory).
    ///
    /// # Panics
    /// If `setting.layers` are not this model's, or `setting.schedule` has other stages or chunks than these.
    fn memory_bytes(&self, setting: &MemorySetting<'_>) -> Vec<f64> {
        memory::bytes_of_stages(self, setting)
    }
}

/// The numbers of a model's parameters, padding not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterCounts {
    /// Those of one layer.
    pub layer: usize,
    /// Those before the first layer: the embeddings.
    pub first: usize,
    /// Those after the last layer, without the head: the final norm.
    pub last: usize,
    /// Those of the output head.
    pub head: usize,
    /// Whether the head is the token embedding. The last pipeline stage has a copy of it then.
    pub is_tied: bool,
}

/// The FLOPs of one sample's forward pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForwardFlops {
    /// Those of all layers.
    pub layers: f64,
    /// Those of the output head.
    pub head: f64,
}

/// A kind of model that the training programs train in any layout; it is implemented by its configuration.
///
/// A new family is a folder next to [`gpt`](crate::gpt) and a line in [`registry`](crate::registry).
pub trait ModelFamily:
    ModelConfig + HuggingFaceFormat + Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The family's name on the command line and in checkpoints.
    const NAME: &'static str;

    /// A chunk of a pipeline stage; without stages, the whole model.
    type Stage<B: PipelineBackend>: AutodiffModule<B, InnerModule: LanguageModel<B::InnerBackend>> + LanguageModel<B>;

    /// Returns the names of the well-known sizes, from the smallest to the largest; no other family has the same.
    fn presets() -> Vec<&'static str>;

    /// Returns the configuration that was asked for; what was not asked for is the preset's, or small.
    fn from_settings(settings: &ModelSettings) -> Self;

    /// Returns the chunks of this rank's pipeline stage, initialised by global names: the same numbers in every layout.
    ///
    /// # Errors
    /// When a size does not divide, or `layers` is not for this model or this layout.
    fn init_stage<B: PipelineBackend>(
        &self,
        layers: &LayerLayout,
        device: &B::Device,
        context: &ParallelContext,
    ) -> Result<Vec<Self::Stage<B>>, ModelError>;
}

/// What a person asks of a model, whatever its family.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSettings {
    /// The name of a well-known size; the sizes below override parts of it.
    pub preset: Option<String>,
    /// The size of the vocabulary, without padding.
    pub vocab_size: usize,
    /// The number of layers.
    pub n_layers: Option<usize>,
    /// The size of each token's activation.
    pub d_model: Option<usize>,
    /// The number of attention heads.
    pub n_heads: Option<usize>,
    /// The longest sequence, in tokens.
    pub max_seq_length: Option<usize>,
    /// The size of the vocabulary with padding.
    pub padded_vocab_size: Option<usize>,
    /// Whether the output head is the token embedding.
    pub tied_embeddings: bool,
    /// The standard deviation of weights and embeddings at the start.
    pub init_deviation: f64,
    /// The probability with which an element of a hidden state becomes zero.
    pub hidden_dropout: f64,
    /// The probability with which an attention weight becomes zero.
    pub attention_dropout: f64,
    /// Which layers run again before their backward pass.
    pub layer_recompute: LayerRecompute,
}
