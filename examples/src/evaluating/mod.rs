//! [`evaluate`]: the whole run of a program that evaluates a model, as `evaluate` does.
//!
//! From a file to figures:
//!
//! | file | what it holds |
//! |---|---|
//! | `data` | the file, its lines checked |
//! | `encoding`, `windows`, `detokenizer` | text to tokens, and those to what the model can see at once |
//! | `wikitext`, `lambada`, `multiple_choice` | which sequences a task asks for, and what their scores come to |
//! | `task` | the task that the flags name |
//! | `sequence` | tokens of which the last are scored |
//! | `batches`, `scorer` | sequences to scores, in any layout |
//! | `figures`, `report` | what is printed |

mod batches;
mod data;
mod detokenizer;
mod encoding;
mod figures;
mod lambada;
mod multiple_choice;
mod report;
mod scorer;
mod sequence;
mod task;
mod wikitext;
mod windows;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use burn::tensor::Device;
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::{Role, StopFlag, World, report_and_exit};
use burn_megatron::training::preflight::{self, Statement};
use indicatif::{ProgressBar, ProgressStyle};
use models::ModelFamily;
use models::registry::{FamilyProgram, run_with_family};

use crate::arguments::{EvaluationArguments, TaskKind};
use crate::launching::enter;
use crate::layout::Layout;
use crate::loading::{Loaded, LoadedModel, does_not_continue, load};
use crate::saved_state::FamilyState;
use crate::terminal::draw_target;
use data::TaskData;
use encoding::Encoder;
use report::Report;
use scorer::{Outcome, Scorer};
use sequence::Asked;
use task::ask;

/// Evaluates the model that the flags name, as one rank of the number that they ask for; starts the ranks first if no
/// launcher has.
///
/// # Errors
/// When the flags do not fit each other, the data is not what the task has, or the ranks cannot be started. What goes
/// wrong in a rank is reported to the job, and ends the process.
pub fn evaluate(arguments: &EvaluationArguments) -> anyhow::Result<ExitCode> {
    arguments.validate()?;
    // Also by the process that starts the ranks: a bad line is reported before there are any.
    let data = TaskData::read(arguments.task.kind, &arguments.task.data)?;
    match enter(&arguments.parallel)? {
        Role::Launched(summary) => Ok(summary.into()),
        Role::Rank(world) => {
            let done = run_rank(arguments, data, &world);
            done.or_else(|error| report_and_exit(&world, error.as_ref()))
        }
    }
}

/// Evaluates as one rank of the world.
fn run_rank(arguments: &EvaluationArguments, data: TaskData, world: &World) -> anyhow::Result<ExitCode> {
    let device = arguments.device.start(arguments.precision.dtype(), world)?;
    let stop = StopFlag::install()?;
    let context = arguments.device.connect(world, arguments.parallel.context_config())?;
    let same_data = Statement {
        what: "data",
        value: format!("SHA-256 {}", data.sha256),
    };
    let statements = [arguments.statement(), same_data];
    preflight::check(&context, &statements, &device)?;
    let loaded = load(arguments.task.load.as_deref(), world, &context)?;
    let FamilyState { family } = FamilyState::of(loaded.checkpoint())?;
    let rank = Rank {
        arguments,
        data,
        loaded,
        stop,
        context,
        device,
    };
    run_with_family(&family, rank)?
}

/// One rank of the world, with the checkpoint, whose model's family is not known yet.
struct Rank<'a> {
    arguments: &'a EvaluationArguments,
    data: TaskData,
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
            data,
            loaded,
            stop,
            context,
            device,
        } = self;
        let task = &arguments.task;
        let LoadedModel {
            config: model,
            chunks,
            tokenizer,
            source,
            iteration,
            ..
        } = loaded.model::<C>(&arguments.parallel, &arguments.tokenizer, &context, &device)?;
        let same_tokenizer = Statement {
            what: "tokenizer",
            value: format!("SHA-256 {}", tokenizer.sha256()),
        };
        preflight::check(&context, &[same_tokenizer], &device)?;
        let seq_length = task.seq_length(model.max_seq_length())?;
        let encoder = Encoder::new(&**tokenizer.tokenizer(), seq_length);
        let Asked {
            num_items,
            num_truncated,
            sequences,
            judge,
        } = ask(&data, task, &encoder)?;
        let (begun, num_chunks) = (Instant::now(), chunks.len());
        let bar = (context.rank() == 0).then(|| bar(sequences.len())).flatten();
        let tokens = task.micro_batch_size.saturating_mul(seq_length);
        let chunks = C::predicting(chunks).with_context(|| does_not_continue(C::NAME))?;
        let mut scorer = Scorer::new(chunks, tokens, model.max_seq_length(), &context);
        let outcome = scorer.run(&sequences, &stop, |done| {
            if let Some(bar) = &bar {
                bar.set_position(done as u64);
            }
        });
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        let scores = match outcome? {
            Outcome::Done(scores) => scores,
            Outcome::Stopped(reason) => return Ok(reason.exit_code()),
        };
        if context.rank() > 0 {
            return Ok(ExitCode::SUCCESS);
        }
        let is_wikitext = task.kind == TaskKind::Wikitext;
        let report = Report {
            arguments,
            layout: layout(num_chunks, &context),
            source: source.display().to_string(),
            iteration,
            num_parameters: model.num_parameters(),
            tokenizer: tokenizer.name(),
            tokenizer_sha256: tokenizer.sha256(),
            data_sha256: data.sha256,
            seq_length,
            overlapping_eval: is_wikitext.then(|| task.overlapping_eval(seq_length)).transpose()?,
            num_items,
            num_truncated,
            num_sequences: sequences.len(),
            seconds: begun.elapsed().as_secs_f64(),
            families: judge(&scores),
        };
        if task.json {
            println!("{}", report.as_json());
        } else {
            print!("{}", report.as_text());
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn layout(num_chunks: usize, context: &ParallelContext) -> Layout {
    let grid = context.grid();
    Layout {
        tensor_parallel_size: grid.tensor_parallel_size(),
        sequence_parallel: context.is_sequence_parallel(),
        pipeline_parallel_size: grid.pipeline_parallel_size(),
        num_chunks,
        data_parallel_size: grid.data_parallel_size(),
    }
}

/// A bar over the sequences, if there is a terminal.
fn bar(sequences: usize) -> Option<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} sequences {elapsed}<{eta}");
    let style = style.expect("the template is valid");
    let bar = ProgressBar::with_draw_target(Some(sequences as u64), draw_target()?).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    Some(bar)
}
