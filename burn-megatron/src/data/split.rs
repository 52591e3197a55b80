//! Train and validation split by document.

use std::ops::Range;

use super::error::DataError;

/// How many parts of the documents go where; only the ratio of the two counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SplitWeights {
    /// Weight of the training documents.
    pub train: f64,
    /// Weight of the validation documents.
    pub validation: f64,
}

impl Default for SplitWeights {
    fn default() -> Self {
        Self {
            train: 0.95,
            validation: 0.05,
        }
    }
}

/// Which documents train and which validate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentSplit {
    /// Documents to train on.
    pub train: Range<usize>,
    /// Documents never trained on.
    pub validation: Range<usize>,
}

/// Splits `num_documents` documents: the first `round(a·n)` train, the others validate.
///
/// `a = train / (train + validation)`, and halves round to even. A document is never divided, so
/// no validation sample shares text with a training sample. Documents must not be sorted by
/// subject: [`Corpus`](super::Corpus) orders them by a hash, so both parts are a spread.
///
/// # Errors
/// A weight is not finite and positive, or either part would be empty.
///
/// # Reference
/// Megatron-LM's `--split`: sequences `arange(round(a·n), round(b·n))`.
pub fn split_documents(num_documents: usize, weights: &SplitWeights) -> Result<DocumentSplit, DataError> {
    let SplitWeights { train, validation } = *weights;
    let is_weight = |weight: f64| weight.is_finite() && weight > 0.0;
    if !is_weight(train) || !is_weight(validation) {
        return Err(DataError::SplitWeights { train, validation });
    }
    let fraction = train / (train + validation);
    let num_train = (fraction * num_documents as f64).round_ties_even() as usize;
    if num_train == 0 || num_train == num_documents {
        return Err(DataError::SplitTooSmall {
            num_documents,
            train,
            validation,
            num_train,
            num_validation: num_documents - num_train,
        });
    }
    Ok(DocumentSplit {
        train: 0..num_train,
        validation: num_train..num_documents,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn num_train(num_documents: usize, train: f64, validation: f64) -> usize {
        let weights = SplitWeights { train, validation };
        let split = split_documents(num_documents, &weights).unwrap();
        split.train.end
    }

    #[test]
    fn the_boundary_rounds_half_to_even() {
        assert_eq!(num_train(5, 0.5, 0.5), 2); // 2.5
        assert_eq!(num_train(7, 0.5, 0.5), 4); // 3.5
        assert_eq!(num_train(10, 0.75, 0.25), 8); // 7.5
    }

    #[test]
    fn only_the_ratio_of_the_weights_counts() {
        assert_eq!(num_train(1000, 95.0, 5.0), 950);
        assert_eq!(num_train(1000, 0.95, 0.05), 950);
    }

    #[test]
    fn an_empty_part_is_an_error_that_counts_the_documents() {
        for num_documents in [0, 1, 9] {
            let error = split_documents(num_documents, &SplitWeights::default()).unwrap_err();
            let message = error.to_string();
            assert!(message.starts_with(&format!("{num_documents} documents")), "{message}");
        }
        // 9.5 rounds to 10, the even neighbour: ten documents are not enough, eleven are.
        assert!(split_documents(10, &SplitWeights::default()).is_err());
        assert_eq!(num_train(11, 0.95, 0.05), 10);
    }

    #[test]
    fn weights_must_be_positive_and_finite() {
        for (train, validation) in [(0.0, 1.0), (1.0, -1.0), (f64::NAN, 1.0), (f64::INFINITY, 1.0)] {
            let weights = SplitWeights { train, validation };
            let result = split_documents(100, &weights);
            assert!(matches!(result, Err(DataError::SplitWeights { .. })));
        }
    }

    proptest! {
        #[test]
        fn every_document_is_in_one_part(n in 2usize..10_000, train in 0.01f64..100.0) {
            let weights = SplitWeights { train, validation: 1.0 };
            if let Ok(split) = split_documents(n, &weights) {
                prop_assert!(!split.train.is_empty() && !split.validation.is_empty());
                prop_assert_eq!(split.train.start, 0);
                prop_assert_eq!(split.train.end, split.validation.start);
                prop_assert_eq!(split.validation.end, n);
            }
        }
    }
}
