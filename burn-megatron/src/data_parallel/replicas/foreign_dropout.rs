//! burn's own `Dropout` in a module, and what else computes in training what it does not in evaluation: where it is
//! refused, and how it is found.

use crate::context::ParallelContext;
use crate::data_parallel::error::DataParallelError;

/// Refuses a module that shows burn's `Dropout` when printed, the only place where it can be seen from outside.
pub(in crate::data_parallel) fn refuse_foreign_dropout<M: std::fmt::Debug>(
    module: &M,
    context: &ParallelContext,
) -> Result<(), DataParallelError> {
    let tensor = context.tensor_group().size();
    if tensor == 1 {
        return Ok(());
    }
    if has_foreign_dropout(module) {
        Err(DataParallelError::ForeignDropout { tensor })
    } else {
        Ok(())
    }
}

/// Returns whether a module shows burn's own `Dropout`, active, when printed.
pub(crate) fn has_foreign_dropout<M: std::fmt::Debug>(module: &M) -> bool {
    shows_active_dropout(&format!("{module:?}"))
}

/// Returns whether a module shows parts of burn's that compute something else in training than in evaluation.
#[cfg(feature = "trainer")]
pub(crate) fn differs_in_training<M: std::fmt::Debug>(module: &M) -> bool {
    let printed = format!("{module:?}");
    shows_active_dropout(&printed)
        || ["BatchNorm {", "GaussianNoise {"]
            .iter()
            .any(|name| printed.contains(name))
}

/// Returns whether a printed module has a `Dropout { prob: p, .. }` with p above zero; `AlphaDropout` is another type.
fn shows_active_dropout(printed: &str) -> bool {
    const NAME: &str = "Dropout { prob: ";
    printed.match_indices(NAME).any(|(at, _)| {
        let continues_a_name = printed[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let probability = printed[at + NAME.len()..].split([',', ' ', '}']).next();
        !continues_a_name && probability != Some("0.0")
    })
}

#[cfg(test)]
mod tests {
    use burn::nn::DropoutConfig;

    use super::*;

    #[cfg(feature = "trainer")]
    #[test]
    fn batch_norm_and_noise_are_seen() {
        use burn::nn::{BatchNormConfig, GaussianNoiseConfig, LinearConfig};
        use burn::tensor::Device;

        let norm = BatchNormConfig::new(2).init(&Device::flex());
        assert!(differs_in_training(&norm));
        assert!(differs_in_training(&GaussianNoiseConfig::new(0.1).init()));
        let layer = LinearConfig::new(2, 2).init(&Device::flex());
        assert!(!differs_in_training(&layer));
    }

    #[test]
    fn burns_dropout_is_seen_by_its_name_and_probability() {
        let net = |probability| format!("Net {{ drop: {:?} }}", DropoutConfig::new(probability).init());
        assert!(shows_active_dropout(&net(0.1)));
        assert!(shows_active_dropout(&net(0.05)));
        assert!(!shows_active_dropout(&net(0.0)));
        assert!(!shows_active_dropout(&net(0.1).replace("Dropout", "AlphaDropout")));
        assert!(!shows_active_dropout(
            "Net { drop: Dropout { probability: 0.1, layer: 0 } }"
        ));
    }
}
