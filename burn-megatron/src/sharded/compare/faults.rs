//! Faults for the tests: what a rule would answer if it were wrong.
//!
//! A model that is placed by a plan has no line that could forget a sum over ranks. The faults that hand-written layers
//! have are planted where the sums are: in the answer of an operation's rule.

use std::cell::Cell;

use super::super::placement::{AxisPlacement, PARTIAL_SUM, REPLICATED};
use super::super::rules::{Operand, Plan};
use super::super::traffic::{Phase, phase};

/// A fault in every operation of a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// A sum over ranks is not made where a result has this shape, or whatever it has if that is empty: each rank has
    /// its own term in its place.
    SumForgotten(&'static str, Phase, &'static [usize]),
    /// What every rank has is added on every rank, where one should.
    AddedPerRank(&'static str),
    /// Operands are gathered first, and the result, which every rank then has all of, is taken for its term of a sum.
    SummedTwice(&'static str, Phase),
}

thread_local! {
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Plants a fault on this thread, or none.
pub fn plant(fault: Option<Fault>) {
    FAULT.set(fault);
}

/// The rule's answer, with the fault.
pub fn change(operation: &str, operands: &[Operand], mut plan: Plan) -> Plan {
    match FAULT.get() {
        Some(Fault::SumForgotten(name, of, shape)) if name == operation && of == phase() => {
            let results = plan
                .results
                .iter_mut()
                .filter(|result| shape.is_empty() || result.shape == shape);
            let places = results.flat_map(|result| &mut result.places);
            places
                .filter(|place| **place == PARTIAL_SUM)
                .for_each(|place| *place = AxisPlacement::Replicated);
        }
        Some(Fault::AddedPerRank(name)) if name == operation => {
            for (operand, needs) in operands.iter().zip(&mut plan.needs) {
                for (&before, needed) in operand.places.iter().zip(needs) {
                    if before == AxisPlacement::Replicated && *needed == PARTIAL_SUM {
                        *needed = AxisPlacement::Replicated;
                    }
                }
            }
        }
        Some(Fault::SummedTwice(name, of)) if name == operation && of == phase() => {
            let is_sum = plan.results.iter().any(|result| result.places.contains(&PARTIAL_SUM));
            let needs = plan.needs.iter_mut().filter(|_| is_sum);
            needs.for_each(|needs| *needs = REPLICATED);
        }
        _ => {}
    }
    plan
}
