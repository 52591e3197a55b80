//! The real tensorboard package, as a reader of event files.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A Python that has the package: the one that `BURN_MEGATRON_PYTHON` names, or `python3`. Where none has it, says that
/// a test is ignored.
pub fn python_for(test: &str) -> Option<PathBuf> {
    let named = std::env::var_os("BURN_MEGATRON_PYTHON").map(PathBuf::from);
    let python = named.into_iter().chain([PathBuf::from("python3")]).find(|python| {
        let mut import = Command::new(python);
        import
            .args(["-c", "import tensorboard"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        import.status().is_ok_and(|status| status.success())
    });
    if python.is_none() {
        eprintln!("{test} is ignored: no Python has the package tensorboard; BURN_MEGATRON_PYTHON can name one");
    }
    python
}

/// What `read.py` prints of the event files in a folder, a line for each value; and what it says of errors.
pub fn read(python: &Path, folder: &Path) -> std::io::Result<(String, String)> {
    let output = Command::new(python)
        .args(["-c", include_str!("read.py")])
        .arg(folder)
        .output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&output.stdout), text(&output.stderr)))
}
