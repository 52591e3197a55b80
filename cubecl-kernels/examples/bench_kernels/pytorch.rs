//! PyTorch in a process of its own, asked case by case: a line of JSON there, a line back.
//!
//! Every answer is waited for so long and no longer; a process that is late is killed, and reaped in any case.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

const SCRIPT: &str = include_str!("bench_kernels.py");
/// How long it may take to end when its input has.
const ENDING: Duration = Duration::from_secs(20);

/// How PyTorch measures.
pub struct Options {
    /// PyTorch's name of the device.
    pub device: &'static str,
    /// PyTorch's name of the type.
    pub dtype: &'static str,
    /// Whether operations that are several kernels are compiled to fewer.
    pub is_compiled: bool,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Samples of a case.
    pub samples: usize,
    /// How long a sample's calls take together, about.
    pub sample: Duration,
}

/// The seconds of a call and by which of PyTorch's ways, or why there are none.
pub type Answer = Result<(f64, String), String>;

pub struct PyTorch {
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    timeout: Duration,
    _script: tempfile::TempDir,
}

impl PyTorch {
    /// Starts the process and waits until it has imported PyTorch.
    pub fn start(python: &Path, options: Options) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let script = folder.path().join("bench_kernels.py");
        std::fs::write(&script, SCRIPT)?;
        let mut command = Command::new(python);
        command
            .arg(&script)
            .args(["--device", options.device, "--dtype", options.dtype]);
        command.args(["--samples", &options.samples.to_string()]);
        command.args(["--sample-seconds", &options.sample.as_secs_f64().to_string()]);
        if !options.is_compiled {
            command.arg("--no-compile");
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start {}", python.display()))?;
        let output = child.stdout.take().context("its output is piped")?;
        let requests = child.stdin.take();
        // Room for all lines that a process which answers each request once can have written.
        let (sender, answers) = sync_channel(4);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut pytorch = Self {
            child,
            requests,
            answers,
            timeout: options.timeout,
            _script: folder,
        };
        let ready = pytorch.answer("its first line")?;
        println!("PyTorch {} on {}", text(&ready["version"]), text(&ready["device"]));
        Ok(pytorch)
    }

    pub fn time(&mut self, request: Value) -> anyhow::Result<Answer> {
        let name = request.to_string();
        let requests = self.requests.as_mut().context("its input is open")?;
        writeln!(requests, "{request}")
            .and_then(|()| requests.flush())
            .with_context(|| format!("PyTorch ended before {name}"))?;
        let answer = self.answer(&name)?;
        Ok(match (answer["seconds"].as_f64(), &answer["error"]) {
            (Some(seconds), _) => Ok((seconds, text(&answer["way"]))),
            (None, error) => Err(text(error)),
        })
    }

    /// Returns the FLOP/s of the matmul of square matrices with `size` rows.
    pub fn product_rate(&mut self, size: usize) -> anyhow::Result<Result<f64, String>> {
        let answer = self.time(json!({"operation": "product", "pass": "forward", "size": size}))?;
        Ok(answer.map(|(seconds, _)| 2.0 * (size as f64).powi(3) / seconds))
    }

    /// Closes its input and waits for its end.
    pub fn finish(mut self) -> anyhow::Result<()> {
        drop(self.requests.take());
        let start = Instant::now();
        while start.elapsed() < ENDING {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "PyTorch ended with {status}");
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("PyTorch has not ended {ENDING:?} after its input")
    }

    fn answer(&mut self, what: &str) -> anyhow::Result<Value> {
        match self.answers.recv_timeout(self.timeout) {
            Ok(line) => {
                serde_json::from_str(&line).with_context(|| format!("PyTorch's answer to {what} is no JSON: {line}"))
            }
            Err(RecvTimeoutError::Timeout) => bail!("PyTorch has not answered {what} in {:?}", self.timeout),
            Err(RecvTimeoutError::Disconnected) => bail!("PyTorch ended at {what}"),
        }
    }
}

impl Drop for PyTorch {
    /// Kills a process that still runs, and reaps it.
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            // It may end between the two.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
