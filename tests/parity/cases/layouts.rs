//! Every layout against the one-rank run: loss, every gradient, parameters after every step, validation loss.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Tensor, backend::Backend};
use burn_megatron::context::{ParallelContext, TensorOverlap};
use burn_megatron::data_parallel::GradientCounts;
use burn_megatron::launch::World;
use burn_megatron::optimizer::OptimizerKind;
use burn_megatron::parameters::{Placement, read_host};
use burn_megatron::parity::{Judge, PartDifference, Tolerance, compare_shard};
use cubecl_kernels::Kernels;
use libtest_mimic::Trial;
use models::ModelConfig;
use tests::takes_all;

use super::comparison::{
    DP2, DP4, HSDP2X2, Layout, PP2, TP2, TP2SP, TP4, TP4SP, connect, dtype, layout, padding_is_zero, print_worst,
};
use super::one_rank::{Files, OneRank};
use super::{B, problem};
use tests::harness::{Case, Job};

/// Said by a rank whose run is not the one-rank run.
pub const PARITY_BROKEN: &str = "parity is broken";

/// A gradient that is zero but for rounding, such as that of the keys' biases, may be exactly zero in one layout. Whole
/// rows of the embeddings always are.
const ZEROS_BY_CHANCE: u64 = 4;

const TP2DP2: Layout = layout("tp2dp2", 2, false, 2);
const TP2SPDP2: Layout = layout("tp2spdp2", 2, true, 2);
const PP4: Layout = layout("pp4", 1, false, 1).stages(4, 1);
const PP2V2: Layout = layout("pp2v2", 1, false, 1).stages(2, 2);
const PP2V2DP2: Layout = layout("pp2v2dp2", 1, false, 2).stages(2, 2);
const TP2SPPP2V2: Layout = layout("tp2sppp2v2", 2, true, 1).stages(2, 2);
const TP2PP2: Layout = layout("tp2pp2", 2, false, 1).stages(2, 1);
const PP2DP2: Layout = layout("pp2dp2", 1, false, 2).stages(2, 1);
const TP2SPPP2DP2: Layout = layout("tp2sppp2dp2", 2, true, 2).stages(2, 1);

/// What varies in addition to the layout.
#[derive(Clone, Copy)]
struct Settings {
    dtype: &'static str,
    tied: bool,
    clip: bool,
    dropout: f64,
    steps: u64,
    n_layers: usize,
    /// `even`, or as `--pipeline-model-parallel-layout` has it.
    layers: &'static str,
    /// `default`, or as `--pipeline-schedule` has it.
    schedule: &'static str,
    recompute: &'static str,
    update: &'static str,
    /// `fused` or `plain`: the layout's operations. The one rank's are fused.
    kernels: &'static str,
    /// `whole_rows`, or in how many chunks linear layers communicate.
    row_chunks: &'static str,
    /// `whole`, or the most tokens whose logits are in one buffer of the layout's. The one rank's are in one.
    logits: &'static str,
    /// Its name, or `groups`.
    optimizer: &'static str,
}

const SETTINGS: Settings = Settings {
    dtype: "f64",
    tied: true,
    clip: true,
    dropout: 0.1,
    steps: 20,
    n_layers: 3,
    layers: "even",
    schedule: "default",
    recompute: "none",
    update: "whole",
    kernels: "fused",
    row_chunks: "whole_rows",
    logits: "whole",
    optimizer: "adam",
};

/// Layouts without stages.
const FLAT: [Layout; 8] = [TP2, TP2SP, TP4, TP4SP, DP2, DP4, TP2DP2, TP2SPDP2];

/// Both types in every layout; tied or not, clipped or not, with and without dropout in turn. By default the first, and
/// of layouts below what is in f64.
const IN_TURN: [Settings; 3] = [
    SETTINGS,
    Settings {
        tied: false,
        clip: false,
        dropout: 0.0,
        ..SETTINGS
    },
    Settings {
        dtype: "f32",
        clip: false,
        ..SETTINGS
    },
];

/// Every layout and settings that are compared with one rank.
pub fn trials() -> Vec<Trial> {
    let files = Files::default();
    let flat = FLAT
        .into_iter()
        .flat_map(|layout| IN_TURN.map(|settings| (layout, settings)))
        .filter(|(_, settings)| takes_all() || settings.tied);
    let all = flat
        .chain(staged())
        .chain(sharded())
        .chain(chunked())
        .chain(other_optimizers());
    let taken = all.filter(|(_, settings)| takes_all() || settings.dtype == "f64");
    taken
        .map(|(layout, settings)| matches_one_rank(layout, settings, &files))
        .collect()
}

/// Layouts with stages: every schedule, tied and untied, even and uneven, with every kind of recomputation, with and
/// without fused kernels.
fn staged() -> impl Iterator<Item = (Layout, Settings)> {
    let even = Settings {
        n_layers: 4,
        ..SETTINGS
    };
    let untied = Settings {
        tied: false,
        clip: false,
        ..even
    };
    let f32 = Settings {
        dtype: "f32",
        clip: false,
        ..even
    };
    let recompute = |recompute, settings| Settings { recompute, ..settings };
    let layers = |layers, settings| Settings { layers, ..settings };
    let plain = |settings| Settings {
        kernels: "plain",
        ..settings
    };
    // Of 24 tokens; the last chunk is smaller.
    let in_chunks = |settings| Settings {
        logits: "7",
        ..settings
    };
    let gpipe = |settings| Settings {
        schedule: "gpipe",
        ..settings
    };
    [
        (PP2, even),
        (PP2, f32),
        (PP2, layers("E|t*4L", recompute("uniform3", untied))),
        (PP2, gpipe(plain(even))),
        (PP2, gpipe(f32)),
        (PP4, even),
        (PP4, layers("Et|tt||tL", recompute("block1", untied))),
        (PP4, f32),
        (PP2V2, even),
        (PP2V2, recompute("uniform1", untied)),
        (PP2V2, layers("Ett|t|t|L", f32)),
        (
            PP2V2,
            Settings {
                schedule: "interleaved:4",
                ..recompute("uniform1", even)
            },
        ),
        (PP2V2DP2, even),
        (TP2SPPP2V2, f32),
        (PP4, gpipe(recompute("block1", even))),
        (TP2PP2, even),
        (TP2PP2, recompute("uniform1", f32)),
        (TP2PP2, gpipe(untied)),
        (PP2DP2, even),
        (TP2SPPP2DP2, recompute("block1", even)),
        (TP2SPPP2DP2, f32),
        // Recomputation has no need of stages.
        (DP2, recompute("uniform2", even)),
        (TP2, recompute("block1", even)),
        (TP2SP, plain(untied)),
        (TP2SPPP2DP2, plain(f32)),
        (DP2, plain(recompute("uniform2", even))),
        (TP2SP, in_chunks(even)),
        (TP4, in_chunks(f32)),
        (DP2, in_chunks(plain(untied))),
        (TP2SPPP2DP2, in_chunks(recompute("block1", untied))),
    ]
    .into_iter()
}

/// Layouts whose data-parallel ranks each update a shard.
fn sharded() -> impl Iterator<Item = (Layout, Settings)> {
    let sharded = Settings {
        update: "sharded",
        n_layers: 4,
        ..SETTINGS
    };
    let f32 = Settings {
        dtype: "f32",
        clip: false,
        ..sharded
    };
    let untied = Settings {
        tied: false,
        update: "sharded_in_turn",
        ..sharded
    };
    let with_update = |update, settings| Settings { update, ..settings };
    let of_gradients = |update| with_update(update, sharded);
    [
        (DP2, sharded),
        (DP4, f32),
        (DP4, untied),
        (TP2SPDP2, sharded),
        (PP2DP2, sharded),
        (PP2V2DP2, sharded),
        (PP2V2DP2, untied),
        (TP2SPPP2DP2, f32),
        (DP2, of_gradients("sharded_gradients")),
        (DP2, of_gradients("sharded_gradients_in_turn")),
        (DP4, with_update("sharded_gradients", f32)),
        (DP2, of_gradients("sharded_parameters")),
        (DP4, with_update("sharded_parameters", untied)),
        (TP2SPDP2, with_update("sharded_parameters", f32)),
        (HSDP2X2, sharded),
        (HSDP2X2, with_update("sharded_gradients", untied)),
        (HSDP2X2, of_gradients("sharded_parameters")),
        (
            DP2,
            Settings {
                recompute: "block1",
                ..of_gradients("sharded_parameters")
            },
        ),
        (TP2SPDP2, of_gradients("sharded_gradients")),
        (
            TP2SPDP2,
            Settings {
                recompute: "uniform2",
                ..of_gradients("sharded_gradients")
            },
        ),
    ]
    .into_iter()
}

/// Layouts whose linear layers communicate in chunks of rows, which overlap with their matmuls.
fn chunked() -> impl Iterator<Item = (Layout, Settings)> {
    let chunked = Settings {
        row_chunks: "3_chunks",
        ..SETTINGS
    };
    let recomputed = Settings {
        dtype: "f32",
        clip: false,
        n_layers: 4,
        recompute: "uniform1",
        row_chunks: "2_chunks",
        ..SETTINGS
    };
    let untied = Settings {
        tied: false,
        clip: false,
        dropout: 0.0,
        ..chunked
    };
    [
        (TP2SP, chunked),
        (TP2SP, recomputed),
        (TP4SP, chunked),
        (TP4SP, recomputed),
        (TP4SP, untied),
        (
            TP2SPPP2DP2,
            Settings {
                dtype: "f64",
                ..recomputed
            },
        ),
        (
            TP2SPDP2,
            Settings {
                update: "sharded",
                n_layers: 4,
                ..chunked
            },
        ),
    ]
    .into_iter()
}

/// Other optimizers than AdamW, whole and sharded; Muon needs whole matrices, Adafactor sums over them.
fn other_optimizers() -> impl Iterator<Item = (Layout, Settings)> {
    let whole = |optimizer| Settings { optimizer, ..SETTINGS };
    let sharded = |optimizer| Settings {
        update: "sharded",
        ..whole(optimizer)
    };
    let with_update = |update, optimizer| Settings {
        update,
        ..whole(optimizer)
    };
    let staged = |settings| Settings {
        n_layers: 4,
        ..settings
    };
    let f32 = |settings| Settings {
        dtype: "f32",
        clip: false,
        ..settings
    };
    let untied = |settings| Settings {
        tied: false,
        clip: false,
        ..settings
    };
    [
        (TP2, whole("sgd")),
        (DP2, sharded("sgd")),
        (TP2SP, whole("adam_l2")),
        (DP2, sharded("adam_l2")),
        (TP2, whole("lion")),
        (DP4, sharded("lion")),
        (TP2SPDP2, sharded("groups")),
        (PP2DP2, staged(sharded("groups"))),
        (TP4, whole("groups")),
        (TP2, whole("muon")),
        (TP4SP, untied(whole("muon"))),
        (TP2SP, f32(whole("muon"))),
        (DP2, whole("muon")),
        (DP4, f32(whole("muon"))),
        (DP4, sharded("muon")),
        (DP2, untied(sharded("muon"))),
        (TP2DP2, whole("muon")),
        (TP2SPDP2, sharded("muon")),
        (TP2SPDP2, f32(sharded("muon"))),
        (PP2, staged(whole("muon"))),
        (TP2SPPP2DP2, staged(sharded("muon"))),
        (DP4, with_update("sharded_gradients", "muon")),
        (TP2SPDP2, with_update("sharded_parameters", "muon")),
        (HSDP2X2, with_update("sharded_parameters", "muon")),
        (DP2, with_update("sharded_parameters", "groups")),
        (TP2, whole("adafactor")),
        (TP4SP, untied(whole("adafactor"))),
        (TP2SP, f32(whole("adafactor"))),
        (DP2, whole("adafactor")),
        (DP4, sharded("adafactor")),
        (DP2, f32(untied(sharded("adafactor")))),
        (TP2SPDP2, sharded("adafactor")),
        (TP2SPDP2, f32(sharded("adafactor"))),
        (TP2SPPP2DP2, staged(sharded("adafactor"))),
        (DP4, with_update("sharded_gradients", "adafactor")),
        (TP2SPDP2, with_update("sharded_parameters", "adafactor")),
        (HSDP2X2, with_update("sharded_parameters", "adafactor")),
    ]
    .into_iter()
}

fn matches_one_rank(layout: Layout, settings: Settings, files: &Files) -> Trial {
    let Settings { dtype, dropout, .. } = settings;
    let mut name = format!(
        "{}_matches_one_rank_{dtype}_{}_{}_dropout_{dropout}",
        layout.name,
        if settings.tied { "tied" } else { "untied" },
        if settings.clip { "clipped" } else { "unclipped" },
    );
    for (what, default) in [
        (settings.schedule, SETTINGS.schedule),
        (settings.layers, SETTINGS.layers),
        (settings.recompute, SETTINGS.recompute),
        (settings.update, SETTINGS.update),
        (settings.kernels, SETTINGS.kernels),
        (settings.row_chunks, SETTINGS.row_chunks),
    ] {
        if what != default {
            name = format!("{name}_{what}");
        }
    }
    if settings.optimizer != SETTINGS.optimizer {
        name = format!("{name}_{}", settings.optimizer);
    }
    if settings.logits != SETTINGS.logits {
        name = format!("{name}_logits_of_{}_tokens", settings.logits);
    }
    job(layout, settings, files).succeeds(name)
}

fn job(layout: Layout, settings: Settings, files: &Files) -> Job {
    let case = layout
        .describe(Case::new("parity", "layout"), settings.dtype)
        .with("chunks", layout.chunks)
        .with("tied", settings.tied)
        .with("clip", settings.clip)
        .with("dropout", settings.dropout)
        .with("steps", settings.steps)
        .with("n_layers", settings.n_layers)
        .with("layers", settings.layers)
        .with("schedule", settings.schedule)
        .with("recompute", settings.recompute)
        .with("update", settings.update)
        .with("kernels", settings.kernels)
        .with("row_chunks", settings.row_chunks)
        .with("logits", settings.logits)
        .with("optimizer", settings.optimizer);
    let files = files.clone();
    Job::new(case, layout.world_size()).with_file("one_rank", move |case| files.file_of(case))
}

/// In how many chunks the linear layers of a case communicate: `3_chunks`, say.
pub fn tensor_overlap(case: &Case) -> anyhow::Result<TensorOverlap> {
    let text: String = case.setting("row_chunks")?;
    Ok(match text.strip_suffix("_chunks") {
        Some(chunks) => TensorOverlap::Chunks(chunks.parse()?),
        None => TensorOverlap::Off,
    })
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let variant = problem::Variant {
        tied: case.setting("tied")?,
        clip: case.setting("clip")?,
        dropout: case.setting("dropout")?,
        n_layers: case.setting("n_layers")?,
        recompute: case.setting("recompute")?,
        update: case.setting("update")?,
        padded_vocab_size: problem::PADDED_VOCAB_SIZE,
        precision: problem::Precision::Usual,
        optimizer: case.setting("optimizer")?,
        logit_chunk_tokens: match case.setting::<String>("logits")?.as_str() {
            "whole" => None,
            tokens => Some(tokens.parse()?),
        },
    };
    let given = |key, default| {
        let text: String = case.setting(key)?;
        anyhow::Ok((text != default).then_some(text))
    };
    let stages = problem::Stages {
        num_chunks: case.setting("chunks")?,
        layers: given("layers", SETTINGS.layers)?,
        schedule: given("schedule", SETTINGS.schedule)?
            .map(|text| text.parse())
            .transpose()?,
    };
    let steps: u64 = case.setting("steps")?;
    let dtype = dtype(case)?;
    let kernels = match case.setting::<String>("kernels")?.as_str() {
        "plain" => Kernels::Plain,
        _ => Kernels::Fused,
    };
    let overlaps = variant.update.overlaps;
    let context = connect(case, world)?
        .with_kernels(kernels)
        .with_overlap_tensor_reduce(overlaps)
        .with_tensor_overlap(tensor_overlap(case)?);
    let one_rank = OneRank::open(&case.setting::<PathBuf>("one_rank")?)?;
    let mut trainer = problem::trainer(variant, steps, &stages, &context)?;

    for part in differences(trainer.model(), &context, |name| one_rank.parameter(0, name))? {
        ensure!(
            part.difference == 0.0,
            "{PARITY_BROKEN}: {} starts with other bits",
            part.name
        );
    }

    let num_parameters = problem::model(variant).num_parameters();
    // Lion takes the sign of noise.
    let is_lion = variant.optimizer == problem::Optimizer::Of(OptimizerKind::Lion);
    let judges_noise = dtype == DType::F64 && !is_lion;
    let mut judge = Judge::new(Tolerance::of(dtype), num_parameters, judges_noise);
    let (data, data_size) = (context.coordinates().data, context.grid().data_parallel_size());
    for step in 0..steps {
        let whole = one_rank.step(step)?;
        let mut parts = Vec::new();
        let micro_batches = problem::micro_batches(step, data, data_size);
        let part = trainer.step_inspected(&micro_batches, |gradients| {
            for entry in gradients.entries() {
                let values = gradients.values(entry);
                let compared = one_rank
                    .gradient(step, &entry.name)
                    .map(|whole| compare_shard(&entry.name, &whole, &values, &entry.placement));
                parts.push(compared);
            }
        })?;
        judge.scalars(step + 1, [part.loss, whole.loss], [part.grad_norm, whole.grad_norm]);
        for part in parts.into_iter().collect::<anyhow::Result<Vec<_>>>()?.iter().flatten() {
            judge.gradient(step + 1, part, whole.grad_norm);
        }
        for part in &differences(trainer.model(), &context, |name| one_rank.parameter(step + 1, name))? {
            judge.parameter(step + 1, part);
        }
        if let Some(first) = judge.failures().first() {
            anyhow::bail!("{PARITY_BROKEN} on rank {}: {first}", world.rank());
        }
        let counts = whole.gradient_counts;
        let is_near = |other: GradientCounts| {
            other.non_finite == counts.non_finite && other.zeros.abs_diff(counts.zeros) <= ZEROS_BY_CHANCE
        };
        ensure!(
            part.gradient_counts.is_some_and(is_near),
            "{counts:?} of one rank's gradient, and of rank {} {:?}",
            world.rank(),
            part.gradient_counts
        );
    }
    let loss = trainer.evaluate(problem::micro_batches(steps, data, data_size))?;
    judge.scalars(steps, [loss, one_rank.validation()?], [1.0, 1.0]);
    ensure!(
        judge.failures().is_empty(),
        "{PARITY_BROKEN} in validation: {}",
        judge.failures()[0]
    );
    if stages.num_chunks == 1 && context.coordinates().pipeline == 0 {
        let groups = problem::training(variant, steps).groups().groups().len();
        check_traffic(&context, dtype, steps, groups)?;
    }
    print_worst(&judge);
    Ok(())
}

/// What the first stage of two has sent on in all steps and a validation: each activation once, however many tensor
/// ranks hold it.
fn check_traffic(context: &ParallelContext, dtype: DType, steps: u64, num_groups: usize) -> anyhow::Result<()> {
    let group = context.pipeline_group();
    if group.size() != 2 {
        return Ok(());
    }
    let (data, data_size) = (context.coordinates().data, context.grid().data_parallel_size());
    let micro_batches = problem::micro_batches(0, data, data_size);
    let tokens = micro_batches[0].tokens.len();
    let activation = tokens * problem::D_MODEL / context.tensor_group().size() * dtype.size();
    let activations = (steps as usize + 1) * micro_batches.len() * activation;
    // In each step and in validation the losses of tokens and of pairs, and what they are divided by.
    let losses = (steps as usize + 1) * 4 * 8;
    // The schedules of the steps and of the validation are compared.
    let schedules = 2 * 8;
    // Whether each group of parameters has some is asked once.
    let groups = num_groups * 4;
    let sent = group.bytes_communicated() as usize;
    ensure!(
        sent == activations + losses + schedules + groups,
        "the first stage has sent {sent} bytes, expected {activations} of activations, {losses} of losses, {schedules} \
         for the schedules and {groups} for groups of parameters"
    );
    Ok(())
}

/// Compares this rank's parameters with those of a one-rank model in the same process.
pub fn parameter_differences<M: Module<B>>(
    sharded: &M,
    context: &ParallelContext,
    reference: &M,
    single: &ParallelContext,
) -> anyhow::Result<Vec<PartDifference>> {
    let whole: HashMap<_, _> = parameters(reference, single)?.into_iter().collect();
    differences(sharded, context, |name| {
        let (placement, values) = &whole[name];
        Ok(unpad(values, placement))
    })
}

/// Compares this rank's parameters with whole ones, which `whole` returns by name, in logical order.
fn differences<M: Module<B>>(
    sharded: &M,
    context: &ParallelContext,
    whole: impl Fn(&str) -> anyhow::Result<Vec<f64>>,
) -> anyhow::Result<Vec<PartDifference>> {
    let mut differences = Vec::new();
    for (name, (placement, values)) in parameters(sharded, context)? {
        differences.extend(compare_shard(&name, &whole(&name)?, &values, &placement));
        ensure!(
            padding_is_zero(&values, &placement),
            "{PARITY_BROKEN}: the padding of {name} is not zero"
        );
    }
    Ok(differences)
}

/// A part of a parameter: the parameter's global name, which part it is, and its values.
pub type NamedPart = (String, (Placement, Vec<f64>));

/// A module's parameters with their global names, of which a rank may have several parts.
pub fn parameters<M: Module<B>>(module: &M, context: &ParallelContext) -> anyhow::Result<Vec<NamedPart>> {
    struct Reader<'a> {
        context: &'a ParallelContext,
        found: Vec<NamedPart>,
        undeclared: usize,
    }
    impl<T: Backend> ModuleVisitor<T> for Reader<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<T, D>>) {
            match self.context.registry().declaration(param.id) {
                Some(declaration) => {
                    let values = read_host(param.val());
                    self.found.push((declaration.name, (declaration.placement, values)));
                }
                None => self.undeclared += 1,
            }
        }
    }
    let mut reader = Reader {
        context,
        found: Vec::new(),
        undeclared: 0,
    };
    module.visit(&mut reader);
    ensure!(
        reader.undeclared == 0,
        "{} parameters are undeclared",
        reader.undeclared
    );
    Some(reader.found).context("parameters")
}

/// The elements of a one-rank array in logical order, without padding.
pub fn unpad(values: &[f64], placement: &Placement) -> Vec<f64> {
    let mut logical = vec![0.0; placement.logical_len()];
    for run in placement.runs() {
        logical[run.logical..run.logical + run.length].copy_from_slice(&values[run.local..run.local + run.length]);
    }
    logical
}
