//! [`run_rank`]: one rank of a program that generates, from the flags to the generator, on any device and with any
//! family of models.

use std::process::ExitCode;

use anyhow::Context as _;
use burn::tensor::{DType, Device};
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::{StopFlag, World};
use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::training::preflight::{self, Statement};
use models::ModelFamily;
use models::generation::{CacheConfig, Generator, GeneratorConfig};
use models::registry::{FamilyProgram, run_with_family};

use super::generator::{BatchLimits, GeneratorProgram, Ready};
use crate::arguments::GeneratorArguments;
use crate::figures::bytes;
use crate::loading::{Loaded, LoadedModel, does_not_continue, load};
use crate::saved_state::FamilyState;

pub const PAGE_TOKENS: usize = 16;

/// Loads the model that the flags name, and runs a program with it on the first rank of each replica; the other ranks
/// take part until it ends.
/// `statement` is what must be the same on every rank.
///
/// # Communication
/// Making the groups, agreeing on the configuration, and the generator's steps.
///
/// # Errors
/// When the model cannot be loaded; the program's.
pub(crate) fn run_rank(
    arguments: &GeneratorArguments,
    statement: Statement,
    world: &World,
    program: &mut dyn GeneratorProgram,
) -> anyhow::Result<ExitCode> {
    let device = arguments.device.start(arguments.precision.dtype(), world)?;
    let stop = StopFlag::install()?;
    let context = (arguments.device).connect(world, arguments.parallel.context_config())?;
    preflight::check(&context, &[statement], &device)?;
    let loaded = load(arguments.batch.load.as_deref(), world, &context)?;
    let FamilyState { family } = FamilyState::of(loaded.checkpoint())?;
    let rank = Rank {
        arguments,
        program,
        loaded,
        stop,
        context,
        device,
    };
    run_with_family(&family, rank)?
}

/// One rank of the world, with the checkpoint, whose model's family is not known yet.
struct Rank<'a> {
    arguments: &'a GeneratorArguments,
    program: &'a mut dyn GeneratorProgram,
    loaded: Loaded,
    stop: StopFlag,
    context: ParallelContext,
    device: Device,
}

impl FamilyProgram for Rank<'_> {
    type Output = anyhow::Result<ExitCode>;

    fn run<C: ModelFamily>(self) -> anyhow::Result<ExitCode> {
        let Self {
            arguments,
            program,
            loaded,
            stop,
            context,
            device,
        } = self;
        let LoadedModel {
            config: model,
            layers,
            chunks,
            tokenizer,
            source,
            ..
        } = loaded.model::<C>(&arguments.parallel, &arguments.tokenizer, &context, &device)?;
        let chosen = match context.rank() {
            0 => Some(program.limits(&tokenizer, model.max_seq_length())?),
            _ => None,
        };
        let tokenizer = tokenizer.tokenizer().clone();
        let config = agree_on_limits(chosen, &context)?;
        let chunks = C::predicting(chunks).with_context(|| does_not_continue(C::NAME))?;
        let mut generator = Generator::new(chunks, &model, tokenizer, config, &context, &device)?;
        if !generator.is_first() {
            generator.serve()?;
            return Ok(ExitCode::SUCCESS);
        }
        let dtype = DType::from(arguments.precision.dtype());
        let on_rank = cache_bytes(&config.cache, &model, &layers, &context, dtype).unwrap_or(usize::MAX);
        let replicas = context.data_group();
        if context.rank() == 0 {
            eprintln!(
                "{} | {} parameters on {} ranks{} | cache of {} pages of {} tokens, {} on each rank",
                source.display(),
                model.num_parameters(),
                context.grid().world_size(),
                match replicas.size() {
                    1 => String::new(),
                    size => format!(" ({size} replicas)"),
                },
                config.cache.num_pages,
                config.cache.page_tokens,
                bytes(on_rank as u64),
            );
        }
        let code = program.run(Ready {
            generator: &mut generator,
            replicas,
            stop: &stop,
        })?;
        generator.finish()?;
        Ok(code)
    }
}

/// Returns the limits that rank 0 has chosen, on every rank: only it knows what is to be generated.
fn agree_on_limits(chosen: Option<BatchLimits>, context: &ParallelContext) -> anyhow::Result<GeneratorConfig> {
    let mut numbers = chosen.map_or([0; 3], |limits| {
        [limits.max_batch, limits.num_pages, limits.max_waiting].map(|number| number as i64)
    });
    context.world_group().broadcast(&mut numbers, 0)?;
    let [max_batch, num_pages, max_waiting] = numbers.map(|number| usize::try_from(number).unwrap_or(usize::MAX));
    Ok(GeneratorConfig {
        cache: CacheConfig {
            page_tokens: PAGE_TOKENS,
            num_pages,
        },
        max_waiting,
        ..GeneratorConfig::new(max_batch, 1)
    })
}

/// The bytes of the cache on the rank with the most layers.
fn cache_bytes(
    cache: &CacheConfig,
    model: &impl ModelFamily,
    layers: &LayerLayout,
    context: &ParallelContext,
    dtype: DType,
) -> Option<usize> {
    let stages = layers.num_stages();
    let of_stage = |stage| {
        let chunks = 0..layers.num_chunks();
        chunks
            .map(|chunk| layers.range(chunk * stages + stage).len())
            .sum::<usize>()
    };
    let most = (0..stages).map(of_stage).max()?;
    let heads = model.n_heads() / context.grid().tensor_parallel_size();
    cache.bytes(most, heads, model.d_model() / model.n_heads(), dtype.size())
}
