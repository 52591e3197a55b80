//! [`pretrain_family`]: the whole program that trains a model, as `pretrain_gpt` does.

use std::num::NonZeroU64;
use std::process::ExitCode;
use std::time::Instant;

use burn::tensor::Device;
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::{Role, StopFlag, World, report_and_exit};
use burn_megatron::training::memory::{explain_failed_allocations, keep_freed_memory};
use burn_megatron::training::preflight;
use clap::{Args, CommandFactory as _, Parser};
use models::ModelFamily;
use models::registry::FamilyProgram;

use crate::arguments::{NEEDS_LESS, THOUSANDS_OF_RANKS, TrainingArguments};
use crate::checkpointing::{Checkpointing, Saving};
use crate::deepspeed::parse_shown;
use crate::json_lines::JsonLines;
use crate::launching::{self, StopReason, enter, exit_code};
use crate::monitoring::Monitoring;
use crate::progress::Progress;
use crate::session::Session;
use crate::timeline::Recorder;

/// The long help of a training program, after its first line.
const HELP: &str = "\
With no flags: a small one on one rank, on the Rust sources that cargo downloaded to build this program. With more \
than one rank, this program starts itself once per rank, or joins the ranks that torchrun, Slurm or Open MPI started. \
Flags may be written with underscores, and of a repeated flag the last one counts.";

#[derive(Parser)]
#[command(after_long_help = THOUSANDS_OF_RANKS)]
struct Arguments {
    #[command(flatten)]
    training: TrainingArguments,
    #[command(flatten)]
    mode: ModeArguments,
}

/// Work of a training program in place of training.
#[derive(Args, Clone, Copy, Debug)]
struct ModeArguments {
    /// Compare version, flags and text of all ranks, measure every group, print one table, and end
    #[arg(long, conflicts_with = "dry_run")]
    preflight: bool,
    /// Print what memory a rank needs in each stage of ZeRO and how many GPUs hold that, and end: no rank is started,
    /// and this machine need not hold the model
    #[arg(long)]
    dry_run: bool,
}

/// Runs the program that trains a `family` of models, with the flags of this process; the program of `gpt` also trains
/// the families that its flags name. Returns its exit code.
pub fn pretrain_family(family: &str) -> ExitCode {
    let started = Instant::now();
    keep_freed_memory();
    let about = match family {
        "gpt" => "Train the bundled GPT".to_owned(),
        _ => format!("Train a {}", family.to_uppercase()),
    };
    let long_about = format!("{about}.\n\n{HELP}");
    let command = Arguments::command().about(about).long_about(long_about);
    let (Arguments { mut training, mode }, given) = parse_shown(command);
    let of_family = match family {
        "gpt" => Ok(()),
        _ => training.model.set_family(family),
    };
    let done = of_family.and_then(|()| pretrain(&training, &given, mode, started));
    exit_code(done, 2)
}

/// Trains the model that the flags name, as one rank of the number that they ask for; starts the ranks first if no
/// launcher has.
///
/// With `--preflight`, compares and measures the ranks instead; with `--dry-run`, prints what they would need, and no
/// rank is started. `given` are the flags that the run prints first.
///
/// # Errors
/// When the flags do not fit each other, or the ranks cannot be started. What goes wrong in a rank is reported to the
/// job, and ends the process.
fn pretrain(
    arguments: &TrainingArguments,
    given: &str,
    mode: ModeArguments,
    started: Instant,
) -> anyhow::Result<ExitCode> {
    if mode.dry_run {
        let plan = arguments.memory_plan()?;
        // Of the processes that a launcher has started, one prints.
        if arguments
            .parallel
            .environment()?
            .is_none_or(|environment| environment.rank == 0)
        {
            print!("{plan}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let restarts = arguments
        .parallel
        .environment()?
        .map_or(0, |environment| environment.restarts());
    let parts = arguments.validate()?.host_parts();
    explain_failed_allocations(format!(
        "the rank that needs most would need about {parts}; {NEEDS_LESS}"
    ));
    match enter(&arguments.parallel)? {
        Role::Launched(summary) => Ok(summary.into()),
        Role::Rank(world) => {
            let rank = Rank {
                arguments,
                given,
                restarts,
                preflight: mode.preflight,
                world: &world,
                started,
            };
            let done = arguments.run(rank);
            done.or_else(|error| report_and_exit(&world, error.as_ref()))
        }
    }
}

/// One rank of the world, in a process that has been there since `started`.
struct Rank<'a> {
    arguments: &'a TrainingArguments,
    given: &'a str,
    restarts: u64,
    preflight: bool,
    world: &'a World,
    started: Instant,
}

impl FamilyProgram for Rank<'_> {
    type Output = anyhow::Result<ExitCode>;

    fn run<C: ModelFamily>(self) -> anyhow::Result<ExitCode> {
        let arguments = self.arguments;
        let device = arguments.device.start(arguments.precision.dtype(), self.world)?;
        if self.preflight {
            examine::<C>(arguments, self.world, &device)
        } else {
            train::<C>(&self, &device)
        }
    }
}

/// Connects this rank's groups and compares what the ranks are about to do.
fn connect(arguments: &TrainingArguments, world: &World, device: &Device) -> anyhow::Result<ParallelContext> {
    let context = launching::connect(arguments, world)?;
    preflight::check(&context, &[arguments.statement()], device)?;
    Ok(context)
}

/// Compares the text too, measures every group and prints one table.
fn examine<C: ModelFamily>(arguments: &TrainingArguments, world: &World, device: &Device) -> anyhow::Result<ExitCode> {
    let context = connect(arguments, world, device)?;
    Session::<C>::new(arguments, &context, device)?; // compares the text
    let report = preflight::measure(&context, device)?;
    if world.rank() == 0 {
        println!(
            "{} ranks agree on version, configuration and data\n{report}",
            world.world_size()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Trains as one rank of the world.
fn train<C: ModelFamily>(rank: &Rank<'_>, device: &Device) -> anyhow::Result<ExitCode> {
    let &Rank {
        arguments,
        given,
        restarts,
        world,
        started,
        ..
    } = rank;
    let stop = StopFlag::install()?;
    let logging = &arguments.logging;
    let context = connect(arguments, world, device)?;
    let is_first = world.rank() == 0;
    // Before the search for the checkpoint to continue from, so that no other run replaces it meanwhile.
    let mut checkpointing = Checkpointing::new(&arguments.checkpoints, world, &context)?;
    let mut session = Session::<C>::new(arguments, &context, device)?;
    if let Some(checkpointing) = &checkpointing {
        checkpointing.begin(&session)?;
    }
    if let Some(prompt) = arguments.monitoring.sample_prompt() {
        session.check_sample(&prompt)?;
    }
    let first_step = session.iteration() + 1;
    let mut monitoring = Monitoring::new(arguments, &session, device)?;
    let mut log = match &logging.log_jsonl {
        Some(path) if is_first => Some(JsonLines::resume(path, session.iteration())?),
        _ => None,
    };
    let recorder = Recorder::new(logging, world.rank())?;
    let num_steps = session.num_steps();
    let mut progress = is_first.then(|| Progress::new(num_steps, logging.log_interval));
    if let Some(progress) = &progress {
        if !given.is_empty() {
            progress.line(&format!("flags: {given}"));
        }
        if restarts > 0 {
            progress.line(&format!("restart {restarts}"));
        }
        let summary = session.summary();
        summary
            .note
            .iter()
            .chain(&summary.model)
            .chain(&summary.adapters)
            .chain(&summary.offload)
            .for_each(|note| progress.line(note));
        let grid = context.grid();
        progress.line(&format!(
            "{} parameters on {} ranks: tensor {} (sequence {}), pipeline {} ({}), data {} | {} tokens of {} \
             documents, {} for validation",
            summary.num_parameters,
            grid.world_size(),
            grid.tensor_parallel_size(),
            if context.is_sequence_parallel() {
                "sharded"
            } else {
                "whole"
            },
            grid.pipeline_parallel_size(),
            session.order(),
            grid.data_parallel_size(),
            summary.num_train_tokens,
            summary.num_documents.0,
            summary.num_documents.1,
        ));
    }
    if let (Some(progress), true) = (&progress, first_step > 1) {
        let done = session.iteration();
        progress.line(&if num_steps > done {
            format!("continuing after step {done}")
        } else {
            format!("nothing is left to train on after step {done}: all samples are consumed")
        });
    }
    if let Some(progress) = &progress {
        monitoring.lines().iter().for_each(|line| progress.line(line));
    }
    let validates = logging.eval_iters > 0 && session.has_validation();
    if let (Some(progress), false, true) = (&progress, validates, logging.eval_iters > 0) {
        progress.line(
            "warning: no validation, for no document is set aside: see --split, --valid-data-path and preprocess_data \
             --split-on",
        );
    }
    for step in first_step..=num_steps {
        if let Some(recorder) = &recorder {
            recorder.before_step(step, &session)?;
        }
        monitoring.before_step(step);
        let metrics = session.step()?;
        let note = monitoring.step(&metrics, &session);
        if let Some(log) = &mut log {
            log.write(&metrics)?;
        }
        if let Some(progress) = &mut progress {
            progress.step(&metrics, &note);
        }
        if logging.log_stragglers && step.is_multiple_of(logging.log_interval.max(1)) {
            let stragglers = session.stragglers(logging.straggler_share)?;
            if let Some(progress) = &progress {
                progress.line(&format!("step {step} | {stragglers}"));
            }
        }
        let is_due = logging.eval_interval > 0 && step.is_multiple_of(logging.eval_interval);
        if validates && (is_due || step == num_steps) {
            let losses = session.evaluate()?;
            monitoring.validation(&losses, &session);
            if let Some(progress) = &progress {
                progress.validation(step, &losses, session.tokenizer().is_bytes());
            }
        }
        if let Some(prompt) = arguments.monitoring.sample_after(step) {
            let continuation = session.continue_text(&prompt)?;
            monitoring.sample(&prompt, continuation.as_deref(), step);
        }
        let is_over = logging.exit_duration()?.is_some_and(|limit| started.elapsed() >= limit);
        let is_there = |interval: NonZeroU64| step < num_steps && step.is_multiple_of(interval.get());
        let reason = StopReason::of(&stop)
            .or(is_over.then_some(StopReason::TimeIsOver))
            .or(logging
                .exit_interval
                .is_some_and(is_there)
                .then_some(StopReason::IntervalIsOver));
        let reason = session.agree_to_stop(reason)?;
        let times = monitoring.after_step(step, reason.is_some() || step == num_steps, &session)?;
        if let (Some(times), Some(progress)) = (times, &progress) {
            progress.line(&times);
        }
        let measured = recorder
            .as_ref()
            .map(|recorder| recorder.after_step(step, reason.is_some(), &session));
        if let (Some(Some(measured)), Some(progress)) = (measured.transpose()?, &progress) {
            progress.line(&measured);
        }
        if let Some(checkpointing) = &mut checkpointing
            && let Some(saving) = checkpointing.after_step(&session, reason.is_some() || step == num_steps)?
            && let Some(progress) = &progress
        {
            let what = match saving {
                Saving::Begun => "is being saved",
                Saving::Done => "saved",
            };
            progress.line(&format!("step {step} | {what}"));
        }
        if let Some(reason) = reason {
            if let Some(progress) = &progress {
                progress.line(&format!("stopped after step {step}: {reason}"));
                progress.finish();
            }
            return Ok(reason.exit_code());
        }
    }
    if let Some(progress) = &progress {
        progress.finish();
    }
    Ok(ExitCode::SUCCESS)
}
