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

use clap::Args;
use examples::arguments::ApiKey;
use examples::figures::percentile;

use crate::measure::{count, seconds};
use crate::table::{Row, table};
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
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = count())]
    clients: usize,
    /// Requests of all clients together
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = count())]
    requests: usize,
    /// Tokens of each output
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = count())]
    max_tokens: usize,
    /// Begins each prompt; the request's number follows
    #[arg(long, value_name = "TEXT", default_value = "fn main() { // ")]
    prompt: String,
    /// The longest time of a request
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    timeout_secs: Duration,
    /// Print a line of JSON for each server instead of a table
    #[arg(long)]
    json: bool,
    /// Flags of the servers that are started
    #[arg(last = true, value_name = "FLAGS")]
    server_flags: Vec<String>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let mut add = |row: Row| {
        if arguments.json {
            println!("{}", row.json());
        } else {
            println!("{row}");
        }
        rows.push(row);
    };
    match &arguments.url {
        Some(url) => add(measure(arguments, url, None)?),
        None => {
            for &batch in &arguments.batch_sizes {
                let server = Server::start(batch, arguments.clients, &arguments.server_flags)?;
                add(measure(arguments, &server.url, Some(batch))?);
            }
        }
    }
    if !arguments.json {
        println!("\n{}", table(&rows));
    }
    Ok(())
}

/// Lets the clients ask until all requests are served.
fn measure(arguments: &Arguments, url: &str, max_batch_size: Option<usize>) -> anyhow::Result<Row> {
    let client = Client::new(
        url,
        arguments.api_key.as_ref(),
        arguments.max_tokens,
        arguments.timeout_secs,
    );
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
    let [first, last] = [|timing: &Timing| timing.first_secs, |timing: &Timing| timing.last_secs]
        .map(|of| timings.iter().map(of).collect::<Vec<f64>>());
    Ok(Row::default()
        .number("max batch size", max_batch_size.map_or(f64::NAN, |size| size as f64))
        .number("clients", arguments.clients as f64)
        .number("requests", timings.len() as f64)
        .number("tokens", tokens as f64)
        .seconds("time", seconds)
        .number("tokens/s", tokens as f64 / seconds)
        .seconds("first token p50", percentile(&first, 0.5))
        .seconds("first token p99", percentile(&first, 0.99))
        .seconds("last token p50", percentile(&last, 0.5))
        .seconds("last token p99", percentile(&last, 0.99)))
}
