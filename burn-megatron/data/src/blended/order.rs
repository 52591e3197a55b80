//! Which data set each sample of a blend is of.

use std::array;
use std::fmt::Write as _;
use std::ops::Range;

use crate::samples::{SampleError, at_least_one, fits_32_bits};

/// Most data sets of a blend.
pub const MAX_DATASETS: usize = 1 << 15;

/// Samples that are passed on at once.
const CHUNK: usize = 1 << 16;

/// What the order depends on.
#[derive(Debug)]
pub(super) struct Order {
    /// Add up to 1.
    weights: Vec<f64>,
    num_samples: usize,
    /// Of each data set; none above, if that is the size of the blend.
    limits: Option<Vec<u64>>,
}

impl Order {
    /// Returns the order of `num_samples` samples by normalised weights.
    pub(super) fn weighted(weights: Vec<f64>, num_samples: u64) -> Result<Self, SampleError> {
        Ok(Self {
            weights,
            num_samples: check_samples(num_samples)?,
            limits: None,
        })
    }

    /// Returns the order of all samples of data sets of these sizes.
    pub(super) fn everything(sizes: &[u64]) -> Result<Self, SampleError> {
        let total = sizes.iter().fold(0u64, |sum, &size| sum.saturating_add(size));
        let num_samples = check_samples(total)?;
        // Divided one by one: Megatron-LM adds these up as integers.
        let weights = sizes.iter().map(|&size| size as f64 / total as f64).collect();
        Ok(Self {
            weights,
            num_samples,
            limits: Some(sizes.to_vec()),
        })
    }

    pub(super) fn num_samples(&self) -> usize {
        self.num_samples
    }

    /// Returns everything that the order depends on, weights to the last bit, one a line.
    pub(super) fn description(&self, available: &[u64]) -> String {
        let mut text = String::from("order of the samples of a blend, version 1\n");
        let limits = if self.limits.is_some() {
            "everything"
        } else {
            "by weights"
        };
        writeln!(text, "samples: {}, {limits}", self.num_samples).expect("a string takes all");
        for (weight, available) in self.weights.iter().zip(available) {
            let bits = weight.to_bits();
            writeln!(text, "weight: {weight} ({bits:016x}), samples: {available}").expect("a string takes all");
        }
        text
    }

    /// Passes on the data set of every sample of the blend and which of its samples it is, in order.
    ///
    /// # Errors
    /// When the blend takes more samples of a data set than are `available`.
    pub(super) fn build(
        &self,
        available: &[u64],
        mut pass_on: impl FnMut(&[u16], &[u32]) -> Result<(), SampleError>,
    ) -> Result<(), SampleError> {
        let mut places: Vec<Place> = (0..).zip(&self.weights).map(Place::new).collect();
        let (mut datasets, mut samples) = (Vec::with_capacity(CHUNK), Vec::with_capacity(CHUNK));
        // All data sets of the blend that have samples left.
        if let Some(limits) = &self.limits {
            places.retain(|place| limits[usize::from(place.dataset)] > 0);
        }
        for start in (0..self.num_samples).step_by(CHUNK) {
            let range = start..self.num_samples.min(start + CHUNK);
            let is_done = self.limits.is_none() && fill_of_few(&mut places, range.clone(), &mut datasets, &mut samples);
            for i in if is_done { 0..0 } else { range } {
                let furthest = furthest(&places, i);
                let place = &mut places[furthest];
                datasets.push(place.dataset);
                samples.push(place.count as u32);
                place.count += 1.0;
                if let Some(limits) = &self.limits
                    && limits[usize::from(place.dataset)] == place.count as u64
                {
                    places.remove(furthest);
                }
            }
            pass_on(&datasets, &samples)?;
            datasets.clear();
            samples.clear();
        }
        for place in places {
            let dataset = usize::from(place.dataset);
            let (wanted, available) = (place.count as u64, available[dataset]);
            if wanted > available {
                return Err(SampleError::BlendTooLarge {
                    dataset,
                    wanted,
                    available,
                });
            }
        }
        Ok(())
    }
}

/// A data set, and how much of it is in the blend so far.
struct Place {
    weight: f64,
    /// An integer, of which every one up to 2^53 is exact.
    count: f64,
    dataset: u16,
}

impl Place {
    fn new((dataset, &weight): (u16, &f64)) -> Self {
        Self {
            weight,
            count: 0.0,
            dataset,
        }
    }
}

/// Does a range of samples of a blend of few data sets, whose counts then stay in registers; returns whether they
/// are few.
fn fill_of_few(places: &mut [Place], range: Range<usize>, datasets: &mut Vec<u16>, samples: &mut Vec<u32>) -> bool {
    let fill = match places.len() {
        2 => fill::<2>,
        3 => fill::<3>,
        4 => fill::<4>,
        5 => fill::<5>,
        6 => fill::<6>,
        7 => fill::<7>,
        8 => fill::<8>,
        _ => return false,
    };
    fill(places, range, datasets, samples);
    true
}

fn fill<const N: usize>(places: &mut [Place], range: Range<usize>, datasets: &mut Vec<u16>, samples: &mut Vec<u32>) {
    let weights: [f64; N] = array::from_fn(|k| places[k].weight);
    let mut counts: [f64; N] = array::from_fn(|k| places[k].count);
    let sources = range.map(|i| {
        let i = i.max(1) as f64;
        let missing: [f64; N] = array::from_fn(|k| weights[k] * i - counts[k]);
        let most = missing[1..]
            .iter()
            .fold(missing[0], |most, &next| if next > most { next } else { most });
        let (mut furthest, mut count) = (N, 0.0);
        for k in 0..N {
            let is_first = furthest == N && missing[k] == most;
            furthest = if is_first { k } else { furthest };
            count = if is_first { counts[k] } else { count };
            counts[k] += if is_first { 1.0 } else { 0.0 };
        }
        (furthest as u16, count as u32)
    });
    for (dataset, sample) in sources {
        datasets.push(dataset);
        samples.push(sample);
    }
    for (place, count) in places.iter_mut().zip(counts) {
        place.count = count;
    }
}

/// Returns the first of the places that are furthest below their shares of `i` samples.
fn furthest(places: &[Place], i: usize) -> usize {
    let i = i.max(1) as f64;
    let mut furthest = 0;
    let mut most = f64::NEG_INFINITY;
    for (number, place) in places.iter().enumerate() {
        let missing = place.weight * i - place.count;
        // Without a branch: which data set is next cannot be predicted.
        let is_further = missing > most;
        most = if is_further { missing } else { most };
        furthest = if is_further { number } else { furthest };
    }
    furthest
}

fn check_samples(num_samples: u64) -> Result<usize, SampleError> {
    const NAME: &str = "number of samples of a blend";
    at_least_one(NAME, num_samples)?;
    fits_32_bits(NAME, num_samples.into())
}
