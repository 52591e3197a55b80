//! The emulator of CUDA, which this program finds in the place of NVIDIA's libraries.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use wait_timeout::ChildExt as _;

/// Set for the program that finds the emulator; set by hand where there is a GPU.
const ON_DEVICE: &str = "KERNEL_TESTS_ON_DEVICE";

/// Longer than all trials take on a busy machine, with every kernel compiled.
const LIMIT: Duration = Duration::from_secs(1800);

/// Runs this program again with the emulator, unless it is that or has a GPU; returns its exit code.
pub fn run_again() -> Option<u8> {
    if std::env::var_os(ON_DEVICE).is_some() {
        return None;
    }
    let status = run().expect("this program starts again with the emulator");
    Some(status.code().map_or_else(
        || {
            eprintln!("ended by signal {:?}", status.signal());
            101
        },
        |code| code as u8,
    ))
}

fn run() -> std::io::Result<ExitStatus> {
    let folder = cuda_emulator::library_folder()?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(ON_DEVICE, "1")
        .envs(cuda_emulator::environment(folder.path()))
        .spawn()?;
    if let Some(status) = child.wait_timeout(LIMIT)? {
        return Ok(status);
    }
    eprintln!("ended after {LIMIT:?}");
    child.kill()?;
    child.wait()
}
