//! A case in real processes, and how they end.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::process::Command;
use std::time::Duration;

use libtest_mimic::Failed;
use wait_timeout::ChildExt as _;

const CASE: &str = "BURN_MEGATRON_TEST_CASE";
/// Longer than any case takes on a busy machine; the launcher's own limits are far below.
const LIMIT: Duration = Duration::from_secs(300);

/// Returns the case that this process was started for, if it is a launcher or a rank of one.
pub fn case() -> Option<String> {
    std::env::var(CASE).ok()
}

/// Runs a case, and fails with all that its processes printed.
pub fn run(case: &str) -> Result<(), Failed> {
    let mut output: File = tempfile::tempfile()?;
    let mut launcher = Command::new(std::env::current_exe()?)
        .env(CASE, case)
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .spawn()?;
    let status = match launcher.wait_timeout(LIMIT)? {
        Some(status) => status,
        None => {
            launcher.kill()?;
            launcher.wait()?
        }
    };
    let mut printed = String::new();
    output.rewind()?;
    output.read_to_string(&mut printed)?;
    if !status.success() {
        return Err(format!("{status}\n{printed}").into());
    }
    let differences = printed.lines().find(|line| line.contains("largest differences"));
    println!("{case}: {}", differences.unwrap_or("no differences were printed"));
    Ok(())
}
