//! One rank of a run: trains, and records every step for the process that judges.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use burn_megatron::launch::{StopFlag, World};
use burn_megatron::parity::{Recorder, perturb_constants};
use burn_megatron::training::StepMetrics;
use models::ModelFamily;
use models::registry::FamilyProgram;

use super::arguments::Arguments;
use crate::arguments::TrainingArguments;
use crate::json_lines::JsonLines;
use crate::launching::{StopReason, connect, run_own_rank};
use crate::layout::Layout;
use crate::session::Session;

/// Spread of what is added to biases and norms before training: far from zero, far from the end of GELU's bend.
const PERTURBATION: f64 = 0.2;
/// Wipes what is left of a live line.
pub const CLEAR_LINE: &str = "\x1b[K";

/// Returns the file of a rank's metrics, as JSON lines.
pub fn metrics_path(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("metrics-rank-{rank}.jsonl"))
}

/// Trains as a rank of a layout.
///
/// # Errors
/// When this process was not started as a rank. What goes wrong later is reported to the job, and ends the process.
pub fn run(arguments: &Arguments, layout: &Layout) -> anyhow::Result<ExitCode> {
    let folder = arguments.worker.worker_folder.as_deref().context("--worker-folder")?;
    let training = if arguments.worker.worker_reference {
        arguments.reference()
    } else {
        arguments.training(layout)
    };
    let options = training.parallel.communication.join_options()?;
    run_own_rank("--worker-layout", &options, |world| {
        let title = (world.rank() == 0 && arguments.worker.worker_live).then(|| layout.title());
        train(&training, folder, title.as_deref(), world)
    })
}

fn train(arguments: &TrainingArguments, folder: &Path, title: Option<&str>, world: &World) -> anyhow::Result<ExitCode> {
    let training = Training {
        stop: StopFlag::install()?,
        arguments,
        folder,
        title,
        world,
    };
    arguments.run(training)
}

/// The training of one rank.
struct Training<'a> {
    stop: StopFlag,
    arguments: &'a TrainingArguments,
    folder: &'a Path,
    /// The title of the layout, if this rank prints every step.
    title: Option<&'a str>,
    world: &'a World,
}

impl FamilyProgram for Training<'_> {
    type Output = anyhow::Result<ExitCode>;

    fn run<C: ModelFamily>(self) -> anyhow::Result<ExitCode> {
        let Self {
            stop,
            arguments,
            folder,
            title,
            world,
        } = self;
        let seed = u64::from(arguments.optimization.seed);
        let device = arguments.device.start(arguments.precision.dtype(), world)?;
        let context = connect(arguments, world)?;
        let mut session = Session::<C>::with_prepared_model(arguments, &context, &device, &mut |chunks| {
            perturb_constants(chunks, PERTURBATION, seed, &context)
        })?;
        let recorder = Recorder::new(folder, world.rank());
        let mut log = JsonLines::create(&metrics_path(folder, world.rank()))?;
        recorder.parameters(0, session.model(), &context)?;
        let num_steps = session.num_steps();
        for step in 1..=num_steps {
            let mut recorded = Ok(());
            let metrics = session.step_inspected(|gradients| recorded = recorder.gradients(step, gradients))?;
            recorded?;
            recorder.parameters(step, session.model(), &context)?;
            log.write(&metrics)?;
            if let Some(name) = title {
                tell(name, &metrics, num_steps);
            }
            // Also lets no rank start the next step, and its clock, while another still records this one.
            if let Some(reason) = session.agree_to_stop(StopReason::of(&stop))? {
                return Ok(reason.exit_code());
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Overwrites the line of the step before.
fn tell(name: &str, metrics: &StepMetrics, num_steps: u64) {
    let (step, loss) = (metrics.step, metrics.loss);
    let mut out = std::io::stdout();
    // A closed standard output does not end training.
    let _ = write!(out, "{name}: step {step}/{num_steps}, loss {loss:.4}{CLEAR_LINE}\r");
    let _ = out.flush();
}
