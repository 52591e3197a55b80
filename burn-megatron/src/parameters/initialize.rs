//! `ParameterInit`: the values a parameter starts with, the same in every layout of ranks.

use std::ops::Range;

use burn::config::Config;

use super::Placement;
use crate::random::RandomStream;

/// How a parameter starts.
#[derive(Config, Debug, Copy, PartialEq)]
pub enum ParameterInit {
    /// All zero.
    Zeros,
    /// All one.
    Ones,
    /// Independent normal numbers around zero.
    Normal {
        /// Their standard deviation.
        deviation: f64,
    },
    /// Independent numbers spread evenly over `[-bound, bound)`.
    Uniform {
        /// The largest magnitude.
        bound: f64,
    },
}

impl ParameterInit {
    /// Returns the value of all of this rank's elements, padding included, if it is one.
    pub fn constant(&self, placement: &Placement) -> Option<f64> {
        match self {
            ParameterInit::Ones => (!placement.has_padding()).then_some(1.0),
            ParameterInit::Zeros => Some(0.0),
            ParameterInit::Normal { deviation: spread } | ParameterInit::Uniform { bound: spread } => {
                (*spread == 0.0).then_some(0.0)
            }
        }
    }

    /// Returns this rank's elements of the parameter `name`, row-major, padding zero.
    ///
    /// An element's value depends on the seed, the name and its index in the logical parameter, never on the layout.
    pub fn values(&self, seed: u64, name: &str, placement: &Placement) -> Vec<f64> {
        self.values_in(seed, name, placement, 0..placement.local_len())
    }

    /// Returns a range of [`values`](Self::values).
    pub(crate) fn values_in(&self, seed: u64, name: &str, placement: &Placement, range: Range<usize>) -> Vec<f64> {
        let mut values = vec![0.0; range.len()];
        let stream = RandomStream::new(seed, name);
        for run in placement.runs() {
            let (start, end) = (run.local.max(range.start), (run.local + run.length).min(range.end));
            if start >= end {
                continue;
            }
            let elements = &mut values[start - range.start..end - range.start];
            let logical = (run.logical + start - run.local) as u64;
            match self {
                ParameterInit::Zeros => {}
                ParameterInit::Ones => elements.fill(1.0),
                ParameterInit::Normal { deviation } => stream.fill_normal(logical, *deviation, elements),
                ParameterInit::Uniform { bound } => stream.fill_uniform(logical, *bound, elements),
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INITS: [ParameterInit; 2] = [
        ParameterInit::Normal { deviation: 0.02 },
        ParameterInit::Uniform { bound: 0.1 },
    ];

    #[test]
    fn shards_hold_the_numbers_of_the_whole() {
        let shape = [6, 3, 4, 5];
        for init in INITS {
            let whole = init.values(3, "c_attn.weight", &Placement::whole(shape));
            for (count, index) in [(2, 0), (2, 1), (4, 0), (4, 3)] {
                let placement = Placement::shard(&shape, 2, index, count);
                let shard = init.values(3, "c_attn.weight", &placement);
                for run in placement.runs() {
                    assert_eq!(
                        shard[run.local..run.local + run.length],
                        whole[run.logical..run.logical + run.length]
                    );
                }
            }
        }
    }

    #[test]
    fn ranges_hold_the_numbers_of_the_whole() {
        // Rows of 4 of a logical 6, and padding after the fifth.
        let placement = Placement::new([5, 6], [1, 2], [6, 4]);
        for init in INITS {
            let whole = init.values(3, "wte.weight", &placement);
            for range in [0..24, 0..1, 3..9, 5..6, 14..20, 17..24, 24..24] {
                let part = init.values_in(3, "wte.weight", &placement, range.clone());
                assert_eq!(part, whole[range.clone()], "{init:?}, {range:?}");
            }
        }
    }

    #[test]
    fn a_constant_is_the_value_of_all_elements() {
        let padded = Placement::new([5, 4], [0, 0], [8, 4]);
        let still = ParameterInit::Normal { deviation: 0.0 };
        for init in [ParameterInit::Zeros, ParameterInit::Ones, still, INITS[0], INITS[1]] {
            for placement in [&Placement::whole([5, 4]), &padded] {
                let values = init.values(3, "bias", placement);
                let constant = values.iter().all(|value| *value == values[0]).then_some(values[0]);
                assert_eq!(init.constant(placement), constant, "{init:?} of {placement:?}");
            }
        }
    }

    #[test]
    fn padding_starts_at_zero_and_moves_nothing() {
        let plain = INITS[0].values(3, "wte.weight", &Placement::whole([5, 4]));
        let padded = INITS[0].values(3, "wte.weight", &Placement::new([5, 4], [0, 0], [8, 4]));
        assert_eq!(padded[..20], plain);
        assert!(padded[20..].iter().all(|&v| v == 0.0));
    }
}
