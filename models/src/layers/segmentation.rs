//! `Segmentation`: how the chunks of a model are cut into segments, and what becomes of what each keeps.

use burn_megatron::context::ParallelContext;

use super::recompute::{LayerRecompute, Segment, layer_segments};

/// How the chunks of a model are cut into segments: what recomputation, sharded parameters and offloaded activations
/// ask for.
#[derive(Clone, Copy, Debug)]
pub struct Segmentation {
    recompute: LayerRecompute,
    has_layer_segments: bool,
    offloaded_layers: usize,
}

impl Segmentation {
    /// Returns how a model of this context is cut.
    pub fn new(recompute: LayerRecompute, context: &ParallelContext) -> Self {
        Self {
            recompute,
            has_layer_segments: context.has_layer_segments(),
            offloaded_layers: context.offloaded_layers(),
        }
    }

    /// Returns the segments of a chunk of `num_blocks`, in order; one at least.
    pub fn segments(self, num_blocks: usize, has_embedding: bool, has_head: bool) -> Vec<Segment> {
        let segments = self.recompute.segments(num_blocks, has_embedding, has_head);
        if self.has_layer_segments {
            layer_segments(segments)
        } else {
            segments
        }
    }

    /// Returns whether what a segment keeps goes to host memory: that of the first layers of its chunk, where there are
    /// such.
    pub fn is_offloaded(self, segment: &Segment) -> bool {
        segment.blocks.clone().any(|block| block < self.offloaded_layers)
    }
}
