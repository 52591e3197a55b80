//! Every kernel of `cubecl-kernels` that GPT training launches, compiled for A100 and H100 by NVRTC and `ptxas`,
//! without a GPU.
//!
//! Each trial calls an operation's public function and its backward pass at the sizes of a GPT, on the emulator's
//! devices, which record what is launched instead of running it ([`emulated`]), so that the kernels take the path,
//! and have the specialisation, that they have on the GPU. A trial fails when a kernel of `cubecl-kernels` does not
//! compile, spills registers or keeps anything in local memory, when a kernel with `mma` in its name has no matrix
//! instruction, when attention launches other kernels than those of its type's path, and when an operation launches no
//! kernel of the crate: then it ran burn's operations instead.
//!
//! Burn's own kernels (products of matrices, sums, copies, embeddings) compile on the way, but are not judged: training
//! launches more of them than these operations do, and what they take of a GPU is not this crate's to decide.
//!
//! Trials named `budget` judge what the kernels cost, by the model of [`kernel_cost`]: the limits are in
//! `kernel_cost/data/budget.json`.
//!
//! With `BURN_MEGATRON_ALL_TESTS=1` all is compiled. Without, what is in bf16 for A100: attention for heads of 64 and
//! 128 elements, without the deterministic one, and rows of two widths; its costs have the budgets of those.
//!
//! What was compiled is printed as a table. Without NVRTC the trials count as ignored; `.ci/cuda_compiler` installs it.

mod attention;
mod budget;
mod cost;
mod emulated;
mod judgement;
mod launches;
mod one_source;
mod operations;
mod others;
mod rows;
mod table;

use std::process::ExitCode;

use cuda_emulator::{Architecture, Toolkit};
use libtest_mimic::{Arguments, Trial};

use operations::Operation;

fn main() -> anyhow::Result<ExitCode> {
    if let Some(code) = emulated::run_again()? {
        return Ok(code);
    }
    let arguments = Arguments::from_args();
    let found = Toolkit::find();
    if let Err(error) = found {
        eprintln!("all trials are ignored: {error}");
    }
    let operations = operations::all();
    let compiled = operations.iter().flat_map(|operation| {
        let architectures = Architecture::ALL.into_iter().filter(|a| is_taken(operation, *a));
        architectures.map(|a| trial(operation.clone(), a))
    });
    let trials = compiled
        .chain(budget::trials(&operations))
        .chain([one_source::trial(&operations)]);
    let trials = trials.map(|trial| trial.with_ignored_flag(found.is_err()));
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    table::print();
    Ok(conclusion.exit_code())
}

/// Returns whether to compile what takes minutes and differs little from what is compiled anyway:
/// `BURN_MEGATRON_ALL_TESTS=1`.
fn takes_all() -> bool {
    std::env::var_os("BURN_MEGATRON_ALL_TESTS").is_some()
}

/// Whether this run compiles an operation for an architecture: the compilers have minutes to do for what is left out.
fn is_taken(operation: &Operation, architecture: Architecture) -> bool {
    let is_sharpest = architecture == Architecture::Sm80 && !operation.is_for_a_release;
    is_sharpest || takes_all()
}

fn trial(operation: Operation, architecture: Architecture) -> Trial {
    let Operation { name, dtype, shape, .. } = &operation;
    let title = format!("{architecture}::{dtype:?}::{name} {shape}").to_lowercase();
    Trial::test(title, move || Ok(judgement::judge(&operation, architecture)?))
}
