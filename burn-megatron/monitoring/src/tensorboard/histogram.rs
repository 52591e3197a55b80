//! [`Histogram`]: how many values are in which range.

use super::messages;

/// Counts of values by range, and their sums.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram(pub(super) messages::Histogram);

impl Histogram {
    /// Returns the histogram of some values in `ranges` ranges of one width between the least and the greatest; `None`
    /// if no value is finite. Those that are not finite are left out.
    pub fn of(values: &[f64], ranges: usize) -> Option<Self> {
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let (min, max) = finite().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| {
            (min.min(value), max.max(value))
        });
        if min > max {
            return None;
        }
        let ranges = ranges.max(1);
        // Halves first: the difference of two finite numbers may not be.
        let width = (max / 2.0 - min / 2.0) / ranges as f64 * 2.0;
        let limit = |number: usize| {
            if number == ranges {
                max
            } else {
                min + width * number as f64
            }
        };
        let written = |value: f64| (value.to_bits() != 0).then_some(value);
        let mut histogram = messages::Histogram {
            min: written(min),
            max: written(max),
            limits: (1..=ranges).map(limit).collect(),
            counts: vec![0.0; ranges],
            ..Default::default()
        };
        for value in finite() {
            let range = histogram.limits.partition_point(|limit| *limit < value);
            histogram.counts[range.min(ranges - 1)] += 1.0;
            histogram.num += 1.0;
            histogram.sum += value;
            histogram.sum_squares += value * value;
        }
        Some(Self(histogram))
    }
}
