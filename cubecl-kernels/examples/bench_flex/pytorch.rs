//! PyTorch's side: the same operations in a process of its own, whose answers are waited for so long and no longer.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::Args;
use super::cases::Case;

/// How long the samples of a turn may take, the first with PyTorch's start.
const ANSWER: Duration = Duration::from_secs(300);

/// PyTorch in a process of its own.
pub struct PyTorch {
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl PyTorch {
    /// Starts it, if the environment names a Python.
    pub fn start(args: &Args) -> anyhow::Result<Option<Self>> {
        let Some(python) = std::env::var_os("BURN_MEGATRON_PYTHON") else {
            return Ok(None);
        };
        let sizes = [args.rows, args.d_model, args.d_ff, args.vocabulary, args.parameters];
        let sizes = sizes.iter().chain(&args.scores).map(usize::to_string);
        let threads = std::thread::available_parallelism()?.to_string();
        let mut child = Command::new(python)
            .arg(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/examples/bench_flex/bench_flex.py"
            ))
            .args(sizes)
            .env("BENCH_THREADS", threads)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the Python of BURN_MEGATRON_PYTHON")?;
        let requests = child.stdin.take();
        let output = child.stdout.take().context("its output is piped")?;
        // It writes a line for each request, of which one is under way.
        let (sender, answers) = sync_channel(1);
        std::thread::spawn(move || {
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        });
        Ok(Some(Self {
            child,
            requests,
            answers,
        }))
    }

    /// Samples of a case, in seconds.
    pub fn samples(&mut self, case: &Case, samples: usize) -> anyhow::Result<Vec<f64>> {
        let requests = self.requests.as_mut().context("its input is open")?;
        writeln!(requests, "{} {} {samples}", case.name, case.pass)?;
        requests.flush()?;
        let answer = self.answers.recv_timeout(ANSWER);
        let answer = answer.with_context(|| format!("no answer of python to {} {}", case.name, case.pass))?;
        // Its threads spin for a moment after their work.
        std::thread::sleep(Duration::from_millis(250));
        let seconds = answer.split_whitespace().map(str::parse);
        Ok(seconds.collect::<Result<_, _>>()?)
    }

    /// Closes its input and waits for its end.
    pub fn finish(mut self) -> anyhow::Result<()> {
        drop(self.requests.take());
        // Its output ends when it does.
        let more = self.answers.recv_timeout(ANSWER);
        ensure!(more.is_err(), "python still writes: {more:?}");
        if self.child.try_wait()?.is_none() {
            std::thread::sleep(Duration::from_secs(1));
        }
        let status = self.child.try_wait()?.context("python has not ended")?;
        ensure!(status.success(), "python ended with {status}");
        Ok(())
    }
}

impl Drop for PyTorch {
    /// Kills a process that still runs, and reaps it.
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
