//! Measures parts of burn-megatron: a subcommand for each.
//!
//! ```text
//! cargo run --release --example bench -- step --python PATH
//! cargo run --release --example bench -- help
//! ```
//!
//! Ranks and other processes that a subcommand starts are this program with the same subcommand. All measure in turn
//! ([`measure`]), on [`ranks`] that they start or next to a program of [`pytorch`], and print rows of a [`table`].

mod checkpoint;
mod collectives;
mod generation;
mod layouts;
mod measure;
mod pytorch;
mod ranks;
mod rendezvous;
mod server;
mod sharded;
mod sizes;
mod step;
mod table;
mod zero;

use std::alloc::System;
use std::process::ExitCode;

use burn_megatron::training::memory::CountingAllocator;
use burn_megatron_data::programs::parse;
use clap::{Parser, Subcommand};
use examples::launching::exit_code;

#[global_allocator]
static ALLOCATOR: CountingAllocator<System> = CountingAllocator(System);

/// Measure parts of burn-megatron.
#[derive(Parser)]
struct Program {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    Checkpoint(Box<checkpoint::Arguments>),
    Collectives(Box<collectives::Arguments>),
    Generation(Box<generation::Arguments>),
    Layouts(Box<layouts::Arguments>),
    Rendezvous(Box<rendezvous::Arguments>),
    Server(Box<server::Arguments>),
    Sharded(Box<sharded::Arguments>),
    Step(Box<step::Arguments>),
    Zero(Box<zero::Arguments>),
}

fn main() -> ExitCode {
    let success = |()| ExitCode::SUCCESS;
    match parse::<Program>().bench {
        Bench::Checkpoint(arguments) => exit_code(checkpoint::run(&arguments), 1),
        Bench::Collectives(arguments) => exit_code(collectives::run(&arguments).map(success), 1),
        Bench::Generation(arguments) => exit_code(generation::run(&arguments), 2),
        Bench::Layouts(arguments) => exit_code(layouts::run(&arguments).map(success), 1),
        Bench::Rendezvous(arguments) => exit_code(rendezvous::run(&arguments), 1),
        Bench::Server(arguments) => exit_code(server::run(&arguments).map(success), 1),
        Bench::Sharded(arguments) => exit_code(sharded::run(&arguments).map(success), 1),
        Bench::Step(arguments) => exit_code(step::run(&arguments).map(success), 1),
        Bench::Zero(arguments) => exit_code(zero::run(&arguments).map(success), 1),
    }
}
