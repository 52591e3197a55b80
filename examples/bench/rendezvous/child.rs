//! The child's end of the line to this program: commands in, reports out, and an end with whoever started it.

use std::io::{self, BufRead as _, Write as _};
use std::process::{ExitCode, exit};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use anyhow::{Context as _, anyhow};
use burn_megatron_data::programs::with_causes;
use serde::de::DeserializeOwned;

use crate::rendezvous::messages::{Child, Command, Report, Usage};
use crate::rendezvous::{ranks, store, system};

/// Is what the first line on stdin says, until stdin ends.
pub fn serve() -> ExitCode {
    let served = match read::<Child>() {
        Ok(Child::Store { ranks, token }) => store::serve(ranks, &token),
        Ok(Child::Ranks(config)) => ranks::serve(config),
        Err(error) => Err(error.context("--child is for processes that bench rendezvous starts itself")),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&Report::Failed(with_causes(&error)));
            ExitCode::FAILURE
        }
    }
}

/// Returns the commands that come. When stdin ends, so does this process, whatever its threads do: who has started it
/// has ended, or needs it no more.
pub fn commands() -> anyhow::Result<Receiver<Command>> {
    let (sender, commands) = mpsc::channel();
    let listen = move || {
        loop {
            match read() {
                Ok(command) => drop(sender.send(command)),
                Err(_) => exit(0),
            }
        }
    };
    thread::Builder::new().name("commands".into()).spawn(listen)?;
    Ok(commands)
}

/// Sends a report.
pub fn report(report: &Report) {
    let line = serde_json::to_string(report).expect("reports are plain");
    let mut stdout = io::stdout().lock();
    // No process reads it any more if that fails; stdin ends, too.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// Reports what this process uses, and what the store among it has counted.
pub fn describe(counted: impl FnOnce(&mut Usage)) {
    report(&match system::usage() {
        Ok(mut usage) => {
            counted(&mut usage);
            Report::Usage(usage)
        }
        Err(error) => Report::Failed(format!("cannot read what a process uses: {error}")),
    });
}

fn read<T: DeserializeOwned>() -> anyhow::Result<T> {
    let mut line = String::new();
    let bytes = io::stdin().lock().read_line(&mut line).context("cannot read stdin")?;
    if bytes == 0 {
        return Err(anyhow!("stdin has ended"));
    }
    serde_json::from_str(&line).with_context(|| format!("not a message: {line:?}"))
}
