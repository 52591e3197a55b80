//! `EpochPlan`: how often documents are read for the samples that are wanted.

use super::GptDatasetConfig;
use crate::samples::{SampleError, at_least_one, fits_32_bits};

/// How often the documents are read, and which epochs are shuffled together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EpochPlan {
    pub(super) num_epochs: usize,
    /// Entries of the document index: documents of all epochs.
    pub(super) num_documents: usize,
    /// Samples to the end of the last epoch.
    pub(super) num_samples: usize,
    /// Samples before the last epoch, if it is shuffled alone.
    pub(super) samples_before_last: Option<usize>,
}

/// Plans the epochs for the samples that are wanted.
///
/// # Errors
/// When there is no sample, or more samples or documents than 32 bits count.
pub(super) fn plan_epochs(
    config: &GptDatasetConfig,
    tokens_per_epoch: u64,
    documents_per_epoch: usize,
) -> Result<EpochPlan, SampleError> {
    at_least_one("sequence length (--seq-length)", config.seq_length as u64)?;
    if let Some(wanted) = config.num_samples {
        at_least_one("number of samples", wanted)?;
    }
    at_least_one("number of tokens of the documents", tokens_per_epoch)?;

    // 128 bits, in which no product of two of these numbers is too large.
    let (seq_length, tokens_per_epoch) = (config.seq_length as u128, u128::from(tokens_per_epoch));
    // Neighbours share a token, so the last sample alone needs one more.
    let extra = u128::from(config.extra_token);
    let samples_in = |tokens: u128| (tokens - extra) / seq_length;
    let num_epochs = config.num_samples.map_or(1, |wanted| {
        let wanted_tokens = u128::from(wanted) * seq_length + extra;
        wanted_tokens.div_ceil(tokens_per_epoch)
    });
    let num_tokens = num_epochs * tokens_per_epoch - extra;
    let num_samples = if config.drop_last_partial {
        num_tokens / seq_length
    } else {
        num_tokens.div_ceil(seq_length)
    };
    if num_samples == 0 {
        let rule = format!("at least {}, which are one sample", seq_length + extra);
        let name = "number of tokens of the documents";
        return Err(SampleError::setting(name, rule, tokens_per_epoch));
    }
    let num_samples = fits_32_bits("number of samples", num_samples)?;
    let num_documents = num_epochs.saturating_mul(documents_per_epoch as u128);
    let num_documents = fits_32_bits("documents over all epochs", num_documents)?;
    let epochs_before_last = num_epochs - 1;
    let samples_before_last = config
        .num_samples
        .filter(|_| epochs_before_last > 0)
        .and_then(|wanted| {
            let before_last = samples_in(epochs_before_last * tokens_per_epoch);
            // Rounded down, as Megatron-LM does: it decides where 0.8 of the samples is no integer.
            let threshold = (0.8 * samples_in(tokens_per_epoch) as f64) as u128;
            (u128::from(wanted) - before_last < threshold).then_some(before_last as usize)
        });
    Ok(EpochPlan {
        num_epochs: num_epochs as usize,
        num_documents,
        num_samples,
        samples_before_last,
    })
}
