//! [`generate`]: the whole run of `generate_samples_gpt`. What it shares with the server is in `generator` and
//! `on_ranks`.

pub mod generator;
pub(crate) mod on_ranks;
mod printing;
mod prompts;
mod replicas;

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use burn_megatron::launch::{Role, report_and_exit};
use burn_megatron::training::preflight::Statement;
use models::generation::GenerationRequest;

use crate::arguments::{GenerationArguments, GeneratorArguments};
use crate::launching::{StopReason, enter_interactive};
use crate::run_tokenizer::RunTokenizer;
use generator::{BatchLimits, GeneratorProgram, Ready};
pub use on_ranks::PAGE_TOKENS;
use on_ranks::run_rank;
use printing::Printer;
use prompts::{NextPrompt, Prompts};
use replicas::{Replicas, SampleToken};

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
    fn limits(&mut self, tokenizer: &RunTokenizer, max_seq_length: usize) -> anyhow::Result<BatchLimits> {
        let (samples, batch) = (&self.arguments.samples, &self.arguments.generator.batch);
        let prompts = self.prompts.insert(Prompts::new(samples, &**tokenizer.tokenizer())?);
        // Of a replica, whose share is an equal one.
        let replicas = self.arguments.generator.replicas()?;
        let known = prompts.most_samples(samples);
        let known = known.map(|all| (all / samples.num_samples).div_ceil(replicas) * samples.num_samples);
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
        let reason = run_prompts(ready, self.prompts.take(), self.arguments)?;
        Ok(reason.map_or(ExitCode::SUCCESS, StopReason::exit_code))
    }
}

/// Generates for all prompts, and prints what comes on rank 0, which has read `prompts`. Returns why it ended, if it
/// was asked to.
fn run_prompts(
    ready: Ready<'_>,
    prompts: Option<Prompts>,
    arguments: &GenerationArguments,
) -> anyhow::Result<Option<StopReason>> {
    let samples = &arguments.samples;
    let Ready {
        generator,
        replicas,
        stop,
    } = ready;
    let replicas = Replicas::new(replicas);
    let tokenizer = generator.tokenizer().clone();
    let is_single = prompts.as_ref().is_some_and(|prompts| prompts.is_single(samples));
    let mut printer = replicas
        .is_first()
        .then(|| Printer::new(samples, tokenizer.clone(), is_single));
    let mut prompts = match prompts {
        Some(prompts) if replicas.is_alone() => prompts,
        first => {
            let texts = replicas.share_texts(first.and_then(|prompts| prompts.texts()))?;
            if let Some(printer) = &mut printer {
                for (number, text) in (0..).zip(&texts) {
                    printer.begin(number, text)?;
                }
            }
            replicas.share_of(&texts)
        }
    };
    let mut numbers = HashMap::new();
    loop {
        // No more than the batch has places for: a file may have more prompts than the queue.
        while StopReason::of(stop).is_none()
            && generator.num_samples().iter().sum::<usize>() < arguments.generator.batch.max_batch_size
        {
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
                Ok(id) => {
                    numbers.insert(id, number);
                    if let (Some(printer), true) = (&mut printer, replicas.is_alone()) {
                        printer.begin(number, &text)?;
                    }
                }
                // A person may try another one.
                Err(error) if prompts.is_typed() => eprintln!("{error}"),
                Err(error) => return Err(error).with_context(|| format!("prompt {}", number + 1)),
            }
        }
        let is_done = generator.is_idle() && prompts.is_over();
        let (reason, all_done) = replicas.agree(StopReason::of(stop), is_done)?;
        if reason.is_some() || all_done {
            if let Some(printer) = &mut printer {
                printer.finish()?;
            }
            return Ok(reason);
        }
        // Also where nothing is left to do: the other replicas, and the ranks of this one, wait for each other.
        let events = generator.step()?;
        let tokens = events.into_iter().filter_map(|event| {
            let number = numbers.get(&event.request)?;
            Some(SampleToken::new(*number, event))
        });
        let all = replicas.gather(tokens.collect())?;
        if let Some(printer) = &mut printer {
            printer.take(all)?;
        }
    }
}
