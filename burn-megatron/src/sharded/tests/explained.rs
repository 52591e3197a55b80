//! Steps that are counted, and the plan that costs least by them.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};

use super::new_device;
use super::ranks::{TENSOR_2, on_mesh};
use crate::collectives::CollectiveError;
use crate::sharded::{Explanation, Mesh, Phase, Plan, SuggestConfig, SuggestError, TrafficKind};
use crate::sharded::{backward, explain, parallelize};

#[derive(Module, Debug)]
struct Pair {
    inner: Linear,
    outer: Linear,
}

impl Pair {
    fn new(device: &Device) -> Self {
        Self {
            inner: LinearConfig::new(8, 16).init(device),
            outer: LinearConfig::new(16, 8).init(device),
        }
    }
}

/// A step of the pair, with something between the layers.
fn explained(mesh: &Mesh, plan: &Plan, between: impl Fn(Tensor<3>) -> Tensor<3>) -> Explanation {
    let device = new_device().autodiff();
    device.seed(1);
    let model = parallelize(Pair::new(&device), plan, mesh).expect("the ranks divide it");
    let (explanation, step) = explain(&model, mesh, || {
        let hidden = model.inner.forward(Tensor::ones([2, 4, 8], &device));
        let output = model.outer.forward(between(hidden));
        backward(output.powi_scalar(2).mean(), &model)
    });
    step.unwrap();
    explanation
}

fn cut() -> Plan {
    Plan::new().column("inner").row("outer")
}

#[test]
fn a_steps_collectives_and_arithmetic_are_counted_next_to_its_parameters() {
    on_mesh(TENSOR_2, |_, mesh| {
        let whole = explained(mesh, &Plan::new(), Tensor::tanh);
        assert_eq!(whole.total(), (0, 0));
        let cut = explained(mesh, &cut(), Tensor::tanh);
        let places = cut.parameters.iter();
        let places: Vec<_> = places
            .map(|place| (place.name.as_str(), place.placement[0].as_str()))
            .collect();
        let expected = [
            ("inner.weight", "S(1)"),
            ("inner.bias", "S(0)"),
            ("outer.weight", "S(0)"),
            ("outer.bias", "R"),
        ];
        assert_eq!(places, expected);
        assert_eq!(
            (whole.local_parameter_bytes(), cut.local_parameter_bytes()),
            (4 * 280, 4 * 144)
        );
        // The input has no gradient.
        assert_eq!(cut.total(), (1, 4 * 2 * 4 * 8), "{cut}");
        assert_eq!(cut.count(Phase::Forward, 0, TrafficKind::AllReduce), 1, "{cut}");
        assert_eq!(cut.traffic[0].near, ["outer.weight"], "{cut}");
        assert!(cut.careless().next().is_none(), "{cut}");
        // Of eight rows: two products forward, two for weights, one for the input of the second layer.
        let products = 2 * 8 * (16 * 8) * 5;
        let rest = |explanation: &Explanation, products: u64| explanation.operations - products;
        assert!(rest(&whole, products) < 3000, "{whole}");
        assert!(rest(&cut, products / 2) < 3000, "{cut}");
    });
}

#[test]
fn a_cut_that_an_operation_does_not_survive_is_advised_on() {
    on_mesh(TENSOR_2, |_, mesh| {
        let careless = explained(mesh, &cut(), |hidden| hidden.flip([2]));
        let rows: Vec<_> = careless.careless().collect();
        let of_forward = rows.iter().find(|row| row.phase == Phase::Forward);
        let row = of_forward.unwrap_or_else(|| panic!("{careless}"));
        assert_eq!(row.operation, "float_flip", "{careless}");
        assert!(
            row.advice
                .is_some_and(|advice| advice.starts_with("the cut of an activation does not survive this"))
        );
    });
}

#[test]
fn layers_that_gather_their_sequence_are_not_advised_on() {
    on_mesh(TENSOR_2, |_, mesh| {
        let mesh = mesh.clone().with_sequence_dimension(1);
        let plan = Plan::new().row("inner").column("outer");
        let explanation = explained(&mesh, &plan, Tensor::tanh);
        let gathers = explanation.count(Phase::Forward, 0, TrafficKind::AllGather);
        assert!(gathers > 0, "{explanation}");
        assert!(explanation.careless().next().is_none(), "{explanation}");
    });
}

#[test]
fn the_plan_that_costs_least_is_suggested() {
    on_mesh(TENSOR_2, |_, mesh| {
        let suggested = |config: &SuggestConfig| {
            Plan::suggest(&Pair::new(&new_device()), mesh, config, |plan| {
                Ok::<_, CollectiveError>(explained(mesh, plan, Tensor::tanh))
            })
        };
        let plan_of = |config| suggested(&config).unwrap().plan().to_string();
        let slow = SuggestConfig::new().with_operations_per_second(1.0);
        assert_eq!(plan_of(slow), cut().to_string());
        let far = SuggestConfig::new().with_latency_secs(1e3);
        assert_eq!(plan_of(far.clone()), "");
        assert_eq!(plan_of(far.clone().with_parameter_bytes(4 * 144)), cut().to_string());
        let error = suggested(&far.with_parameter_bytes(100)).unwrap_err();
        assert!(
            matches!(
                error,
                SuggestError::TooLarge {
                    limit: 100,
                    least: 576,
                    ..
                }
            ),
            "{error}"
        );
    });
}
