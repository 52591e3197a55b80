//! Tensor-parallel ranks that share key and value heads, because there are more ranks than key heads.

use burn_megatron::context::ParallelContext;
use burn_megatron::launch::World;
use burn_megatron::parity::perturb_constants;
use burn_megatron::pipeline_parallel::{LayerLayout, LayerSizes};
use burn_megatron::training::Trainer;
use libtest_mimic::Trial;
use models::llama::LlamaConfig;

use super::comparison::{Layout, ONE, TP2, TP2SP, TP4, TP4SP, connect, dtype, layout};
use super::in_process::{Trained, compare_training, pass_on, same_bits_in_every_layout};
use super::problem;
use tests::harness::{Case, Job};

const TP2PP2: Layout = layout("tp2pp2", 2, false, 1).stages(2, 1);
const TP2SPDP2: Layout = layout("tp2spdp2", 2, true, 2);
const STEPS: u64 = 10;

pub fn trials() -> Vec<Trial> {
    let mut trials = comparisons();
    let name = "checkpoints_of_shared_key_heads_have_the_same_bits_in_every_layout";
    trials.push(Trial::test(name, || {
        same_bits_in_every_layout(&CHAIN, |layout| describe(layout, 2, "f32", "whole"))
    }));
    trials
}

/// Layouts with fewer key heads than tensor-parallel ranks, and who updates what.
fn comparisons() -> Vec<Trial> {
    let cases = [
        (TP4, 2, "f64", "whole"),
        (TP4, 2, "f32", "whole"),
        (TP4SP, 2, "f64", "whole"),
        (TP4SP, 2, "f32", "whole"),
        (TP4, 1, "f64", "whole"),
        (TP2, 1, "f64", "whole"),
        (TP2, 1, "f32", "whole"),
        (TP2SP, 1, "f32", "whole"),
        (TP2PP2, 1, "f64", "whole"),
        (TP2SPDP2, 1, "f64", "sharded"),
        (TP2SPDP2, 1, "f32", "sharded_in_turn"),
    ];
    let compared = |(layout, key_heads, dtype, update): (Layout, usize, &str, &str)| {
        let heads = if key_heads == 1 { "head" } else { "heads" };
        let case = describe(layout, key_heads, dtype, update).with("check", "training");
        Job::new(case, layout.world_size()).succeeds(format!(
            "{}_with_{key_heads}_key_{heads}_matches_one_rank_{dtype}_{update}",
            layout.name
        ))
    };
    cases.map(compared).into()
}

fn describe(layout: Layout, key_heads: usize, dtype: &str, update: &str) -> Case {
    let case = layout.describe(Case::new("parity", "shared_heads"), dtype);
    case.with("key_heads", key_heads).with("update", update)
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let context = connect(case, world)?;
    let mut layout = trained(case, context)?;
    match case.setting::<String>("check")?.as_str() {
        "training" => {
            let mut one = trained(case, ParallelContext::single(problem::SEED))?;
            compare_training(&mut layout, &mut one, dtype(case)?, STEPS)
        }
        "checkpoint" => pass_on(&mut layout.trainer, case, world),
        other => anyhow::bail!("there is no check {other}"),
    }
}

fn trained(case: &Case, context: ParallelContext) -> anyhow::Result<Trained> {
    let variant = problem::Variant {
        update: case.setting("update")?,
        ..problem::Variant::USUAL
    };
    let n_layers = 2;
    let config = LlamaConfig::new(n_layers, 20, 4, case.setting("key_heads")?, 36, 15, problem::VOCAB_SIZE)
        .with_d_head(Some(6))
        .with_qkv_bias(true)
        .with_padded_vocab_size(Some(problem::PADDED_VOCAB_SIZE))
        .with_hidden_dropout(variant.dropout)
        .with_attention_dropout(variant.dropout)
        .with_init_deviation(0.3);
    let layers = LayerLayout::even(LayerSizes {
        n_layers,
        num_stages: context.grid().pipeline_parallel_size(),
        num_chunks: 1,
    })?;
    let chunks = config.init_stage(&layers, &tests::device(), &context)?;
    let chunks = perturb_constants(chunks, 0.2, problem::SEED, &context);
    let training = problem::training(variant, STEPS);
    let options = problem::trainer_config(variant);
    let trainer = Trainer::new(chunks, &training, options, &context, &tests::device())?;
    Ok(Trained { trainer, context })
}

/// The layouts through which a checkpoint goes: of the four ranks of the first each two share a key head.
const CHAIN: [Layout; 4] = [TP4, ONE, TP2, TP4SP];
