//! About how many bytes a rank of each stage needs to train: parameters, gradients, Adam's moments and activations.
//!
//! Static: [`MemorySetting::parameter_bytes`] per parameter, shared by the t tensor ranks. A stage has the parameters
//! of its layers, the first virtual stage the embeddings, the last one the final norm and the head, or its copy of a
//! tied one.
//!
//! A layer holds [`activations_per_element`](ModelConfig::activations_per_element) numbers for each of the `sbh` of its
//! input, of s tokens in each of b samples and width h. Of a group of layers that runs again only the input is held,
//! `sbh` numbers, `sbh / t` under sequence parallelism.
//!
//! A stage holds the activations of each task, one micro-batch in one chunk, from its forward to its backward pass; the
//! backward pass also needs those of one group if groups run again. The stage's list in the schedule says how many
//! tasks that are at the worst moment: min(m, p - stage) of m micro-batches on p stages for 1F1B, m for GPipe. Logits
//! and buffers for messages are not counted.
//!
//! # Reference
//! Korthikanti et al. 2022, arXiv:2205.05198, equations 1, 2, 4 and 6.

use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::pipeline_parallel::schedule::{Pass, Schedule};
use burn_megatron::topology::ParallelConfig;

use crate::model_config::ModelConfig;

#[cfg(test)]
mod tests;

/// What a run's memory depends on, in addition to the model.
#[derive(Clone, Copy, Debug)]
pub struct MemorySetting<'a> {
    /// The sizes of the axes.
    pub parallel: &'a ParallelConfig,
    /// The layers of each virtual stage.
    pub layers: &'a LayerLayout,
    /// The order of a step's micro-batches, with the stages and chunks of `layers`.
    pub schedule: &'a Schedule,
    /// Samples of a micro-batch: b.
    pub micro_batch_size: usize,
    /// Bytes of a number of an activation.
    pub element_bytes: usize,
    /// Bytes per parameter, optimizer included: [`bytes_per_parameter`](burn_megatron::optimizer::bytes_per_parameter).
    pub parameter_bytes: f64,
}

/// What one micro-batch leaves in one chunk, in numbers.
struct ChunkActivations {
    /// From the forward pass to the backward pass.
    kept: f64,
    /// While the backward pass runs a group of layers again: the largest group's.
    run_again: f64,
}

/// Returns about how many bytes a rank of each stage needs to train: see the module's documentation.
///
/// # Panics
/// If `setting.layers` are not this model's, or `setting.schedule` has other stages or chunks than these.
pub fn bytes_of_stages(model: &dyn ModelConfig, setting: &MemorySetting<'_>) -> Vec<f64> {
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
    let tensor = setting.parallel.tensor_parallel_size as f64;
    let of_stage = |stage| {
        let parameters = stage_parameters(model, layers, stage) as f64 / tensor;
        parameters * setting.parameter_bytes + stage_activations(model, setting, stage) * setting.element_bytes as f64
    };
    (0..layers.num_stages()).map(of_stage).collect()
}

/// The parameters of a stage, padding not counted.
fn stage_parameters(model: &dyn ModelConfig, layers: &LayerLayout, stage: usize) -> usize {
    let counts = model.parameter_counts();
    let of_chunk = |(chunk, range): (usize, std::ops::Range<usize>)| {
        let virtual_stage = chunk * layers.num_stages() + stage;
        let (is_first, is_last) = (layers.has_embedding(virtual_stage), layers.has_head(virtual_stage));
        let mut count = range.len() * counts.layer;
        if is_first {
            count += counts.first;
        }
        if is_last {
            count += counts.last;
        }
        // A tied head is the embedding where both are in one chunk, else a copy of it.
        if is_last && !(is_first && counts.is_tied) {
            count += counts.head;
        }
        count
    };
    layers.ranges_of_stage(stage).enumerate().map(of_chunk).sum()
}

/// The most numbers that a stage holds of activations at one time.
fn stage_activations(model: &dyn ModelConfig, setting: &MemorySetting<'_>, stage: usize) -> f64 {
    if setting.schedule.is_forward_only {
        return 0.0;
    }
    let chunks: Vec<ChunkActivations> = setting
        .layers
        .ranges_of_stage(stage)
        .map(|range| chunk_activations(model, setting, range.len()))
        .collect();
    // Not the report's peak of tasks, since chunks may differ in their layers.
    let (mut held, mut peak) = (0.0, 0.0f64);
    for (pass, task) in setting.schedule.stages[stage]
        .iter()
        .filter_map(|action| action.compute())
    {
        let chunk = &chunks[task.chunk];
        match pass {
            Pass::Forward => {
                held += chunk.kept;
                peak = peak.max(held);
            }
            Pass::Backward => {
                peak = peak.max(held + chunk.run_again);
                held -= chunk.kept;
            }
        }
    }
    peak
}

fn chunk_activations(model: &dyn ModelConfig, setting: &MemorySetting<'_>, num_blocks: usize) -> ChunkActivations {
    let parallel = setting.parallel;
    let [s, b, h, t] = [
        model.max_seq_length(),
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
    };
    // Embedding and head are not counted, so it does not matter which chunk has them.
    for segment in model.layer_recompute().segments(num_blocks, false, false) {
        let whole = segment.blocks.len() as f64 * s * b * h * per_element;
        if segment.is_recomputed {
            activations.kept += s * b * h * input;
            activations.run_again = activations.run_again.max(whole);
        } else {
            activations.kept += whole
        }
    }
    activations
}
