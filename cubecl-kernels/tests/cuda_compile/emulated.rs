//! Starts this program again with the emulator of CUDA, on which launches are recorded and nothing runs.

use std::process::{Command, ExitCode};

use cuda_emulator::{Architecture, journal, recording};

/// The devices: two are equal, so that kernels can be written twice.
const GPUS: [(&str, Architecture); 3] = [
    ("A100", Architecture::Sm80),
    ("H100", Architecture::Sm90),
    ("A100", Architecture::Sm80),
];

/// More memory than any operation takes, in MiB: it is addresses only.
const MEMORY: &str = "1048576";

/// Returns the numbers of the devices that are of an architecture.
pub fn devices(architecture: Architecture) -> impl Iterator<Item = usize> {
    let numbers = GPUS.into_iter().enumerate();
    numbers.filter_map(move |(number, (_, other))| (other == architecture).then_some(number))
}

/// Runs this program again with the emulator, unless it is that; returns its exit code.
pub fn run_again() -> std::io::Result<Option<ExitCode>> {
    if std::env::var_os(journal::VARIABLE).is_some() {
        return Ok(None);
    }
    let (libraries, journal) = (cuda_emulator::library_folder()?, tempfile::tempdir()?);
    let status = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .envs(cuda_emulator::environment(libraries.path()))
        .env(journal::VARIABLE, journal.path())
        .env(recording::VARIABLE, "1")
        .env("CUDA_EMULATOR_DEVICES", GPUS.len().to_string())
        .env("CUDA_EMULATOR_GPUS", GPUS.map(|(name, _)| name).join(","))
        .env("CUDA_EMULATOR_MEMORY_MB", MEMORY)
        .status()?;
    Ok(Some(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }))
}
