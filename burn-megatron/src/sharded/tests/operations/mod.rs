//! Every operation × random placements, against the inner backend.

mod activation;
mod boolean;
mod creation;
mod float;
mod indexing;
mod integer;
mod layers;
mod movement;
mod reduction;

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::Tensor;
use burn_backend::{DType, TensorData};
use burn_flex::{Flex, FlexDevice};

use super::super::traffic::{Phase, in_phase};
use super::super::{AxisRole, Mesh, Sharded, device, distribute, operation_rules};
use super::case::{Case, Value, Values};
use super::draw::{Draw, Inputs};
use super::place::{compare, deferred, placed, placements, plain, read, reductions};
use super::ranks::{self, Layout, on_mesh};
use crate::collectives::CollectiveError;
use crate::launch::World;

/// The random placements of each case on each mesh.
const ROUNDS: u64 = 10;

/// Operations that put sums of the ranks together, which one rank makes in another order: their results differ by
/// rounding. All others have the inner backend's bits, if no operand is a sum that has not been made.
const SUMS: &[&str] = &[
    "float_sum",
    "float_mean",
    "float_matmul",
    "softmax",
    "log_softmax",
    "softmin",
    "linear",
    "layer_norm",
    "conv",
    "deform_conv",
    "embedding_backward",
];

/// Operations that are tested elsewhere, or cannot be.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "float_random",
        "by coordinates: other numbers than the inner backend's, see `random`",
    ),
    ("int_random", "as float_random"),
    (
        "float_argtopk",
        "burn-flex does not have it; float_topk has the same rule",
    ),
    ("int_argtopk", "as float_argtopk"),
    (
        "ctc_loss_backward",
        "burn-flex does not have it; ctc_loss has the same rule",
    ),
];

fn all_cases() -> Vec<Case> {
    [
        float::cases(),
        integer::cases(),
        boolean::cases(),
        activation::cases(),
        reduction::cases(),
        movement::cases(),
        indexing::cases(),
        creation::cases(),
        layers::cases(),
    ]
    .concat()
}

#[test]
fn every_operation_that_has_a_rule_has_a_case() {
    let cases = all_cases();
    let tested: BTreeSet<&str> = cases
        .iter()
        .filter_map(|case| case.name.split(' ').next())
        .chain(ELSEWHERE.iter().map(|&(name, _)| name))
        .collect();
    let rules = operation_rules();
    let missing: Vec<&str> = rules
        .iter()
        .map(|rule| rule.name)
        .filter(|name| !tested.contains(name))
        .collect();
    assert!(missing.is_empty(), "operations without a case: {missing:?}");
}

#[test]
fn every_operation_on_two_ranks_of_data() {
    check(ranks::DATA_2);
}

#[test]
fn every_operation_on_two_ranks_of_tensor_parallelism() {
    check(ranks::TENSOR_2);
}

#[test]
fn every_operation_on_four_ranks_of_tensor_parallelism() {
    check(ranks::TENSOR_4);
}

#[test]
fn every_operation_on_three_ranks_of_context() {
    check(ranks::CONTEXT_3);
}

#[test]
fn every_operation_on_ranks_of_data_and_of_tensor_parallelism() {
    check(ranks::DATA_2_TENSOR_2);
}

#[test]
fn every_operation_on_ranks_of_context_and_of_tensor_parallelism() {
    check(ranks::CONTEXT_2_TENSOR_2);
}

#[test]
fn every_operation_on_ranks_of_tensor_parallelism_and_of_data() {
    check(ranks::TENSOR_2_DATA_2);
}

/// burn's own product of all elements is the exponential of a sum of logarithms.
#[test]
fn products_and_means_of_all_are_those_of_the_inner_backend() {
    let of_all = |_: &World, mesh: &Mesh| {
        let device = device::<Flex>(FlexDevice);
        let tensor = |values: &[f32], dtype: DType| {
            let whole = Tensor::<1>::from_data(TensorData::from(values), (&device, dtype));
            distribute(whole, mesh, AxisRole::Data, 0)
        };
        let numbers = |values: &[f32]| tensor(values, DType::F32);
        // The sum of these is out of range in 16 bits.
        let large = || tensor(&[60000.0, 36000.0, 40000.0, 56000.0], DType::F16);
        [
            numbers(&[-2.0, 3.0, 4.0, 25.0]).prod(),
            numbers(&[3.0, 7.0, 11.0]).prod(),
            large().mean(),
            large().reshape([4, 1]).mean_dim(0).reshape([1]),
        ]
        .map(|result| result.cast(DType::F32).into_scalar::<f32>())
    };
    for results in on_mesh(ranks::DATA_2, of_all) {
        assert_eq!(results, [-600.0, 231.0, 48000.0, 48000.0]);
    }
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// A trial that failed on a rank.
struct Failure {
    trial: usize,
    message: String,
    /// Whether another rank's failure is the cause.
    is_consequence: bool,
}

/// Runs all cases on a mesh.
///
/// # Panics
/// With the first failure of each case that has one.
fn check(layout: Layout) {
    let only = std::env::var("SHARDED_CASE").ok();
    let cases: Vec<Case> = all_cases()
        .into_iter()
        .filter(|case| {
            only.as_deref()
                .is_none_or(|only| case.name.split(' ').next() == Some(only))
        })
        .collect();
    let (seed, rounds) = (setting("SHARDED_SEED", 1), setting("SHARDED_ROUNDS", ROUNDS) as usize);
    let end = cases.len() * rounds;
    let mut first = 0;
    let mut failures = Vec::new();
    while first < end {
        // Groups are connected once, and again after a failure, which ends them.
        let outcomes = on_mesh(layout, |world, mesh| {
            for trial in first..end {
                let case = &cases[trial / rounds];
                let draw = Draw::new(seed << 40 ^ (trial as u64) << 8 ^ layout.len() as u64);
                let outcome = catch_unwind(AssertUnwindSafe(|| run(case, mesh, draw)));
                let (message, is_consequence) = match outcome {
                    Ok(Ok(())) => continue,
                    Ok(Err(message)) => (message, false),
                    Err(panic) => (text(&*panic), panic.is::<CollectiveError>()),
                };
                world.fail(&message);
                return Some(Failure {
                    trial,
                    message,
                    is_consequence,
                });
            }
            None
        });
        let mut failed: Vec<Failure> = outcomes.into_iter().flatten().collect();
        failed.sort_by_key(|failure| (failure.is_consequence, failure.trial));
        let Some(failure) = failed.into_iter().next() else {
            break;
        };
        let case = failure.trial / rounds;
        failures.push(format!(
            "{}, round {}: {}",
            cases[case].name,
            failure.trial % rounds,
            failure.message
        ));
        first = (case + 1) * rounds;
    }
    assert!(
        failures.is_empty(),
        "{} cases failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

fn text(panic: &(dyn Any + Send)) -> String {
    if let Some(error) = panic.downcast_ref::<CollectiveError>() {
        return error.to_string();
    }
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
        .to_owned()
}

/// One trial on this rank.
fn run(case: &Case, mesh: &Mesh, mut draw: Draw) -> Result<(), String> {
    let Inputs { tensors, arguments } = (case.inputs)(&mut draw);
    let wholes = Values(tensors.iter().map(|input| plain(&input.data)).collect());
    let expected: Vec<_> = (case.plain)(&arguments, wholes).into_iter().map(read).collect();

    let mesh = if draw.chance(3) {
        &mesh.clone().with_sequence_dimension(1)
    } else {
        mesh
    };
    let phase = draw.pick(&[Phase::Forward, Phase::Backward]);
    let mut kept = Vec::new();
    let mut operands = Vec::new();
    let mut placed_as = Vec::new();
    for input in &tensors {
        let places = placements(&mut draw, mesh.shape(), input.data.shape(), reductions(input));
        let operand = if draw.chance(8) {
            deferred(&input.data)
        } else {
            placed(&mut draw, mesh, input, &places)
        };
        placed_as.push(describe(&operand));
        if draw.chance(3) {
            kept.push((clone(&operand), &input.data));
        }
        operands.push(operand);
    }
    let context = || {
        format!(
            "{phase:?}, rank {:?} of {:?}, sequence {:?}, {arguments:?}, {placed_as:?}",
            &mesh.ranks()[..mesh.shape().num_axes()],
            mesh.shape(),
            mesh.sequence_dimension(),
        )
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        in_phase(phase, || (case.sharded)(&arguments, Values(operands.into())))
    }));
    let results = match outcome {
        Ok(results) => results,
        Err(panic) if panic.is::<CollectiveError>() => std::panic::resume_unwind(panic),
        Err(panic) => return Err(format!("{}: {}", context(), text(&*panic))),
    };
    if results.len() != expected.len() {
        return Err(format!("{} results, expected {}", results.len(), expected.len()));
    }
    let has_terms = placed_as.iter().any(|operand| operand.contains("P(sum)"));
    let exactly = !has_terms && !SUMS.iter().any(|sums| case.name.starts_with(sums));
    for (result, expected) in results.into_iter().zip(&expected) {
        compare(result, expected, exactly).map_err(|message| format!("{}: {message}", context()))?;
    }
    for (operand, data) in kept {
        compare(operand, data, false).map_err(|message| format!("{}: a clone of an operand: {message}", context()))?;
    }
    Ok(())
}

fn describe(value: &Value<Sharded<Flex>>) -> String {
    match value {
        Value::Float(tensor) => format!("{tensor:?}"),
        Value::Int(tensor) => format!("{tensor:?}"),
        Value::Bool(tensor) => format!("{tensor:?}"),
    }
}

fn clone(value: &Value<Sharded<Flex>>) -> Value<Sharded<Flex>> {
    match value {
        Value::Float(tensor) => Value::Float(tensor.clone()),
        Value::Int(tensor) => Value::Int(tensor.clone()),
        Value::Bool(tensor) => Value::Bool(tensor.clone()),
    }
}
