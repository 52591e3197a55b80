//! Every layout against the one-rank run: loss, every gradient, parameters after every step, validation loss.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Tensor};
use burn_megatron::context::{ParallelContext, TensorOverlap};
use burn_megatron::data_parallel::GradientCounts;
use burn_megatron::launch::World;
use burn_megatron::optimizer::OptimizerKind;
use burn_megatron::parameters::{Placement, read_host};
use burn_megatron::parity::{Judge, PartDifference, Tolerance, compare_shard};
use cubecl_kernels::{Kernels, set_kernels};
use libtest_mimic::Trial;
use models::ModelConfig;
use tests::takes_all;

use super::comparison::{
    DP2, DP4, HSDP2X2, Layout, PP2, TP2, TP2SP, TP4, TP4SP, connect, dtype, layout, padding_is_zero, print_worst,
};
use super::one_rank::{Files, OneRank};
use super::problem;
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

impl Settings {
    /// Returns settings that differ by these words.
    fn with(mut self, words: &'static str) -> Self {
        for word in words.split_whitespace() {
            match word {
                "f32" => self.dtype = word,
                "untied" => self.tied = false,
                "unclipped" => self.clip = false,
                "undropped" => self.dropout = 0.0,
                "4_layers" => self.n_layers = 4,
                // Of 24 tokens; the last chunk is smaller.
                "7_logits" => self.logits = "7",
                "plain" => self.kernels = word,
                "gpipe" | "interleaved:4" => self.schedule = word,
                _ if word.contains('|') => self.layers = word,
                _ if word.ends_with("_chunks") => self.row_chunks = word,
                _ if word.starts_with("sharded") => self.update = word,
                _ if word.starts_with("uniform") || word.starts_with("block") => self.recompute = word,
                _ => self.optimizer = word,
            }
        }
        self
    }
}

/// Every layout and settings that are compared with one rank.
pub fn trials() -> Vec<Trial> {
    let files = Files::default();
    // Both types in every layout; tied or not, clipped or not, with and without dropout in turn. By default the first,
    // and of layouts below what is in f64.
    let in_turn = ["", "untied unclipped undropped", "f32 unclipped"].map(|words| SETTINGS.with(words));
    let flat = FLAT
        .into_iter()
        .flat_map(|layout| in_turn.map(|settings| (layout, settings)))
        .filter(|(_, settings)| takes_all() || settings.tied);
    let of = |words: &'static str, all: &[(Layout, &'static str)]| -> Vec<(Layout, Settings)> {
        let base = SETTINGS.with(words);
        all.iter().map(|(layout, words)| (*layout, base.with(words))).collect()
    };
    let others = [
        of("4_layers", STAGED),
        of("4_layers sharded", SHARDED),
        of("", CHUNKED),
        of("", OTHER_OPTIMIZERS),
    ];
    let all = flat.chain(others.into_iter().flatten());
    let taken = all.filter(|(_, settings)| takes_all() || settings.dtype == "f64");
    taken
        .map(|(layout, settings)| matches_one_rank(layout, settings, &files))
        .collect()
}

/// Layouts with stages: every schedule, tied and untied, even and uneven, with every kind of recomputation, with and
/// without fused kernels.
const STAGED: &[(Layout, &str)] = &[
    (PP2, ""),
    (PP2, "f32 unclipped"),
    (PP2, "untied unclipped E|t*4L uniform3"),
    (PP2, "plain gpipe"),
    (PP2, "f32 unclipped gpipe"),
    (PP4, ""),
    (PP4, "untied unclipped Et|tt||tL block1"),
    (PP4, "f32 unclipped"),
    (PP2V2, ""),
    (PP2V2, "untied unclipped uniform1"),
    (PP2V2, "f32 unclipped Ett|t|t|L"),
    (PP2V2, "uniform1 interleaved:4"),
    (PP2V2DP2, ""),
    (TP2SPPP2V2, "f32 unclipped"),
    (PP4, "block1 gpipe"),
    (TP2PP2, ""),
    (TP2PP2, "f32 unclipped uniform1"),
    (TP2PP2, "untied unclipped gpipe"),
    (PP2DP2, ""),
    (TP2SPPP2DP2, "block1"),
    (TP2SPPP2DP2, "f32 unclipped"),
    // Recomputation has no need of stages.
    (DP2, "uniform2"),
    (TP2, "block1"),
    (TP2SP, "untied unclipped plain"),
    (TP2SPPP2DP2, "f32 unclipped plain"),
    (DP2, "uniform2 plain"),
    (TP2SP, "7_logits"),
    (TP4, "f32 unclipped 7_logits"),
    (DP2, "untied unclipped plain 7_logits"),
    (TP2SPPP2DP2, "untied unclipped block1 7_logits"),
];

/// Layouts whose data-parallel ranks each update a shard.
const SHARDED: &[(Layout, &str)] = &[
    (DP2, ""),
    (DP4, "f32 unclipped"),
    (DP4, "untied sharded_in_turn"),
    (TP2SPDP2, ""),
    (PP2DP2, ""),
    (PP2V2DP2, ""),
    (PP2V2DP2, "untied sharded_in_turn"),
    (TP2SPPP2DP2, "f32 unclipped"),
    (DP2, "sharded_gradients"),
    (DP2, "sharded_gradients_in_turn"),
    (DP4, "f32 unclipped sharded_gradients"),
    (DP2, "sharded_parameters"),
    (DP4, "untied sharded_parameters"),
    (TP2SPDP2, "f32 unclipped sharded_parameters"),
    (HSDP2X2, ""),
    (HSDP2X2, "untied sharded_gradients"),
    (HSDP2X2, "sharded_parameters"),
    (DP2, "sharded_parameters block1"),
    (TP2SPDP2, "sharded_gradients"),
    (TP2SPDP2, "sharded_gradients uniform2"),
];

/// Layouts whose linear layers communicate in chunks of rows, which overlap with their matmuls.
const CHUNKED: &[(Layout, &str)] = &[
    (TP2SP, "3_chunks"),
    (TP2SP, "2_chunks f32 unclipped 4_layers uniform1"),
    (TP4SP, "3_chunks"),
    (TP4SP, "2_chunks f32 unclipped 4_layers uniform1"),
    (TP4SP, "3_chunks untied unclipped undropped"),
    (TP2SPPP2DP2, "2_chunks unclipped 4_layers uniform1"),
    (TP2SPDP2, "3_chunks sharded 4_layers"),
];

/// Other optimizers than AdamW, whole and sharded; Muon needs whole matrices, Adafactor sums over them.
const OTHER_OPTIMIZERS: &[(Layout, &str)] = &[
    (TP2, "sgd"),
    (DP2, "sharded sgd"),
    (TP2SP, "adam_l2"),
    (DP2, "sharded adam_l2"),
    (TP2, "lion"),
    (DP4, "sharded lion"),
    (TP2SPDP2, "sharded groups"),
    (PP2DP2, "4_layers sharded groups"),
    (TP4, "groups"),
    (TP2, "muon"),
    (TP4SP, "untied unclipped muon"),
    (TP2SP, "f32 unclipped muon"),
    (DP2, "muon"),
    (DP4, "f32 unclipped muon"),
    (DP4, "sharded muon"),
    (DP2, "untied unclipped sharded muon"),
    (TP2DP2, "muon"),
    (TP2SPDP2, "sharded muon"),
    (TP2SPDP2, "f32 unclipped sharded muon"),
    (PP2, "4_layers muon"),
    (TP2SPPP2DP2, "4_layers sharded muon"),
    (DP4, "sharded_gradients muon"),
    (TP2SPDP2, "sharded_parameters muon"),
    (HSDP2X2, "sharded_parameters muon"),
    (DP2, "sharded_parameters groups"),
    (TP2, "adafactor"),
    (TP4SP, "untied unclipped adafactor"),
    (TP2SP, "f32 unclipped adafactor"),
    (DP2, "adafactor"),
    (DP4, "sharded adafactor"),
    (DP2, "f32 untied unclipped sharded adafactor"),
    (TP2SPDP2, "sharded adafactor"),
    (TP2SPDP2, "f32 unclipped sharded adafactor"),
    (TP2SPPP2DP2, "4_layers sharded adafactor"),
    (DP4, "sharded_gradients adafactor"),
    (TP2SPDP2, "sharded_parameters adafactor"),
    (HSDP2X2, "sharded_parameters adafactor"),
];

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
    set_kernels(match case.setting::<String>("kernels")?.as_str() {
        "plain" => Kernels::Plain,
        _ => Kernels::Fused,
    });
    let overlaps = variant.update.overlaps;
    let context = connect(case, world)?
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
pub fn parameter_differences<M: Module>(
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
fn differences<M: Module>(
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
pub fn parameters<M: Module>(module: &M, context: &ParallelContext) -> anyhow::Result<Vec<NamedPart>> {
    struct Reader<'a> {
        context: &'a ParallelContext,
        found: Vec<NamedPart>,
        undeclared: usize,
    }
    impl ModuleVisitor for Reader<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
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
