//! `Masking`: which tokens of a sample a model has to predict.

use super::draws::{RandomState, cumulative};
use crate::samples::SampleError;
use crate::tokenizer::{Token, TokenRoles, Tokenizer};
use crate::weights::normalized;

/// Success probability of the geometric distribution, as in SpanBERT.
const GEOMETRIC_PROBABILITY: f64 = 0.2;

/// Which lengths the masked n-grams of words have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NgramLengths {
    /// n with a probability proportional to 1/n.
    ShortOften,
    /// The same, from the longest down to one.
    LongOften,
    /// Geometric with p = 0.2, cut at the longest.
    ///
    /// # Reference
    /// Joshi et al. 2019, "SpanBERT", arXiv:1907.10529, section 3.1.
    Geometric,
}

/// How many tokens are masked, and which together.
#[derive(Debug, Clone, PartialEq)]
pub struct MaskingConfig {
    /// Share of the tokens that is masked (`--mask-prob`), above 0 and below 1.
    pub probability: f64,
    /// Words of the longest n-gram that is masked as one.
    pub max_ngram: usize,
    /// Lengths of the n-grams.
    pub lengths: NgramLengths,
    /// Whether all tokens of a word are masked together.
    pub whole_words: bool,
}

impl MaskingConfig {
    /// Returns Megatron-LM's for BERT: 0.15 of the tokens, whole words, up to three of them, short ones more often.
    pub fn bert() -> Self {
        Self {
            probability: 0.15,
            max_ngram: 3,
            lengths: NgramLengths::ShortOften,
            whole_words: true,
        }
    }

    /// Returns Megatron-LM's for T5: 0.15 of the tokens, whole words, up to ten of them, lengths geometric.
    pub fn t5() -> Self {
        Self {
            max_ngram: 10,
            lengths: NgramLengths::Geometric,
            ..Self::bert()
        }
    }
}

/// N-grams of words chosen by a configuration, with the rules of a tokenizer.
#[derive(Debug, Clone)]
pub(crate) struct Masking {
    config: MaskingConfig,
    /// For a choice of n.
    sums: Vec<f64>,
    /// Tokens that are never masked and part no word.
    borders: Vec<Token>,
}

impl Masking {
    /// Largest n of n-grams: of more words no sample is made.
    const MAX_NGRAM: usize = 1 << 16;

    pub(crate) fn new(config: &MaskingConfig, roles: &TokenRoles) -> Result<Self, SampleError> {
        let MaskingConfig {
            probability, max_ngram, ..
        } = *config;
        if !(probability > 0.0 && probability < 1.0) {
            return Err(SampleError::Probability {
                name: "share of masked tokens (--mask-prob)",
                rule: "above 0 and below 1",
                value: probability,
            });
        }
        if !(1..=Self::MAX_NGRAM).contains(&max_ngram) {
            let rule = format!("from 1 to {}", Self::MAX_NGRAM);
            return Err(SampleError::setting("words of the longest n-gram", rule, max_ngram));
        }
        let mut inverse: Vec<f64> = (1..=max_ngram).map(|n| 1.0 / n as f64).collect();
        inverse = normalized(&inverse);
        if config.lengths == NgramLengths::LongOften {
            inverse.reverse();
        }
        Ok(Self {
            config: config.clone(),
            sums: cumulative(&normalized(&inverse)),
            borders: roles.cls.into_iter().chain(roles.sep).collect(),
        })
    }

    /// Chooses n-grams of words of a sample until about the wanted share of its tokens is masked, and calls `mask` for
    /// each token of them, by its place.
    ///
    /// Returns the places of each n-gram, sorted by the first. They do not overlap. All in all they have at most
    /// `max(1, round(n·p))` and at most `p·target_length` tokens; an n-gram that is too long is shortened word by word.
    pub(crate) fn choose(
        &self,
        tokens: &[Token],
        target_length: usize,
        tokenizer: &dyn Tokenizer,
        random: &mut RandomState,
        mut mask: impl FnMut(&mut RandomState, usize),
    ) -> Vec<Vec<usize>> {
        let probability = self.config.probability;
        let rounded = (tokens.len() as f64 * probability).round_ties_even().max(1.0);
        let most = rounded.min(probability * target_length as f64);
        let (places, starts) = self.words(tokens, tokenizer);
        let num_words = starts.len() - 1;
        let mut order: Vec<u32> = (0..num_words as u32).collect();
        random.shuffle(&mut order);
        let mut is_masked = vec![false; tokens.len()];
        let mut num_masked = 0;
        let mut ngrams = vec![];
        for word in order {
            if num_masked as f64 >= most {
                break;
            }
            let first = word as usize;
            let ngram = |n: usize| &places[starts[first]..starts[num_words.min(first + n)]];
            let drawn = self.draw_length(random);
            let fits = |n: &usize| most >= (num_masked + ngram(*n).len()) as f64;
            let Some(n) = (1..=drawn).rev().find(fits) else {
                continue;
            };
            if ngram(n).iter().any(|&place| is_masked[place]) {
                continue;
            }
            for &place in ngram(n) {
                is_masked[place] = true;
                mask(random, place);
            }
            num_masked += ngram(n).len();
            ngrams.push(ngram(n).to_vec());
        }
        ngrams.sort_unstable();
        ngrams
    }

    fn draw_length(&self, random: &mut RandomState) -> usize {
        match self.config.lengths {
            NgramLengths::Geometric => {
                let drawn = random.geometric(GEOMETRIC_PROBABILITY);
                // At least 1, also for the one draw in 2^53 that is 0.
                (drawn as usize).clamp(1, self.config.max_ngram)
            }
            NgramLengths::ShortOften | NgramLengths::LongOften => random.choice(&self.sums) + 1,
        }
    }

    /// Returns the places of all tokens of words, word after word, and where in them each word starts, with the end.
    fn words(&self, tokens: &[Token], tokenizer: &dyn Tokenizer) -> (Vec<usize>, Vec<usize>) {
        let (mut places, mut starts) = (Vec::with_capacity(tokens.len()), vec![]);
        let mut previous = None;
        for (place, &token) in tokens.iter().enumerate() {
            if !self.borders.contains(&token) {
                let continues =
                    self.config.whole_words && !starts.is_empty() && tokenizer.continues_word(previous, token);
                if !continues {
                    starts.push(places.len());
                }
                places.push(place);
            }
            previous = Some(token);
        }
        starts.push(places.len());
        (places, starts)
    }
}
