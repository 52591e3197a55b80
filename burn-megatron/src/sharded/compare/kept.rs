//! [`Kept`]: an array of the one-rank run in host memory, whole or as a sketch, and how far another is from it.

use burn::tensor::{DType, TensorData};

use crate::random::mix;

/// Random projections that a sketch has.
const PROJECTIONS: usize = 16;

/// An array that others are compared with.
pub(super) struct Kept {
    shape: Vec<usize>,
    dtype: DType,
    /// Of floats; the number of elements of anything else.
    norm: f64,
    form: Form,
}

enum Form {
    Whole(TensorData),
    Sketch(Sketch),
}

/// How far an array is from one that is kept.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Distance {
    /// The norm of the difference; of what is not float, the number of elements that differ.
    pub(super) difference: f64,
    /// What is most different, in words; empty if nothing is.
    pub(super) detail: String,
}

impl Kept {
    /// Keeps all of it.
    pub(super) fn whole(data: TensorData) -> Self {
        Self {
            norm: size(&data, &values(&data)),
            shape: data.shape().to_vec(),
            dtype: data.dtype(),
            form: Form::Whole(data),
        }
    }

    /// Keeps some random projections, of which the difference's norm can be estimated.
    pub(super) fn sketch(data: &TensorData) -> Self {
        let elements = values(data);
        Self {
            norm: size(data, &elements),
            shape: data.shape().to_vec(),
            dtype: data.dtype(),
            form: Form::Sketch(Sketch::new(&elements)),
        }
    }

    /// Bytes of host memory.
    pub(super) fn bytes(&self) -> usize {
        match &self.form {
            Form::Whole(data) => data.as_bytes().len(),
            Form::Sketch(_) => size_of::<Sketch>(),
        }
    }

    /// The norm of floats; the number of elements of anything else.
    pub(super) fn norm(&self) -> f64 {
        self.norm
    }

    pub(super) fn is_float(&self) -> bool {
        self.dtype.is_float()
    }

    /// How far `found` is away.
    ///
    /// # Errors
    /// What is wrong with its shape or type.
    pub(super) fn distance(&self, found: &TensorData) -> Result<Distance, String> {
        if found.shape().to_vec() != self.shape || found.dtype() != self.dtype {
            return Err(format!(
                "{:?} {:?} in place of {:?} {:?}",
                found.shape().to_vec(),
                found.dtype(),
                self.shape,
                self.dtype
            ));
        }
        let found = values(found);
        Ok(match &self.form {
            Form::Whole(data) if self.is_float() => between(&self.shape, &values(data), &found),
            Form::Whole(data) => differing(&self.shape, &values(data), &found),
            Form::Sketch(sketch) => sketch.distance(&Sketch::new(&found), self.is_float()),
        })
    }
}

fn values(data: &TensorData) -> Vec<f64> {
    data.iter::<f64>().collect()
}

fn size(data: &TensorData, values: &[f64]) -> f64 {
    if data.dtype().is_float() {
        norm(values.iter().copied())
    } else {
        values.len() as f64
    }
}

/// Without what is infinite or not a number: masks have such elements.
fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values
        .filter(|value| value.is_finite())
        .map(|value| value * value)
        .sum::<f64>()
        .sqrt()
}

/// The difference of two elements: none between equal infinities, or where both are not a number.
fn element_difference(expected: f64, found: f64) -> f64 {
    if expected == found || (expected.is_nan() && found.is_nan()) {
        0.0
    } else if expected.is_finite() && found.is_finite() {
        (found - expected).abs()
    } else {
        f64::INFINITY
    }
}

/// The distance of floats.
fn between(shape: &[usize], expected: &[f64], found: &[f64]) -> Distance {
    let (mut sum, mut worst) = (0.0, (0, 0.0));
    for (index, (&expected, &found)) in expected.iter().zip(found).enumerate() {
        let difference = element_difference(expected, found);
        sum += difference * difference;
        if difference > worst.1 {
            worst = (index, difference);
        }
    }
    let (index, largest) = worst;
    let mut detail = String::new();
    if largest > 0.0 {
        detail = format!(
            "most at {:?}: {:?} in place of {:?}",
            coordinates(shape, index),
            found[index],
            expected[index]
        );
        if let Some(factor) = factor(expected, found) {
            detail = format!("it is {factor:.6} times what is expected; {detail}");
        }
    }
    Distance {
        difference: sum.sqrt(),
        detail,
    }
}

/// What all elements are multiplied with, if that explains the difference.
fn factor(expected: &[f64], found: &[f64]) -> Option<f64> {
    let dot = |left: &[f64], right: &[f64]| left.iter().zip(right).map(|(left, right)| left * right).sum::<f64>();
    let factor = dot(expected, found) / dot(expected, expected);
    let rest = norm(
        expected
            .iter()
            .zip(found)
            .map(|(expected, found)| found - factor * expected),
    );
    (expected.len() > 1 && factor.is_finite() && rest <= 1e-6 * norm(found.iter().copied())).then_some(factor)
}

/// The number of elements that are not equal.
fn differing(shape: &[usize], expected: &[f64], found: &[f64]) -> Distance {
    let differs = |&index: &usize| expected[index] != found[index];
    let count = (0..expected.len()).filter(differs).count();
    let detail = (0..expected.len()).find(differs).map(|index| {
        format!(
            "{count} of {} elements differ, first at {:?}: {} in place of {}",
            expected.len(),
            coordinates(shape, index),
            found[index],
            expected[index]
        )
    });
    Distance {
        difference: count as f64,
        detail: detail.unwrap_or_default(),
    }
}

fn coordinates(shape: &[usize], index: usize) -> Vec<usize> {
    let mut rest = index;
    let mut coordinates: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&length| {
            let coordinate = rest % length;
            rest /= length;
            coordinate
        })
        .collect();
    coordinates.reverse();
    coordinates
}

/// Sums of the elements with random signs. The mean square of the sums of a difference is the square of its norm.
///
/// # Reference
/// Achlioptas 2003, "Database-friendly random projections", Journal of Computer and System Sciences 66.
struct Sketch {
    sums: [f64; PROJECTIONS],
    /// Elements that are not finite.
    not_finite: usize,
}

impl Sketch {
    fn new(values: &[f64]) -> Self {
        let mut sketch = Self {
            sums: [0.0; PROJECTIONS],
            not_finite: 0,
        };
        for (index, &value) in values.iter().enumerate() {
            if !value.is_finite() {
                sketch.not_finite += 1;
                continue;
            }
            let signs = mix((index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for (bit, sum) in sketch.sums.iter_mut().enumerate() {
                *sum += if signs >> bit & 1 == 0 { value } else { -value };
            }
        }
        sketch
    }

    fn distance(&self, found: &Self, is_float: bool) -> Distance {
        let squares = self
            .sums
            .iter()
            .zip(&found.sums)
            .map(|(ours, theirs)| (theirs - ours).powi(2));
        let estimate = (squares.sum::<f64>() / PROJECTIONS as f64).sqrt();
        let difference = match (self.not_finite == found.not_finite, is_float) {
            (false, _) => f64::INFINITY,
            (true, true) => estimate,
            // At least one.
            (true, false) => f64::from(u8::from(estimate > 0.0)),
        };
        Distance {
            difference,
            detail: if difference > 0.0 {
                "estimated: the array is larger than what is left of CompareConfig::trace_bytes".into()
            } else {
                String::new()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f64], shape: [usize; 2]) -> TensorData {
        TensorData::new(values.to_vec(), shape)
    }

    #[test]
    fn the_most_different_element_and_a_common_factor_are_named() {
        let kept = Kept::whole(floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]));
        let same = kept.distance(&floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])).unwrap();
        assert_eq!((same.difference, same.detail.as_str()), (0.0, ""));
        let one = kept.distance(&floats(&[1.0, 2.0, 3.0, 4.0, 5.5, 6.0], [2, 3])).unwrap();
        assert_eq!(one.difference, 0.5);
        assert_eq!(one.detail, "most at [1, 1]: 5.5 in place of 5.0");
        let half = kept.distance(&floats(&[0.5, 1.0, 1.5, 2.0, 2.5, 3.0], [2, 3])).unwrap();
        assert!(half.detail.starts_with("it is 0.500000 times"), "{}", half.detail);
        let error = kept.distance(&floats(&[1.0, 2.0], [1, 2])).unwrap_err();
        assert_eq!(error, "[1, 2] F64 in place of [2, 3] F64");
    }

    #[test]
    fn equal_infinities_are_no_difference() {
        let kept = Kept::whole(floats(&[f64::NEG_INFINITY, f64::NAN, 1.0, 2.0], [2, 2]));
        let masked = floats(&[f64::NEG_INFINITY, f64::NAN, 1.0, 2.0], [2, 2]);
        assert_eq!(kept.distance(&masked).unwrap().difference, 0.0);
        let broken = floats(&[f64::NEG_INFINITY, 0.0, 1.0, 2.0], [2, 2]);
        assert_eq!(kept.distance(&broken).unwrap().difference, f64::INFINITY);
    }

    #[test]
    fn a_sketch_estimates_the_norm_of_the_difference() {
        let values: Vec<f64> = (0..600).map(|index| (index as f64 * 0.7).sin()).collect();
        let changed: Vec<f64> = values
            .iter()
            .enumerate()
            .map(|(index, value)| value + (index as f64).cos())
            .collect();
        let [whole, sketch] = [
            Kept::whole(floats(&values, [20, 30])),
            Kept::sketch(&floats(&values, [20, 30])),
        ]
        .map(|kept| {
            assert_eq!(kept.distance(&floats(&values, [20, 30])).unwrap().difference, 0.0);
            kept.distance(&floats(&changed, [20, 30])).unwrap().difference
        });
        assert!(sketch > 0.5 * whole && sketch < 2.0 * whole, "{sketch} for {whole}");
        assert!(Kept::sketch(&floats(&values, [20, 30])).bytes() < 200);
    }

    #[test]
    fn integers_are_counted() {
        let kept = Kept::whole(TensorData::new(vec![1i64, 2, 3], [3]));
        let distance = kept.distance(&TensorData::new(vec![1i64, 7, 4], [3])).unwrap();
        assert_eq!(distance.difference, 2.0);
        assert_eq!(distance.detail, "2 of 3 elements differ, first at [1]: 7 in place of 2");
    }
}
