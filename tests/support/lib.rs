//! What the tests share: processes of ranks and of programs, small problems, networks and disks.

pub mod browser;
pub mod cable;
pub mod checkpoints;
pub mod harness;
pub mod job;
pub mod problem;
pub mod processes;
pub mod program;
pub mod python;
pub mod rank_folder;
pub mod references;
pub mod served;
pub mod small_disk;
pub mod sockets;
pub mod storm;
pub mod training;
pub mod trials;

use std::collections::BTreeSet;
use std::path::PathBuf;

use burn::tensor::Device;
use libtest_mimic::Trial;

/// Returns the device of most cases: the CPU, with gradients.
pub fn device() -> Device {
    Device::flex().autodiff()
}

/// The tests' folder in the checkout that they were started from.
///
/// Not the one that they were built in: checkouts may share a target folder, and cargo does not build again for that.
pub fn folder() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// Returns whether all trials are to run, as for a release: `BURN_MEGATRON_ALL_TESTS=1`. By default each claim is tried
/// by its sharpest trials.
pub fn takes_all() -> bool {
    std::env::var_os("BURN_MEGATRON_ALL_TESTS").is_some()
}

/// Leaves one trial in `every`, the first among them, unless all are to run.
pub fn one_in(every: usize, trials: Vec<Trial>) -> Vec<Trial> {
    let every = if takes_all() { 1 } else { every };
    trials.into_iter().step_by(every).collect()
}

/// Leaves out trials in f32 whose claim is tried in f64 as well, where differences beyond rounding are sharper, or in
/// bf16, which has main values in f32 too, unless all are to run.
pub fn sharpest(mut trials: Vec<Trial>) -> Vec<Trial> {
    if !takes_all() {
        let names: BTreeSet<String> = trials.iter().map(|trial| trial.name().to_owned()).collect();
        let has = |name: &str, dtype| name.contains("f32") && names.contains(&name.replace("f32", dtype));
        trials.retain(|trial| !has(trial.name(), "f64") && !has(trial.name(), "bf16"));
    }
    trials
}
