//! Layouts in bf16 and f16: as near to one rank in 16 bits as that is to f32; and infinities, which all ranks skip.

use std::collections::HashMap;

use anyhow::{Context as _, ensure};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{FloatDType, Tensor};
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::World;
use burn_megatron::parity::{PartDifference, compare_shard};
use burn_megatron::pipeline_parallel::{PipelineStage, StageOutput};
use burn_megatron::training::{LanguageModel, TokenBatch, Trainer};
use libtest_mimic::Trial;
use models::gpt::Gpt;

use super::comparison::{DP2, DP4, Layout, ONE, PP2, TP2, TP2SP, TP4, TP4SP, connect, cut, layout};
use super::layouts::tensor_overlap;
use super::problem::{self, Precision, Update, Variant};
use tests::harness::{Case, Job};

const TP2SPDP2: Layout = layout("tp2spdp2", 2, true, 2);
const PP2V2: Layout = layout("pp2v2", 1, false, 1).stages(2, 2);
const TP2SPPP2DP2: Layout = layout("tp2sppp2dp2", 2, true, 2).stages(2, 1);

/// Steps of a run that is compared.
const STEPS: u64 = 10;
/// Steps of a run that may be skipped in a row.
const SKIPPED: u32 = 3;
/// How much further a layout may be from one rank than 16 bits are from 32.
const FACTOR: f64 = 4.0;

const COMPARED: [(Layout, &str, &str); 12] = [
    (TP2, "bf16", "whole"),
    (TP2SP, "f16", "whole"),
    (TP4, "f16", "whole"),
    (DP2, "bf16", "sharded"),
    (DP4, "f16", "sharded"),
    (DP2, "f16", "whole"),
    (PP2, "bf16", "whole"),
    (PP2V2, "f16", "whole"),
    (TP2SPDP2, "bf16", "sharded"),
    (TP2SPPP2DP2, "bf16", "sharded"),
    (TP2SP, "bf16", CHUNKED),
    (TP4SP, "f16", CHUNKED),
];
/// The whole update, where linear layers communicate in chunks of rows.
const CHUNKED: &str = "chunked";

/// Each layout with a rank that finds an infinity: one on each axis at least, and not the first.
const INFINITIES: [(Layout, &str, usize); 8] = [
    (ONE, "whole", 0),
    (TP2, "whole", 1),
    (TP2SP, "whole", 1),
    (DP2, "whole", 1),
    (DP2, "sharded", 1),
    (PP2, "whole", 0),
    (PP2, "whole", 1),
    (TP2SPPP2DP2, "sharded", 5),
];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (layout, half, update) in COMPARED {
        let name = format!(
            "{}_in_{half}_{update}_is_as_near_to_one_rank_as_{half}_is_to_f32",
            layout.name
        );
        let case = match update {
            CHUNKED => case(layout, "compare", "whole").with("row_chunks", "3_chunks"),
            update => case(layout, "compare", update).with("row_chunks", "whole_rows"),
        };
        let case = case.with("half", half);
        trials.push(Job::new(case, layout.world_size()).succeeds(name));
    }
    for (layout, update, rank) in INFINITIES {
        let name = |what: &str| format!("infinity_on_rank_{rank}_{what}_{}_{update}", layout.name);
        let case = |check| {
            let case = case(layout, check, update).with("row_chunks", "whole_rows");
            case.with("infinite_rank", rank)
        };
        let job = |case| Job::new(case, layout.world_size());
        trials.push(job(case("skip").with("half", "f16")).succeeds(name("is_skipped_by_all")));
        trials.push(job(case("stop").with("half", "bf16")).succeeds(name("is_named_by_all")));
    }
    trials
}

fn case(layout: Layout, check: &str, update: &str) -> Case {
    layout
        .describe(Case::new("parity", "half"), "f32")
        .with("chunks", layout.chunks)
        .with("check", check)
        .with("update", update)
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let half = match case.setting::<String>("half")?.as_str() {
        "bf16" => FloatDType::BF16,
        _ => FloatDType::F16,
    };
    let context = connect(case, world)?.with_tensor_overlap(tensor_overlap(case)?);
    let variant = variant(Precision::Half(half), case.setting("update")?);
    let stages = problem::Stages {
        num_chunks: case.setting("chunks")?,
        ..problem::Stages::default()
    };
    let overflowing = || overflowing_trainer(variant, &stages, case.setting("infinite_rank")?, &context);
    match case.setting::<String>("check")?.as_str() {
        "compare" => compare(problem::trainer(variant, STEPS, &stages, &context)?, half, &context),
        "skip" => skip(overflowing()?, &context),
        "stop" => stop(overflowing()?, case.setting("infinite_rank")?, &context),
        other => anyhow::bail!("there is no check {other}"),
    }
}

type TestTrainer = Trainer<Gpt>;

fn variant(precision: Precision, update: Update) -> Variant {
    Variant {
        update,
        precision,
        ..Variant::USUAL
    }
}

/// A model whose losses are finite, and the gradients of whose parameters are infinite, unless they are zero.
#[derive(Module, Debug)]
struct Overflowing {
    model: Gpt,
    /// Whether they are on this rank.
    is_here: bool,
}

struct Overflow;

impl ModuleMapper for Overflow {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|value| {
            let zero = value.clone() - value.clone().detach();
            // Each factor fits f16; the product of all is infinite in f32.
            value + (0..10).fold(zero, |zero, _| zero.mul_scalar(6e4))
        })
    }
}

impl PipelineStage<2> for Overflowing {
    type MicroBatch = TokenBatch;

    fn input_shape(&self, batch: &TokenBatch) -> [usize; 2] {
        self.model.input_shape(batch)
    }

    fn forward(&self, input: Option<Tensor<2>>, batch: &TokenBatch) -> StageOutput<2> {
        let model = self.model.clone();
        let model = if self.is_here { model.map(&mut Overflow) } else { model };
        model.forward(input, batch)
    }
}

impl LanguageModel for Overflowing {
    fn vocab_size(&self) -> usize {
        self.model.vocab_size()
    }
}

fn overflowing_trainer(
    variant: Variant,
    stages: &problem::Stages,
    rank: usize,
    context: &ParallelContext,
) -> anyhow::Result<Trainer<Overflowing>> {
    let is_here = context.rank() == rank;
    let chunks = problem::chunks(variant, stages, context)?.into_iter();
    let chunks = chunks.map(|model| Overflowing { model, is_here }).collect();
    let config = problem::training(variant, STEPS);
    let options = problem::trainer_config(variant).with_max_skipped_steps(SKIPPED + 1);
    Ok(Trainer::new(chunks, &config, options, context, &tests::device())?)
}

/// What one rank has computed in a step.
struct OneRank {
    loss: f64,
    norm: f64,
    /// In logical order.
    gradients: HashMap<String, Vec<f64>>,
}

impl OneRank {
    /// A part's difference over its norm, or over a thousandth of its share of the whole gradient.
    fn relative(&self, part: &PartDifference) -> f64 {
        let num_parameters: usize = self.gradients.values().map(Vec::len).sum();
        let floor = 1e-3 * self.norm * (part.len as f64 / num_parameters as f64).sqrt();
        part.difference / part.reference_norm.max(floor)
    }
}

fn one_rank_step(trainer: &mut TestTrainer, step: u64) -> anyhow::Result<OneRank> {
    let mut gradients = HashMap::new();
    let result = trainer.step_inspected(&problem::micro_batches(step, 0, 1), |reduced| {
        for entry in reduced.entries() {
            let values = reduced.values(entry);
            let mut logical = vec![0.0; entry.placement.logical_len()];
            for run in entry.placement.runs() {
                logical[run.logical..run.logical + run.length]
                    .copy_from_slice(&values[run.local..run.local + run.length]);
            }
            gradients.insert(entry.name.clone(), logical);
        }
    })?;
    Ok(OneRank {
        loss: result.loss,
        norm: result.grad_norm,
        gradients,
    })
}

fn compare(mut sharded: TestTrainer, half: FloatDType, context: &ParallelContext) -> anyhow::Result<()> {
    let one_rank = |precision| {
        let context = ParallelContext::single(problem::SEED);
        let stages = problem::Stages::one_chunk();
        problem::trainer(variant(precision, Update::WHOLE), STEPS, &stages, &context)
    };
    let mut wide = one_rank(Precision::UsualFromHalf(half))?;
    let mut one = one_rank(Precision::Half(half))?;
    let (data, data_size) = (context.coordinates().data, context.grid().data_parallel_size());
    let mut steps = Vec::new();
    for step in 0..STEPS {
        let (wide, one) = (one_rank_step(&mut wide, step)?, one_rank_step(&mut one, step)?);
        let mut shards = Vec::new();
        let result = sharded.step_inspected(&problem::micro_batches(step, data, data_size), |gradients| {
            let entries = gradients.entries().iter();
            shards.extend(entries.map(|entry| (entry.name.clone(), entry.placement.clone(), gradients.values(entry))));
        })?;
        ensure!(!result.is_skipped, "step {step} is skipped");
        steps.push((wide, one, result, shards));
    }
    // The largest distance of one rank in 16 bits from f32 in any step, by what is compared and on this rank's
    // elements: in a single step it may be small by chance.
    let mut distances: HashMap<String, f64> = HashMap::new();
    for (wide, one, _, shards) in &steps {
        let mut own = |name: &str, distance: f64| {
            let largest = distances.entry(name.to_owned()).or_default();
            *largest = largest.max(distance);
        };
        own("loss", (one.loss - wide.loss).abs() / wide.loss);
        own("gradient norm", (one.norm - wide.norm).abs() / wide.norm);
        for (name, placement, _) in shards {
            let of_one = cut(&one.gradients[name], placement);
            for part in compare_shard(name, &wide.gradients[name], &of_one, placement) {
                own(&part.name, one.relative(&part));
            }
        }
    }
    let mut worst = 0.0f64;
    for (step, (_, one, result, shards)) in (1..).zip(&steps) {
        let mut check = |name: &str, distance: f64| {
            let allowed = FACTOR * distances.get(name).context("one rank has it")?;
            worst = worst.max(distance / allowed);
            ensure!(
                distance <= allowed,
                "parity is broken on rank {}, step {step}: {name} differs by {distance:.2e} from one rank, allowed \
                 {allowed:.2e}",
                context.rank(),
            );
            Ok(())
        };
        check("loss", (result.loss - one.loss).abs() / one.loss)?;
        check("gradient norm", (result.grad_norm - one.norm).abs() / one.norm)?;
        for (name, placement, values) in shards {
            for part in compare_shard(name, &one.gradients[name], values, placement) {
                check(&part.name, one.relative(&part))?;
            }
        }
    }
    println!(
        "at worst {worst:.2} of what is allowed; loss in 16 bits {:.1e} from f32",
        distances["loss"]
    );
    Ok(())
}

/// The bytes of every parameter, main value and moment of this rank.
fn bytes(trainer: &Trainer<Overflowing>) -> anyhow::Result<Vec<u8>> {
    let parts = trainer.snapshot()?;
    Ok(parts.iter().flat_map(|part| part.data.to_vec()).collect())
}

fn skip(mut trainer: Trainer<Overflowing>, context: &ParallelContext) -> anyhow::Result<()> {
    let (data, data_size) = (context.coordinates().data, context.grid().data_parallel_size());
    let before = bytes(&trainer)?;
    for step in 0..u64::from(SKIPPED) {
        let result = trainer.step(&problem::micro_batches(step, data, data_size))?;
        ensure!(result.is_skipped, "step {step} is not skipped");
        ensure!(result.loss.is_finite(), "a loss of {}", result.loss);
        let counts = result.gradient_counts;
        ensure!(counts.is_some_and(|counts| counts.non_finite > 0), "{counts:?}");
    }
    let state = trainer.state();
    ensure!(
        (state.iteration, state.consumed_samples, state.schedule_samples) == (SKIPPED.into(), 24, 0),
        "{state:?}"
    );
    ensure!(bytes(&trainer)? == before, "a skipped step changed something");
    let error = trainer.step(&problem::micro_batches(3, data, data_size)).err();
    let message = error.map(|error| error.to_string()).unwrap_or_default();
    ensure!(
        message.starts_with("gradients were not finite in 4 steps in a row at a loss scale of 65536"),
        "rank {} says {message:?} of one skipped step more than it may",
        context.rank()
    );
    Ok(())
}

fn stop(mut trainer: Trainer<Overflowing>, infinite_rank: usize, context: &ParallelContext) -> anyhow::Result<()> {
    let (data, data_size) = (context.coordinates().data, context.grid().data_parallel_size());
    let before = bytes(&trainer)?;
    let error = trainer.step(&problem::micro_batches(0, data, data_size)).err();
    let message = error.map(|error| error.to_string()).unwrap_or_default();
    let expected = format!("on rank {infinite_rank};");
    ensure!(
        message.contains("the gradient norm of step 1 is")
            && message.contains("parameter ")
            && message.contains(&expected),
        "rank {} says {message:?}",
        context.rank()
    );
    ensure!(bytes(&trainer)? == before, "a step that failed changed something");
    Ok(())
}
