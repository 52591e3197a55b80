//! [`Difference`]: how far a run is from its record.

use std::collections::BTreeMap;

use crate::record::{Record, Summary, norm};

/// Largest relative differences that rounding explains, by element type: of losses, of gradient norms, of gradients
/// and parameters. Those of f64 and f32 are the tolerances between layouts; of bf16, whose epsilon is 8e-3, a few
/// roundings.
const LIMITS: [(&str, [f64; 3]); 3] = [
    ("f64", [1e-12, 1e-10, 1e-10]),
    ("f32", [2e-6, 1e-4, 1e-3]),
    ("bf16", [1e-2, 3e-2, 1e-1]),
];

/// Distance of a run from its record.
#[derive(Debug, Default, PartialEq)]
pub struct Difference {
    /// Tensors with other bits.
    pub other_bits: usize,
    /// Largest relative difference of a loss.
    pub loss: f64,
    /// Largest relative difference of a gradient norm.
    pub gradient_norm: f64,
    /// Largest difference of a tensor's values over its norm, or a thousandth of all its kind's for a small one.
    pub tensor: f64,
    /// Where that is.
    pub worst: String,
}

impl Difference {
    /// Compares a run with its record.
    ///
    /// # Errors
    /// A message when they do not have the same steps and tensors.
    pub fn between(recorded: &Record, now: &Record) -> Result<Self, String> {
        let counts = |record: &Record| (record.losses.len(), record.gradient_norms.len());
        if counts(recorded) != counts(now) {
            return Err(format!("{:?} steps, recorded {:?}", counts(now), counts(recorded)));
        }
        let mut difference = Self::default();
        for (old, new) in recorded.losses.iter().zip(&now.losses) {
            difference.loss = larger(difference.loss, (old - new).abs() / old.abs());
        }
        if let Some(name) = missing(recorded, now).or_else(|| missing(now, recorded)) {
            return Err(format!("{name} is in one of them only"));
        }
        let floors = floors(recorded);
        for (name, old) in &recorded.tensors {
            let new = &now.tensors[name];
            if old.length != new.length {
                return Err(format!("{name} has {} elements, recorded {}", new.length, old.length));
            }
            difference.other_bits += usize::from(old.hash != new.hash);
            difference.note(distance(old, new, floors[file(name)]), name);
        }
        for (old, new) in recorded.gradient_norms.iter().zip(&now.gradient_norms) {
            difference.gradient_norm = larger(difference.gradient_norm, (old - new).abs() / old.abs());
        }
        Ok(difference)
    }

    /// Keeps the largest; one that is no number stays.
    fn note(&mut self, distance: f64, name: &str) {
        if distance.is_nan() || distance > self.tensor {
            self.tensor = distance;
            name.clone_into(&mut self.worst);
        }
    }

    /// Returns whether rounding explains it in an element type.
    pub fn is_rounding(&self, dtype: &str) -> bool {
        let limit = LIMITS.iter().find(|limit| limit.0 == dtype);
        let (_, limits) = limit.expect("limits for each type");
        let differences = [self.loss, self.gradient_norm, self.tensor];
        differences
            .iter()
            .zip(limits)
            .all(|(difference, limit)| difference <= limit)
    }
}

/// Returns the first tensor of one that the other does not have.
fn missing<'a>(one: &'a Record, other: &Record) -> Option<&'a str> {
    one.tensors
        .keys()
        .find(|name| !other.tensors.contains_key(*name))
        .map(String::as_str)
}

/// Returns the file that a tensor was in: its rank, kind and step.
fn file(tensor: &str) -> &str {
    tensor.rsplit_once(' ').map_or(tensor, |(file, _)| file)
}

/// Returns by file the root mean square that a tensor counts with at least: a thousandth of that of all of the file.
fn floors(record: &Record) -> BTreeMap<&str, f64> {
    let mut sums: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    for (name, summary) in &record.tensors {
        let (squares, length) = sums.entry(file(name)).or_default();
        *squares += summary.norm * summary.norm;
        *length += summary.length;
    }
    let floor = |(squares, length): (f64, usize)| 1e-3 * (squares / length as f64).sqrt();
    sums.into_iter().map(|(file, sum)| (file, floor(sum))).collect()
}

/// Returns the root mean square of the differences of the kept values, or the difference of the norms, over the
/// tensor's root mean square.
fn distance(old: &Summary, new: &Summary, floor: f64) -> f64 {
    let root = |length: usize| (length as f64).sqrt();
    let size = (old.norm / root(old.length)).max(floor);
    let values = norm(old.values.iter().zip(&new.values).map(|(old, new)| old - new)) / root(old.values.len());
    let norms = (old.norm - new.norm).abs() / root(old.length);
    if values == 0.0 && norms == 0.0 {
        0.0
    } else {
        larger(values, norms) / size
    }
}

/// Returns the larger of two, or NaN of one.
fn larger(one: f64, other: f64) -> f64 {
    if one.is_nan() || other.is_nan() {
        f64::NAN
    } else {
        one.max(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(loss: f64, values: [f64; 2], hash: &str) -> Record {
        let summary = Summary {
            hash: hash.to_owned(),
            norm: norm(values.into_iter()),
            length: 2,
            values: values.to_vec(),
        };
        Record {
            run: "run".to_owned(),
            losses: vec![loss],
            gradient_norms: vec![1.0],
            tensors: BTreeMap::from([("gradients-rank-0 step 1 w".to_owned(), summary)]),
        }
    }

    #[test]
    fn equal_runs_do_not_differ() {
        let difference = Difference::between(&record(2.0, [3.0, 4.0], "a"), &record(2.0, [3.0, 4.0], "a"));
        assert_eq!(difference, Ok(Difference::default()));
    }

    #[test]
    fn finds_other_values_bits_and_losses() {
        let difference = Difference::between(&record(2.0, [3.0, 4.0], "a"), &record(2.1, [3.0, 4.1], "b")).unwrap();
        assert_eq!(
            (difference.other_bits, difference.worst.as_str()),
            (1, "gradients-rank-0 step 1 w")
        );
        assert!(
            (difference.loss - 0.05).abs() < 1e-12 && (difference.tensor - 0.02).abs() < 1e-3,
            "{difference:?}"
        );
        assert!(!difference.is_rounding("f32") && !difference.is_rounding("f64"));
    }

    #[test]
    fn what_is_no_number_is_no_rounding() {
        let difference =
            Difference::between(&record(2.0, [3.0, 4.0], "a"), &record(2.0, [3.0, f64::NAN], "b")).unwrap();
        assert!(!difference.is_rounding("bf16"), "{difference:?}");
        let difference =
            Difference::between(&record(2.0, [3.0, 4.0], "a"), &record(f64::NAN, [3.0, 4.0], "a")).unwrap();
        assert!(!difference.is_rounding("bf16"), "{difference:?}");
    }

    #[test]
    fn finds_another_gradient_norm() {
        let mut other = record(2.0, [3.0, 4.0], "a");
        other.gradient_norms = vec![1.0 + 2e-4];
        let difference = Difference::between(&record(2.0, [3.0, 4.0], "a"), &other).unwrap();
        assert!(
            !difference.is_rounding("f32") && difference.is_rounding("bf16"),
            "{difference:?}"
        );
    }

    #[test]
    fn a_missing_tensor_is_an_error() {
        let mut other = record(2.0, [3.0, 4.0], "a");
        other.tensors.clear();
        let error = Difference::between(&record(2.0, [3.0, 4.0], "a"), &other).unwrap_err();
        assert!(error.contains("in one of them only"), "{error}");
    }
}
