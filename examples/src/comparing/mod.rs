//! [`compare`]: the whole program that trains in several layouts, as `compare_sharding` does, and says whether they
//! compute the same.
//!
//! This process starts one job per layout (`jobs`), whose ranks train and record (`worker`), compares the recordings
//! (`judge`), and tells (`report`, `table`, `plot`, `files`).

mod arguments;
mod files;
mod interrupt;
mod jobs;
mod judge;
mod plot;
mod report;
mod table;
mod worker;

use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use burn_megatron::parity::Tolerance;
use burn_megatron::training::memory::keep_freed_memory;

use crate::arguments::Dtype;
use crate::launching::{exit_code, refuse_launcher};
use crate::terminal::say;
use arguments::Arguments;
use files::OutputFolder;
use interrupt::{Interrupt, Interrupted};
use jobs::Run;
use judge::Rules;
use report::{Comparison, Report};

/// A layout does not compute what one rank does.
const PARITY_BROKEN: u8 = 1;
/// A run could not be made.
const FAILED: u8 = 2;

/// Runs the program with the flags of this process, and returns its exit code.
pub fn compare() -> ExitCode {
    keep_freed_memory();
    let arguments = Arguments::parse_command_line();
    let done = match arguments.worker.worker_layout {
        Some(layout) => worker::run(&arguments, &layout),
        None => compare_layouts(&arguments),
    };
    let interrupted = |error: &anyhow::Error| Some(error.downcast_ref::<Interrupted>()?.exit_code());
    let failure = done.as_ref().err().and_then(interrupted).unwrap_or(FAILED);
    exit_code(done, failure)
}

/// Runs, judges and reports.
fn compare_layouts(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    refuse_launcher("compare_sharding")?;
    validate(arguments)?;
    let output = OutputFolder::create(&arguments.output)?;
    let interrupt = Interrupt::install()?;
    let recordings = tempfile::Builder::new()
        .prefix("compare_sharding-")
        .tempdir()
        .context("cannot make a folder for recordings: set TMPDIR to a folder with space")?;

    let training = arguments.reference();
    let dtype = training.precision.dtype();
    let model = training.any_model(training.checkpoint().as_ref())?;
    let rules = Rules {
        tolerance: Tolerance::of(dtype.into()),
        num_parameters: model.num_parameters(),
        // Rounding of f64 is far below Adam's epsilon; biases of a checkpoint may be as small, since they start at 0.
        judges_noise: dtype == Dtype::F64 && training.checkpoints.load.is_none(),
    };
    let reference = Run::launch_reference(arguments, recordings.path(), &interrupt)?;
    let mut comparisons = Vec::new();
    for &layout in &arguments.layouts {
        let run = Run::launch(layout, arguments, recordings.path(), &interrupt)?;
        let verdict = judge::judge(&reference, &run, &rules, &interrupt)?;
        comparisons.push(Comparison {
            summary: run.into_summary(),
            verdict,
        });
    }
    let report = Report {
        reference: reference.into_summary(),
        comparisons,
        tolerance: rules.tolerance,
        setting: report::describe(&training, &*model),
    };
    say(&format!("\n{}\n\n{}", report.table().to_text(), report.setting));
    let broken = report.failures();
    for message in &broken {
        eprintln!("error: parity is broken in {message}");
    }
    output.write(&report)?;
    say(&output.describe());
    if broken.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    if dtype == Dtype::F32 {
        eprintln!(
            "hint: training that is not stable amplifies rounding; a fault also shows with --dtype f64, rounding does \
             not"
        );
    }
    Ok(ExitCode::from(PARITY_BROKEN))
}

/// Finds layouts that do not fit before anything is started.
fn validate(arguments: &Arguments) -> anyhow::Result<()> {
    arguments.validate_stages()?;
    arguments.validate_precision()?;
    let flags = arguments.reference();
    flags.validate()?;
    for (index, layout) in arguments.layouts.iter().enumerate() {
        ensure!(
            !arguments.layouts[..index].contains(layout),
            "layout {layout} is asked for twice"
        );
        let fits = arguments.training(layout).validate();
        fits.with_context(|| format!("layout {layout} does not fit"))?;
    }
    Ok(())
}
