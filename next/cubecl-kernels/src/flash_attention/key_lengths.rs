//! `KeyLengths`: how many keys each sample of a batch has, before its padding.

use std::ops::Range;
use std::sync::Arc;

use super::sizes::AttentionSizes;
use crate::error::{Check, KernelError};

/// How many keys each sample of a batch has. No query sees those after them: the padding of shorter samples.
///
/// They are on the host, as [`Documents`](super::Documents) are, and kernels work on blocks of keys before them alone.
/// A sample may have no keys; its queries then give 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyLengths {
    lengths: Arc<[usize]>,
}

impl KeyLengths {
    /// Returns the lengths of samples, in order.
    pub fn new(lengths: impl Into<Arc<[usize]>>) -> Self {
        Self {
            lengths: lengths.into(),
        }
    }

    /// Returns the lengths of some of the samples.
    ///
    /// # Panics
    /// When there are fewer samples.
    pub fn of_samples(&self, samples: Range<usize>) -> Self {
        Self::new(&self.lengths[samples])
    }

    /// The lengths of all samples.
    #[cfg(feature = "cuda")]
    pub(super) fn all(&self) -> &Arc<[usize]> {
        &self.lengths
    }

    pub(super) fn of(&self, sample: usize) -> usize {
        self.lengths[sample]
    }

    /// Checks that these are the lengths of an attention's samples.
    pub(super) fn check(&self, check: Check, sizes: AttentionSizes) -> Result<(), KernelError> {
        let AttentionSizes { batch, keys, .. } = sizes;
        let count = self.lengths.len();
        check.value("the number of lengths of keys", count as f64, count == batch, || {
            format!("that of the samples, {batch}")
        })?;
        for (sample, &length) in self.lengths.iter().enumerate() {
            check.value(
                format!("the length of the keys of sample {sample}"),
                length as f64,
                length <= keys,
                || format!("at most the number of keys, {keys}"),
            )?;
        }
        Ok(())
    }
}
