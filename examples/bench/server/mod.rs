//! Measures `text_generation_server` under many clients: tokens per second, and how long a client waits for its first
//! token and for its last.
//!
//! ```text
//! cargo build --release --example text_generation_server
//! cargo run --release --example bench -- server --clients 64 -- --load checkpoints
//! cargo run --release --example bench -- server --url http://127.0.0.1:5000 --json
//! ```
//!
//! Without `--url` it starts the server itself, from its own folder and with the flags after `--`, once for each of
//! `--batch-sizes`: the same clients meet a batch of one output and a batch with a place for each. Every request is a
//! stream of its own prompt and seed, and of the same number of tokens. A client sends its next request when it has the
//! last token of the one before.
//!
//! [`process`] starts the server, [`client`] is one of the clients.

mod client;
mod process;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use examples::arguments::ApiKey;

use crate::measure::percentile;
use crate::table::{Row, show};
use client::{Client, Timing};
use process::Server;

/// Measure the server under many clients.
#[derive(Args)]
pub struct Arguments {
    /// A server that runs [default: start one for each of --batch-sizes]
    #[arg(long, value_name = "URL", conflicts_with_all = ["batch_sizes", "server_flags"])]
    url: Option<String>,
    /// The key of that server
    #[arg(long, value_name = "KEY", env = "BURN_MEGATRON_API_KEY", hide_env_values = true)]
    api_key: Option<ApiKey>,
    /// --max-batch-size of the servers that are started
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 64])]
    batch_sizes: Vec<usize>,
    /// Clients at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    clients: usize,
    /// Requests of all clients together
    #[arg(long, value_name = "N", default_value_t = 256)]
    requests: usize,
    /// Tokens of each output
    #[arg(long, value_name = "N", default_value_t = 32)]
    max_tokens: usize,
    /// Begins each prompt; the request's number follows
    #[arg(long, value_name = "TEXT", default_value = "fn main() { // ")]
    prompt: String,
    /// The longest time of a request
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0)]
    timeout_secs: f64,
    /// Print a line of JSON for each server instead of a table
    #[arg(long)]
    json: bool,
    /// Flags of the servers that are started
    #[arg(last = true, value_name = "FLAGS")]
    server_flags: Vec<String>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let timeout = Duration::try_from_secs_f64(arguments.timeout_secs).context("--timeout-secs")?;
    for (flag, value) in [
        ("--clients", arguments.clients),
        ("--requests", arguments.requests),
        ("--max-tokens", arguments.max_tokens),
    ] {
        ensure!(value > 0, "{flag} must be at least 1, got 0");
    }
    let rows = match &arguments.url {
        Some(url) => vec![measure(arguments, url, None, timeout)?],
        None => {
            let measure = |batch: &usize| {
                let server = Server::start(*batch, arguments.clients, &arguments.server_flags)?;
                let url = format!("http://{}", server.address());
                measure(arguments, &url, Some(*batch), timeout)
            };
            arguments
                .batch_sizes
                .iter()
                .map(measure)
                .collect::<anyhow::Result<_>>()?
        }
    };
    show(&rows, arguments.json);
    Ok(())
}

/// Lets the clients ask until all requests are served.
fn measure(arguments: &Arguments, url: &str, max_batch_size: Option<usize>, timeout: Duration) -> anyhow::Result<Row> {
    let client = Client::new(url, arguments.api_key.as_ref(), arguments.max_tokens, timeout);
    let prompt = |number: usize| format!("{}{number}", arguments.prompt);
    // The first request warms up what is allocated or compiled once.
    client.ask(&prompt(0), 0)?;
    let next = AtomicUsize::new(0);
    let begun = Instant::now();
    let work = || -> anyhow::Result<Vec<Timing>> {
        let mut timings = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= arguments.requests {
                return Ok(timings);
            }
            timings.push(client.ask(&prompt(number), number as u64)?);
        }
    };
    let timings = thread::scope(|scope| {
        let clients: Vec<_> = (0..arguments.clients).map(|_| scope.spawn(work)).collect();
        let timings = clients
            .into_iter()
            .map(|client| client.join().expect("a client does not panic"));
        timings.collect::<anyhow::Result<Vec<_>>>()
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let timings = timings.concat();
    let tokens = timings.iter().map(|timing| timing.tokens).sum::<usize>();
    let of = |which: fn(&Timing) -> Duration, part| {
        let seconds: Vec<f64> = timings.iter().map(|timing| which(timing).as_secs_f64()).collect();
        percentile(&seconds, part)
    };
    let (first, last) = (|timing: &Timing| timing.first, |timing: &Timing| timing.last);
    Ok(Row::default()
        .number("max batch size", max_batch_size.map_or(f64::NAN, |size| size as f64))
        .number("clients", arguments.clients as f64)
        .number("requests", timings.len() as f64)
        .number("tokens", tokens as f64)
        .seconds("time", seconds)
        .number("tokens/s", tokens as f64 / seconds)
        .seconds("first token p50", of(first, 0.5))
        .seconds("first token p99", of(first, 0.99))
        .seconds("last token p50", of(last, 0.5))
        .seconds("last token p99", of(last, 0.99)))
}
