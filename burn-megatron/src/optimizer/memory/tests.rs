//! Tests of `memory`: figures counted by hand, and those of ZeRO's paper.

use proptest::prelude::*;

use ShardingStrategy::{NoShard, Optim, OptimGrads, OptimGradsParams};

use super::*;
use crate::data_parallel::BucketClass;

#[test]
fn bytes_are_those_of_the_formulas() {
    for (dtype, tensors, sharding, shards, bytes) in [
        (DType::F32, 2, NoShard, 4, 16.0),
        (DType::F32, 2, Optim, 4, 10.0),
        (DType::F32, 2, OptimGrads, 4, 7.0),
        (DType::F32, 2, OptimGradsParams, 4, 4.0),
        (DType::BF16, 2, NoShard, 1, 18.0),
        (DType::F16, 2, Optim, 4, 9.0),
        (DType::BF16, 2, OptimGrads, 4, 6.0),
        (DType::BF16, 2, OptimGradsParams, 4, 4.5),
        (DType::F64, 2, Optim, 1, 32.0),
        (DType::F64, 2, Optim, 2, 24.0),
        (DType::F32, 1, NoShard, 1, 12.0),
        (DType::BF16, 0, NoShard, 1, 10.0),
    ] {
        let got = bytes_per_parameter(dtype, tensors, sharding, shards);
        assert_eq!(got, bytes, "{dtype:?}, {tensors} tensors, {sharding:?} on {shards}");
    }
    assert_eq!(state_bytes_per_parameter(DType::BF16, 2, OptimGrads, 4), 3.0);
    assert_eq!(state_bytes_per_parameter(DType::F32, 2, NoShard, 4), 8.0);
}

/// One layer's parameters, by hand: 300 and 200 elements.
fn two_layers() -> Vec<BucketParameter> {
    let of_layer = |layer: usize| {
        let parameter = move |(name, len): (&str, usize)| BucketParameter {
            path: format!("0.blocks.{layer}.{name}"),
            name: name.to_owned(),
            len,
            class: BucketClass::Early,
            factored_len: (name == "weight").then_some(40),
        };
        [("weight", 300), ("bias", 200)].map(parameter)
    };
    [0, 1].into_iter().flat_map(of_layer).collect()
}

fn config(dtype: DType) -> StateMemoryConfig {
    StateMemoryConfig {
        dtype,
        num_state_tensors: 2,
        has_factored_state: false,
        bucket_size: None,
        num_instances: 1,
        overlap_grad_reduce: true,
        overlap_param_gather: true,
    }
}

#[test]
fn state_is_that_of_the_buckets() {
    let memory = |sharding, config: StateMemoryConfig| config.of_parameters(&two_layers(), sharding, 2);
    let bf16 = config(DType::BF16);
    // One bucket, from its end: bias at 0, weight at 256, bias at 640, weight at 896, to 1196; two shards of 640.
    let stage_0 = memory(NoShard, bf16);
    let parts = MemoryParts {
        parameters: 2.0 * 1000.0,
        gradients: 4.0 * 1280.0,
        main: 4.0 * 1000.0,
        moments: 8.0 * 1000.0,
    };
    assert_eq!((stage_0.parts, stage_0.buffers, stage_0.gathered), (parts, 0.0, 0.0));
    let stage_1 = memory(Optim, bf16);
    let parts = MemoryParts {
        main: 4.0 * 640.0,
        moments: 8.0 * 640.0,
        ..parts
    };
    assert_eq!((stage_1.parts, stage_1.buffers), (parts, 2.0 * 1280.0));
    let stage_2 = memory(OptimGrads, bf16);
    let parts = MemoryParts {
        gradients: 4.0 * 640.0,
        ..parts
    };
    assert_eq!((stage_2.parts, stage_2.buffers), (parts, 4.0 * 1280.0));
    // A bucket for each layer: bias at 0, weight at 256, to 556; two shards of 384.
    let stage_3 = memory(OptimGradsParams, bf16);
    let parts = MemoryParts {
        parameters: 2.0 * 2.0 * 384.0,
        gradients: 2.0 * 4.0 * 384.0,
        main: 2.0 * 4.0 * 384.0,
        moments: 2.0 * 8.0 * 384.0,
    };
    assert_eq!(stage_3.parts, parts);
    assert_eq!(
        (stage_3.buffers, stage_3.gathered),
        (2.0 * 4.0 * 768.0, 2.0 * 2.0 * 768.0)
    );
    // One at a time.
    let apart = StateMemoryConfig {
        overlap_grad_reduce: false,
        overlap_param_gather: false,
        ..bf16
    };
    let stage_3 = memory(OptimGradsParams, apart);
    assert_eq!((stage_3.buffers, stage_3.gathered), (4.0 * 768.0, 2.0 * 768.0));
    // f32 has no main values.
    assert_eq!(memory(NoShard, config(DType::F32)).parts.main, 0.0);
}

#[test]
fn a_state_in_factors_has_the_numbers_of_rows_and_columns() {
    let adafactor = StateMemoryConfig {
        num_state_tensors: 0,
        has_factored_state: true,
        ..config(DType::BF16)
    };
    let moments = |sharding| adafactor.of_parameters(&two_layers(), sharding, 2).parts.moments;
    // Of two weights, and two biases of 200.
    assert_eq!(moments(NoShard), 4.0 * (2.0 * 40.0 + 2.0 * 200.0));
    assert_eq!(moments(OptimGradsParams), 4.0 * (2.0 * 40.0 + 200.0));
}

#[test]
fn a_layer_is_gathered_as_one_however_small_buckets_are() {
    let small = StateMemoryConfig {
        bucket_size: Some(100),
        ..config(DType::F32)
    };
    let [small, usual] =
        [small, config(DType::F32)].map(|config| config.of_parameters(&two_layers(), OptimGradsParams, 2));
    assert_eq!(small, usual);
}

#[test]
fn the_papers_example_with_main_gradients_of_four_bytes() {
    // Rajbhandari et al. 2020, figure 1: 7.5 billion parameters on 64 ranks, 16 bits, take 120, 31.4, 16.6 and 1.9 GB.
    // Its gradients have 2 bytes, ours 4: 2 more where each rank has them all, 2 / 64 more where it has its shard.
    let gigabytes = |sharding| 7.5 * bytes_per_parameter(DType::F16, 2, sharding, 64);
    for (sharding, paper, more) in [
        (NoShard, 120.0, 15.0),
        (Optim, 31.4, 15.0),
        (OptimGrads, 16.6, 15.0 / 64.0),
        (OptimGradsParams, 1.9, 15.0 / 64.0),
    ] {
        let ours = gigabytes(sharding);
        assert!((ours - paper - more).abs() < 0.051, "{sharding:?}: {ours} GB");
    }
}

proptest! {
    #[test]
    fn what_stays_falls_with_the_stage_and_with_the_ranks(
        lengths in proptest::collection::vec(1usize..3_000_000, 1..12), shards in 2usize..9, is_half: bool,
    ) {
        let parameters: Vec<BucketParameter> = lengths.iter().enumerate().map(|(number, &len)| BucketParameter {
            path: format!("blocks.{}.weight", number / 2),
            name: String::new(),
            len,
            class: BucketClass::Early,
            factored_len: None,
        }).collect();
        let config = config(if is_half { DType::BF16 } else { DType::F32 });
        // What aligns shards, of at most 128 elements of 18 bytes for each bucket and parameter of each shard.
        let slack = (18 * 256 * (lengths.len() + 1) * 2 * shards) as f64;
        let stays = |sharding, shards| config.of_parameters(&parameters, sharding, shards).parts.total();
        for pair in ShardingStrategy::ALL.windows(2) {
            prop_assert!(stays(pair[1], shards) <= stays(pair[0], shards) + slack);
        }
        for sharding in ShardingStrategy::ALL {
            prop_assert!(stays(sharding, 2 * shards) <= stays(sharding, shards) + slack);
            let formula = bytes_per_parameter(config.dtype, 2, sharding, shards) * lengths.iter().sum::<usize>() as f64;
            let got = stays(sharding, shards);
            prop_assert!((got - formula).abs() <= slack, "{sharding:?}: {got} bytes, by the formula {formula}");
        }
    }
}
