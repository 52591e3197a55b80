//! [`ModelPart`]: which layers of a model a chunk of a pipeline stage holds, and whether it has the ends.

use std::ops::Range;

use burn_megatron::context::ParallelContext;
use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::topology::TopologyError;
use cubecl_kernels::flash_attention::MAX_HEAD;
use cubecl_kernels::{Kernels, kernels};

/// Which part of a model a chunk is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelPart {
    /// The layers, by global number.
    pub layers: Range<usize>,
    /// True if it has the embeddings.
    pub is_first: bool,
    /// True if it has the final norm and the head.
    pub is_last: bool,
}

/// A model that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A size that does not divide.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error(
        "fused attention needs heads of at most {valid} elements, got d_model / n_heads = {d_head}: more heads, or \
         plain operations (Kernels::Plain, --no-fused-kernels)"
    )]
    HeadSize { d_head: usize, valid: usize },
    #[error("a whole model needs pipeline_parallel_size 1, got {pipeline}: make this rank's chunks with init_stage")]
    Stages { pipeline: usize },
    #[error("a model on one pipeline stage is one chunk, got a layer layout of {num_chunks}")]
    ChunksOfOneStage { num_chunks: usize },
    #[error(
        "the layer layout must be for {n_layers} layers on {pipeline} stages, got one for {layout_layers} layers on \
         {layout_stages} stages"
    )]
    LayerLayout {
        n_layers: usize,
        pipeline: usize,
        layout_layers: usize,
        layout_stages: usize,
    },
}

impl ModelPart {
    /// Returns all of a model of `n_layers`.
    ///
    /// # Errors
    /// When the layout has pipeline stages.
    pub fn whole(n_layers: usize, context: &ParallelContext) -> Result<Self, ModelError> {
        let pipeline = context.grid().pipeline_parallel_size();
        if pipeline > 1 {
            return Err(ModelError::Stages { pipeline });
        }
        Ok(Self {
            layers: 0..n_layers,
            is_first: true,
            is_last: true,
        })
    }

    /// Returns the chunks of this rank's stage of a model of `n_layers`.
    ///
    /// # Errors
    /// When `layers` is not for this model or this layout.
    pub fn of_stage(n_layers: usize, layers: &LayerLayout, context: &ParallelContext) -> Result<Vec<Self>, ModelError> {
        let pipeline = context.grid().pipeline_parallel_size();
        if (layers.num_layers(), layers.num_stages()) != (n_layers, pipeline) {
            return Err(ModelError::LayerLayout {
                n_layers,
                pipeline,
                layout_layers: layers.num_layers(),
                layout_stages: layers.num_stages(),
            });
        }
        if pipeline == 1 && layers.num_chunks() > 1 {
            return Err(ModelError::ChunksOfOneStage {
                num_chunks: layers.num_chunks(),
            });
        }
        let stage = context.coordinates().pipeline;
        let virtual_stages = (0..layers.num_chunks()).map(|chunk| chunk * pipeline + stage);
        let part = |virtual_stage| Self {
            layers: layers.range(virtual_stage),
            is_first: layers.has_embedding(virtual_stage),
            is_last: layers.has_head(virtual_stage),
        };
        Ok(virtual_stages.map(part).collect())
    }
}

/// Checks that attention computes with heads of this size.
///
/// # Errors
/// When fused attention does not.
pub fn validate_head_size(d_head: usize) -> Result<(), ModelError> {
    if kernels() == Kernels::Fused && d_head > MAX_HEAD {
        return Err(ModelError::HeadSize {
            d_head,
            valid: MAX_HEAD,
        });
    }
    Ok(())
}
