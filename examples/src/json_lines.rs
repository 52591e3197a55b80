//! `JsonLines`: metrics in a file, an object a line.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Metrics, of every step say, as JSON lines in a file.
pub struct JsonLines {
    file: BufWriter<File>,
    path: PathBuf,
}

impl JsonLines {
    /// Creates the file, over one that exists.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot write metrics to {}", path.display()))?;
        Ok(Self {
            file: BufWriter::new(file),
            path: path.to_owned(),
        })
    }

    /// Opens the file of a run that continues after a step, and drops the lines of later steps, which will be written
    /// again. Creates the file if there is none, or if the run starts at its first step.
    pub fn resume(path: &Path, step: u64) -> anyhow::Result<Self> {
        if step == 0 || !path.exists() {
            return Self::create(path);
        }
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let is_before = |line: &&str| {
            let object: Option<serde_json::Value> = serde_json::from_str(line).ok();
            object.is_some_and(|object| object["step"].as_u64().is_some_and(|found| found <= step))
        };
        let kept: String = text.lines().filter(is_before).flat_map(|line| [line, "\n"]).collect();
        // Written whole or not at all, like everything that a continued run depends on.
        let temporary = path.with_extension("jsonl.tmp");
        fs::write(&temporary, kept)
            .and_then(|()| fs::rename(&temporary, path))
            .with_context(|| format!("cannot write metrics to {}", path.display()))?;
        let file = File::options().append(true).open(path);
        Ok(Self {
            file: BufWriter::new(file.with_context(|| format!("cannot write metrics to {}", path.display()))?),
            path: path.to_owned(),
        })
    }

    /// Writes one object, whole, so that a reader sees every finished step.
    pub fn write(&mut self, metrics: &impl Serialize) -> anyhow::Result<()> {
        let line = serde_json::to_string(metrics).context("metrics are plain numbers")?;
        writeln!(self.file, "{line}")
            .and_then(|()| self.file.flush())
            .with_context(|| format!("cannot write metrics to {}", self.path.display()))
    }

    /// Reads the objects of a file.
    ///
    /// # Errors
    /// When it cannot be read, or a line is no such object, naming the file.
    pub fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Vec<T>> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let objects = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
        objects.with_context(|| format!("{} holds no metrics", path.display()))
    }
}
