//! [`Generator`]: requests in, tokens out, with a batch that sequences join and leave at any step.

use burn::tensor::Device;
use std::sync::Arc;

use burn_megatron::context::ParallelContext;
use burn_megatron_data::tokenizer::Tokenizer;

use super::config::GeneratorConfig;
use super::error::GenerationError;
use super::pages::CacheUse;
use super::plan::{self, StepPlan};
use super::replica::{Draw, ModelSizes, Replica};
use super::request::{GenerationEvent, GenerationRequest, RequestError, RequestId};
use super::scheduler::Scheduler;
use super::stage::GenerationStage;
use crate::model_config::ModelConfig;

/// Generates with a model, one stage of which is on each rank of a pipeline, cut over its tensor-parallel ranks.
///
/// All ranks make one and call [`step`](Self::step) in turn; only rank 0 [`submit`](Self::submit)s requests, and it
/// alone gets events. What a request's text is does not depend on the layout, on the other requests, or on when it
/// came, except where rounding decides: see [`GenerationEvent::margin`].
///
/// Data-parallel ranks are replicas of the model that know nothing of each other: each has a generator of its own, to
/// which "rank 0" here is its first rank ([`is_first`](Self::is_first)). A model made for sequence parallelism
/// generates with whole activations, of the same parameters.
///
/// A rank that waits in `step` for rank 0 gives up after the time limit of its groups: rank 0 calls `step` more often
/// than that, also when it has nothing to do.
pub struct Generator {
    /// This rank's part of a step, whatever it computes on.
    run_plan: Box<dyn FnMut(StepPlan) -> Result<Vec<Draw>, GenerationError>>,
    /// On rank 0.
    scheduler: Option<Scheduler>,
    tokenizer: Arc<dyn Tokenizer>,
    context: ParallelContext,
    max_seq_length: usize,
    vocab_size: usize,
    has_ended: bool,
}

impl Generator {
    /// Takes this rank's chunks of the model, without autodiff, and allocates the cache of their layers.
    ///
    /// # Errors
    /// When a limit is zero, or the tokenizer has more tokens than the model.
    pub fn new<S: GenerationStage + 'static>(
        chunks: Vec<S>,
        model: &dyn ModelConfig,
        tokenizer: Arc<dyn Tokenizer>,
        config: GeneratorConfig,
        context: &ParallelContext,
        device: &Device,
    ) -> Result<Self, GenerationError> {
        config.validate()?;
        let is_first = context.model_group().rank() == 0;
        let chunks = chunks.into_iter().map(S::with_whole_tokens).collect();
        let (tokens, vocab_size) = (tokenizer.vocabulary_size(), model.vocab_size());
        if tokens > vocab_size {
            return Err(GenerationError::Vocabulary {
                tokenizer: tokens,
                model: vocab_size,
            });
        }
        let sizes = ModelSizes {
            vocab_size,
            d_model: model.d_model(),
        };
        let mut replica = Replica::new(chunks, config.cache, sizes, context, device);
        Ok(Self {
            run_plan: Box::new(move |plan| replica.run(plan)),
            scheduler: is_first.then(|| Scheduler::new(config, tokenizer.clone())),
            tokenizer,
            context: context.clone(),
            max_seq_length: model.max_seq_length(),
            vocab_size,
            has_ended: false,
        })
    }

    /// Takes a request, on rank 0. Its samples begin at one of the next steps.
    ///
    /// # Errors
    /// When the request can never be served: its prompt and output are longer than the model's positions, or a sample
    /// than the cache; a token is unknown; a setting is out of its range. When too many samples wait.
    pub fn submit(&mut self, mut request: GenerationRequest) -> Result<RequestId, RequestError> {
        let rank = self.context.rank();
        let scheduler = self.scheduler.as_mut().ok_or(RequestError::OtherRank { rank })?;
        if request.prompt.is_empty() {
            let first = self.tokenizer.end_of_document();
            request.prompt.push(first.ok_or(RequestError::EmptyPrompt)?);
        }
        request.validate(self.max_seq_length, self.vocab_size)?;
        scheduler.submit(request)
    }

    /// Ends what is left of a request, on rank 0, and frees its pages: no more events come of it. Returns whether
    /// anything was left.
    pub fn cancel(&mut self, request: RequestId) -> bool {
        self.scheduler
            .as_mut()
            .is_some_and(|scheduler| scheduler.cancel(request))
    }

    /// Computes one step of the whole batch: a token for each of its samples, or a piece of their prompts. Returns what
    /// was drawn, on rank 0; nothing on other ranks.
    ///
    /// # Communication
    /// A broadcast of what is to be done, 4 KiB and more where prompts begin; if anything is, the passes through the
    /// stages, the new tokens' activations between any two, an all-gather of the last tokens' scores over the tensor
    /// group, one more for each 64 tokens of prompts that are scored, and a broadcast of what was drawn.
    ///
    /// # Errors
    /// When a rank fails or does not come in time; when scores are not finite. The generator is to be given up then, on
    /// all ranks.
    pub fn step(&mut self) -> Result<Vec<GenerationEvent>, GenerationError> {
        let plan = self.scheduler.as_mut().map(Scheduler::plan);
        self.run(plan.unwrap_or_default())
    }

    /// Ends the other ranks' [`serve`](Self::serve), on rank 0, and this generator.
    pub fn finish(mut self) -> Result<(), GenerationError> {
        let plan = StepPlan {
            is_last: true,
            ..StepPlan::default()
        };
        self.run(plan).map(drop)
    }

    /// Takes part in rank 0's steps until it calls [`finish`](Self::finish), on another rank.
    pub fn serve(mut self) -> Result<(), GenerationError> {
        while !self.has_ended {
            self.step()?;
        }
        Ok(())
    }

    fn run(&mut self, plan: StepPlan) -> Result<Vec<GenerationEvent>, GenerationError> {
        let plan = plan::share(plan, self.context.model_group())?;
        self.has_ended = plan.is_last;
        let draws = (self.run_plan)(plan)?;
        Ok(match &mut self.scheduler {
            Some(scheduler) => scheduler.take(draws),
            None => Vec::new(),
        })
    }

    /// Returns whether this is the first rank of its replica of the model: the one that takes requests and gives
    /// events.
    pub fn is_first(&self) -> bool {
        self.scheduler.is_some()
    }

    /// Returns whether rank 0 has ended the steps.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns whether there is nothing to do, on rank 0: no sample is in the batch, and none waits.
    pub fn is_idle(&self) -> bool {
        self.scheduler.as_ref().is_none_or(Scheduler::is_idle)
    }

    /// The samples in the batch and those that wait for a place, on rank 0.
    pub fn num_samples(&self) -> [usize; 2] {
        self.scheduler.as_ref().map_or([0; 2], Scheduler::counts)
    }

    /// How full the cache is, on rank 0.
    pub fn cache_use(&self) -> Option<CacheUse> {
        self.scheduler.as_ref().map(Scheduler::cache_use)
    }

    pub fn tokenizer(&self) -> &Arc<dyn Tokenizer> {
        &self.tokenizer
    }

    /// The longest sequence, prompt and output, in tokens.
    pub fn max_seq_length(&self) -> usize {
        self.max_seq_length
    }
}
