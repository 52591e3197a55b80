//! [`generate`]: the whole run of `generate_samples_gpt`. What it shares with the server is in `generator` and
//! `on_ranks`.

pub mod generator;
pub(crate) mod on_ranks;
mod printing;
mod prompts;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use burn_megatron::launch::{Role, StopFlag, report_and_exit};
use burn_megatron::training::preflight::Statement;
use burn_megatron_data::tokenizer::Tokenizer;
use models::generation::GenerationRequest;

use crate::arguments::{GenerationArguments, GeneratorArguments};
use crate::launching::enter_interactive;
use crate::session::StopReason;
use generator::{AnyGenerator, BatchLimits, GeneratorProgram, Ready};
pub use on_ranks::PAGE_TOKENS;
use on_ranks::run_rank;
use printing::Printer;
use prompts::{NextPrompt, Prompts};

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
    let mut program = Printing {
        arguments,
        prompts: None,
    };
    run_program(&arguments.generator, arguments.statement(), &mut program)
}

/// Runs a program with the model that the flags name, as [`generate`] does. `statement` is what must be the same on
/// every rank.
///
/// # Errors
/// As [`generate`].
pub fn run_program(
    arguments: &GeneratorArguments,
    statement: Statement,
    program: &mut dyn GeneratorProgram,
) -> anyhow::Result<ExitCode> {
    match enter_interactive(&arguments.parallel)? {
        Role::Launched(summary) => Ok(summary.into()),
        Role::Rank(world) => {
            let done = run_rank(arguments, statement, &world, program);
            done.or_else(|error| report_and_exit(&world, error.as_ref()))
        }
    }
}

/// Continues the prompts that the flags name, and prints what comes.
struct Printing<'a> {
    arguments: &'a GenerationArguments,
    /// From the time on when the tokenizer is known.
    prompts: Option<Prompts>,
}

impl GeneratorProgram for Printing<'_> {
    fn limits(&mut self, tokenizer: &dyn Tokenizer, max_seq_length: usize) -> anyhow::Result<BatchLimits> {
        let (samples, batch) = (&self.arguments.samples, &self.arguments.generator.batch);
        let prompts = self.prompts.insert(Prompts::new(samples, tokenizer)?);
        let known = prompts.most_samples(samples);
        let max_batch = batch.max_batch_size.min(known.unwrap_or(usize::MAX));
        let longest = prompts.longest(samples).unwrap_or(usize::MAX).min(max_seq_length);
        let num_pages = match batch.cache_tokens {
            Some(tokens) => tokens.div_ceil(PAGE_TOKENS),
            // Of prompts that are not known yet, one at a time has room whatever its length.
            None => {
                let whole = known.unwrap_or(samples.num_samples).min(max_batch);
                whole.saturating_mul(longest.div_ceil(PAGE_TOKENS))
            }
        };
        Ok(BatchLimits {
            max_batch,
            num_pages,
            max_waiting: 1024,
        })
    }

    fn run(&mut self, ready: Ready<'_>) -> anyhow::Result<ExitCode> {
        let prompts = self.prompts.take().context("the limits come first")?;
        let reason = run_prompts(ready.generator, prompts, self.arguments, ready.stop)?;
        Ok(reason.map_or(ExitCode::SUCCESS, StopReason::exit_code))
    }
}

/// Generates for all prompts, and prints what comes. Returns why it ended, if it was asked to.
fn run_prompts(
    generator: &mut dyn AnyGenerator,
    mut prompts: Prompts,
    arguments: &GenerationArguments,
    stop: &StopFlag,
) -> anyhow::Result<Option<StopReason>> {
    let samples = &arguments.samples;
    let tokenizer = generator.tokenizer().clone();
    let mut printer = Printer::new(samples, tokenizer.clone(), prompts.is_single(samples));
    loop {
        if let Some(reason) = StopReason::of(stop) {
            printer.finish()?;
            return Ok(Some(reason));
        }
        // No more than the batch has places for: a file may have more prompts than the queue.
        while generator.num_samples().iter().sum::<usize>() < arguments.generator.batch.max_batch_size {
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
