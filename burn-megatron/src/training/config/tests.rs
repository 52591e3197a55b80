//! Tests of `config`: batches that the layout cannot take are refused before training.

use super::*;
use crate::pipeline_parallel::schedule::ScheduleKind;
use crate::topology::{ParallelConfig, RankGrid};

fn config(global_batch_size: usize, rampup_batch_size: Option<(usize, usize, u64)>) -> TrainingConfig {
    TrainingConfig {
        seq_length: 4,
        micro_batch_size: 2,
        global_batch_size,
        rampup_batch_size: rampup_batch_size.map(|(start, increment, samples)| BatchSizeRampUp {
            start,
            increment,
            samples,
        }),
        train_samples: 100,
        learning_rate: LearningRateConfig::constant(1e-3),
        weight_decay: WeightDecayConfig::constant(0.1),
        clip_grad: 1.0,
        adam_beta1: 0.9,
        adam_beta2: 0.95,
        adam_eps: 1e-8,
        sgd_momentum: None,
        optimizer: None,
        param_groups: None,
        seed: 1,
        replica_check_interval: 0,
    }
}

fn data_parallel(size: usize) -> RankGrid {
    ParallelConfig::default().grid(size).unwrap()
}

fn message(config: &TrainingConfig, data_parallel_size: usize) -> String {
    let error = config.validate(&data_parallel(data_parallel_size), false).unwrap_err();
    error.to_string()
}

#[test]
fn every_size_of_a_ramp_up_is_whole_micro_batches_of_every_rank() {
    assert_eq!(config(16, Some((4, 4, 30))).validate(&data_parallel(2), false), Ok(()));
    assert_eq!(config(16, Some((4, 6, 30))).validate(&data_parallel(1), false), Ok(()));
    assert_eq!(
        message(&config(16, Some((6, 2, 30))), 2),
        "every global batch size of the ramp-up must be a multiple of micro-batch size * data-parallel size = 2 * 2, \
         got 6; the nearest valid sizes are 4 and 8"
    );
    // The first size fits, the second does not.
    assert!(message(&config(16, Some((4, 6, 30))), 2).ends_with("got 10; the nearest valid sizes are 8 and 12"));
    assert_eq!(
        message(&config(10, None), 2),
        "the global batch size must be a multiple of micro-batch size * data-parallel size = 2 * 2, got 10; the \
         nearest valid sizes are 8 and 12"
    );
}

#[test]
fn a_run_has_at_least_one_step() {
    let samples = |train_samples, ramp_up| TrainingConfig {
        train_samples,
        ..config(16, ramp_up)
    };
    let grid = data_parallel(1);
    // The ramp-up need not come to its end.
    assert_eq!(samples(4, Some((4, 4, 30))).validate(&grid, false), Ok(()));
    assert_eq!(samples(4, Some((4, 4, 30))).num_steps(), Ok(1));
    assert!(message(&samples(3, Some((4, 4, 30))), 1).ends_with("the first global batch is 4, got 3 samples"));
    assert!(message(&samples(0, None), 1).ends_with("the first global batch is 16, got 0 samples"));
    assert!(message(&samples(1 << 32, None), 1).ends_with("must be below 2^32, got 4294967296"));
}

#[test]
fn what_is_no_schedule_is_refused() {
    let valid = config(16, None);
    let rates = TrainingConfig {
        learning_rate: LearningRateConfig::constant(-1.0),
        ..valid.clone()
    };
    assert!(message(&rates, 1).starts_with("learning rates must be"));
    let decay = TrainingConfig {
        weight_decay: WeightDecayConfig::constant(-1.0),
        ..valid
    };
    assert!(message(&decay, 1).starts_with("weight decays must be"));
    assert!(message(&config(16, Some((4, 5, 30))), 1).contains("nearest valid increments are 4 and 6"));
}

#[test]
fn the_stages_must_take_every_size_of_a_ramp_up() {
    let check = |config: TrainingConfig, group_size, data_parallel_size| {
        let stages = ScheduleConfig {
            kind: ScheduleKind::Interleaved { group_size },
            num_stages: 2,
            num_chunks: 2,
            num_micro_batches: 0,
        };
        let checked = config.validate_stages(&stages, data_parallel_size);
        checked.map_err(|error| error.to_string())
    };
    assert_eq!(check(config(16, Some((4, 4, 30))), None, 1), Ok(()));
    // Groups of two stages' micro-batches: one is too few.
    let error = check(config(16, Some((2, 2, 30))), None, 1).unwrap_err();
    assert!(
        error.starts_with("a global batch size of 2, which the ramp-up comes to, is 1 micro-batches"),
        "{error}"
    );
    assert!(error.ends_with("the nearest valid sizes are 4"), "{error}");
    // Groups of three and one left over: of the sizes of 3, 4 and more micro-batches of 2 * 2, the second.
    let error = check(config(24, Some((12, 4, 30))), Some(3), 2).unwrap_err();
    assert!(error.starts_with("a global batch size of 16, which"), "{error}");
    assert!(error.ends_with("the nearest valid sizes are 12 and 20"), "{error}");
    // The full size is looked at, too, and without a ramp-up it is the schedule that complains.
    let error = check(config(8, None), Some(3), 1).unwrap_err();
    assert!(error.contains("group size") && !error.contains("ramp-up"), "{error}");
}
