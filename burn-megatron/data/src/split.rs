//! Documents for training, validation and test.

use std::ops::Range;

use strum::IntoStaticStr;

use crate::samples::SampleError;
use crate::weights::normalized;

/// A part of a run's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Split {
    /// What the model learns from.
    #[strum(serialize = "training")]
    Train,
    /// What shows during training what it has learned.
    Validation,
    /// What shows it at the end.
    Test,
}

impl Split {
    /// All, in the order of `--split`.
    pub const ALL: [Self; 3] = [Self::Train, Self::Validation, Self::Test];

    /// Returns its name in messages.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Megatron-LM's `--split 969,30,1`: how many parts of the documents are for training, validation and test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SplitRatios {
    /// Where each part begins and ends, from 0 to 1.
    bounds: [[f64; 2]; 3],
}

impl SplitRatios {
    /// Reads one, two or three numbers, separated by commas; missing ones are 0.
    ///
    /// # Errors
    /// One is not a finite number of at least 0, there are more than three, or all are 0.
    pub fn parse(split: &str) -> Result<Self, SampleError> {
        let wrong = |token: &str, problem| SampleError::Split {
            split: split.to_owned(),
            token: token.to_owned(),
            problem,
        };
        let mut ratios = [0.0; 3];
        for (place, token) in split.split(',').enumerate() {
            let ratio = ratios
                .get_mut(place)
                .ok_or_else(|| wrong(token, "is one number too many"))?;
            let number: f64 = token.trim().parse().map_err(|_| wrong(token, "is not a number"))?;
            if !number.is_finite() || number < 0.0 {
                return Err(wrong(token, "is not a finite number of at least 0"));
            }
            *ratio = number;
        }
        if ratios == [0.0; 3] || !ratios.iter().sum::<f64>().is_finite() {
            return Err(wrong(split, "does not add up to a finite number above 0"));
        }
        let parts = normalized(&ratios);
        let mut end = 0.0;
        let bounds = [0, 1, 2].map(|part: usize| {
            let start = end;
            end += parts[part];
            [start, end]
        });
        Ok(Self { bounds })
    }

    /// Returns the part of `num_documents` documents that is for `split`: `round(a·n)..round(b·n)`, halves rounded to
    /// even. `None` if its ratio is 0.
    ///
    /// # Reference
    /// Megatron-LM's `--split`: sequences `arange(round(a·n), round(b·n))`.
    pub fn range(&self, split: Split, num_documents: usize) -> Option<Range<usize>> {
        let [start, end] = self.bounds[split as usize];
        let bound = |bound: f64| ((bound * num_documents as f64).round_ties_even() as usize).min(num_documents);
        (start < end).then(|| bound(start)..bound(end))
    }
}

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
/// subject: a corpus that orders them by a hash makes both parts a spread.
///
/// # Errors
/// A weight is not finite and positive, or either part would be empty.
///
/// # Reference
/// Megatron-LM's `--split`: sequences `arange(round(a·n), round(b·n))`.
pub fn split_documents(num_documents: usize, weights: &SplitWeights) -> Result<DocumentSplit, SampleError> {
    let SplitWeights { train, validation } = *weights;
    let is_weight = |weight: f64| weight.is_finite() && weight > 0.0;
    if !is_weight(train) || !is_weight(validation) {
        return Err(SampleError::SplitWeights { train, validation });
    }
    let fraction = train / (train + validation);
    let num_train = (fraction * num_documents as f64).round_ties_even() as usize;
    if num_train == 0 || num_train == num_documents {
        return Err(SampleError::SplitTooSmall {
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
            assert!(matches!(result, Err(SampleError::SplitWeights { .. })));
        }
    }

    fn ranges(split: &str, num_documents: usize) -> Vec<Option<Range<usize>>> {
        let ratios = SplitRatios::parse(split).unwrap();
        Split::ALL.map(|split| ratios.range(split, num_documents)).to_vec()
    }

    #[test]
    fn ratios_divide_documents_as_megatron_does() {
        assert_eq!(
            ranges("969,30,1", 1000),
            [Some(0..969), Some(969..999), Some(999..1000)]
        );
        assert_eq!(ranges("969, 30, 1", 10), [Some(0..10), Some(10..10), Some(10..10)]);
        assert_eq!(ranges("90,10", 25), [Some(0..22), Some(22..25), None]); // 22.5
        assert_eq!(ranges("1,0,1", 7), [Some(0..4), None, Some(4..7)]); // 3.5
        assert_eq!(ranges("100", 5), [Some(0..5), None, None]);
    }

    #[test]
    fn ratios_that_cannot_be_read_are_errors_that_name_them() {
        for (split, problem) in [
            ("9,x,1", "--split 9,x,1: \"x\" is not a number"),
            ("1,2,3,4", "\"4\" is one number too many"),
            ("1,-2", "\"-2\" is not a finite number of at least 0"),
            ("1,nan", "\"nan\" is not a finite number"),
            ("0,0", "does not add up"),
            ("1e308,1e308", "does not add up"),
            ("", "\"\" is not a number"),
        ] {
            let message = SplitRatios::parse(split).unwrap_err().to_string();
            assert!(message.contains(problem), "{message}");
        }
    }

    proptest! {
        #[test]
        fn ratios_leave_no_document_out(n in 0usize..10_000, parts in prop::array::uniform3(0u32..1000)) {
            prop_assume!(parts.iter().sum::<u32>() > 0);
            let split = format!("{},{},{}", parts[0], parts[1], parts[2]);
            let mut end = 0;
            for (range, part) in ranges(&split, n).into_iter().zip(parts) {
                prop_assert_eq!(range.is_some(), part > 0);
                if let Some(range) = range {
                    prop_assert_eq!(range.start, end);
                    end = range.end;
                }
            }
            prop_assert_eq!(end, n);
        }

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
