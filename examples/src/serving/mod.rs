//! [`serve`]: the whole run of `text_generation_server`.
//!
//! | file | what it holds |
//! |---|---|
//! | `connections`, `heads` | the thread of the HTTP server: sockets, and the time that clients have |
//! | `routes` | routes, the key, and what the server says of itself |
//! | `app` | the limits of bodies and of requests at once |
//! | `megatron` | Megatron-LM's `PUT /api` |
//! | `completions`, `chat` | OpenAI's `/v1/completions` and `/v1/chat/completions` |
//! | `fields`, `shared_fields` | the fields of requests: tables of what is read, has no effect, or is refused |
//! | `completion`, `token_text`, `streaming` | OpenAI's answers; server-sent events |
//! | `asking` | what all APIs ask for, and the outputs as they grow |
//! | `engine` | the thread that steps the generator: jobs in, tokens out |
//! | `error` | why a request is not served, in the shape of each API |
//! | `page.html` | a page to try the model in a browser |
//!
//! Two threads of rank 0: one talks to clients, the other steps the generator, and takes jobs and cancellations between
//! two steps. The other ranks learn of both with the step's plan.

mod app;
mod asking;
mod chat;
mod completion;
mod completions;
mod connections;
mod engine;
mod error;
mod fields;
mod heads;
mod megatron;
mod routes;
mod shared_fields;
mod streaming;
mod token_text;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use burn_megatron::launch::{LaunchSummary, Role, World, report_and_exit};
use burn_megatron_data::chat_dataset::ChatTemplate;

use crate::arguments::{ListeningArguments, ServerArguments};
use crate::generating::generator::{BatchLimits, GeneratorProgram, Ready};
use crate::generating::on_ranks::{PAGE_TOKENS, run_rank};
use crate::launching::enter;
use crate::run_tokenizer::RunTokenizer;
use app::{App, FoundTemplate};
use connections::{HttpServer, Serving, listen};
use engine::Engine;
use routes::router;

/// Serves the model that the flags name, as one rank of the number that they ask for; starts the ranks first if no
/// launcher has. Returns when it was asked to stop.
///
/// # Errors
/// When the flags do not fit each other, or the ranks cannot be started. What goes wrong in a rank is reported to the
/// job, and ends the process.
pub fn serve(arguments: &ServerArguments) -> anyhow::Result<ExitCode> {
    arguments.validate()?;
    match enter(&arguments.generator.parallel)? {
        Role::Launched(summary) => Ok(code_of(summary)),
        Role::Rank(world) => serve_as_rank(arguments, &world).or_else(|error| report_and_exit(&world, error.as_ref())),
    }
}

fn serve_as_rank(arguments: &ServerArguments, world: &World) -> anyhow::Result<ExitCode> {
    let ListeningArguments { host, port, .. } = arguments.listening;
    let listener = match world.rank() {
        // Before a model is loaded for minutes: the port may be taken.
        0 => Some(listen(SocketAddr::new(host, port))?),
        _ => None,
    };
    let mut program = Server {
        arguments,
        listener,
        template: None,
    };
    let generator = &arguments.generator;
    run_rank(generator, generator.statement(), world, &mut program)
}

/// The launcher's exit code: 0 also after a signal, which is how a server ends.
fn code_of(summary: LaunchSummary) -> ExitCode {
    let all_well = summary.ends().iter().all(|end| end.outcome.is_success());
    if all_well && summary.reported_failure().is_none() {
        return ExitCode::SUCCESS;
    }
    summary.into()
}

/// Serves what clients ask for.
struct Server<'a> {
    arguments: &'a ServerArguments,
    /// On rank 0.
    listener: Option<TcpListener>,
    /// On rank 0, when the tokenizer is known.
    template: Option<FoundTemplate>,
}

impl GeneratorProgram for Server<'_> {
    fn limits(&mut self, tokenizer: &RunTokenizer, max_seq_length: usize) -> anyhow::Result<BatchLimits> {
        self.template = Some(ChatTemplate::of_tokenizer(tokenizer.files()));
        let batch = &self.arguments.generator.batch;
        let whole = || {
            batch
                .max_batch_size
                .saturating_mul(max_seq_length.div_ceil(PAGE_TOKENS))
        };
        Ok(BatchLimits {
            max_batch: batch.max_batch_size,
            num_pages: batch
                .cache_tokens
                .map_or_else(whole, |tokens| tokens.div_ceil(PAGE_TOKENS)),
            max_waiting: self.arguments.limits.max_waiting,
        })
    }

    fn run(&mut self, ready: Ready<'_>) -> anyhow::Result<ExitCode> {
        let ServerArguments { listening, limits, .. } = self.arguments;
        let listener = self.listener.take().context("rank 0 listens")?;
        let template = self.template.take().context("rank 0 has the tokenizer")?;
        let address = listener.local_addr().context("the server's socket")?;
        let name = match &listening.served_model_name {
            Some(name) => name.clone(),
            None => folder_name(self.arguments.generator.batch.folder()),
        };
        let (mut engine, handle) = Engine::new(ready.generator);
        let phase = handle.watch_phase();
        let app = App::new(handle, limits.clone(), listening.api_key.as_ref(), name, template);
        eprintln!("serving {} at http://{address}", app.model_name);
        let serving = Serving {
            router: router(Arc::new(app)),
            phase,
            client_timeout: limits.client_timeout(),
            max_connections: limits.max_connections,
        };
        let server = HttpServer::start(listener, serving)?;
        let done = engine.run(ready.stop, limits.drain_timeout());
        server.finish();
        done?;
        Ok(ExitCode::SUCCESS)
    }
}

fn folder_name(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "model".to_owned())
}
