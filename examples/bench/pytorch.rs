//! [`Peer`]: a Python program that measures the same in PyTorch, and prints figures as JSON in its last line.

use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;

/// The program with the flags of every run.
pub struct Peer<'a> {
    pub python: &'a Path,
    pub script: &'a Path,
    /// Flags of every run.
    pub flags: Vec<String>,
    /// Time after which it is ended.
    pub limit: Option<Duration>,
}

impl Peer<'_> {
    /// Runs it with more flags.
    ///
    /// # Errors
    /// When the program fails, with what it wrote, takes too long, or prints something else.
    pub fn run<T: DeserializeOwned>(&self, flags: &[String]) -> anyhow::Result<T> {
        let (python, script) = (self.python.display(), self.script.display());
        let mut command = Command::new(self.python);
        command.arg(self.script).args(flags).args(&self.flags);
        let what = format!("{python} {script} {}", flags.join(" "));
        let (output, is_late) = output(&mut command, self.limit)
            .with_context(|| format!("cannot start {python}: --python names an interpreter with PyTorch"))?;
        let messages = String::from_utf8_lossy(&output.stderr);
        if is_late {
            let seconds = self.limit.unwrap_or_default().as_secs();
            bail!("{what}: it took longer than {seconds} s and was ended:\n{messages}");
        }
        ensure!(
            output.status.success(),
            "{what} failed ({}):\n{messages}",
            output.status
        );
        last_line(&String::from_utf8_lossy(&output.stdout)).context(what)
    }
}

/// Runs a program; returns what it wrote, and whether it took longer than `limit` and was ended for that.
fn output(command: &mut Command, limit: Option<Duration>) -> io::Result<(Output, bool)> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn()?;
    let process = Pid::from_child(&child);
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let limit = limit.unwrap_or(Duration::from_secs(u32::MAX.into()));
    let (output, is_late) = match ended.recv_timeout(limit) {
        Ok(output) => (output?, false),
        Err(_) => {
            // Fails if it has ended just now. Its ranks end with it.
            let _ = kill_process(process, Signal::KILL);
            // A process that it has started may hold the pipes open.
            let output = ended.recv_timeout(Duration::from_secs(10)).map_err(io::Error::other)?;
            (output?, true)
        }
    };
    Ok((output, is_late))
}

/// Reads the last line.
///
/// # Errors
/// When it is no such JSON.
pub fn last_line<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("expected JSON with figures in the last line, got {last:?}"))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_process_that_takes_too_long_is_ended() {
        let start = Instant::now();
        let limit = Some(Duration::from_millis(100));
        let (_, is_late) = output(Command::new("sleep").arg("600"), limit).expect("sleep");
        assert!(is_late && start.elapsed() < Duration::from_secs(60));
    }
}
