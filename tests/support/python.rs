//! The Python with transformers that `BURN_MEGATRON_PYTHON` names: what it makes of models in Hugging Face's files.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

use crate::program::{end, start};

/// The variable that names the interpreter.
const PYTHON: &str = "BURN_MEGATRON_PYTHON";
const LIMIT: Duration = Duration::from_secs(600);

fn interpreter() -> Option<PathBuf> {
    std::env::var_os(PYTHON).map(PathBuf::from)
}

/// Returns why nothing can be compared with transformers here, if so.
pub fn lacks_transformers() -> Option<String> {
    let lacks = interpreter().is_none();
    lacks.then(|| format!("{PYTHON} names no interpreter with transformers"))
}

/// Returns what `parity/with_transformers.py` prints.
///
/// # Errors
/// No interpreter is named, or it fails.
pub fn with_transformers(arguments: &[&OsStr]) -> anyhow::Result<String> {
    let mut command = Command::new(interpreter().context(PYTHON)?);
    command
        .arg(crate::folder().join("parity/with_transformers.py"))
        .args(arguments);
    let ended = end(start(&mut command)?, LIMIT)?;
    ended.expect_code(0)?;
    Ok(ended.stdout)
}
