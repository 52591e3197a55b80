//! `Judge`: compares a rank's shards with the one-rank run, part by part.

use std::collections::HashSet;

use super::Tolerance;
use crate::parameters::{Placement, Run};

/// The difference of one part of a tensor: the whole shard, or its queries, keys or values.
#[derive(Clone, Debug, PartialEq)]
pub struct PartDifference {
    /// The parameter's global name, with the number of the part where there are several.
    pub name: String,
    /// Norm of the difference.
    pub difference: f64,
    /// Norm of the one-rank run's values.
    pub reference_norm: f64,
    /// The number of elements.
    pub len: usize,
}

/// Compares a rank's shard with the whole tensor of the one-rank run.
///
/// `reference` is in logical order, `local` in the order of the placement's local array. Padding is left out.
///
/// # Panics
/// When a length is not the placement's.
pub fn compare_shard(name: &str, reference: &[f64], local: &[f64], placement: &Placement) -> Vec<PartDifference> {
    assert_eq!(reference.len(), placement.logical_len(), "{name}: the reference");
    assert_eq!(local.len(), placement.local_len(), "{name}: the shard");
    let num_parts = placement.num_fused();
    let mut parts: Vec<PartDifference> = (0..num_parts)
        .map(|part| PartDifference {
            name: match num_parts {
                1 => name.to_owned(),
                _ => format!("{name}[{part}]"),
            },
            difference: 0.0,
            reference_norm: 0.0,
            len: 0,
        })
        .collect();
    for run in placement.runs() {
        for offset in 0..run.length {
            let Run { local: l, logical, .. } = run;
            let expected = reference[logical + offset];
            let part = &mut parts[placement.fused_part(logical + offset)];
            part.difference += (local[l + offset] - expected).powi(2);
            part.reference_norm += expected.powi(2);
            part.len += 1;
        }
    }
    for part in &mut parts {
        part.difference = part.difference.sqrt();
        part.reference_norm = part.reference_norm.sqrt();
    }
    parts.retain(|part| part.len > 0);
    parts
}

/// Judges differences step by step and remembers which parameters have no gradient to speak of.
///
/// A difference is accepted up to `tol · max(‖g‖, 1e-3 · G · √(n/N))`, with G the norm of the whole gradient, N the
/// number of parameters and n that of the part: a parameter without a true gradient, such as the bias of the keys,
/// which softmax ignores, has rounding only. Adam divides rounding by its own size, so in f32 such a parameter drifts
/// in its own direction in every run; its values are not judged.
#[derive(Clone, Debug)]
pub struct Judge {
    tolerance: Tolerance,
    num_parameters: usize,
    judges_noise: bool,
    with_gradient: HashSet<String>,
    failures: Vec<String>,
    worst_loss: f64,
    worst_gradient: f64,
    worst_parameter: f64,
}

impl Judge {
    /// Returns a judge of a model of `num_parameters` elements.
    ///
    /// `judges_noise` says whether parameters without a true gradient are judged too, as they can be in f64, where
    /// rounding is far below Adam's epsilon.
    pub fn new(tolerance: Tolerance, num_parameters: usize, judges_noise: bool) -> Self {
        Self {
            tolerance,
            num_parameters,
            judges_noise,
            with_gradient: HashSet::new(),
            failures: Vec::new(),
            worst_loss: 0.0,
            worst_gradient: 0.0,
            worst_parameter: 0.0,
        }
    }

    /// Judges a step's loss and gradient norm against the one-rank run's.
    pub fn scalars(&mut self, step: u64, loss: [f64; 2], gradient_norm: [f64; 2]) {
        let relative = |[value, reference]: [f64; 2]| ratio((value - reference).abs(), reference.abs());
        let difference = relative(loss);
        self.worst_loss = worse(self.worst_loss, difference);
        self.check(
            step,
            "loss",
            difference,
            self.tolerance.loss,
            format_args!("{} against {}", loss[0], loss[1]),
        );
        let difference = relative(gradient_norm);
        self.check(
            step,
            "gradient norm",
            difference,
            self.tolerance.gradient_norm,
            format_args!("{} against {}", gradient_norm[0], gradient_norm[1]),
        );
    }

    /// Judges a rank's gradient of one part in a step whose one-rank gradient norm is `global_norm`.
    pub fn gradient(&mut self, step: u64, part: &PartDifference, global_norm: f64) {
        let share = (part.len as f64 / self.num_parameters as f64).sqrt();
        let floor = 1e-3 * global_norm * share;
        if part.reference_norm > floor {
            self.with_gradient.insert(part.name.clone());
        }
        let difference = ratio(part.difference, part.reference_norm.max(floor));
        self.worst_gradient = worse(self.worst_gradient, difference);
        self.check(
            step,
            "gradient",
            difference,
            self.tolerance.gradient,
            format_args!("of {}", part.name),
        );
    }

    /// Judges a rank's values of one part after a step.
    pub fn parameter(&mut self, step: u64, part: &PartDifference) {
        if !self.judges_noise && !self.with_gradient.contains(&part.name) {
            return;
        }
        let difference = ratio(part.difference, part.reference_norm);
        self.worst_parameter = worse(self.worst_parameter, difference);
        self.check(
            step,
            "parameter",
            difference,
            self.tolerance.parameter,
            format_args!("{}", part.name),
        );
    }

    /// What broke parity, in the order in which it was seen.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// The largest relative difference of a loss.
    pub fn worst_loss(&self) -> f64 {
        self.worst_loss
    }

    /// The largest difference of a gradient, over its norm or the floor.
    pub fn worst_gradient(&self) -> f64 {
        self.worst_gradient
    }

    /// The largest difference of a judged parameter, over its norm.
    pub fn worst_parameter(&self) -> f64 {
        self.worst_parameter
    }

    fn check(&mut self, step: u64, what: &str, difference: f64, tolerance: f64, detail: std::fmt::Arguments<'_>) {
        if difference.is_nan() || difference > tolerance {
            self.failures.push(format!(
                "step {step}: {what} {detail} differs by {difference:.2e}, allowed {tolerance:.0e}"
            ));
        }
    }
}

/// The difference over the norm; a difference from nothing counts in full.
fn ratio(difference: f64, norm: f64) -> f64 {
    match (difference == 0.0, norm == 0.0) {
        (true, _) => 0.0,
        (false, true) => f64::INFINITY,
        (false, false) => difference / norm,
    }
}

/// The larger one, with NaN the largest.
fn worse(a: f64, b: f64) -> f64 {
    if b.is_nan() || b > a { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge() -> Judge {
        let tolerance = Tolerance::of(burn_backend::DType::F64);
        Judge::new(tolerance, 100, true)
    }

    #[test]
    fn a_shard_is_compared_with_its_own_part() {
        let reference: Vec<f64> = (0..12).map(f64::from).collect();
        let placement = Placement::shard(&[3, 4], 1, 1, 2);
        let parts = compare_shard("w", &reference, &[2.0, 3.0, 6.0, 7.0, 10.0, 11.5], &placement);
        assert_eq!(parts.len(), 1);
        assert_eq!((parts[0].difference, parts[0].len), (0.5, 6));
    }

    #[test]
    fn fused_parts_are_compared_apart() {
        let reference: Vec<f64> = (0..6).map(f64::from).collect();
        // [d_input 1, fused 3, width 2], keys wrong.
        let placement = Placement::whole([1, 3, 2]).with_fused_dimension(1);
        let parts = compare_shard("w", &reference, &[0.0, 1.0, 3.0, 2.0, 4.0, 5.0], &placement);
        let differences: Vec<f64> = parts.iter().map(|part| part.difference).collect();
        assert_eq!(differences, [0.0, 2.0f64.sqrt(), 0.0]);
        assert_eq!(parts[1].name, "w[1]");
    }

    #[test]
    fn what_is_not_a_number_breaks_parity() {
        let mut judge = judge();
        judge.scalars(3, [f64::NAN, 1.0], [1.0, 1.0]);
        assert_eq!(judge.failures().len(), 1);
        assert!(judge.failures()[0].starts_with("step 3: loss"));
        assert!(judge.worst_loss().is_nan());
    }

    #[test]
    fn a_loss_and_a_gradient_of_nothing_are_equal_to_nothing_alone() {
        let mut judge = judge();
        judge.scalars(1, [0.0, 0.0], [0.0, -0.0]);
        assert!(judge.failures().is_empty(), "{:?}", judge.failures());
        assert_eq!(judge.worst_loss(), 0.0);
        judge.scalars(2, [0.5, 0.0], [0.0, 0.0]);
        judge.scalars(3, [0.0, 0.5], [0.0, 0.0]);
        let failures = judge.failures();
        assert!(failures[0].starts_with("step 2: loss 0.5 against 0 differs by inf"));
        assert!(failures[1].starts_with("step 3: loss 0 against 0.5 differs by 1.00e0") && failures.len() == 2);
    }

    #[test]
    fn noise_is_measured_against_the_floor() {
        let part = |difference| PartDifference {
            name: "bias".into(),
            difference,
            reference_norm: 1e-17,
            len: 1,
        };
        let mut judge = judge();
        // The floor is 1e-3 * 1 * sqrt(1 / 100) = 1e-4.
        judge.gradient(1, &part(1e-15), 1.0);
        assert!(judge.failures().is_empty());
        judge.gradient(1, &part(1e-13), 1.0);
        assert_eq!(judge.failures().len(), 1);
    }
}
