//! What numpy's legacy `RandomState` draws, next to its shuffle.

use crate::mt19937::Mt19937;

/// Draws of a numpy `RandomState`.
#[derive(Debug, Clone)]
pub(crate) struct RandomState(Mt19937);

impl RandomState {
    /// Returns `RandomState(seed)`.
    pub(crate) fn new(seed: u32) -> Self {
        Self(Mt19937::new(seed))
    }

    /// Returns `random()`: a number from 0 up to 1, without it, of 53 bits.
    pub(crate) fn random(&mut self) -> f64 {
        let high = f64::from(self.0.next_u32() >> 5);
        let low = f64::from(self.0.next_u32() >> 6);
        (high * 67_108_864.0 + low) / 9_007_199_254_740_992.0
    }

    /// Returns `randint(0, largest + 1)`, which draws nothing where there is no choice.
    pub(crate) fn up_to(&mut self, largest: u32) -> u32 {
        if largest == 0 {
            return 0;
        }
        let mask = u32::MAX >> largest.leading_zeros();
        loop {
            let value = self.0.next_u32() & mask;
            if value <= largest {
                return value;
            }
        }
    }

    /// Returns `choice(n, p)` by the sums of `p` up to each place, divided by the last of them.
    pub(crate) fn choice(&mut self, sums: &[f64]) -> usize {
        let drawn = self.random();
        sums.partition_point(|&sum| sum <= drawn)
    }

    /// Returns `geometric(probability)` for a probability below a third.
    pub(crate) fn geometric(&mut self, probability: f64) -> f64 {
        ((-self.random()).ln_1p() / (1.0 - probability).ln()).ceil()
    }

    /// Shuffles values as `shuffle` does.
    pub(crate) fn shuffle<T: Copy>(&mut self, values: &mut [T]) {
        self.0.shuffle(values);
    }
}

/// Returns what [`RandomState::choice`] takes of probabilities.
pub(crate) fn cumulative(probabilities: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    let add = |probability: &f64| {
        sum += probability;
        sum
    };
    let sums: Vec<f64> = probabilities.iter().map(add).collect();
    let last = sums.last().copied().unwrap_or(1.0);
    sums.iter().map(|sum| sum / last).collect()
}
