//! [`AnyGenerator`]: a generator of any device and any family of models; [`GeneratorProgram`]: what a program does with
//! it.

use std::sync::Arc;

use anyhow::Result;
use burn_megatron::collectives::{CollectiveBackend, ProcessGroup};
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::StopFlag;
use burn_megatron_data::tokenizer::Tokenizer;
use models::generation::{
    CacheUse, GenerationError, GenerationEvent, GenerationRequest, GenerationStage, Generator, GeneratorConfig,
    RequestError, RequestId,
};
use models::{InferenceProgram, InferenceStage, ModelConfig};

/// A [`Generator`] on rank 0, whatever it computes on: a program that takes it is compiled once, not for each device.
pub trait AnyGenerator {
    /// See [`Generator::is_first`].
    fn is_first(&self) -> bool;

    /// See [`Generator::serve`].
    fn serve(self: Box<Self>) -> Result<(), GenerationError>;

    /// See [`Generator::finish`].
    fn finish(self: Box<Self>) -> Result<(), GenerationError>;

    /// See [`Generator::submit`].
    fn submit(&mut self, request: GenerationRequest) -> Result<RequestId, RequestError>;

    /// See [`Generator::cancel`].
    fn cancel(&mut self, request: RequestId) -> bool;

    /// See [`Generator::step`].
    fn step(&mut self) -> Result<Vec<GenerationEvent>, GenerationError>;

    /// See [`Generator::is_idle`].
    fn is_idle(&self) -> bool;

    /// See [`Generator::num_samples`].
    fn num_samples(&self) -> [usize; 2];

    /// See [`Generator::cache_use`].
    fn cache_use(&self) -> Option<CacheUse>;

    /// See [`Generator::tokenizer`].
    fn tokenizer(&self) -> &Arc<dyn Tokenizer>;

    /// See [`Generator::max_seq_length`].
    fn max_seq_length(&self) -> usize;
}

impl<B: CollectiveBackend, S: GenerationStage<B>> AnyGenerator for Generator<B, S> {
    fn is_first(&self) -> bool {
        self.is_first()
    }

    fn serve(self: Box<Self>) -> Result<(), GenerationError> {
        (*self).serve()
    }

    fn finish(self: Box<Self>) -> Result<(), GenerationError> {
        (*self).finish()
    }

    fn submit(&mut self, request: GenerationRequest) -> Result<RequestId, RequestError> {
        self.submit(request)
    }

    fn cancel(&mut self, request: RequestId) -> bool {
        self.cancel(request)
    }

    fn step(&mut self) -> Result<Vec<GenerationEvent>, GenerationError> {
        self.step()
    }

    fn is_idle(&self) -> bool {
        self.is_idle()
    }

    fn num_samples(&self) -> [usize; 2] {
        self.num_samples()
    }

    fn cache_use(&self) -> Option<CacheUse> {
        self.cache_use()
    }

    fn tokenizer(&self) -> &Arc<dyn Tokenizer> {
        self.tokenizer()
    }

    fn max_seq_length(&self) -> usize {
        self.max_seq_length()
    }
}

/// Makes the generator of a model's chunks.
pub(crate) struct MakeGenerator<'a, B: CollectiveBackend> {
    pub(crate) model: &'a dyn ModelConfig,
    pub(crate) tokenizer: Arc<dyn Tokenizer>,
    pub(crate) config: GeneratorConfig,
    pub(crate) context: &'a ParallelContext,
    pub(crate) device: &'a B::Device,
}

impl<B: CollectiveBackend> InferenceProgram<B> for MakeGenerator<'_, B> {
    type Output = Result<Box<dyn AnyGenerator>, GenerationError>;

    fn run<S: InferenceStage<B> + 'static>(self, chunks: Vec<S>) -> Self::Output {
        let Self {
            model,
            tokenizer,
            config,
            context,
            device,
        } = self;
        let generator = Generator::new(chunks, model, tokenizer, config, context, device)?;
        Ok(Box::new(generator))
    }
}

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
    pub generator: &'a mut dyn AnyGenerator,
    /// The first ranks of all data-parallel replicas, in each of which the program runs.
    pub replicas: &'a ProcessGroup,
    /// Whether this rank was asked to stop.
    pub stop: &'a StopFlag,
}

/// What a program does with a generator, on the first rank of each replica of the model. The other ranks take part in
/// its steps until it returns.
pub trait GeneratorProgram {
    /// Chooses the batch's size and the cache's on rank 0, before the cache is allocated. `max_seq_length` is the
    /// model's, in tokens.
    ///
    /// # Errors
    /// When what is to be generated cannot be read.
    fn limits(&mut self, tokenizer: &dyn Tokenizer, max_seq_length: usize) -> Result<BatchLimits>;

    /// Generates. An error of the generator must be returned.
    fn run(&mut self, ready: Ready<'_>) -> Result<std::process::ExitCode>;
}
