//! What comes next: a token drawn from the scores of the vocabulary. Pure, in f64, by coordinates.
//!
//! A draw depends on the scores, the settings and its coordinates: the seed, the request's number, the sample's number
//! and the position. It does not depend on what else is in the batch, on when the request came, or on the layout.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use burn_megatron::random::philox::{key_words, philox4x32_10};
use serde::{Deserialize, Serialize};

/// Keeps draws of generation apart from dropout's, which have the same generator: "generate" in ASCII.
const DRAW_DOMAIN: u64 = u64::from_be_bytes(*b"generate");

/// Tokens that are ranked first where the most probable ones are looked for.
const FIRST_RANKED: usize = 256;

/// How the next token is chosen.
///
/// In vLLM's order: the bias, the penalties of repetition, frequency and presence, the temperature, `min_p`, `top_k`,
/// `top_p`, the draw. Greedy choice is after the penalties.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingConfig {
    /// Tokens, and what is added to their scores.
    pub logit_bias: Vec<(u32, f64)>,
    /// What scores are divided by; 0 for greedy choice: the highest score, and of equal ones the lowest token.
    pub temperature: f64,
    /// The number of tokens to draw from, those of the highest scores; 0 for all. Of equal scores, the lowest tokens
    /// are kept.
    pub top_k: usize,
    /// The probability to draw from: the fewest tokens, from the most probable on, that have it together; 1 for all.
    pub top_p: f64,
    /// The least probability to draw from, as a share of the highest one; 0 for all.
    pub min_p: f64,
    /// Scores of tokens of the prompt and of the text so far are divided by this if positive, multiplied by it if
    /// negative, once each; 1 for none.
    pub repetition_penalty: f64,
    /// Subtracted from the score of a token for each time that it was drawn.
    pub frequency_penalty: f64,
    /// Subtracted from the scores of tokens that were drawn, once each.
    pub presence_penalty: f64,
    pub seed: u64,
}

impl Default for SamplingConfig {
    /// Draws from the model's own distribution.
    fn default() -> Self {
        Self {
            logit_bias: Vec::new(),
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: 1234,
        }
    }
}

/// Settings that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SamplingError {
    #[error("{name} must be {expected}, got {value}")]
    OutOfRange {
        name: &'static str,
        expected: &'static str,
        value: f64,
    },
    #[error("the score of token {token} is {score}, expected a finite number")]
    Score {
        /// The first such token.
        token: usize,
        score: f64,
    },
}

impl SamplingConfig {
    /// Returns the settings of greedy choice.
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            ..Self::default()
        }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn validate(&self) -> Result<(), SamplingError> {
        let check = |name, value: f64, is_valid: bool, expected| {
            let error = SamplingError::OutOfRange { name, expected, value };
            if is_valid { Ok(()) } else { Err(error) }
        };
        let temperature = self.temperature;
        let is_valid = temperature == 0.0 || (temperature >= 1e-6 && temperature.is_finite());
        check(
            "temperature",
            temperature,
            is_valid,
            "0 or from 1e-6 to a finite number",
        )?;
        let is_valid = self.top_p > 0.0 && self.top_p <= 1.0;
        check("top_p", self.top_p, is_valid, "above 0 and at most 1")?;
        let penalty = self.repetition_penalty;
        let is_valid = (1e-6..=1e6).contains(&penalty);
        check("repetition_penalty", penalty, is_valid, "from 1e-6 to 1e6")?;
        let is_valid = (0.0..=1.0).contains(&self.min_p);
        check("min_p", self.min_p, is_valid, "from 0 to 1")?;
        for (name, penalty) in [
            ("frequency_penalty", self.frequency_penalty),
            ("presence_penalty", self.presence_penalty),
        ] {
            check(name, penalty, (-2.0..=2.0).contains(&penalty), "from -2 to 2")?;
        }
        let biases = self.logit_bias.iter().map(|(_, bias)| *bias);
        let outside = biases.into_iter().find(|bias| !(-100.0..=100.0).contains(bias));
        outside.map_or(Ok(()), |bias| check("logit_bias", bias, false, "from -100 to 100"))
    }
}

/// The tokens before a draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History<'a> {
    pub prompt: &'a [u32],
    pub drawn: &'a [u32],
}

/// Where a draw happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawPlace {
    /// The request's number, which the caller gives.
    pub number: u64,
    /// The sample's number in its request.
    pub sample: u32,
    /// The position of the token that is drawn, that of the prompt's first token being 0.
    pub position: u32,
}

impl DrawPlace {
    /// Returns the uniform number of this place, in [0, 1), of 53 bits.
    pub fn uniform(&self, seed: u64) -> f64 {
        let [low, high] = key_words(self.number);
        let words = philox4x32_10([low, high, self.sample, self.position], key_words(seed ^ DRAW_DOMAIN));
        let bits = (u64::from(words[1]) << 32 | u64::from(words[0])) >> 11;
        bits as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    pub token: u32,
    /// The logarithm of its probability, in nats, by the model's own scores: before penalty, temperature and cuts.
    pub log_probability: f64,
    /// The most probable tokens by the model's own scores, the most probable first.
    pub top: Vec<(u32, f64)>,
    /// How far the choice is from another one: the distance of the draw from the border of its token's share, or in
    /// greedy choice the difference of the two highest scores. Below the rounding of the scores, another layout may
    /// choose another token.
    pub margin: f64,
}

/// Chooses the next token.
///
/// `scores` are of every token of the vocabulary, padding left out.
///
/// # Errors
/// When a score is not a finite number. Settings are not checked: see [`SamplingConfig::validate`].
///
/// # Panics
/// When there are no scores.
pub fn choose(
    scores: &[f64],
    history: History<'_>,
    config: &SamplingConfig,
    place: DrawPlace,
    num_top: usize,
) -> Result<Choice, SamplingError> {
    assert!(!scores.is_empty(), "a vocabulary of no tokens");
    check_finite(scores)?;
    let log_sum = log_sum_exp(scores);
    let adjusted = adjust(scores, history, config);
    let (token, margin) = if config.temperature == 0.0 {
        greedy(&adjusted)
    } else {
        draw(&adjusted, config, place)
    };
    Ok(Choice {
        token: token as u32,
        log_probability: scores[token] - log_sum,
        top: most_probable(scores, num_top, log_sum),
        margin,
    })
}

/// Returns the log-probability of a token that is given, not chosen, as [`choose`] has those of its own. The margin is
/// infinite.
///
/// # Errors
/// When a score is not a finite number.
///
/// # Panics
/// When the token has no score.
pub(super) fn judge(scores: &[f64], token: u32, num_top: usize) -> Result<Choice, SamplingError> {
    check_finite(scores)?;
    let log_sum = log_sum_exp(scores);
    Ok(Choice {
        token,
        log_probability: scores[token as usize] - log_sum,
        top: most_probable(scores, num_top, log_sum),
        margin: f64::INFINITY,
    })
}

fn check_finite(scores: &[f64]) -> Result<(), SamplingError> {
    match scores.iter().position(|score| !score.is_finite()) {
        Some(token) => Err(SamplingError::Score {
            token,
            score: scores[token],
        }),
        None => Ok(()),
    }
}

fn most_probable(scores: &[f64], count: usize, log_sum: f64) -> Vec<(u32, f64)> {
    let ranked = ranked(scores, count).into_iter();
    ranked.map(|token| (token as u32, scores[token] - log_sum)).collect()
}

fn log_sum_exp(scores: &[f64]) -> f64 {
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|score| (score - highest).exp()).sum();
    highest + sum.ln()
}

/// Returns the scores with the bias and the penalties.
///
/// # Reference
/// Keskar et al. 2019, arXiv:1909.05858, section 4.1, for the penalty of repetition; for negative scores as
/// `transformers` defines it. The bias and the penalties of frequency and presence are those of OpenAI's API.
fn adjust(scores: &[f64], history: History<'_>, config: &SamplingConfig) -> Vec<f64> {
    let mut adjusted = scores.to_vec();
    for &(token, bias) in &config.logit_bias {
        if let Some(score) = adjusted.get_mut(token as usize) {
            *score += bias;
        }
    }
    let mut counts = BTreeMap::new();
    for &token in history.drawn {
        *counts.entry(token).or_insert(0_u32) += 1;
    }
    if config.repetition_penalty != 1.0 {
        let penalty = config.repetition_penalty;
        let biased = adjusted.clone();
        for &token in history.prompt.iter().chain(counts.keys()) {
            // From the score before it: once, however often a token occurs.
            if let Some(&score) = biased.get(token as usize) {
                adjusted[token as usize] = if score < 0.0 { score * penalty } else { score / penalty };
            }
        }
    }
    for (token, count) in counts {
        if let Some(score) = adjusted.get_mut(token as usize) {
            *score -= config.frequency_penalty * f64::from(count) + config.presence_penalty;
        }
    }
    adjusted
}

/// The token of the highest score, the lowest of equal ones, and the distance to the next score.
fn greedy(scores: &[f64]) -> (usize, f64) {
    match ranked(scores, 2)[..] {
        [best, second] => (best, scores[best] - scores[second]),
        _ => (0, f64::INFINITY),
    }
}

/// The tokens of the `count` highest scores, the highest first, of equal ones the lowest token first.
fn ranked(scores: &[f64], count: usize) -> Vec<usize> {
    let order = |left: &usize, right: &usize| {
        let by_score = scores[*right].partial_cmp(&scores[*left]);
        by_score.unwrap_or(Ordering::Equal).then(left.cmp(right))
    };
    let mut tokens: Vec<usize> = (0..scores.len()).collect();
    let count = count.min(tokens.len());
    if count == 0 {
        return Vec::new();
    }
    if count < tokens.len() {
        tokens.select_nth_unstable_by(count - 1, order);
        tokens.truncate(count);
    }
    tokens.sort_unstable_by(order);
    tokens
}

/// # Reference
/// Holtzman et al. 2020, arXiv:1904.09751, section 3.1 (`top_p`); Fan et al. 2018, arXiv:1805.04833 (`top_k`); Nguyen
/// et al. 2024, arXiv:2407.01082 (`min_p`).
fn draw(scores: &[f64], config: &SamplingConfig, place: DrawPlace) -> (usize, f64) {
    let candidates = candidates(scores, config);
    let highest = candidates
        .iter()
        .map(|token| scores[*token])
        .fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = (candidates.iter())
        .map(|token| ((scores[*token] - highest) / config.temperature).exp())
        .collect();
    let total: f64 = weights.iter().sum();
    let uniform = place.uniform(config.seed);
    let mut before = 0.0;
    for (&token, weight) in candidates.iter().zip(&weights) {
        let share = before / total..(before + weight) / total;
        if uniform < share.end {
            return (token, (uniform - share.start).min(share.end - uniform));
        }
        before += weight;
    }
    // The rounding of the sum left the number outside: the last token that has a share.
    let last = weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0);
    (candidates[last], 0.0)
}

/// The tokens to draw from: all in the order of their numbers, or those that the cuts leave, the most probable first.
fn candidates(scores: &[f64], config: &SamplingConfig) -> Vec<usize> {
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weight = |token: &usize| ((scores[*token] - highest) / config.temperature).exp();
    let mut count = match config.top_k {
        0 => scores.len(),
        count => count.min(scores.len()),
    };
    if config.min_p > 0.0 {
        // The tokens of the highest scores, as with the other cuts.
        count = count.min((0..scores.len()).filter(|token| weight(token) >= config.min_p).count());
    }
    if config.top_p >= 1.0 {
        return if count == scores.len() {
            (0..count).collect()
        } else {
            ranked(scores, count)
        };
    }
    let total: f64 = if count == scores.len() {
        (0..count).map(|token| weight(&token)).sum()
    } else {
        ranked(scores, count).iter().map(weight).sum()
    };
    // Few tokens have most of the probability, and ranking them is quicker than ranking all.
    let mut looked_at = FIRST_RANKED.min(count);
    loop {
        let mut best = ranked(scores, looked_at);
        let mut sum = 0.0;
        let reached = best.iter().position(|token| {
            sum += weight(token);
            sum >= config.top_p * total
        });
        if reached.is_some() || looked_at == count {
            best.truncate(reached.map_or(count, |last| last + 1));
            return best;
        }
        looked_at = looked_at.saturating_mul(8).min(count);
    }
}

#[cfg(test)]
mod tests;
