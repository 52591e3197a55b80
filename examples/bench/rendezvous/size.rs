//! [`Size`]: the figures of a number of ranks, the table of all sizes, and the laws that the figures follow.

use crate::table::{Row, aligned, names};

/// Measurement of a number of ranks.
pub struct Size {
    pub ranks: usize,
    /// Sizes of the axes: `4×4×4`.
    pub axes: String,
    /// Medians over the jobs.
    pub row: Row,
    /// Reason why not everything was measured.
    pub error: Option<String>,
}

/// `factor * ranks ^ exponent`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    factor: f64,
    pub exponent: f64,
}

impl Law {
    /// Returns the law of a figure: least squares of the logarithms over the sizes that have it; `None` of fewer than
    /// two.
    pub fn of(sizes: &[Size], figure: &str) -> Option<Law> {
        let point = |size: &Size| {
            let value = size.row.value(figure);
            (value > 0.0).then(|| ((size.ranks as f64).ln(), value.ln()))
        };
        let points: Vec<(f64, f64)> = sizes.iter().filter_map(point).collect();
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let slope: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let exponent = slope / spread;
        (spread > 0.0).then(|| Law {
            factor: (y - exponent * x).exp(),
            exponent,
        })
    }

    /// Returns the value at a number of ranks.
    pub fn at(&self, ranks: usize) -> f64 {
        self.factor * (ranks as f64).powf(self.exponent)
    }
}

/// Returns one line for each figure, with a column for each size, the exponent of the law, and the law's value at the
/// largest size if that was not measured.
pub fn table(sizes: &[Size]) -> String {
    let largest = sizes.iter().map(|size| size.ranks).max().unwrap_or_default();
    let line = |name: &str, cell: &dyn Fn(&Size) -> String| -> Vec<String> {
        [name.to_owned()].into_iter().chain(sizes.iter().map(cell)).collect()
    };
    let mut lines = vec![
        line("ranks", &|size| size.ranks.to_string()),
        line("tp × pp × dp", &|size| size.axes.clone()),
    ];
    let mut notes = Vec::new();
    for figure in names(sizes.iter().map(|size| &size.row)) {
        let mut cells = line(&figure, &|size| size.row.written(&figure));
        if let Some(law) = Law::of(sizes, &figure) {
            cells.push(format!("N^{:.2}", law.exponent));
            let is_missing = |size: &Size| size.ranks == largest && size.row.value(&figure).is_nan();
            if sizes.iter().any(is_missing) {
                cells.extend(
                    sizes
                        .iter()
                        .find_map(|size| size.row.written_as(&figure, law.at(largest))),
                );
                notes = vec![format!("the last column: the law's value at {largest} ranks")];
            }
        }
        lines.push(cells);
    }
    let errors = sizes.iter().filter_map(|size| Some((size.ranks, size.error.as_ref()?)));
    notes.extend(errors.map(|(ranks, error)| format!("{ranks} ranks: {error}")));
    [vec![aligned(&lines)], notes].concat().join("\n")
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A size of which joining was measured, or failed.
    pub fn size(ranks: usize, join: Option<f64>) -> Size {
        Size {
            ranks,
            axes: String::new(),
            row: Row::default().seconds("join", join.unwrap_or(f64::NAN)),
            error: join.is_none().then(|| "out of descriptors".to_owned()),
        }
    }

    #[test]
    fn a_square_is_found_in_its_points() {
        let sizes = [16, 64, 256].map(|ranks| size(ranks, Some(3e-4 * (ranks * ranks) as f64)));
        let law = Law::of(&sizes, "join").unwrap();
        assert!((law.exponent - 2.0).abs() < 1e-9, "{law:?}");
        assert!((law.at(1000) - 300.0).abs() < 1e-6, "{law:?}");
        assert_eq!(Law::of(&sizes[..1], "join"), None);
        assert_eq!(Law::of(&sizes, "all groups"), None);
    }

    #[test]
    fn a_size_that_could_not_be_done_has_its_error_and_the_value_of_the_law() {
        let text = table(&[size(16, Some(0.016)), size(64, Some(0.256)), size(256, None)]);
        let join = text.lines().find(|line| line.starts_with("join")).unwrap();
        let columns: Vec<&str> = join.split_whitespace().collect();
        let expected = ["join", "16.0", "ms", "256.0", "ms", "-", "N^2.00", "4.096", "s"];
        assert_eq!(columns, expected);
        assert!(text.ends_with("256 ranks: out of descriptors"), "{text}");
    }
}
