//! [`GeneratorProgram`]: a program that uses a generator.

use anyhow::Result;
use burn_megatron::collectives::ProcessGroup;
use burn_megatron::launch::StopFlag;
use models::generation::Generator;

use crate::run_tokenizer::RunTokenizer;

/// How much a generator does at once.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// The most samples in the batch.
    pub max_batch: usize,
    /// Pages of the cache.
    pub num_pages: usize,
    /// The most samples that wait.
    pub max_waiting: usize,
}

pub struct Ready<'a> {
    /// The generator of this replica of the model.
    pub generator: &'a mut Generator,
    /// The first ranks of all data-parallel replicas, in each of which the program runs.
    pub replicas: &'a ProcessGroup,
    /// Whether this rank was asked to stop.
    pub stop: &'a StopFlag,
}

/// Work with a generator, on the first rank of each replica of the model. The other ranks take part in
/// its steps until it returns.
pub trait GeneratorProgram {
    /// Chooses the batch's size and the cache's on rank 0, before the cache is allocated. `max_seq_length` is the
    /// model's, in tokens.
    ///
    /// # Errors
    /// When what is to be generated cannot be read.
    fn limits(&mut self, tokenizer: &RunTokenizer, max_seq_length: usize) -> Result<BatchLimits>;

    /// Generates. An error of the generator must be returned.
    fn run(&mut self, ready: Ready<'_>) -> Result<std::process::ExitCode>;
}
