//! `RandomStream`: normal and uniform numbers for initialisation, by the seed, a parameter's global name and an
//! element's logical index.

use std::f64::consts::TAU;

use sha2::{Digest, Sha256};

use super::philox::{key_words, philox4x32_10};

/// A stream of independent random numbers, addressable by index: normal ones or uniform ones.
#[derive(Clone, Copy, Debug)]
pub struct RandomStream {
    key: [u32; 2],
}

impl RandomStream {
    /// Returns the stream of the parameter `name` under `seed`.
    pub fn new(seed: u64, name: &str) -> Self {
        let digest = Sha256::new()
            .chain_update(seed.to_le_bytes())
            .chain_update(name.as_bytes())
            .finalize();
        let mut key = [0; 8];
        key.copy_from_slice(&digest[..8]);
        Self {
            key: key_words(u64::from_le_bytes(key)),
        }
    }

    /// The generator's key of this stream.
    pub(crate) fn key(&self) -> [u32; 2] {
        self.key
    }

    /// Writes the N(0, 1) numbers `first, first + 1, …`, times `deviation`, to `output`.
    ///
    /// Box–Muller in f64: one counter value gives two uniforms, hence the numbers `2k` and `2k + 1`.
    /// A ziggurat would draw a varying number of words, which no counter can address.
    pub fn fill_normal(&self, first: u64, deviation: f64, output: &mut [f64]) {
        self.fill(first, output, |[first, second]| {
            // 1 - u is in (0, 1], so its logarithm is finite.
            let radius = deviation * (-2.0 * (1.0 - first).ln()).sqrt();
            let (sine, cosine) = (TAU * second).sin_cos();
            [radius * cosine, radius * sine]
        });
    }

    /// Writes the numbers `first, first + 1, …` of U[-bound, bound) to `output`.
    pub fn fill_uniform(&self, first: u64, bound: f64, output: &mut [f64]) {
        self.fill(first, output, |pair| pair.map(|u| bound * (2.0 * u - 1.0)));
    }

    fn fill(&self, first: u64, output: &mut [f64], map: impl Fn([f64; 2]) -> [f64; 2]) {
        let mut index = first;
        let mut rest = output;
        while !rest.is_empty() {
            let pair = map(self.uniform_pair(index / 2));
            let lane = (index % 2) as usize;
            let count = (2 - lane).min(rest.len());
            let (head, tail) = rest.split_at_mut(count);
            head.copy_from_slice(&pair[lane..lane + count]);
            index += count as u64;
            rest = tail;
        }
    }

    /// Two numbers of U[0, 1), 53 bits each.
    fn uniform_pair(&self, block: u64) -> [f64; 2] {
        const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
        let words = philox4x32_10([block as u32, (block >> 32) as u32, 0, 0], self.key);
        let unit = |low: u32, high: u32| ((u64::from(low) | u64::from(high) << 32) >> 11) as f64 * SCALE;
        [unit(words[0], words[1]), unit(words[2], words[3])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_do_not_depend_on_where_filling_starts() {
        let stream = RandomStream::new(7, "h.0.attn.c_attn.weight");
        let mut whole = [0.0; 120];
        stream.fill_normal(0, 0.5, &mut whole);
        for first in [0, 1, 6, 101] {
            let mut part = [0.0; 9];
            stream.fill_normal(first as u64, 0.5, &mut part);
            assert_eq!(part, whole[first..first + 9]);
        }
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let n = 200_000;
        let moment = |values: &[f64], k: i32| values.iter().map(|v| v.powi(k)).sum::<f64>() / n as f64;
        // Each bound is five standard errors of the sample moment.
        let within =
            |value: f64, expected: f64, variance: f64| (value - expected).abs() < 5.0 * (variance / n as f64).sqrt();
        let mut values = vec![0.0; n];
        let stream = RandomStream::new(1, "w");
        stream.fill_normal(0, 1.0, &mut values);
        assert!(within(moment(&values, 1), 0.0, 1.0));
        assert!(within(moment(&values, 2), 1.0, 2.0));
        assert!(within(moment(&values, 4), 3.0, 96.0));
        stream.fill_uniform(0, 1.0, &mut values);
        assert!(within(moment(&values, 1), 0.0, 1.0 / 3.0));
        assert!(within(moment(&values, 2), 1.0 / 3.0, 4.0 / 45.0));
    }

    #[test]
    fn streams_differ_by_seed_and_by_name() {
        let first = |seed, name| {
            let mut value = [0.0];
            RandomStream::new(seed, name).fill_normal(0, 1.0, &mut value);
            value[0]
        };
        assert_ne!(first(1, "a"), first(2, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
    }
}
