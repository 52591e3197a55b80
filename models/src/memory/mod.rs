//! How much memory a rank of each stage needs to train a model: which [parameters](stage_parameters) it has, and about
//! how many bytes of [activations](activation_bytes_of_stages).
//!
//! A layer holds [`activations_per_element`](ModelConfig::activations_per_element) numbers for each of the `sbh` of its
//! input, of s tokens in each of b samples and width h. Of a group of layers that runs again only the input is held,
//! `sbh` numbers, `sbh / t` under sequence parallelism. Of layers that are offloaded the device holds those of two at a
//! time.
//!
//! A stage holds the activations of each task, one micro-batch in one chunk, from its forward to its backward pass; the
//! backward pass also needs those of one group if groups run again. The stage's list in the schedule says how many
//! tasks that are at the worst moment: min(m, p - stage) of m micro-batches on p stages for 1F1B, m for GPipe. The head
//! holds its logits, shared by the t tensor ranks; buffers for messages are not counted.
//!
//! # Reference
//! Korthikanti et al. 2022, arXiv:2205.05198, equations 1, 2, 4 and 6.

mod parameters;

use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::pipeline_parallel::schedule::{Pass, Schedule};
use burn_megatron::topology::ParallelConfig;

pub use parameters::{StageSetting, stage_parameters};

use crate::model_config::{ModelConfig, Objective};

#[cfg(test)]
mod tests;

/// What the activations of a run depend on, in addition to the model.
#[derive(Clone, Copy, Debug)]
pub struct MemorySetting<'a> {
    /// The sizes of the axes.
    pub parallel: &'a ParallelConfig,
    /// The layers of each virtual stage.
    pub layers: &'a LayerLayout,
    /// The order of a step's micro-batches, with the stages and chunks of `layers`.
    pub schedule: &'a Schedule,
    /// Tokens of a sample, at most those that the model takes: s.
    pub seq_length: usize,
    /// Samples of a micro-batch: b.
    pub micro_batch_size: usize,
    /// The tokens of the vocabulary that are scored, with padding.
    pub padded_vocab_size: usize,
    /// Bytes of a number of an activation.
    pub element_bytes: usize,
    /// How many layers of each chunk, the first ones, have their activations in host memory.
    pub offloaded_layers: usize,
}

/// What one micro-batch leaves in one chunk, in numbers.
struct ChunkActivations {
    /// From the forward pass to the backward pass.
    kept: f64,
    /// While the backward pass runs a group of layers again: the largest group's.
    run_again: f64,
    /// While activations go to host memory and come back: those of two layers.
    moving: f64,
}

/// Returns about how many bytes of activations a rank of each stage holds at one time: see the module's documentation.
///
/// # Panics
/// If `setting.layers` are not this model's, or `setting.schedule` has other stages or chunks than these.
pub fn activation_bytes_of_stages(model: &dyn ModelConfig, setting: &MemorySetting<'_>) -> Vec<f64> {
    let (layers, schedule) = (setting.layers, setting.schedule);
    assert_eq!(
        layers.num_layers(),
        model.n_layers(),
        "layers of the layout and of the model"
    );
    assert_eq!(
        [schedule.num_stages(), schedule.num_chunks],
        [layers.num_stages(), layers.num_chunks()],
        "stages and chunks of the schedule and of the layout"
    );
    let of_stage = |stage| {
        let mut chunks = chunks_of_stage(model, setting, stage);
        for (chunk, activations) in chunks.iter_mut().enumerate() {
            if layers.has_head(chunk * layers.num_stages() + stage) {
                activations.kept += logits(model, setting);
            }
        }
        held(&chunks, setting.schedule, stage) * setting.element_bytes as f64
    };
    (0..layers.num_stages()).map(of_stage).collect()
}

fn chunks_of_stage(model: &dyn ModelConfig, setting: &MemorySetting<'_>, stage: usize) -> Vec<ChunkActivations> {
    let ranges = setting.layers.ranges_of_stage(stage);
    ranges
        .map(|range| chunk_activations(model, setting, range.len()))
        .collect()
}

/// The logits of a micro-batch.
fn logits(model: &dyn ModelConfig, setting: &MemorySetting<'_>) -> f64 {
    let tokens = match model.objective() {
        Objective::Spans { decoder_seq_length } => decoder_seq_length,
        Objective::NextToken | Objective::MaskedTokens { .. } => setting.seq_length,
    };
    let rows = (tokens * setting.micro_batch_size) as f64;
    rows * setting.padded_vocab_size as f64 / setting.parallel.tensor_parallel_size as f64
}

/// The most numbers that a stage of these chunks holds of activations at one time.
fn held(chunks: &[ChunkActivations], schedule: &Schedule, stage: usize) -> f64 {
    if schedule.is_forward_only {
        return 0.0;
    }
    // Not the report's peak of tasks, since chunks may differ in their layers.
    let (mut held, mut peak) = (0.0, 0.0f64);
    for (pass, task) in schedule.stages[stage].iter().filter_map(|action| action.compute()) {
        let chunk = &chunks[task.chunk];
        match pass {
            Pass::Forward => {
                held += chunk.kept;
                peak = peak.max(held + chunk.moving);
            }
            Pass::Backward => {
                peak = peak.max(held + chunk.run_again + chunk.moving);
                held -= chunk.kept;
            }
        }
    }
    peak
}

fn chunk_activations(model: &dyn ModelConfig, setting: &MemorySetting<'_>, num_blocks: usize) -> ChunkActivations {
    let parallel = setting.parallel;
    let [s, b, h, t] = [
        setting.seq_length,
        setting.micro_batch_size,
        model.d_model(),
        parallel.tensor_parallel_size,
    ]
    .map(|size| size as f64);
    let input = if parallel.sequence_parallel { 1.0 / t } else { 1.0 };
    let per_element = model.activations_per_element(parallel);
    let mut activations = ChunkActivations {
        kept: 0.0,
        run_again: 0.0,
        moving: 0.0,
    };
    // Embedding and head are not counted, so it does not matter which chunk has them.
    for segment in model.layer_recompute().segments(num_blocks, false, false) {
        let [layer, unfused] = [per_element, model.unfused_per_element(parallel)].map(|each| s * b * h * each);
        let num_offloaded = segment.blocks.clone().filter(|&block| block < setting.offloaded_layers);
        let (num_offloaded, num_blocks) = (num_offloaded.count() as f64, segment.blocks.len() as f64);
        // What is kept together, how often, how much of that is on the host, and how much of each stays.
        let (kept, count, num_offloaded, stays) = if segment.is_recomputed {
            activations.run_again = activations.run_again.max(num_blocks * layer);
            (s * b * h * input, 1.0, num_offloaded.min(1.0), 0.0)
        } else {
            (layer, num_blocks, num_offloaded, unfused)
        };
        activations.kept += kept * (count - num_offloaded) + stays * num_offloaded;
        activations.moving = activations.moving.max((kept - stays) * num_offloaded.min(2.0));
    }
    activations
}
