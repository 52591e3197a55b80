//! The list of faults to plant, and what must hold of it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// A fault in a rule, and the trials that must see it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What it is called.
    pub name: String,
    /// The file, from `cubecl-kernels/src` on.
    pub file: String,
    /// A text that occurs in it exactly once.
    pub from: String,
    /// What is put in its place.
    pub to: String,
    /// The filter of the trials of which one at least must turn red.
    pub trials: String,
    /// Parts of the names of all trials that it may turn red.
    pub reach: Vec<String>,
}

impl Fault {
    /// Whether it may turn the trials red that another fault is judged by.
    pub fn reaches(&self, other: &Self) -> bool {
        self.reach.iter().any(|reach| other.trials.contains(reach))
    }
}

/// Reads the list of the workspace at `root`.
pub fn faults(root: &Path) -> Result<Vec<Fault>> {
    let path = root.join("cubecl-kernels/tests/faults/faults.json");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// Returns the file's text with the fault in it.
///
/// # Errors
/// When the text to replace does not occur exactly once.
pub fn planted(fault: &Fault, text: &str) -> Result<String> {
    let count = text.matches(&fault.from).count();
    ensure!(
        count == 1,
        "{}: {:?} occurs {count} times in {}, expected once",
        fault.name,
        fault.from,
        fault.file
    );
    ensure!(fault.from != fault.to, "{}: nothing is changed", fault.name);
    Ok(text.replace(&fault.from, &fault.to))
}

/// Where a fault's file is in the workspace at `root`.
pub fn path_of(fault: &Fault, root: &Path) -> std::path::PathBuf {
    root.join("cubecl-kernels/src").join(&fault.file)
}
