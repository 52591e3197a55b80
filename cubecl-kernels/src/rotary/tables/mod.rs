//! The angles of a model: frequencies, what stretches them to longer texts, and tables of cosines and sines.
//!
//! In f64. The scalings are those that Hugging Face's `modeling_rope_utils` computes, and have the names of a model's
//! `config.json` when they are stored.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};

use crate::error::{Check, KernelError};

/// How frequencies are changed for texts that are longer than those of the training before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rope_type", rename_all = "lowercase")]
pub enum RotaryScaling {
    /// Not at all.
    #[default]
    #[serde(rename = "default")]
    None,
    /// All divided by the factor: positions are interpolated.
    Linear {
        /// How many times as long texts become.
        factor: f64,
    },
    /// Llama 3.1's: low frequencies are divided by the factor, high ones stay, those between are mixed.
    Llama3 {
        /// What low frequencies are divided by.
        factor: f64,
        /// The turns over the original length up to which a frequency is low.
        low_freq_factor: f64,
        /// The turns from which on it is high.
        high_freq_factor: f64,
        /// The length of texts before, in tokens.
        #[serde(rename = "original_max_position_embeddings")]
        original_max_position: usize,
    },
    /// YaRN: as Llama 3.1's, mixed along the numbers of the pairs, and with longer vectors.
    Yarn {
        /// What low frequencies are divided by.
        factor: f64,
        /// The turns over the original length from which on a frequency is high.
        #[serde(default = "default_beta_fast")]
        beta_fast: f64,
        /// The turns up to which it is low.
        #[serde(default = "default_beta_slow")]
        beta_slow: f64,
        /// The length of texts before, in tokens.
        #[serde(rename = "original_max_position_embeddings")]
        original_max_position: usize,
        /// What cosines and sines are multiplied by; if `None`, `0.1 ln(factor) + 1`.
        #[serde(default)]
        attention_factor: Option<f64>,
        /// Whether the mix begins and ends at whole pairs.
        #[serde(default = "default_truncate")]
        truncate: bool,
    },
}

fn default_beta_fast() -> f64 {
    32.0
}

fn default_beta_slow() -> f64 {
    1.0
}

fn default_truncate() -> bool {
    true
}

impl RotaryScaling {
    /// What cosines and sines are multiplied by.
    pub fn attention_factor(&self) -> f64 {
        match *self {
            Self::Yarn {
                attention_factor: Some(given),
                ..
            } => given,
            Self::Yarn { factor, .. } if factor > 1.0 => 0.1 * factor.ln() + 1.0,
            _ => 1.0,
        }
    }

    /// Returns the frequencies, scaled, of the inverse frequencies `base^(-2i / rotated)`.
    fn apply(&self, frequencies: Vec<f64>, base: f64) -> Vec<f64> {
        let rotated = 2 * frequencies.len();
        match *self {
            Self::None => frequencies,
            Self::Linear { factor } => frequencies.into_iter().map(|frequency| frequency / factor).collect(),
            Self::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position,
            } => {
                let mix = |frequency: f64| {
                    let turns = original_max_position as f64 * frequency / TAU;
                    let high = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
                    mixed(frequency, factor, high.clamp(0.0, 1.0))
                };
                frequencies.into_iter().map(mix).collect()
            }
            Self::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original_max_position,
                truncate,
                ..
            } => {
                // The pair, a fraction of one as a rule, whose frequency makes these turns over the original length.
                let pair_of = |turns: f64| {
                    rotated as f64 * (original_max_position as f64 / (turns * TAU)).ln() / (2.0 * base.ln())
                };
                let (mut first, mut last) = (pair_of(beta_fast), pair_of(beta_slow));
                if truncate {
                    (first, last) = (first.floor(), last.ceil());
                }
                (first, last) = (first.max(0.0), last.min(rotated as f64 - 1.0));
                if first == last {
                    last += 0.001;
                }
                let mix = |(pair, frequency)| {
                    let low = (pair as f64 - first) / (last - first);
                    mixed(frequency, factor, 1.0 - low.clamp(0.0, 1.0))
                };
                frequencies.into_iter().enumerate().map(mix).collect()
            }
        }
    }
}

/// A frequency divided by the factor, and itself by a share of `high`.
fn mixed(frequency: f64, factor: f64, high: f64) -> f64 {
    (1.0 - high) * frequency / factor + high * frequency
}

/// Returns the angle for which each pair turns from one position to the next: `base^(-2i / rotated)`, scaled.
///
/// # Panics
/// When [`check`] refuses the arguments.
pub fn inverse_frequencies(rotated: usize, base: f64, scaling: &RotaryScaling) -> Vec<f64> {
    if let Err(error) = check(rotated, base, scaling) {
        panic!("{error}");
    }
    let frequency = |pair| base.powf(-((2 * pair) as f64) / rotated as f64);
    scaling.apply((0..rotated / 2).map(frequency).collect(), base)
}

/// Returns the cosines and the sines of positions from 0 on, in rows of `rotated / 2`.
///
/// # Panics
/// When [`check`] refuses the arguments.
pub fn tables(positions: usize, rotated: usize, base: f64, scaling: &RotaryScaling) -> (Vec<f64>, Vec<f64>) {
    let frequencies = inverse_frequencies(rotated, base, scaling);
    let factor = scaling.attention_factor();
    let angles = (0..positions).flat_map(|position| frequencies.iter().map(move |angle| position as f64 * angle));
    angles.map(|angle| (factor * angle.cos(), factor * angle.sin())).unzip()
}

/// Checks what tables are made of.
///
/// # Errors
/// When `rotated` is odd or 0, the base is not above 1, or a number of the scaling is out of its range.
pub fn check(rotated: usize, base: f64, scaling: &RotaryScaling) -> Result<(), KernelError> {
    let check = Check("rotary");
    let is_even = rotated > 0 && rotated.is_multiple_of(2);
    check.value("the rotated elements", rotated as f64, is_even, || {
        "even and not 0".to_owned()
    })?;
    check.value("the base", base, base > 1.0 && base.is_finite(), || {
        "above 1".to_owned()
    })?;
    let positive =
        |what, value: f64| check.value(what, value, value > 0.0 && value.is_finite(), || "above 0".to_owned());
    match *scaling {
        RotaryScaling::None => Ok(()),
        RotaryScaling::Linear { factor } => positive("the factor", factor),
        RotaryScaling::Llama3 {
            factor,
            low_freq_factor: low,
            high_freq_factor: high,
            original_max_position,
        } => {
            positive("the factor", factor)?;
            positive("original_max_position", original_max_position as f64)?;
            positive("low_freq_factor", low)?;
            check.value("high_freq_factor", high, high > low && high.is_finite(), || {
                format!("above low_freq_factor, {low}")
            })
        }
        RotaryScaling::Yarn {
            factor,
            beta_fast: fast,
            beta_slow: slow,
            original_max_position,
            attention_factor,
            ..
        } => {
            positive("the factor", factor)?;
            positive("original_max_position", original_max_position as f64)?;
            positive("beta_slow", slow)?;
            positive("attention_factor", attention_factor.unwrap_or(1.0))?;
            check.value("beta_fast", fast, fast > slow && fast.is_finite(), || {
                format!("above beta_slow, {slow}")
            })
        }
    }
}

#[cfg(test)]
mod tests;
