//! The emulator under the real callers: cudarc's bindings, burn, and calls of NCCL between processes.
//!
//! The program starts itself again with the emulator's libraries where the dynamic linker looks, and every trial starts
//! it once more for each of its processes ([`scene`]).

mod burn;
mod collectives;
mod driver;
mod endings;
mod gpu;
mod kernels;
mod memory;
mod products;
mod rank;
mod recording;
mod scene;

use std::process::{Command, ExitCode};

use libtest_mimic::Arguments;

/// Set in the process that has the libraries.
const STARTED: &str = "CUDA_EMULATOR_TEST_STARTED";

fn main() -> ExitCode {
    let scenes = [
        driver::scenes(),
        kernels::scenes(),
        memory::scenes(),
        burn::scenes(),
        collectives::scenes(),
        endings::scenes(),
        products::scenes(),
        recording::scenes(),
    ];
    let scenes: Vec<scene::Scene> = scenes.into_iter().flatten().collect();
    if let Some(code) = scene::play(&scenes) {
        return code;
    }
    if std::env::var_os(STARTED).is_none() {
        return match again() {
            Ok(code) => code,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let arguments = Arguments::from_args();
    let trials = scenes.into_iter().map(scene::Scene::trial).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Runs this program with the libraries, and removes them when it has ended.
fn again() -> std::io::Result<ExitCode> {
    let folder = cuda_emulator::library_folder()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).env(STARTED, "1");
    command.envs(cuda_emulator::environment(folder.path()));
    let status = command.status()?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
