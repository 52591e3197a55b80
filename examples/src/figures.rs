//! Figures as programs print them: medians, percentiles, sizes.

/// Returns the median, the mean of the middle two of an even number of values; NaN of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) && middle > 0 {
        (values[middle - 1] + values[middle]) / 2.0
    } else {
        values.get(middle).copied().unwrap_or(f64::NAN)
    }
}

/// Returns the value that this part of all values does not exceed; NaN of none.
pub fn percentile(values: &[f64], part: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let place = (part * values.len() as f64).ceil() as usize;
    values.get(place.max(1) - 1).copied().unwrap_or(f64::NAN)
}

/// Returns a number of bytes with a unit that leaves it readable: `512 B`, `1.5 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut size = count as f64 / 1024.0;
    let mut unit = 0;
    // What rounds to 1024.0 is one of the next.
    while size >= 1023.95 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_of_values_is_between_the_middle_two() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 8.0]), 3.0);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(
            [0.0, 0.5, 0.51, 1.0].map(|part| percentile(&values, part)),
            [1.0, 2.0, 3.0, 4.0]
        );
        assert!(percentile(&[], 0.5).is_nan());
    }

    #[test]
    fn bytes_have_readable_units() {
        for (count, text) in [
            (0, "0 B"),
            (17, "17 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (3 << 29, "1.5 GiB"),
            (3 << 30, "3.0 GiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }
}
