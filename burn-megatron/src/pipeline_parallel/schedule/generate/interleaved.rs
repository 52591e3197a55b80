//! Interleaved 1F1B: several chunks per stage, so that the pipeline fills v times as fast. The bubble is
//! (p - 1) / (v m), for v times the messages and more activations.
//!
//! # Reference
//! Narayanan et al. 2021, arXiv:2104.04473, section 2.2; the group size is Megatron-LM's
//! `--microbatch-group-size-per-virtual-pipeline-stage`.

use super::{
    Sizes,
    order::{Order, forwards_then_backwards},
};
use crate::pipeline_parallel::schedule::Task;

/// The order of the forward passes, the same on every stage: group after group of `group_size` micro-batches (the last
/// may be smaller), in each group chunk after chunk, in each chunk the micro-batches of the group.
pub(super) fn table(sizes: Sizes, group_size: usize) -> Vec<Task> {
    let num_micro_batches = sizes.num_micro_batches;
    let mut table = Vec::with_capacity(num_micro_batches * sizes.num_chunks);
    for start in (0..num_micro_batches).step_by(group_size) {
        let end = num_micro_batches.min(start + group_size);
        for chunk in 0..sizes.num_chunks {
            table.extend((start..end).map(|micro_batch| Task { micro_batch, chunk }));
        }
    }
    table
}

/// Returns the order on `stage`. The warm-up is min(2 (p - stage - 1) + (v - 1) g, m v): the first group passes through
/// all chunks except the last, and two more passes follow for each later stage: one while the activation travels there,
/// one while its gradient travels back. Backward passes follow the same table with the chunks reversed.
pub(super) fn order(sizes: Sizes, group_size: usize, stage: usize) -> Order {
    let forwards = table(sizes, group_size);
    let last_chunk = sizes.num_chunks - 1;
    let backwards: Vec<Task> = forwards
        .iter()
        .map(|task| Task {
            chunk: last_chunk - task.chunk,
            ..*task
        })
        .collect();
    let warm_up = 2 * (sizes.num_stages - stage - 1) + last_chunk * group_size;
    forwards_then_backwards(&forwards, &backwards, warm_up)
}
