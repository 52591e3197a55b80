//! Refusals of the executor, and a pipeline of one stage.

use burn::nn::{Linear, LinearConfig};

use super::*;
use crate::data_parallel::DataParallelConfig;
use crate::pipeline_parallel::StageOutput;
use crate::pipeline_parallel::schedule::{Message, ScheduleConfig, ScheduleKind};

impl PipelineStage<2> for Linear {
    type MicroBatch = f32;

    fn input_shape(&self, _: &f32) -> [usize; 2] {
        [1, 3]
    }

    fn forward(&self, input: Option<Tensor<2>>, value: &f32) -> StageOutput<2> {
        let input = input.unwrap_or_else(|| Tensor::full([1, 3], *value, &self.weight.device()));
        StageOutput::Losses(Linear::forward(self, input).flatten(0, 1))
    }
}

fn schedule(num_stages: usize, num_micro_batches: usize) -> Schedule {
    let config = ScheduleConfig {
        kind: ScheduleKind::OneForwardOneBackward,
        num_stages,
        num_chunks: 1,
        num_micro_batches,
    };
    config.init().expect("valid sizes")
}

fn executor(schedule: Schedule) -> Result<PipelineExecutor, PipelineError> {
    PipelineExecutor::new(schedule, &ParallelContext::single(1))
}

fn refusal(schedule: Schedule) -> String {
    executor(schedule).expect_err("a wrong schedule").to_string()
}

fn wrapped(num_chunks: usize) -> DistributedDataParallel<Vec<Linear>> {
    let chunks = (0..num_chunks).map(|_| LinearConfig::new(3, 1).init(&Device::flex().autodiff()));
    let context = ParallelContext::single(1);
    DistributedDataParallel::new(chunks.collect(), &context, DataParallelConfig::new()).expect("one rank")
}

fn train(num_chunks: usize, micro_batches: &[f32]) -> Result<Vec<f32>, PipelineError> {
    let losses = executor(schedule(1, 3))?.train(&mut wrapped(num_chunks), micro_batches, |_, losses| losses)?;
    Ok(losses.into_iter().map(|loss| loss.into_scalar::<f32>()).collect())
}

#[test]
fn losses_come_back_in_the_order_of_the_micro_batches() {
    let losses = train(1, &[1.0, 10.0, 100.0]).expect("three micro-batches");
    assert_eq!(losses.len(), 3);
    let slope = (losses[1] - losses[0]) / 9.0;
    assert!(
        slope != 0.0 && (losses[2] - losses[0] - 99.0 * slope).abs() < 1e-3,
        "{losses:?}"
    );
}

#[test]
fn another_number_of_stages_chunks_or_micro_batches_is_refused_with_both_numbers() {
    assert_eq!(
        refusal(schedule(2, 3)),
        "rank 0: the schedule is for 2 stages, but the pipeline group has 1 ranks"
    );
    assert_eq!(
        train(2, &[0.0; 3]).expect_err("two chunks").to_string(),
        "rank 0: the schedule is for 1 chunks per stage, but the model has 2 here"
    );
    assert_eq!(
        train(1, &[0.0; 4]).expect_err("four micro-batches").to_string(),
        "rank 0: the schedule is for 3 micro-batches, got 4"
    );
}

#[test]
fn a_list_made_by_hand_is_checked_before_it_is_run() {
    let mut forgotten = schedule(1, 3);
    forgotten.stages[0].pop();
    let message = refusal(forgotten);
    assert!(
        message.contains("stage 0 never runs the backward of micro-batch 2"),
        "{message}"
    );

    let mut early = schedule(1, 3);
    early.stages[0].swap(0, 1);
    let message = refusal(early);
    assert!(
        message.contains("stage 0, action 0 (backward of micro-batch 0"),
        "{message}"
    );

    let mut twice = schedule(1, 3);
    let again = twice.stages[0][0].clone();
    twice.stages[0].push(again);
    let message = refusal(twice);
    assert!(
        message.contains("expected the forward of micro-batch 0, chunk 0 once"),
        "{message}"
    );

    let mut unasked = schedule(1, 3);
    let message = Message {
        direction: Direction::Forward,
        micro_batch: 0,
        from: 0,
        peer: 0,
    };
    unasked.stages[0].push(Action::Send(message));
    let message = refusal(unasked);
    assert!(message.contains("expected no such message"), "{message}");
    // Both stages begin by waiting for the other.
    let mut crossed = schedule(2, 1);
    crossed.stages[0].rotate_right(2);
    let message = refusal(crossed);
    assert!(message.contains("stage 0, action"), "{message}");
}
