//! Planted faults that are switched on: each in the list must turn its trials red.

use libtest_mimic::Trial;
use planted_faults::{Fault, Kind, Test};

use super::one_rank::Files;
use super::{clipping, layouts, shared_heads};
use crate::harness::Comparison;

pub fn trials(files: &Files) -> Vec<Trial> {
    let faults = match planted_faults::read(&tests::folder().join("..")) {
        Ok(faults) => faults,
        Err(error) => {
            return vec![Trial::test("planted::list", move || Err(format!("{error:#}").into()))];
        }
    };
    let comparisons = [
        layouts::comparisons(files),
        clipping::comparisons(),
        shared_heads::comparisons(),
    ]
    .concat();
    let of_parity = faults.iter().filter(|fault| fault.test == Test::Parity);
    of_parity.flat_map(|fault| of_fault(fault, &comparisons)).collect()
}

/// A trial for each that the fault must turn red; patches need a build, and are planted by `planted-faults`.
fn of_fault(fault: &Fault, comparisons: &[Comparison]) -> Vec<Trial> {
    let Kind::Switch(switch) = &fault.kind else {
        return Vec::new();
    };
    let notices = |trial: &String| match comparisons.iter().find(|comparison| comparison.name == *trial) {
        Some(comparison) => comparison.notices(&switch.name),
        None => {
            let message = format!("there is no trial {trial}");
            Trial::test(
                format!("planted::{}::{trial}", switch.name),
                move || Err(message.into()),
            )
        }
    };
    fault.trials.iter().map(notices).collect()
}
