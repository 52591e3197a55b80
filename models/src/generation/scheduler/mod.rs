//! [`Scheduler`]: on rank 0, which sequences are in the batch, and what each computes in the next step.
//!
//! Samples are admitted in the order of their requests, as soon as there is a place in the batch and there are pages
//! for the whole sample. In a step every sample whose prompt is computed gets one token; the rest of the step's tokens
//! go to prompts, in the order in which they were admitted, in pieces if need be.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use burn_megatron_data::tokenizer::Tokenizer;

use super::config::GeneratorConfig;
use super::pages::{CacheUse, PagePool};
use super::plan::{Admission, StepPlan};
use super::replica::Draw;
use super::request::{FinishReason, GenerationEvent, GenerationRequest, RequestError, RequestId, TokenScore};
use super::text::TextStream;

/// A sample that waits for its place.
struct Waiting {
    request: RequestId,
    sample: u32,
    asked: Arc<GenerationRequest>,
}

/// A sample in the batch.
struct Running {
    request: RequestId,
    sample: u32,
    asked: Arc<GenerationRequest>,
    pages: Vec<usize>,
    /// Tokens of the prompt that are not computed yet.
    prompt_left: usize,
    /// Scores of the prompt, until the first token is drawn.
    prompt: Vec<TokenScore>,
    drawn: usize,
    text: TextStream,
}

/// The queue and the batch.
pub(super) struct Scheduler {
    config: GeneratorConfig,
    tokenizer: Arc<dyn Tokenizer>,
    /// Tokens at which texts end.
    ends: Vec<u32>,
    pool: PagePool,
    waiting: VecDeque<Waiting>,
    running: BTreeMap<u64, Running>,
    /// Sequences that the other ranks still have.
    removed: Vec<u64>,
    next_request: u64,
    next_sequence: u64,
}

impl Scheduler {
    pub(super) fn new(config: GeneratorConfig, tokenizer: Arc<dyn Tokenizer>) -> Self {
        Self {
            pool: PagePool::new(config.cache.num_pages),
            config,
            ends: tokenizer.ends_of_text(),
            tokenizer,
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            removed: Vec::new(),
            next_request: 0,
            next_sequence: 0,
        }
    }

    /// Takes a request that is valid for the model.
    pub(super) fn submit(&mut self, request: GenerationRequest) -> Result<RequestId, RequestError> {
        let each = self.config.cache.pages_of(request.cached_tokens());
        self.pool.check(each)?;
        let all = self.waiting.len().saturating_add(request.num_samples);
        let waiting = all - self.num_placed_next(each, request.num_samples);
        let most = self.config.max_waiting;
        if waiting > most {
            return Err(RequestError::QueueFull {
                waiting,
                most,
                needed: each.saturating_mul(request.num_samples),
                free: self.pool.in_use().free_pages,
            });
        }
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let asked = Arc::new(request);
        self.waiting.extend((0..asked.num_samples as u32).map(|sample| Waiting {
            request: id,
            sample,
            asked: asked.clone(),
        }));
        Ok(id)
    }

    /// The samples that get a place in the next step, of those that wait and then `count` of `each` pages.
    fn num_placed_next(&self, each: usize, count: usize) -> usize {
        let mut free = self.pool.in_use().free_pages;
        let pages_of = |waiting: &Waiting| self.config.cache.pages_of(waiting.asked.cached_tokens());
        let waiting = self.waiting.iter().map(pages_of);
        waiting
            .chain(std::iter::repeat_n(each, count))
            .take(self.config.max_batch.saturating_sub(self.running.len()))
            .take_while(|pages| match free.checked_sub(*pages) {
                Some(rest) => {
                    free = rest;
                    true
                }
                None => false,
            })
            .count()
    }

    /// Ends what is left of a request; false if nothing was.
    pub(super) fn cancel(&mut self, request: RequestId) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.request != request);
        let found = self.running.iter().filter(|(_, running)| running.request == request);
        let running: Vec<u64> = found.map(|(number, _)| *number).collect();
        for number in &running {
            self.remove(*number);
        }
        self.waiting.len() < before || !running.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Samples in the batch, and samples that wait.
    pub(super) fn counts(&self) -> [usize; 2] {
        [self.running.len(), self.waiting.len()]
    }

    pub(super) fn cache_use(&self) -> CacheUse {
        self.pool.in_use()
    }

    /// Decides the next step.
    pub(super) fn plan(&mut self) -> StepPlan {
        let removed = std::mem::take(&mut self.removed);
        let admitted = self.admit();
        let mut work: Vec<(u64, usize)> = (self.running.iter())
            .filter(|(_, running)| running.prompt_left == 0)
            .map(|(number, _)| (*number, 1))
            .collect();
        let mut left = self.config.step_tokens.saturating_sub(work.len()).max(1);
        let mut prompts = Vec::new();
        for (number, running) in self.running.iter_mut().filter(|(_, running)| running.prompt_left > 0) {
            let new = running.prompt_left.min(left);
            if new > 0 {
                running.prompt_left -= new;
                left -= new;
                prompts.push((*number, new));
            }
        }
        // Of one token each, they are computed together.
        prompts.sort_by_key(|(_, new)| *new > 1);
        work.extend(prompts);
        StepPlan {
            removed,
            admitted,
            work,
            is_last: false,
        }
    }

    fn admit(&mut self) -> Vec<Admission> {
        let mut admitted = Vec::new();
        while self.running.len() < self.config.max_batch
            && let Some(next) = self.waiting.front()
            && let Some(pages) = self.pool.take(self.config.cache.pages_of(next.asked.cached_tokens()))
            && let Some(Waiting { request, sample, asked }) = self.waiting.pop_front()
        {
            let sequence = self.next_sequence;
            self.next_sequence += 1;
            admitted.push(Admission {
                sequence,
                prompt: asked.prompt.clone(),
                pages: pages.clone(),
                sampling: asked.sampling.clone(),
                number: asked.number,
                sample,
                top_log_probabilities: asked.top_log_probabilities,
                scores_prompt: asked.scores_prompt,
            });
            let text = TextStream::new(self.tokenizer.clone(), asked.stop.clone(), asked.stop_tokens.clone());
            let running = Running {
                request,
                sample,
                pages,
                prompt_left: asked.prompt.len(),
                prompt: Vec::new(),
                drawn: 0,
                text,
                asked,
            };
            self.running.insert(sequence, running);
        }
        admitted
    }

    /// Takes what was drawn.
    pub(super) fn take(&mut self, draws: Vec<Draw>) -> Vec<GenerationEvent> {
        draws.into_iter().filter_map(|draw| self.take_one(draw)).collect()
    }

    fn take_one(&mut self, draw: Draw) -> Option<GenerationEvent> {
        let Draw {
            sequence,
            choice,
            is_of_prompt,
        } = draw;
        let running = self.running.get_mut(&sequence)?;
        if is_of_prompt {
            running.prompt.push(TokenScore {
                token: choice.token,
                log_probability: choice.log_probability,
                top: choice.top,
            });
            return None;
        }
        running.drawn += 1;
        let is_end = self.ends.contains(&choice.token) && !running.asked.ignores_end_of_document;
        let is_last = is_end || running.drawn >= running.asked.max_new_tokens;
        let (mut text, mut has_stopped) = if is_end {
            (String::new(), false)
        } else {
            running.text.push(choice.token)
        };
        if is_last && !has_stopped {
            let rest;
            (rest, has_stopped) = running.text.finish();
            text += &rest;
        }
        let finished = if has_stopped {
            Some(FinishReason::Stop)
        } else if is_end {
            Some(FinishReason::EndOfDocument)
        } else {
            is_last.then_some(FinishReason::Length)
        };
        let event = GenerationEvent {
            request: running.request,
            sample: running.sample as usize,
            token: choice.token,
            log_probability: choice.log_probability,
            top: choice.top,
            prompt: std::mem::take(&mut running.prompt),
            margin: choice.margin,
            text,
            finished,
        };
        if finished.is_some() {
            self.remove(sequence);
        }
        Some(event)
    }

    fn remove(&mut self, sequence: u64) {
        if let Some(running) = self.running.remove(&sequence) {
            self.pool.give_back(running.pages);
            self.removed.push(sequence);
        }
    }
}

#[cfg(test)]
mod tests;
