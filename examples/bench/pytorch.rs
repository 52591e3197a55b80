//! [`Peer`]: a Python program that measures the same in PyTorch, and prints what it measured as JSON in its last line.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::de::DeserializeOwned;

/// The program with the flags of every run.
pub struct Peer<'a> {
    /// The interpreter.
    pub python: &'a Path,
    /// The program.
    pub script: &'a Path,
    /// Its flags.
    pub flags: Vec<String>,
    /// After which it is ended.
    pub limit: Option<Duration>,
}

impl Peer<'_> {
    /// Runs it with more flags.
    ///
    /// # Errors
    /// When the program fails, with what it wrote, takes too long, or prints something else.
    pub fn run<T: DeserializeOwned>(&self, flags: &[String]) -> anyhow::Result<T> {
        let folder = tempfile::tempdir().context("cannot make a folder for figures")?;
        let [stdout, stderr] = ["theirs.out", "theirs.err"].map(|name| folder.path().join(name));
        let create = |path: &Path| File::create(path).with_context(|| format!("cannot write {}", path.display()));
        let (python, script) = (self.python.display(), self.script.display());
        let child = Command::new(self.python)
            .arg(self.script)
            .args(flags)
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(create(&stdout)?)
            .stderr(create(&stderr)?)
            .spawn()
            .with_context(|| format!("cannot start {python}: --python names an interpreter with PyTorch"))?;
        let ended = Running(child).wait(self.limit);
        let messages = fs::read(&stderr).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let messages = messages.unwrap_or_default();
        let what = format!("{python} {script} {}", flags.join(" "));
        let status = ended.with_context(|| format!("{what}:\n{messages}"))?;
        ensure!(status.success(), "{what} failed ({status}):\n{messages}");
        let text = fs::read_to_string(&stdout).with_context(|| format!("cannot read {}", stdout.display()))?;
        last_line(&text).with_context(|| what)
    }
}

/// Reads the last line.
///
/// # Errors
/// When it is no such JSON.
pub fn last_line<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("expected JSON with figures in the last line, got {last:?}"))
}

/// A process that is ended and reaped when this is dropped. Its ranks end with it.
struct Running(Child);

impl Running {
    /// Waits until it ends by itself.
    fn wait(mut self, limit: Option<Duration>) -> anyhow::Result<ExitStatus> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            if let Some(limit) = limit.filter(|limit| begun.elapsed() > *limit) {
                bail!("it took longer than {} s and was ended", limit.as_secs());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails where it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_takes_too_long_is_ended() {
        let child = Command::new("sleep").arg("600").spawn().expect("sleep");
        let start = Instant::now();
        let limit = Some(Duration::from_millis(100));
        let error = Running(child).wait(limit).expect_err("too long");
        assert!(error.to_string().contains("was ended"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
