//! Tests of the estimate: what each way to share the work, and each way to recompute, does to it.

use burn_megatron::pipeline_parallel::LayerSizes;
use burn_megatron::pipeline_parallel::schedule::{ScheduleConfig, ScheduleKind};

use burn_megatron::data_parallel::BucketParameter;

use crate::gpt::{GptConfig, GptPreset};
use crate::layers::LayerRecompute;

use super::*;

/// A run of `config`.
struct Run {
    config: GptConfig,
    parallel: ParallelConfig,
    layers: LayerLayout,
    schedule: Schedule,
    offloaded_layers: usize,
}

impl Run {
    /// A run on p stages of v chunks, with m micro-batches.
    fn new(config: &GptConfig, kind: ScheduleKind, [p, v, m]: [usize; 3]) -> Self {
        let sizes = LayerSizes {
            n_layers: config.n_layers,
            num_stages: p,
            num_chunks: v,
        };
        let schedule = ScheduleConfig {
            kind,
            num_stages: p,
            num_chunks: v,
            num_micro_batches: m,
        };
        Self {
            config: config.clone(),
            parallel: ParallelConfig {
                pipeline_parallel_size: p,
                ..ParallelConfig::default()
            },
            layers: LayerLayout::even(sizes).expect("layers divide"),
            schedule: schedule.init().expect("a schedule"),
            offloaded_layers: 0,
        }
    }

    /// A run on one rank, micro-batches of 3 and numbers of 4 bytes.
    fn one_rank(config: &GptConfig) -> Self {
        Self::new(config, ScheduleKind::OneForwardOneBackward, [1, 1, 1])
    }

    fn setting(&self) -> MemorySetting<'_> {
        MemorySetting {
            parallel: &self.parallel,
            layers: &self.layers,
            schedule: &self.schedule,
            seq_length: self.config.max_seq_length,
            micro_batch_size: 3,
            padded_vocab_size: self.config.padded_vocab(self.parallel.tensor_parallel_size),
            element_bytes: 4,
            offloaded_layers: self.offloaded_layers,
        }
    }

    fn activations(&self) -> Vec<f64> {
        activation_bytes_of_stages(&self.config, &self.setting())
    }

    /// Of each stage, without padding.
    fn parameters(&self) -> Vec<usize> {
        let config = self.config.clone().with_padded_vocab_size(Some(self.config.vocab_size));
        let setting = StageSetting {
            parallel: &self.parallel,
            layers: &self.layers,
        };
        let stages = stage_parameters(&config, &setting).expect("a layout of the model");
        let count = |stage: &Vec<BucketParameter>| stage.iter().map(|parameter| parameter.len).sum();
        stages.iter().map(count).collect()
    }

    /// The activations of each stage, in those that one layer keeps of one micro-batch.
    fn layers_held(&self) -> Vec<f64> {
        let whole = GptConfig {
            layer_recompute: LayerRecompute::Nothing,
            ..self.config.clone()
        };
        let setting = MemorySetting {
            offloaded_layers: 0,
            ..self.setting()
        };
        let layer = chunk_activations(&whole, &setting, 1).kept;
        let held_by = |stage| {
            let chunks = chunks_of_stage(&self.config, &self.setting(), stage);
            held(&chunks, &self.schedule, stage) / layer
        };
        (0..self.layers.num_stages()).map(held_by).collect()
    }
}

fn preset(name: &str) -> GptConfig {
    GptPreset::named(name).expect("a preset").config()
}

fn recomputing(layer_recompute: LayerRecompute) -> GptConfig {
    GptConfig {
        layer_recompute,
        ..preset("gpt2-124m")
    }
}

fn assert_near(got: &[f64], expected: &[f64]) {
    let is_near = |(got, expected): (&f64, &f64)| (got - expected).abs() <= 1e-9 * expected.abs();
    let all = got.len() == expected.len() && got.iter().zip(expected).all(is_near);
    assert!(all, "expected {expected:?}, got {got:?}");
}

const ONE_F_ONE_B: ScheduleKind = ScheduleKind::OneForwardOneBackward;

#[test]
fn sequence_parallelism_divides_the_activations_and_tensor_parallelism_part_of_them() {
    let bytes = |tensor_parallel_size, sequence_parallel| {
        // 51200 tokens: 1024 divides it, so that there is no padding at 8 ranks.
        let mut run = Run::one_rank(&preset("gpt3-1.7b"));
        run.parallel.tensor_parallel_size = tensor_parallel_size;
        run.parallel.sequence_parallel = sequence_parallel;
        run.activations()[0]
    };
    assert!((bytes(1, false) / bytes(8, true) - 8.0).abs() < 1e-9);
    assert!(bytes(8, true) < bytes(8, false) && bytes(8, false) < bytes(1, false));
}

#[test]
fn activations_grow_with_the_sequence_and_not_with_its_square() {
    let held = |max_seq_length| {
        let config = GptConfig {
            max_seq_length,
            ..preset("gpt2-124m")
        };
        let run = Run::one_rank(&config);
        run.activations()[0]
    };
    assert_near(&[held(4096)], &[4.0 * held(1024)]);
}

#[test]
fn stages_divide_the_parameters_and_a_tied_embedding_is_held_twice() {
    for tied_embeddings in [true, false] {
        let config = GptConfig {
            tied_embeddings,
            ..preset("gpt2-124m")
        };
        let all = config.num_parameters();
        assert_eq!(Run::one_rank(&config).parameters(), [all]);
        let copy = if tied_embeddings {
            config.vocab_size * config.d_model
        } else {
            0
        };
        // GPT-2's published sizes: a block, the token embedding, the positions, the final norm.
        let (block, wte, wpe, norm) = (7_087_872, 38_597_376, 786_432, 1_536);
        for (sizes, middle) in [([4, 1, 4], vec![3 * block; 2]), ([2, 3, 4], vec![])] {
            let blocks = 12 / sizes[0] * block;
            let expected = [vec![blocks + wte + wpe], middle, vec![blocks + wte + norm]].concat();
            let stages = Run::new(&config, ScheduleKind::for_chunks(sizes[1]), sizes).parameters();
            assert_eq!(stages, expected);
            assert_eq!(stages.iter().sum::<usize>(), all + copy);
        }
    }
}

#[test]
fn the_first_stage_of_1f1b_holds_one_micro_batch_of_all_layers_and_the_last_one_of_its_own() {
    let config = preset("gpt2-124m");
    let held = |m| Run::new(&config, ONE_F_ONE_B, [4, 1, m]).layers_held();
    assert_near(&held(8), &[12.0, 9.0, 6.0, 3.0]);
    assert_near(&held(64), &held(8));
    assert_near(&held(2), &[6.0, 6.0, 6.0, 3.0]);
}

#[test]
fn gpipe_holds_every_micro_batch() {
    let config = preset("gpt2-124m");
    for m in [1, 4, 16] {
        let run = Run::new(&config, ScheduleKind::GPipe, [4, 1, m]);
        assert_near(&run.layers_held(), &[3.0 * m as f64; 4]);
    }
}

#[test]
fn even_chunks_hold_as_many_tasks_as_the_schedules_report_says() {
    let config = preset("gpt2-124m");
    let run = Run::new(&config, ScheduleKind::Interleaved { group_size: None }, [2, 3, 4]);
    let report = run.schedule.check(0).expect("a schedule that can run");
    let tasks = report.stages.iter().map(|stage| 2.0 * stage.peak_activations as f64);
    assert_near(&run.layers_held(), &tasks.collect::<Vec<_>>());
}

#[test]
fn uneven_chunks_count_with_their_own_layers() {
    let config = preset("gpt2-124m");
    let mut run = Run::new(&config, ONE_F_ONE_B, [2, 1, 4]);
    let sizes = LayerSizes {
        n_layers: 12,
        num_stages: 2,
        num_chunks: 1,
    };
    run.layers = LayerLayout::first_last(sizes, Some(2), None).expect("2 and 10 layers");
    assert_near(&run.layers_held(), &[4.0, 10.0]);
}

#[test]
fn full_recomputation_holds_inputs_and_one_group() {
    let config = preset("gpt2-124m");
    let run = Run::one_rank(&config);
    // The input's share of what a layer keeps.
    let input = 1.0 / 17.0;
    let held = |recompute| Run::one_rank(&recomputing(recompute)).layers_held();
    assert_near(&run.layers_held(), &[12.0]);
    assert_near(&held(LayerRecompute::Uniform(1)), &[12.0 * input + 1.0]);
    assert_near(&held(LayerRecompute::Uniform(4)), &[3.0 * input + 4.0]);
    // Groups of 5, 5 and 2.
    assert_near(&held(LayerRecompute::Uniform(5)), &[3.0 * input + 5.0]);
    assert_near(&held(LayerRecompute::Block(3)), &[3.0 * input + 9.0 + 1.0]);
    assert!(held(LayerRecompute::Uniform(1))[0] < 12.0 / 5.0);
    let stages = Run::new(&recomputing(LayerRecompute::Uniform(1)), ONE_F_ONE_B, [4, 1, 8]).layers_held();
    assert_near(&stages, &[4.0, 3.0, 2.0, 1.0].map(|tasks| tasks * 3.0 * input + 1.0));
}

#[test]
fn of_offloaded_layers_the_device_holds_two() {
    let input = 1.0 / 17.0;
    for (recompute, offloaded_layers, expected) in [
        (LayerRecompute::Nothing, 1, 11.0 + 1.0),
        (LayerRecompute::Nothing, 5, 7.0 + 2.0),
        (LayerRecompute::Nothing, usize::MAX, 2.0),
        // Inputs of groups of 4: the last one's stays.
        (LayerRecompute::Uniform(4), 5, input + 4.0 + input),
        (LayerRecompute::Block(3), 3, 9.0 + 1.0 + input),
        (LayerRecompute::Block(3), 4, 8.0 + 1.0 + 1.0),
    ] {
        let run = Run {
            offloaded_layers,
            ..Run::one_rank(&recomputing(recompute))
        };
        assert_near(&run.layers_held(), &[expected]);
    }
}

#[test]
fn the_stage_with_the_head_holds_the_logits_of_a_micro_batch() {
    let config = preset("gpt2-124m");
    let logits = 4.0 * 3.0 * 1024.0 * 50304.0;
    let with_head = |p| {
        let run = Run::new(&config, ONE_F_ONE_B, [p, 1, 8]);
        let layer = 4.0 * chunk_activations(&config, &run.setting(), 1).kept;
        let held = run.layers_held().into_iter().zip(run.activations());
        held.map(|(layers, bytes)| bytes - layer * layers).collect::<Vec<_>>()
    };
    for (p, expected) in [(1, vec![logits]), (2, vec![0.0, logits])] {
        let got = with_head(p);
        let is_near = |(got, expected): (&f64, &f64)| (got - expected).abs() < 1.0;
        assert!(got.iter().zip(&expected).all(is_near), "{got:?}");
    }
}

#[test]
fn an_input_under_sequence_parallelism_is_shared_out() {
    let held = |sequence_parallel| {
        let mut run = Run::one_rank(&recomputing(LayerRecompute::Uniform(1)));
        run.parallel.tensor_parallel_size = 4;
        run.parallel.sequence_parallel = sequence_parallel;
        chunk_activations(&run.config, &run.setting(), 12).kept
    };
    assert_near(&[held(false)], &[4.0 * held(true)]);
}
