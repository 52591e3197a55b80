//! [`Spread`]: how many numbers are distributed, in a line.

/// Bars of the histogram.
const BINS: usize = 12;
/// From few to many.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Finite numbers, at least one.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    ascending: Vec<f64>,
}

impl Spread {
    pub(super) fn new(numbers: impl Iterator<Item = f64>) -> Self {
        let mut ascending: Vec<f64> = numbers.collect();
        ascending.sort_unstable_by(f64::total_cmp);
        Self { ascending }
    }

    /// Half of the numbers are larger; between the two in the middle of an even number.
    pub(super) fn median(&self) -> f64 {
        let middle = self.ascending.len() / 2;
        if self.ascending.len().is_multiple_of(2) {
            f64::midpoint(self.ascending[middle - 1], self.ascending[middle])
        } else {
            self.ascending[middle]
        }
    }

    /// Returns `1.0 to 2.0, median 1.2 |█▂         ▁|`: the bars are of equal width, from the smallest to the largest
    /// number; a space is a bar of none, and the highest has the most numbers.
    pub(super) fn text(&self, decimals: usize) -> String {
        let (first, last) = (self.ascending[0], self.ascending[self.ascending.len() - 1]);
        let mut counts = [0_usize; BINS];
        for number in &self.ascending {
            let share = (number - first) / (last - first);
            // All are equal: the share is not a number, which becomes 0.
            counts[((share * BINS as f64) as usize).min(BINS - 1)] += 1;
        }
        let most = counts.into_iter().max().unwrap_or(1);
        let bar = |count: usize| match count {
            0 => ' ',
            _ => BARS[(count * BARS.len()).div_ceil(most) - 1],
        };
        let bars: String = counts.into_iter().map(bar).collect();
        let median = self.median();
        format!("{first:.decimals$} to {last:.decimals$}, median {median:.decimals$} |{bars}|")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_counts() {
        let spread = Spread::new([1.0, 1.1, 1.2, 1.3, 13.0, 1.0, 1.0, 1.0].into_iter());
        assert_eq!(spread.text(1), "1.0 to 13.0, median 1.1 |█          ▂|");
        let ramp = Spread::new((1..=12).flat_map(|number| vec![f64::from(number); number as usize]));
        assert_eq!(ramp.text(0), "1 to 12, median 9 |▁▂▂▃▄▄▅▆▆▇██|");
        assert_eq!(
            Spread::new([2.0; 3].into_iter()).text(2),
            "2.00 to 2.00, median 2.00 |█           |"
        );
        assert_eq!(Spread::new([1.0, 4.0].into_iter()).median(), 2.5);
    }
}
