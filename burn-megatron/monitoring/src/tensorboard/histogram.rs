//! [`Histogram`]: how many values are in which range.

use super::wire;

/// Counts of values by range, and their sums.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    min: f64,
    max: f64,
    count: u64,
    sum: f64,
    sum_squares: f64,
    /// The upper end of each range, rising; the last is above all values.
    limits: Vec<f64>,
    counts: Vec<f64>,
}

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
        let mut histogram = Self {
            min,
            max,
            count: 0,
            sum: 0.0,
            sum_squares: 0.0,
            limits: (1..=ranges).map(limit).collect(),
            counts: vec![0.0; ranges],
        };
        for value in finite() {
            let range = histogram.limits.partition_point(|limit| *limit < value);
            histogram.counts[range.min(ranges - 1)] += 1.0;
            histogram.count += 1;
            histogram.sum += value;
            histogram.sum_squares += value * value;
        }
        Some(histogram)
    }

    /// Appends the fields of a `HistogramProto`.
    pub(super) fn encode(&self, buffer: &mut Vec<u8>) {
        wire::double(buffer, 1, self.min);
        wire::double(buffer, 2, self.max);
        wire::double(buffer, 3, self.count as f64);
        wire::double(buffer, 4, self.sum);
        wire::double(buffer, 5, self.sum_squares);
        wire::doubles(buffer, 6, &self.limits);
        wire::doubles(buffer, 7, &self.counts);
    }
}
