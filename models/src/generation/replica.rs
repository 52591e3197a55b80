//! [`Replica`]: what every rank does in a step: its sequences, its part of the model, the draws.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Int, Tensor, TensorData, Transaction};
use burn_megatron::collectives::{
    CollectiveError, Movement, catch_collective_error, move_data, recv_start, send_start,
};
use burn_megatron::context::ParallelContext;
use burn_megatron::tensor_parallel::{PageSizes, PagedKeyValues, PagedSequence, PagedTokens};

use super::error::GenerationError;
use super::pages::CacheConfig;
use super::plan::{Admission, StepPlan};
use super::sampling::{Choice, DrawPlace, History, choose, judge};
use super::stage::{GenerationStage, NewTokens};

/// Numbers of a draw that are sent to all ranks, in addition to two for each of the most probable tokens.
const NUMBERS_EACH: usize = 3;
/// Tokens of prompts whose scores of the vocabulary are in one buffer.
const PROMPT_ROWS: usize = 64;

/// The sizes of the model that a step must know.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelSizes {
    pub(super) vocab_size: usize,
    pub(super) d_model: usize,
}

/// A sequence of the batch, the same on every rank.
#[derive(Debug)]
struct Sequence {
    /// The prompt, and what was drawn.
    tokens: Vec<u32>,
    /// How many of them have their keys and values in the cache.
    cached: usize,
    admission: Admission,
}

/// A token that was drawn for a sequence, or one of its prompt that was scored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Draw {
    pub(super) sequence: u64,
    pub(super) choice: Choice,
    pub(super) is_of_prompt: bool,
}

/// A new token after which the vocabulary is scored.
#[derive(Clone, Copy, Debug)]
struct ScoredRow {
    sequence: u64,
    /// Its row among the new tokens of the step.
    row: usize,
    /// The token of the prompt that comes next; `None` where one is drawn.
    next: Option<u32>,
}

/// The sequences of the batch, and this rank's stage of the model with its cache.
pub(super) struct Replica<S> {
    chunks: Vec<S>,
    /// Of each chunk, its layers' pools.
    caches: Vec<Vec<PagedKeyValues>>,
    sequences: BTreeMap<u64, Sequence>,
    cache: CacheConfig,
    sizes: ModelSizes,
    context: ParallelContext,
    device: Device,
}

impl<S: GenerationStage> Replica<S> {
    pub(super) fn new(
        chunks: Vec<S>,
        cache: CacheConfig,
        sizes: ModelSizes,
        context: &ParallelContext,
        device: &Device,
    ) -> Self {
        let pages = PageSizes {
            num_pages: cache.num_pages,
            page_tokens: cache.page_tokens,
        };
        let caches = chunks
            .iter()
            .map(|chunk| chunk.paged_key_values(pages, device))
            .collect();
        Self {
            chunks,
            caches,
            sequences: BTreeMap::new(),
            cache,
            sizes,
            context: context.clone(),
            device: device.clone(),
        }
    }

    /// Does what a plan says, and returns the scores of prompts and then what was drawn, each in the order of the plan;
    /// the same on every rank.
    ///
    /// # Communication
    /// That of the stages, a transfer of the new tokens' activations between any two, an all-gather of the scores over
    /// the tensor group of the last, one more for each `PROMPT_ROWS` tokens of prompts that are scored, and a broadcast
    /// of what was drawn.
    pub(super) fn run(&mut self, plan: StepPlan) -> Result<Vec<Draw>, GenerationError> {
        for sequence in plan.removed {
            self.sequences.remove(&sequence);
        }
        for admission in plan.admitted {
            self.admit(admission)?;
        }
        if plan.work.is_empty() {
            return Ok(Vec::new());
        }
        self.check(&plan.work)?;
        let scored = self.scored_rows(&plan.work);
        let hidden = catch_collective_error(|| self.forward(&plan.work))??;
        for (number, new) in &plan.work {
            self.sequence_mut(*number).cached += new;
        }
        if scored.is_empty() {
            return Ok(Vec::new());
        }
        let drawn = match hidden {
            Some(hidden) => {
                let mut choices = Vec::new();
                for part in in_buffers(&scored) {
                    let rows = part.iter().map(|scored| scored.row as i32).collect();
                    let scores = catch_collective_error(|| self.scores(hidden.clone(), rows))??;
                    // The tensor ranks have the same scores, and one of them draws.
                    if self.context.tensor_group().rank() == 0 {
                        choices.extend(self.draw(part, &scores)?);
                    }
                }
                (self.context.tensor_group().rank() == 0).then_some(choices)
            }
            None => None,
        };
        let draws = self.share(&scored, drawn)?;
        for draw in draws.iter().filter(|draw| !draw.is_of_prompt) {
            self.sequence_mut(draw.sequence).tokens.push(draw.choice.token);
        }
        Ok(draws)
    }

    fn admit(&mut self, admission: Admission) -> Result<(), GenerationError> {
        let is_page = |page: &usize| *page < self.cache.num_pages;
        if !admission.pages.iter().all(is_page) || admission.prompt.is_empty() {
            return Err(self.broken(format!(
                "sequence {} has no prompt, or pages that are none",
                admission.sequence
            )));
        }
        let sequence = Sequence {
            tokens: admission.prompt.clone(),
            cached: 0,
            admission,
        };
        self.sequences.insert(sequence.admission.sequence, sequence);
        Ok(())
    }

    /// Checks that the work can be done: what a plan asks for comes from another process.
    fn check(&self, work: &[(u64, usize)]) -> Result<(), GenerationError> {
        for (number, new) in work {
            let Some(sequence) = self.sequences.get(number) else {
                return Err(self.broken(format!("there is no sequence {number}")));
            };
            let after = sequence.cached.saturating_add(*new);
            let held = sequence.admission.pages.len() * self.cache.page_tokens;
            if *new == 0 || after > sequence.tokens.len() || after > held {
                return Err(self.broken(format!(
                    "{new} new tokens of sequence {number} of {} tokens, {} of them cached, on {} pages",
                    sequence.tokens.len(),
                    sequence.cached,
                    sequence.admission.pages.len()
                )));
            }
        }
        Ok(())
    }

    fn broken(&self, what: String) -> GenerationError {
        let rank = self.context.rank();
        GenerationError::Plan { rank, what }
    }

    /// Where a prompt is scored, its new tokens but the last; then the last tokens of sequences that are among the new
    /// ones, after which the next is drawn.
    fn scored_rows(&self, work: &[(u64, usize)]) -> Vec<ScoredRow> {
        let mut first = 0;
        let (mut drawn, mut of_prompts) = (Vec::new(), Vec::new());
        for &(number, new) in work {
            let sequence = &self.sequences[&number];
            let scored = |token: usize, next| ScoredRow {
                sequence: number,
                row: first + token - sequence.cached,
                next,
            };
            let end = sequence.cached + new;
            if end == sequence.tokens.len() {
                drawn.push(scored(end - 1, None));
            }
            let prompt = &sequence.admission.prompt;
            if sequence.admission.scores_prompt {
                let before = sequence.cached..end.min(prompt.len() - 1);
                of_prompts.extend(before.map(|token| scored(token, Some(prompt[token + 1]))));
            }
            first += new;
        }
        of_prompts.append(&mut drawn);
        of_prompts
    }

    /// Computes the new tokens; the last stage returns their output.
    fn forward(&mut self, work: &[(u64, usize)]) -> Result<Option<Tensor<2>>, CollectiveError> {
        let tokens = self.new_tokens(work);
        let group = self.context.pipeline_group().clone();
        let (stage, stages) = (group.rank(), group.size());
        let last = self.chunks.len() * stages - 1;
        let shape = [tokens.paged.len(), self.sizes.d_model];
        let dtype = DType::from(self.device.settings().float_dtype);
        let mut before: Option<Tensor<2>> = None;
        for (chunk, (part, caches)) in self.chunks.iter().zip(&mut self.caches).enumerate() {
            let virtual_stage = chunk * stages + stage;
            let input = match virtual_stage {
                0 => None,
                _ if stages == 1 => before.take(),
                _ => {
                    let from = (stage + stages - 1) % stages;
                    Some(recv_start(shape, dtype, &self.device, from, &group).tensor()?)
                }
            };
            let output = part.forward_new(input, &tokens, caches);
            if virtual_stage == last {
                return Ok(Some(output));
            }
            if stages == 1 {
                before = Some(output);
            } else {
                send_start(output, (stage + 1) % stages, &group).wait()?;
            }
        }
        Ok(None)
    }

    fn new_tokens(&self, work: &[(u64, usize)]) -> NewTokens {
        let mut ids = Vec::new();
        let mut sequences = Vec::with_capacity(work.len());
        for (number, new) in work {
            let Sequence {
                tokens,
                cached,
                admission,
            } = &self.sequences[number];
            ids.extend(tokens[*cached..cached + new].iter().map(|token| *token as i32));
            sequences.push(PagedSequence {
                pages: &admission.pages,
                cached: *cached,
                new: *new,
            });
        }
        NewTokens {
            ids: integers(ids, &self.device),
            paged: PagedTokens::new(&sequences, self.cache.page_tokens, &self.device),
        }
    }

    /// The scores of the whole vocabulary after some rows of the last stage's output, row by row, padding left out.
    fn scores(&self, hidden: Tensor<2>, rows: Vec<i32>) -> Result<Vec<Vec<f64>>, CollectiveError> {
        let part = self.chunks.last().expect("a rank has a chunk");
        let scores = part.score(hidden.select(0, integers(rows, &self.device)));
        let scores = move_data(
            scores,
            Movement::AllGather { dimension: 1 },
            self.context.tensor_group(),
        )?;
        let [_, padded] = scores.dims();
        let data = Transaction::default().register(scores).execute();
        let numbers: Vec<f64> = data.iter().flat_map(|data| data.iter::<f64>()).collect();
        let row = |row: &[f64]| row[..self.sizes.vocab_size].to_vec();
        Ok(numbers.chunks_exact(padded).map(row).collect())
    }

    /// Chooses the next token of each sequence that draws one, and scores those of prompts.
    fn draw(&self, scored: &[ScoredRow], scores: &[Vec<f64>]) -> Result<Vec<Choice>, GenerationError> {
        let chosen = scored
            .iter()
            .zip(scores)
            .map(|(ScoredRow { sequence, next, .. }, scores)| {
                let Sequence { tokens, admission, .. } = &self.sequences[sequence];
                let place = DrawPlace {
                    number: admission.number,
                    sample: admission.sample,
                    position: tokens.len() as u32,
                };
                let (prompt, drawn) = tokens.split_at(admission.prompt.len());
                let top = admission.top_log_probabilities;
                let choice = match next {
                    Some(token) => judge(scores, *token, top),
                    None => choose(scores, History { prompt, drawn }, &admission.sampling, place, top),
                };
                choice.map_err(|source| GenerationError::Scores {
                    rank: self.context.rank(),
                    tokens: tokens.len(),
                    source,
                })
            });
        chosen.collect()
    }

    /// Returns what the first tensor rank of the last stage has drawn on every rank.
    fn share(&self, scored: &[ScoredRow], drawn: Option<Vec<Choice>>) -> Result<Vec<Draw>, GenerationError> {
        let group = self.context.model_group();
        let length_of = |scored: &ScoredRow| {
            let asked = self.sequences[&scored.sequence].admission.top_log_probabilities;
            NUMBERS_EACH + 2 * asked.min(self.sizes.vocab_size)
        };
        let length = scored.iter().map(length_of).sum();
        let mut numbers = match &drawn {
            Some(choices) => choices.iter().flat_map(to_numbers).collect(),
            None => vec![0.0; length],
        };
        assert_eq!(numbers.len(), length, "numbers of the draws");
        if group.size() > 1 {
            // Ranks of a model are numbered tensor rank by tensor rank, stage by stage.
            let root = group.size() - self.context.tensor_group().size();
            group.broadcast(&mut numbers, root)?;
        }
        let mut rest = numbers.as_slice();
        let draws = scored.iter().map(|scored| {
            let (own, others) = rest.split_at(length_of(scored));
            rest = others;
            Draw {
                sequence: scored.sequence,
                choice: from_numbers(own),
                is_of_prompt: scored.next.is_some(),
            }
        });
        Ok(draws.collect())
    }

    fn sequence_mut(&mut self, number: u64) -> &mut Sequence {
        self.sequences.get_mut(&number).expect("the plan was checked")
    }
}

/// Rows whose scores are computed together: few enough of prompts, then all that draw.
fn in_buffers(scored: &[ScoredRow]) -> impl Iterator<Item = &[ScoredRow]> {
    let (of_prompts, drawn) = scored.split_at(scored.partition_point(|scored| scored.next.is_some()));
    let drawn = (!drawn.is_empty()).then_some(drawn);
    of_prompts.chunks(PROMPT_ROWS).chain(drawn)
}

fn integers(values: Vec<i32>, device: &Device) -> Tensor<1, Int> {
    let length = values.len();
    Tensor::from_data(TensorData::new(values, [length]), (device, DType::I32))
}

fn to_numbers(choice: &Choice) -> Vec<f64> {
    let mut numbers = vec![f64::from(choice.token), choice.log_probability, choice.margin];
    numbers.extend(choice.top.iter().flat_map(|(token, log)| [f64::from(*token), *log]));
    numbers
}

fn from_numbers(numbers: &[f64]) -> Choice {
    let (own, top) = numbers.split_at(NUMBERS_EACH);
    Choice {
        token: own[0] as u32,
        log_probability: own[1],
        margin: own[2],
        top: top.chunks_exact(2).map(|pair| (pair[0] as u32, pair[1])).collect(),
    }
}
