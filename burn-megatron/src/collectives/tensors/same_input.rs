//! Comparison of the input that the ranks of a group were given: tensor-parallel ranks share each layer, and samples of
//! equal shape that differ train on without an error.
//!
//! Layers show their input to [`show_input`] where it enters a tensor-parallel region. Whoever runs a forward pass
//! [watches](watch_input) the first input that is shown; otherwise nothing happens.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};

use burn::tensor::kind::Basic;
use burn::tensor::{DType, Tensor, TensorData};

use super::unwrap_or_unwind;
use crate::collectives::{CollectiveError, ProcessGroup};

/// Ranks that were given different inputs although they share each layer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "rank {other} was given another input than rank {first}, at {place} (group {group}): the ranks of this group share \
     each layer and must be given the same samples; choose them by the data-parallel rank, \
     ParallelContext::data_group().rank(), not by the rank in the world, and shuffle with the same seed on every rank"
)]
pub struct InputsDiffer {
    /// Where the difference was seen.
    pub place: String,
    /// The group's name.
    pub group: String,
    /// The rank compared with.
    pub first: usize,
    /// The first rank that differs from it.
    pub other: usize,
}

/// Inputs that differ, or that could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// They differ.
    #[error(transparent)]
    Differ(#[from] InputsDiffer),
    /// A collective failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}

/// Fate of the input that is shown on this thread.
enum Watch {
    /// Nothing.
    Off,
    /// The next one is compared.
    On,
    /// One was compared.
    Done(Option<InputsDiffer>),
}

thread_local! {
    static WATCH: RefCell<Watch> = const { RefCell::new(Watch::Off) };
}

/// Runs a forward pass and compares the first input that a layer [shows](show_input) in it; returns what `run` does,
/// and what is wrong with the input.
///
/// # Communication
/// As [`compare_input`], if an input is shown.
///
/// # Panics
/// When a collective fails, as it does in the pass.
pub(crate) fn watch_input<R>(run: impl FnOnce() -> R) -> (R, Option<InputsDiffer>) {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            WATCH.set(Watch::Off);
        }
    }
    WATCH.set(Watch::On);
    let _reset = Reset;
    let result = run();
    match WATCH.replace(Watch::Off) {
        Watch::Done(difference) => (result, difference),
        Watch::Off | Watch::On => (result, None),
    }
}

/// Shows an input that all ranks of the group must have been given, at a place in the model.
pub(crate) fn show_input<const D: usize, K: Basic>(
    place: impl FnOnce() -> String,
    input: &Tensor<D, K>,
    group: &ProcessGroup,
) {
    let is_on = WATCH.with_borrow(|watch| matches!(watch, Watch::On));
    if !is_on || group.size() == 1 {
        return;
    }
    let compared = match compare_input(&place(), input, group) {
        Ok(()) => None,
        Err(InputError::Differ(difference)) => Some(difference),
        Err(InputError::Collective(error)) => unwrap_or_unwind(Err(error)),
    };
    WATCH.set(Watch::Done(compared));
}

/// Compares a tensor that all ranks of the group must have been given.
///
/// The bits are compared; where those of floats differ, ranks may have rounded differently, as autotuned kernels do, so
/// then the values are compared as well.
///
/// # Communication
/// One all-gather of 16 bytes; for floats whose bits differ, a broadcast of the values as f32 and another all-gather.
///
/// # Errors
/// [`InputError::Differ`] on every rank of the group; when a collective fails.
pub(crate) fn compare_input<const D: usize, K: Basic>(
    place: &str,
    input: &Tensor<D, K>,
    group: &ProcessGroup,
) -> Result<(), InputError> {
    if group.size() == 1 {
        return Ok(());
    }
    let group = &group.labelled("comparing the input of the ranks");
    let data = input.clone().into_data();
    let mut hasher = DefaultHasher::new();
    data.shape().to_vec().hash(&mut hasher);
    hasher.write(data.as_bytes());
    let digests = gathered(&[hasher.finish() as i64, data.num_elements() as i64], group)?;
    let Some(other) = digests.iter().position(|digest| *digest != digests[0]) else {
        return Ok(());
    };
    let lengths_agree = digests.iter().all(|digest| digest[1] == digests[0][1]);
    let other = if data.dtype().is_float() && lengths_agree {
        compare_values(&data, group)?
    } else {
        Some(other)
    };
    match other {
        None => Ok(()),
        Some(other) => Err(difference(place, group, other).into()),
    }
}

/// Compares what every rank of the group knows as one number, such as the hash of a batch.
///
/// # Communication
/// One all-gather of 16 bytes.
///
/// # Errors
/// As [`compare_input`].
#[cfg(feature = "trainer")]
pub(crate) fn compare_hash(place: &str, hash: u64, group: &ProcessGroup) -> Result<(), InputError> {
    if group.size() == 1 {
        return Ok(());
    }
    let group = &group.labelled("comparing the input of the ranks");
    let digests = gathered(&[hash as i64, 0], group)?;
    match digests.iter().position(|digest| *digest != digests[0]) {
        None => Ok(()),
        Some(other) => Err(difference(place, group, other).into()),
    }
}

fn gathered(mine: &[i64; 2], group: &ProcessGroup) -> Result<Vec<[i64; 2]>, CollectiveError> {
    let mut all = vec![0; mine.len() * group.size()];
    group.all_gather(mine, &mut all)?;
    let (digests, _) = all.as_chunks::<2>();
    Ok(digests.to_vec())
}

/// Returns the first rank whose values differ from those of the group's first rank by more than rounding.
pub(crate) fn compare_values(data: &TensorData, group: &ProcessGroup) -> Result<Option<usize>, CollectiveError> {
    let values: Vec<f32> = data.iter::<f32>().collect();
    let mut reference = values.clone();
    group.broadcast(&mut reference, 0)?;
    let mut distances = vec![0.0; group.size()];
    group.all_gather(&[relative_distance(&values, &reference)], &mut distances)?;
    // Where a kernel of another process rounds differently, by a few of its last bits.
    let allowed = match data.dtype() {
        DType::F16 | DType::BF16 => 1e-2,
        _ => 1e-4,
    };
    let is_far = |distance: &f64| distance.is_nan() || *distance > allowed;
    Ok(distances.iter().position(is_far))
}

/// ‖values − reference‖ / ‖reference‖.
fn relative_distance(values: &[f32], reference: &[f32]) -> f64 {
    let square = |value: f64| value * value;
    let pairs = values.iter().zip(reference);
    let distance: f64 = pairs.map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let norm: f64 = reference.iter().map(|value| square(f64::from(*value))).sum();
    if distance == 0.0 { 0.0 } else { (distance / norm).sqrt() }
}

fn difference(place: &str, group: &ProcessGroup, other: usize) -> InputsDiffer {
    InputsDiffer {
        place: place.to_owned(),
        group: group.name().to_owned(),
        first: group.ranks()[0],
        other: group.ranks()[other],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_tell_rounding_from_other_values() {
        let values: Vec<f32> = (0..1000).map(|index| (index as f32 * 0.37).sin()).collect();
        let rounded: Vec<f32> = values.iter().map(|value| value * (1.0 + 1e-6)).collect();
        let mut one_sample = values.clone();
        one_sample[500..510].fill(0.5);
        assert_eq!(relative_distance(&values, &values), 0.0);
        assert!(relative_distance(&rounded, &values) < 1e-5);
        assert!(relative_distance(&one_sample, &values) > 1e-2);
        assert!(relative_distance(&[1.0], &[0.0]).is_infinite());
        assert!(relative_distance(&[f32::NAN], &[0.0]).is_nan());
    }
}
