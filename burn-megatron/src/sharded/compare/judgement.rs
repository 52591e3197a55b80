//! [`Judgement`]: a run in a layout against the one-rank run, by losses, gradients and parameters.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::exchange::bits;
use crate::parameters::Placement;
use crate::parity::{Judge, Tolerance, compare_shard};

/// An array of a model, whole, by its name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Array {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<f64>,
}

/// What of a step is judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Step {
    /// Before the step's update.
    pub(super) parameters: Vec<Array>,
    pub(super) loss: f64,
    /// In the order of the model.
    pub(super) gradients: Vec<Array>,
}

/// What a run computed.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) steps: Vec<Step>,
    /// After the last step.
    pub(super) parameters: Vec<Array>,
}

/// How a run in a layout compares with the one-rank run. `Display` says it in a line, or more where parity is broken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The number of steps.
    pub num_steps: usize,
    /// The largest relative difference of a loss.
    #[serde(with = "bits")]
    pub worst_loss: f64,
    /// The largest difference of a gradient, over its norm or the floor: see [`Judge`].
    #[serde(with = "bits")]
    pub worst_gradient: f64,
    /// The largest difference of a parameter, over its norm.
    #[serde(with = "bits")]
    pub worst_parameter: f64,
    /// What broke parity, in the order in which it was seen.
    pub failures: Vec<String>,
    /// The step that was being judged at the first failure, from 1; the number of steps and one more if the parameters
    /// at the end are what differs.
    pub first_failing_step: Option<usize>,
}

/// Judges step by step.
pub(super) struct Bench {
    judge: Judge,
    tolerance: Tolerance,
    /// Failures that are not the judge's, and before how many of its own they were seen.
    others: Vec<(usize, String)>,
    num_steps: usize,
    first_failing_step: Option<usize>,
}

impl Bench {
    pub(super) fn new(tolerance: Tolerance, judges_noise: bool, reference: &Outcome) -> Self {
        let elements = reference.parameters.iter().map(|array| array.values.len()).sum();
        Self {
            judge: Judge::new(tolerance, elements, judges_noise),
            tolerance,
            others: Vec::new(),
            num_steps: 0,
            first_failing_step: None,
        }
    }

    pub(super) fn tolerance(&self) -> Tolerance {
        self.tolerance
    }

    /// Judges a step, and the parameters before it.
    pub(super) fn step(&mut self, reference: &Step, found: &Step) {
        self.num_steps += 1;
        let number = self.num_steps;
        if number == 1 {
            self.start(&reference.parameters, &found.parameters);
        } else {
            self.parameters(number as u64 - 1, &reference.parameters, &found.parameters);
        }
        let norms = [found, reference].map(|step| norm(&step.gradients));
        self.judge.scalars(number as u64, [found.loss, reference.loss], norms);
        let failures = pairs(&reference.gradients, &found.gradients, "gradient", |ours, theirs| {
            for part in compare_shard(
                &ours.name,
                &theirs.values,
                &ours.values,
                &Placement::whole(ours.shape.clone()),
            ) {
                self.judge.gradient(number as u64, &part, norms[1]);
            }
        });
        self.fail(number as u64, failures);
        self.see(number);
    }

    /// Judges the parameters after the last step.
    pub(super) fn end(&mut self, reference: &[Array], found: &[Array]) {
        self.parameters(self.num_steps as u64, reference, found);
        self.see(self.num_steps + 1);
    }

    /// Before the first step nothing has been added up in another order.
    fn start(&mut self, reference: &[Array], found: &[Array]) {
        let mut changed = Vec::new();
        let mut failures = pairs(reference, found, "parameter", |ours, theirs| {
            let difference = ours
                .values
                .iter()
                .zip(&theirs.values)
                .map(|(ours, theirs)| (ours - theirs).powi(2));
            let difference = difference.sum::<f64>().sqrt();
            let norm = theirs.values.iter().map(|value| value * value).sum::<f64>().sqrt();
            if difference.is_nan() || difference > self.tolerance.parameter * norm {
                changed.push(format!("parameter {} is not that of one rank at the start", ours.name));
            }
        });
        failures.extend(changed);
        self.fail(1, failures);
    }

    fn parameters(&mut self, step: u64, reference: &[Array], found: &[Array]) {
        let failures = pairs(reference, found, "parameter", |ours, theirs| {
            for part in compare_shard(
                &ours.name,
                &theirs.values,
                &ours.values,
                &Placement::whole(ours.shape.clone()),
            ) {
                self.judge.parameter(step, &part);
            }
        });
        self.fail(step, failures);
    }

    fn fail(&mut self, step: u64, failures: Vec<String>) {
        let before = self.judge.failures().len();
        let failures = failures
            .into_iter()
            .map(|failure| (before, format!("step {step}: {failure}")));
        self.others.extend(failures);
    }

    fn see(&mut self, step: usize) {
        if self.first_failing_step.is_none() && !(self.judge.failures().is_empty() && self.others.is_empty()) {
            self.first_failing_step = Some(step);
        }
    }

    pub(super) fn judgement(self) -> Judgement {
        let mut failures = Vec::new();
        let mut others = self.others.into_iter().peekable();
        for (index, failure) in self.judge.failures().iter().enumerate() {
            while let Some((_, other)) = others.next_if(|(before, _)| *before <= index) {
                failures.push(other);
            }
            failures.push(failure.clone());
        }
        failures.extend(others.map(|(_, other)| other));
        Judgement {
            num_steps: self.num_steps,
            worst_loss: self.judge.worst_loss(),
            worst_gradient: self.judge.worst_gradient(),
            worst_parameter: self.judge.worst_parameter(),
            failures,
            first_failing_step: self.first_failing_step,
        }
    }
}

fn norm(arrays: &[Array]) -> f64 {
    let squares = arrays.iter().flat_map(|array| &array.values).map(|value| value * value);
    squares.sum::<f64>().sqrt()
}

/// Calls `compare` with what was found and what is expected of each name; returns what has no counterpart.
fn pairs(reference: &[Array], found: &[Array], what: &str, mut compare: impl FnMut(&Array, &Array)) -> Vec<String> {
    let mut failures = Vec::new();
    let mut rest = found.iter().peekable();
    for expected in reference {
        match rest.next_if(|array| array.name == expected.name) {
            Some(array) if array.shape == expected.shape => compare(array, expected),
            Some(array) => failures.push(format!(
                "{what} {} has the shape {:?}, expected {:?}",
                array.name, array.shape, expected.shape
            )),
            None => failures.push(format!("{what} {} is missing", expected.name)),
        }
    }
    failures.extend(rest.map(|array| format!("{what} {} is not one of the one-rank run", array.name)));
    failures
}

impl Judgement {
    /// Whether the run computes what one rank does.
    pub fn is_equal(&self) -> bool {
        self.failures.is_empty()
    }

    /// Returns a tolerance of `factor` times the largest differences: of one rank in 16 bits from one rank in f32, for
    /// layouts in 16 bits. See [`CompareConfig::with_tolerance`](super::CompareConfig::with_tolerance).
    pub fn tolerance(&self, factor: f64) -> Tolerance {
        let [loss, gradient, parameter] =
            [self.worst_loss, self.worst_gradient, self.worst_parameter].map(|worst| factor * worst);
        Tolerance {
            loss,
            // The gradient's norm differs by no more than the gradient.
            gradient_norm: gradient,
            gradient,
            parameter,
        }
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            num_steps,
            worst_loss,
            worst_gradient,
            worst_parameter,
            failures,
            ..
        } = self;
        match failures.as_slice() {
            [] => write!(f, "as on one rank for {num_steps} steps")?,
            [first] => write!(f, "parity breaks: {first}")?,
            [first, rest @ ..] => write!(f, "parity breaks: {first} ({} more)", rest.len())?,
        }
        write!(
            f,
            "; largest differences: loss {worst_loss:.1e}, gradient {worst_gradient:.1e}, \
             parameter {worst_parameter:.1e}"
        )
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::DType;

    use super::*;

    fn array(name: &str, values: &[f64]) -> Array {
        Array {
            name: name.into(),
            shape: vec![values.len()],
            values: values.to_vec(),
        }
    }

    fn step(loss: f64, gradient: f64) -> Step {
        Step {
            parameters: vec![array("w", &[1.0, 2.0])],
            loss,
            gradients: vec![array("w", &[gradient, 1.0])],
        }
    }

    fn judged(found: &[Step], end: &[Array]) -> Judgement {
        let reference = Outcome {
            steps: vec![step(2.0, 0.5), step(1.5, 0.25)],
            parameters: vec![array("w", &[1.0, 2.0])],
        };
        let mut bench = Bench::new(Tolerance::of(DType::F64), true, &reference);
        for (reference, found) in reference.steps.iter().zip(found) {
            bench.step(reference, found);
        }
        bench.end(&reference.parameters, end);
        bench.judgement()
    }

    #[test]
    fn a_run_that_is_the_same_is_equal() {
        let judgement = judged(&[step(2.0, 0.5), step(1.5, 0.25)], &[array("w", &[1.0, 2.0])]);
        assert!(judgement.is_equal(), "{judgement}");
        assert_eq!((judgement.num_steps, judgement.first_failing_step), (2, None));
    }

    #[test]
    fn the_first_failing_step_is_that_of_the_first_difference() {
        let judgement = judged(&[step(2.0, 0.5), step(1.5, 0.5)], &[array("w", &[1.0, 2.0])]);
        assert_eq!(judgement.first_failing_step, Some(2));
        assert!(
            judgement.failures[1].starts_with("step 2: gradient of w differs"),
            "{judgement:?}"
        );
        let judgement = judged(&[step(2.0, 0.5), step(1.5, 0.25)], &[array("w", &[1.0, 2.5])]);
        assert_eq!(judgement.first_failing_step, Some(3));
        assert!(
            judgement
                .to_string()
                .starts_with("parity breaks: step 2: parameter w differs"),
            "{judgement}"
        );
    }

    #[test]
    fn what_has_no_counterpart_is_named() {
        let mut other = step(2.0, 0.5);
        other.gradients = vec![array("v", &[0.0])];
        other.parameters[0].values[0] = 7.0;
        let failures = judged(&[other, step(1.5, 0.25)], &[array("w", &[1.0])]).failures;
        for expected in [
            "step 1: parameter w is not that of one rank at the start",
            "step 1: gradient w is missing",
            "step 1: gradient v is not one of the one-rank run",
            "step 2: parameter w has the shape [1], expected [2]",
        ] {
            assert!(
                failures.iter().any(|failure| failure == expected),
                "{expected}: {failures:?}"
            );
        }
    }
}
