//! [`Check`]: the operations of a run in a layout, each compared with that of the same number in the one-rank run.

use std::collections::HashMap;
use std::rc::Rc;

use burn::tensor::TensorData;

use super::difference::{FirstDifference, OperandState, What};
use super::recording::{Event, Recording};
use super::seen::Seen;

/// How much farther from the reference than its operands, each by its norm, a result may be: divisions by small numbers
/// let rounding grow.
const GROWTH: f64 = 100.0;
/// The same for the difference of a result over its largest operand's norm: terms that cancel leave their rounding.
const CANCELLATION: f64 = 10.0;
/// The part of the largest operand's norm that a result is measured against where it is smaller: see
/// [`Judge`](crate::parity::Judge).
const FLOOR: f64 = 1e-3;

/// A run that is compared.
pub(super) struct Check {
    reference: Rc<Recording>,
    tolerance: f64,
    next: usize,
    /// By the number of a tensor, that of the tensor of the reference with which it was compared.
    counterparts: HashMap<u64, u64>,
    /// By the number of a tensor of the reference, the relative difference.
    relative: HashMap<u64, f64>,
    /// By the number of a tensor of the reference whose norm is 0, what its difference is relative to.
    scales: HashMap<u64, f64>,
    first: Option<FirstDifference>,
    /// The first that is far away, if its operands explain it.
    first_explained: Option<FirstDifference>,
    /// Whether the programs have gone apart.
    is_lost: bool,
}

/// The outcome of one comparison.
struct Outcome {
    relative: f64,
    is_beyond: bool,
    is_explained: bool,
    difference: f64,
    detail: String,
}

impl Check {
    pub(super) fn new(reference: Rc<Recording>, tolerance: f64) -> Self {
        Self {
            reference,
            tolerance,
            next: 0,
            counterparts: HashMap::new(),
            relative: HashMap::new(),
            scales: HashMap::new(),
            first: None,
            first_explained: None,
            is_lost: false,
        }
    }

    /// Whether an operand of the next operation has not been compared with the one-rank run's.
    pub(super) fn lacks(&self, id: u64, position: usize) -> bool {
        let known = self.counterparts.get(&id);
        let operation = self.reference.operations.get(self.next).filter(|_| !self.is_lost);
        match operation.and_then(|operation| operation.operands.get(position)) {
            Some(expected) => known != Some(expected),
            None => known.is_none(),
        }
    }

    pub(super) fn add(&mut self, event: Event, operands: Vec<Seen>, results: Vec<Seen>) {
        let number = self.next;
        self.next += 1;
        let reference = self.reference.clone();
        let expected = reference.operations.get(number).filter(|_| !self.is_lost);
        let fits = expected.is_some_and(|expected| {
            let counts = (expected.operands.len(), expected.results.len());
            expected.name == event.operation && counts == (operands.len(), results.len())
        });
        let Some(expected) = expected.filter(|_| fits) else {
            self.lose(&event, number, &operands, &results);
            return;
        };
        // Which operands are read, together with the other ranks, does not depend on what this rank has found.
        let seen = operands
            .iter()
            .zip(&expected.operands)
            .chain(results.iter().zip(&expected.results));
        seen.for_each(|(seen, &id)| {
            self.counterparts.insert(seen.id, id);
        });
        if self.first.is_some() {
            return;
        }
        let mut explained = 0.0f64;
        let mut largest = 0.0f64;
        let mut outcomes = Vec::new();
        for (index, (seen, &id)) in operands.iter().zip(&expected.operands).enumerate() {
            if let Some(data) = &seen.data {
                // What was compared where it was made may have been moved since.
                let known = self.relative(id);
                let outcome = self.compare(id, data, known, 0.0);
                self.relative.insert(id, outcome.relative.max(known));
                outcomes.push((index, outcome));
            }
            // What has no scale at all explains nothing.
            if self.relative(id).is_finite() {
                explained = explained.max(self.relative(id));
            }
            if reference.kept(id).is_float() {
                largest = largest.max(self.scale(id, 0.0));
            }
        }
        for (index, outcome) in outcomes {
            self.note(number, What::Operand { index }, &operands[index], &outcome, &operands);
        }
        for (index, (seen, &id)) in results.iter().zip(&expected.results).enumerate() {
            let known = self.relative(id);
            // Every rank reads, even when it has lost track: another may not have, and reading is a collective.
            let data = seen.data.as_ref().expect("results are always read");
            let outcome = self.compare(id, data, explained.max(known), largest);
            self.note(number, What::Result { index }, seen, &outcome, &operands);
            self.relative.insert(id, outcome.relative.max(known));
            self.scales.insert(id, self.scale(id, largest));
        }
    }

    /// What the difference from a tensor of the reference is relative to: its norm, or where that is 0, a part of the
    /// largest norm of the operands that it was made of.
    fn scale(&self, id: u64, largest: f64) -> f64 {
        match self.reference.kept(id).norm() {
            0.0 => self.scales.get(&id).copied().unwrap_or(0.0).max(FLOOR * largest),
            norm => norm,
        }
    }

    /// The relative difference from a tensor of the reference, none if it has not been compared.
    fn relative(&self, id: u64) -> f64 {
        self.relative.get(&id).copied().unwrap_or(0.0)
    }

    /// Compares an array with one that has operands: `explained` is the largest relative difference of them, `largest`
    /// their largest norm.
    fn compare(&self, id: u64, data: &TensorData, explained: f64, largest: f64) -> Outcome {
        let kept = self.reference.kept(id);
        let (difference, detail) = match kept.distance(data) {
            Ok(distance) => (distance.difference, distance.detail),
            Err(reason) => (f64::INFINITY, reason),
        };
        let (norm, is_float) = (kept.norm(), kept.is_float());
        let relative = match difference {
            0.0 => 0.0,
            difference => difference / self.scale(id, largest),
        };
        let is_beyond = if is_float {
            difference > self.tolerance * norm.max(FLOOR * largest)
        } else {
            // Rounding may turn a comparison of floats.
            difference > 0.0 && (explained == 0.0 || relative > FLOOR)
        };
        Outcome {
            relative,
            is_beyond,
            is_explained: difference <= explained * (GROWTH * norm).max(CANCELLATION * largest),
            difference,
            detail,
        }
    }

    /// Remembers a difference, if it is one and the first.
    fn note(&mut self, number: usize, what: What, seen: &Seen, outcome: &Outcome, operands: &[Seen]) {
        if !outcome.is_beyond || (outcome.is_explained && self.first_explained.is_some()) || self.first.is_some() {
            return;
        }
        let operation = &self.reference.operations[number];
        let ids = match what {
            What::Operand { .. } => &operation.operands,
            _ => &operation.results,
        };
        let id = match what {
            What::Operand { index } | What::Result { index } => ids[index],
            What::Program { .. } => unreachable!("it has no tensor"),
        };
        let difference = FirstDifference {
            tensor: self.reference.name_of(id).or_else(|| self.reference.origin(id)),
            shape: seen.shape.clone(),
            places: seen.places.clone(),
            difference: outcome.difference,
            norm: self.reference.kept(id).norm(),
            tolerance: self.tolerance,
            detail: outcome.detail.clone(),
            operands: self.states(number, operands),
            is_explained: outcome.is_explained,
            ..self.place(number, what)
        };
        if outcome.is_explained {
            self.first_explained = Some(difference);
        } else {
            self.first = Some(difference);
        }
    }

    /// A difference at an operation of which nothing else is known.
    fn place(&self, number: usize, what: What) -> FirstDifference {
        let known = number.min(self.reference.operations.len().saturating_sub(1));
        let operation = self.reference.operations.get(known);
        FirstDifference {
            rank: 0,
            number: number + 1,
            num_operations: self.reference.operations.len(),
            operation: operation.map(|operation| operation.name.to_owned()).unwrap_or_default(),
            stage: operation.map_or(super::Stage::Forward, |operation| operation.stage),
            step: operation.map_or(1, |operation| operation.step),
            module: operation
                .map(|_| self.reference.module(known).to_owned())
                .unwrap_or_default(),
            near: operation.map(|_| self.reference.near(known)).unwrap_or_default(),
            what,
            tensor: None,
            shape: Vec::new(),
            places: String::new(),
            difference: 0.0,
            norm: 0.0,
            tolerance: self.tolerance,
            detail: String::new(),
            operands: Vec::new(),
            is_explained: false,
        }
    }

    fn states(&self, number: usize, operands: &[Seen]) -> Vec<OperandState> {
        let expected = &self.reference.operations[number].operands;
        operands
            .iter()
            .zip(expected)
            .map(|(seen, &id)| OperandState {
                tensor: self.reference.describe(id),
                shape: seen.shape.clone(),
                places: seen.places.clone(),
                relative: self.relative(id),
            })
            .collect()
    }

    /// The programs are not the same any more: that is the first difference, and nothing after it can be compared.
    fn lose(&mut self, event: &Event, number: usize, operands: &[Seen], results: &[Seen]) {
        // Not to be read again.
        for seen in operands.iter().chain(results) {
            self.counterparts.entry(seen.id).or_insert(u64::MAX);
        }
        if self.is_lost || self.first.is_some() {
            self.is_lost = true;
            return;
        }
        self.is_lost = true;
        let words =
            |name: &str, operands: usize, results: usize| format!("{name} ({operands} operands, {results} results)");
        let expected = match self.reference.operations.get(number) {
            Some(expected) => words(expected.name, expected.operands.len(), expected.results.len()),
            None => "the end".into(),
        };
        let found = words(event.operation, operands.len(), results.len());
        self.first = Some(self.place(number, What::Program { expected, found }));
    }

    /// The first tensor that differs from that of the one-rank run by more than rounding, or else the first difference
    /// that rounding explains.
    pub(super) fn finish(mut self) -> Option<FirstDifference> {
        let num_operations = self.reference.operations.len();
        if self.next < num_operations && self.first.is_none() {
            let expected = self.reference.operations[self.next].name.to_owned();
            let what = What::Program {
                expected,
                found: "the end".into(),
            };
            self.first = Some(self.place(self.next, what));
        }
        self.first.or(self.first_explained)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;

    use super::super::super::traffic::Phase;
    use super::*;

    fn seen(id: u64, values: &[f64]) -> Seen {
        Seen {
            id,
            shape: vec![values.len()],
            places: String::new(),
            data: Some(TensorData::new(values.to_vec(), [values.len()])),
        }
    }

    fn known(id: u64) -> Seen {
        Seen {
            data: None,
            ..seen(id, &[0.0; 2])
        }
    }

    fn event(operation: &'static str) -> Event {
        Event {
            operation,
            phase: Phase::Forward,
            module: String::new(),
            judged: 0,
        }
    }

    /// A difference that rounds to zero on one rank, a result made of it alone, and one made of both.
    fn first(zero: f64, negated: f64, sum: f64) -> Option<FirstDifference> {
        let mut reference = Recording::new(1 << 20);
        reference.add(event("sub"), vec![seen(1, &[1.0, 1.0])], vec![seen(2, &[0.0, 0.0])]);
        reference.add(event("neg"), vec![known(2)], vec![seen(3, &[0.0, 0.0])]);
        reference.add(event("add"), vec![known(1), known(3)], vec![seen(4, &[1.0, 1.0])]);
        reference.finish();
        let mut check = Check::new(Rc::new(reference), 1e-10);
        check.add(event("sub"), vec![seen(1, &[1.0, 1.0])], vec![seen(2, &[zero, 0.0])]);
        check.add(event("neg"), vec![known(2)], vec![seen(3, &[negated, 0.0])]);
        check.add(event("add"), vec![known(1), known(3)], vec![seen(4, &[sum, 1.0])]);
        check.finish()
    }

    #[test]
    fn a_tensor_of_norm_zero_does_not_explain_every_difference() {
        let first = first(1e-16, -1e-16, 1.5).expect("the sum is wrong");
        assert_eq!((first.operation.as_str(), first.is_explained), ("add", false));
    }

    #[test]
    fn rounding_of_what_is_zero_on_one_rank_is_explained() {
        let first = first(1e-16, -1e-16, 1.0);
        assert!(first.as_ref().is_none_or(|first| first.is_explained), "{first:?}");
    }

    #[test]
    fn what_differs_without_any_scale_is_no_explanation() {
        let mut reference = Recording::new(1 << 20);
        reference.add(event("zeros"), vec![], vec![seen(1, &[0.0, 0.0])]);
        reference.finish();
        let mut check = Check::new(Rc::new(reference), 1e-10);
        check.add(event("zeros"), vec![], vec![seen(1, &[0.5, 0.0])]);
        let first = check.finish().expect("it differs");
        assert_eq!((first.operation.as_str(), first.is_explained), ("zeros", false));
    }
}
