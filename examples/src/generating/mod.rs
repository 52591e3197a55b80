//! [`generate`]: the whole run of a program that generates text, as `generate_samples_gpt` does.
//!
//! It is compiled for every device, which takes a minute; in the library, all programs share what comes of it.

mod printing;
mod prompts;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use burn::tensor::DType;
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::{Role, StopFlag, World, report_and_exit};
use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::training::preflight;
use models::ModelFamily;
use models::generation::{CacheConfig, GenerationRequest, GenerationStage, Generator, GeneratorConfig};
use models::registry::{FamilyProgram, run_with_family};

use crate::arguments::{GenerationArguments, SampleArguments};
use crate::checkpointing::FamilyState;
use crate::device::{Program, TrainingBackend};
use crate::figures::bytes;
use crate::launching::enter_interactive;
use crate::loading::{Loaded, LoadedModel, load};
use crate::session::StopReason;
use printing::Printer;
use prompts::{NextPrompt, Prompts};

/// Tokens of a page of the cache.
const PAGE_TOKENS: usize = 16;
/// How long rank 0 waits for a line before it steps: the other ranks wait for it.
const IDLE_WAIT: Duration = Duration::from_millis(200);

/// Generates text from the model that the flags name, as one rank of the number that they ask for; starts the ranks
/// first if no launcher has.
///
/// # Errors
/// When the flags do not fit each other, or the ranks cannot be started. What goes wrong in a rank is reported to the
/// job, and ends the process.
pub fn generate(arguments: &GenerationArguments) -> anyhow::Result<ExitCode> {
    arguments.validate()?;
    match enter_interactive(&arguments.parallel)? {
        Role::Launched(summary) => Ok(summary.into()),
        Role::Rank(world) => {
            let rank = Rank {
                arguments,
                world: &world,
            };
            let done = arguments.device.run(arguments.precision.dtype(), &world, rank);
            done.or_else(|error| report_and_exit(&world, error.as_ref()))
        }
    }
}

/// One rank of the world.
struct Rank<'a> {
    arguments: &'a GenerationArguments,
    world: &'a World,
}

impl Program for Rank<'_> {
    type Output = ExitCode;

    fn run<B: TrainingBackend>(self, device: B::Device) -> anyhow::Result<ExitCode> {
        let arguments = self.arguments;
        let stop = StopFlag::install()?;
        let context = (arguments.device).connect(self.world, &arguments.parallel.config(), 0)?;
        let context = context.with_kernels(arguments.samples.kernels());
        preflight::check::<B::InnerBackend>(&context, &[arguments.statement()], &device)?;
        let loaded = load(arguments.samples.load.as_deref(), self.world, &context)?;
        let FamilyState { family } = FamilyState::of(loaded.checkpoint())?;
        let program = OnDevice::<B> {
            arguments,
            loaded,
            stop,
            context,
            device,
        };
        run_with_family(&family, program)?
    }
}

/// One rank of the world on its device, with the checkpoint, whose model's family is not known yet.
struct OnDevice<'a, B: TrainingBackend> {
    arguments: &'a GenerationArguments,
    loaded: Loaded,
    stop: StopFlag,
    context: ParallelContext,
    device: B::Device,
}

impl<B: TrainingBackend> FamilyProgram for OnDevice<'_, B> {
    type Output = anyhow::Result<ExitCode>;

    fn run<C: ModelFamily>(self) -> anyhow::Result<ExitCode> {
        let Self {
            arguments,
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
        } = loaded.model::<B, C>(&arguments.parallel, &arguments.tokenizer, &context, &device)?;
        let tokenizer = tokenizer.tokenizer().clone();
        let prompts = match context.rank() {
            0 => Some(Prompts::new(&arguments.samples, &*tokenizer)?),
            _ => None,
        };
        let config = agree_on_limits(prompts.as_ref(), &arguments.samples, &model, &context)?;
        let mut generator = Generator::<B::InnerBackend, _>::new(chunks, &model, tokenizer, config, &context, &device)?;
        let Some(prompts) = prompts else {
            generator.serve()?;
            return Ok(ExitCode::SUCCESS);
        };
        let dtype = DType::from(arguments.precision.dtype());
        let on_rank = cache_bytes(&config.cache, &model, &layers, &context, dtype).unwrap_or(usize::MAX);
        eprintln!(
            "{} | {} parameters on {} ranks | cache of {} pages of {} tokens, {} on each rank",
            source.display(),
            model.num_parameters(),
            context.grid().world_size(),
            config.cache.num_pages,
            config.cache.page_tokens,
            bytes(on_rank as u64),
        );
        let reason = run_prompts(&mut generator, prompts, &arguments.samples, &stop)?;
        generator.finish()?;
        Ok(reason.map_or(ExitCode::SUCCESS, StopReason::exit_code))
    }
}

/// Returns the limits that rank 0 has chosen, on every rank: only it knows the prompts.
fn agree_on_limits(
    prompts: Option<&Prompts>,
    samples: &SampleArguments,
    model: &impl ModelFamily,
    context: &ParallelContext,
) -> anyhow::Result<GeneratorConfig> {
    let mut numbers = match prompts {
        Some(prompts) => {
            let known = prompts.most_samples(samples);
            let batch = samples.max_batch_size.min(known.unwrap_or(usize::MAX));
            let longest = prompts
                .longest(samples)
                .unwrap_or(usize::MAX)
                .min(model.max_seq_length());
            let pages = match samples.cache_tokens {
                Some(tokens) => tokens.div_ceil(PAGE_TOKENS),
                // Of prompts that are not known yet, one at a time has room whatever its length.
                None => {
                    let whole = known.unwrap_or(samples.num_samples).min(batch);
                    whole.saturating_mul(longest.div_ceil(PAGE_TOKENS))
                }
            };
            [batch as i64, pages as i64]
        }
        None => [0; 2],
    };
    context.world_group().broadcast(&mut numbers, 0)?;
    let [batch, pages] = numbers.map(|number| usize::try_from(number).unwrap_or(usize::MAX));
    Ok(GeneratorConfig {
        cache: CacheConfig {
            page_tokens: PAGE_TOKENS,
            num_pages: pages,
        },
        ..GeneratorConfig::new(batch, 1)
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

/// Generates for all prompts, and prints what comes. Returns why it ended, if it was asked to.
fn run_prompts<B, S>(
    generator: &mut Generator<B, S>,
    mut prompts: Prompts,
    samples: &SampleArguments,
    stop: &StopFlag,
) -> anyhow::Result<Option<StopReason>>
where
    B: burn_megatron::collectives::CollectiveBackend,
    S: GenerationStage<B>,
{
    let tokenizer = generator.tokenizer().clone();
    let mut printer = Printer::new(samples, tokenizer.clone(), prompts.is_single(samples));
    loop {
        if let Some(reason) = StopReason::of(stop) {
            printer.finish()?;
            return Ok(Some(reason));
        }
        // No more than the batch has places for: a file may have more prompts than the queue.
        while generator.num_samples().iter().sum::<usize>() < samples.max_batch_size {
            let wait = if generator.is_idle() { IDLE_WAIT } else { Duration::ZERO };
            let Some(NextPrompt { number, text }) = prompts.next(wait, generator.is_idle())? else {
                break;
            };
            let mut tokens = Vec::new();
            tokenizer.encode_prompt(&text, &mut tokens);
            let left = generator.max_seq_length().saturating_sub(tokens.len().max(1)).max(1);
            let request = GenerationRequest {
                number,
                num_samples: samples.num_samples,
                stop: samples.stop.clone(),
                top_log_probabilities: samples.log_probs.unwrap_or(0),
                ..GenerationRequest::new(tokens, samples.out_seq_length.unwrap_or(left), samples.sampling())
            };
            match generator.submit(request) {
                Ok(id) => printer.begin(id, number, &text)?,
                // A person may try another one.
                Err(error) if prompts.is_typed() => eprintln!("{error}"),
                Err(error) => return Err(error).with_context(|| format!("prompt {}", number + 1)),
            }
        }
        if generator.is_idle() && prompts.is_over() {
            break;
        }
        let events = generator.step()?;
        printer.take(events)?;
    }
    printer.finish()?;
    Ok(None)
}
