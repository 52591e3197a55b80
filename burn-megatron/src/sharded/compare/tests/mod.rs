//! Comparisons on ranks that are threads: programs that are the same, and faults that each must be named.

mod failures;
mod half;

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{FloatDType, Int, Tensor, TensorData};
use burn_backend::Shape;
use burn_backend::ops::FloatTensorOps;
use burn_flex::{Flex, FlexDevice};

use super::super::any_tensor::AnyTensor;
use super::super::kind::Float;
use super::super::placement::{AxisPlacement, PARTIAL_SUM, REPLICATED};
use super::super::tests::new_device;
use super::super::tests::ranks::{DATA_2, DATA_2_TENSOR_2, TENSOR_2, on_mesh};
use super::super::traffic::Phase;
use super::super::{AxisRole, Mesh, Plan, ShardedTensor, backward};
use super::faults::{Fault, plant};
use super::*;
use crate::sharded::movement::redistribute::redistribute;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const TOKENS: usize = 12;
const CLASSES: usize = 6;

/// A classifier of short texts.
#[derive(Module, Debug)]
struct Net {
    embedding: Embedding,
    encoder: TransformerEncoder,
    output: Linear,
}

impl Net {
    fn new(device: &Device) -> Self {
        Self {
            embedding: EmbeddingConfig::new(TOKENS, 8).init(device),
            encoder: TransformerEncoderConfig::new(8, 16, 2, 1)
                .with_dropout(0.1)
                .init(device),
            output: LinearConfig::new(8, CLASSES).init(device),
        }
    }

    fn loss(&self, tokens: Tensor<2, Int>, labels: Tensor<1, Int>, smoothing: Option<f32>) -> Tensor<1> {
        let tokens = mark("embedding", || self.embedding.forward(tokens));
        let input = TransformerEncoderInput::new(tokens);
        let hidden = mark("encoder", || self.encoder.forward(input));
        let logits = mark("output", || self.output.forward(hidden.mean_dim(1).squeeze_dim::<2>(1)));
        let loss = CrossEntropyLossConfig::new()
            .with_smoothing(smoothing)
            .init(&logits.device());
        mark("loss", || loss.forward(logits, labels))
    }
}

/// Casts parameters, so that activations, gradients and the optimizer are of this type too.
struct In(FloatDType);

impl ModuleMapper for In {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| {
            let is_trained = tensor.is_require_grad();
            Tensor::from_inner(tensor.inner().cast(self.0)).set_require_grad(is_trained)
        })
    }
}

fn batch(number: usize, run: &Run) -> (Tensor<2, Int>, Tensor<1, Int>) {
    let tokens: Vec<i32> = (0..4 * 6)
        .map(|index| ((index * 7 + number * 5) % TOKENS) as i32)
        .collect();
    let labels: Vec<i32> = (0..4).map(|sample| ((sample + number) % CLASSES) as i32).collect();
    let tokens = Tensor::from_data(TensorData::new(tokens, [4, 6]), run.device());
    let labels = Tensor::from_data(TensorData::new(labels, [4]), run.device());
    (
        run.distribute(tokens, AxisRole::Data, 0),
        run.distribute(labels, AxisRole::Data, 0),
    )
}

fn program(smoothing: Option<f32>) -> impl Fn(&mut Run) -> Result<Net, Failure> {
    training(
        &[1usize, 2, 3],
        Net::new,
        move |model: &Net, &number: &usize, run: &Run| {
            let (tokens, labels) = batch(number, run);
            model.loss(tokens, labels, smoothing)
        },
    )
}

fn plan() -> Plan {
    Plan::new()
        .vocabulary("embedding")
        .column("encoder.layers.*.mha.{query,key,value}")
        .row("encoder.layers.*.mha.output")
        .column("encoder.layers.*.pwff.linear_inner")
        .row("encoder.layers.*.pwff.linear_outer")
        .column("output")
}

fn layouts(mesh: &Mesh) -> Vec<Layout> {
    match mesh.shape().role(0) {
        AxisRole::Data => vec![
            Layout::new("dp2", mesh, Plan::new()),
            Layout::new("fsdp2", mesh, Plan::new().fully_shard(AxisRole::Data)),
        ],
        _ => vec![
            Layout::new("tp2", mesh, plan()),
            Layout::new("tp2sp", &mesh.clone().with_sequence_dimension(1), plan()),
        ],
    }
}

#[test]
fn a_program_that_is_the_same_has_no_tensor_that_differs() {
    for axes in [DATA_2, TENSOR_2] {
        let all = on_mesh(axes, |_, mesh| {
            let config = CompareConfig::new().with_trace(Trace::Always);
            compare(&config, &layouts(mesh), &new_device().autodiff(), program(Some(0.1))).unwrap()
        });
        assert_eq!(all[0], all[1], "the ranks agree");
        for comparison in &all[0] {
            assert!(comparison.is_equal() && comparison.is_traced, "{comparison}");
            assert_eq!(comparison.first, None, "{comparison}");
        }
    }
}

/// The comparison with a fault in one layout on tensor-parallel ranks.
fn with_fault(layout: usize, fault: Fault, smoothing: Option<f32>) -> Comparison {
    let mut all = on_mesh(TENSOR_2, |_, mesh| {
        plant(Some(fault));
        let layout = &layouts(mesh)[layout..=layout];
        compare(
            &CompareConfig::new(),
            layout,
            &new_device().autodiff(),
            program(smoothing),
        )
        .unwrap()
        .remove(0)
    });
    assert_eq!(all[0], all[1], "the ranks agree");
    all.remove(0)
}

/// The first tensor that a comparison names: its operation, what is near, its part of the program, and its stage.
fn assert_names(comparison: &Comparison, operation: &str, near: &str, module: &str, stage: Stage) {
    assert!(!comparison.is_equal(), "{comparison}");
    let first = comparison.first.as_ref().unwrap_or_else(|| panic!("{comparison}"));
    println!("{comparison}\n");
    let found = (first.operation.as_str(), first.module.as_str(), first.stage);
    assert_eq!(found, (operation, module, stage), "{comparison}");
    assert!(first.near.iter().any(|name| name == near), "{near}: {comparison}");
    assert!(!first.is_explained, "{comparison}");
    let worst = first
        .operands
        .iter()
        .map(|operand| operand.relative)
        .fold(0.0, f64::max);
    assert!(worst < 1e-4, "the operands are right: {comparison}");
}

#[test]
fn a_bias_that_is_added_once_per_rank_is_named() {
    let comparison = with_fault(0, Fault::AddedPerRank("float_add"), None);
    assert_names(
        &comparison,
        "float_add",
        "encoder.layers.0.mha.output.bias",
        "encoder",
        Stage::Forward,
    );
}

#[test]
fn an_activation_that_is_not_summed_is_named() {
    let comparison = with_fault(0, Fault::SumForgotten("float_matmul", Phase::Forward, &[]), None);
    assert_names(
        &comparison,
        "float_matmul",
        "encoder.layers.0.mha.output.weight",
        "encoder",
        Stage::Forward,
    );
}

/// Megatron-LM's finding 11 of issue 7452, and what its flag `sequence_parallel` on a norm's weight is for.
#[test]
fn the_gradient_of_a_norm_that_is_not_summed_is_named() {
    let comparison = with_fault(
        1,
        Fault::SumForgotten("float_sum_dim", Phase::Backward, &[1, 1, 8]),
        None,
    );
    assert_names(
        &comparison,
        "float_sum_dim",
        "a step to the gradient of encoder.layers.0.norm_2.beta",
        "encoder",
        Stage::Backward,
    );
}

/// Finding 1: label smoothing with the mean over this rank's part of the vocabulary.
#[test]
fn a_mean_over_a_part_of_the_classes_is_named() {
    let comparison = with_fault(0, Fault::SumForgotten("float_sum_dim", Phase::Forward, &[]), Some(0.1));
    assert_names(&comparison, "float_sum_dim", "output.bias", "loss", Stage::Forward);
}

/// Finding 2: whole logits given to a loss that takes them for a part of the vocabulary.
#[test]
fn whole_logits_that_are_summed_over_ranks_are_named() {
    let comparison = with_fault(0, Fault::SummedTwice("float_sum_dim", Phase::Forward), None);
    assert_names(&comparison, "float_sum_dim", "output.bias", "loss", Stage::Forward);
}

#[test]
fn a_trace_without_memory_names_the_same_operation() {
    let all = on_mesh(TENSOR_2, |_, mesh| {
        plant(Some(Fault::AddedPerRank("float_add")));
        let config = CompareConfig::new().with_trace_bytes(0);
        compare(&config, &layouts(mesh)[..1], &new_device().autodiff(), program(None))
            .unwrap()
            .remove(0)
    });
    assert_names(
        &all[0],
        "float_add",
        "encoder.layers.0.mha.output.bias",
        "encoder",
        Stage::Forward,
    );
    assert!(all[0].num_sketches > 100, "{}", all[0]);
    assert!(
        all[0]
            .to_string()
            .contains("CompareConfig::with_trace_bytes keeps more of them whole"),
        "{}",
        all[0]
    );
}

#[test]
fn a_program_that_is_another_in_a_layout_is_named_by_its_first_other_operation() {
    let all = on_mesh(DATA_2, |_, mesh| {
        let program = |run: &mut Run| {
            let model = run.parallelize(Net::new(run.device()))?;
            let (tokens, labels) = batch(1, run);
            let mut loss = model.loss(tokens, labels, None);
            if run.layout().is_some() {
                loss = loss.mul_scalar(0.5).exp();
            }
            let (loss, gradients) = backward(loss, &model)?;
            run.judge(&loss, &gradients, &model)?;
            Ok::<_, Failure>(model)
        };
        let comparisons = compare(
            &CompareConfig::new(),
            &layouts(mesh)[..1],
            &new_device().autodiff(),
            program,
        )
        .unwrap();
        comparisons.into_iter().next().unwrap()
    });
    let first = all[0].first.as_ref().unwrap();
    let What::Program { expected, found } = &first.what else {
        panic!("{first}")
    };
    println!("{first}");
    assert!(found.starts_with("float_mul_scalar"), "{found}");
    assert!(!expected.starts_with("float_mul_scalar"), "{expected}");
}

#[test]
fn a_tensor_that_is_looked_at_stays_as_it_is() {
    on_mesh(TENSOR_2, |world, mesh| {
        let local = Flex::float_from_data(
            TensorData::from([[1.0f32, 2.0], [3.0, 4.0 + world.rank() as f32]]),
            &FlexDevice,
        );
        let mut places = REPLICATED;
        places[0] = PARTIAL_SUM;
        let sum = ShardedTensor::<Flex, Float>::placed(local, Shape::new([2, 2]), Some(mesh.clone()), places);
        let clone = sum.clone();
        mesh.start_counting();
        assert_eq!(sum.peek().iter::<f32>().collect::<Vec<_>>(), [2.0, 4.0, 6.0, 9.0]);
        assert_eq!(
            (sum.places(), clone.places()),
            (places, places),
            "no sum was made for others"
        );
        assert!(mesh.stop_counting().is_empty());
        assert_eq!(recorder::placement(&sum), "P(sum)");
    });
}

/// Query, key and value share the gather of a layer's input.
#[test]
fn a_tensor_that_is_looked_at_leaves_the_last_gathered_activation() {
    on_mesh(TENSOR_2, |_, mesh| {
        let mesh = mesh.clone().with_sequence_dimension(1);
        let local = || Flex::float_from_data(TensorData::from([[[1.0f32], [2.0]]]), &FlexDevice);
        let mut places = REPLICATED;
        places[0] = AxisPlacement::Shard(1);
        let cut = || ShardedTensor::<Flex, Float>::placed(local(), Shape::new([1, 4, 1]), Some(mesh.clone()), places);
        let (activation, other) = (cut(), cut());
        mesh.start_counting();
        redistribute(activation.clone(), &mesh, &REPLICATED);
        other.peek();
        activation.peek();
        redistribute(activation.clone(), &mesh, &REPLICATED);
        assert_eq!(mesh.stop_counting().len(), 1, "the second gather is the first one's");
    });
}

#[derive(Module, Debug)]
struct Normed {
    norm: BatchNorm,
}

/// In f32 what has no gradient is not judged: it may follow a parameter that has rounding alone.
#[test]
fn the_last_update_of_a_running_statistic_is_judged() {
    let program = |run: &mut Run| {
        let norm = BatchNormConfig::new(3).init(run.device());
        let model: Normed = run.parallelize(Normed { norm }.map(&mut In(FloatDType::F64)))?;
        let device = run.device();
        let input = || {
            Tensor::<1, Int>::arange(0..24, device)
                .float()
                .cast(FloatDType::F64)
                .reshape([2, 3, 4])
        };
        let (loss, gradients) = backward(model.norm.forward(input()).powi_scalar(4).mean(), &model)?;
        run.judge(&loss, &gradients, &model)?;
        let factor = if run.layout().is_some() { 2.0 } else { 1.0 };
        model.norm.forward(input() * factor);
        Ok::<_, Failure>(model)
    };
    let layouts = [Layout::new("one", &Mesh::new([]).unwrap(), Plan::new())];
    let config = CompareConfig::new().with_trace(Trace::Never);
    let judgement = compare(&config, &layouts, &new_device().autodiff(), program)
        .unwrap()
        .remove(0)
        .judgement;
    assert_eq!(judgement.first_failing_step, Some(2), "{judgement:?}");
    assert!(judgement.failures[0].contains("norm.running_"), "{judgement:?}");
}

#[test]
fn what_ranks_found_is_the_same_on_all_of_them() {
    for ranks in on_mesh(DATA_2_TENSOR_2, |world, mesh| {
        assert_eq!(exchange::own_rank(mesh), world.rank());
        exchange::exchange(mesh, "x".repeat(world.rank() + 1)).unwrap()
    }) {
        assert_eq!(ranks, ["x", "xx", "xxx", "xxxx"]);
    }
}

#[test]
fn a_program_that_draws_from_elsewhere_is_refused() {
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let program = |run: &mut Run| {
        let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let model = run.parallelize(Net::new(run.device()))?;
        let (tokens, labels) = batch(1, run);
        let loss = model.loss(tokens, labels, None) * (call + 1) as f32;
        let (loss, gradients) = backward(loss, &model)?;
        run.judge(&loss, &gradients, &model)?;
        Ok::<_, Failure>(model)
    };
    let mesh = Mesh::new([]).unwrap();
    let layouts = [Layout::new("one", &mesh, Plan::new())];
    let error = compare(&CompareConfig::new(), &layouts, &new_device().autodiff(), program).unwrap_err();
    assert!(
        error.to_string().starts_with("the program is not deterministic"),
        "{error}"
    );
}

#[test]
fn a_program_that_judges_nothing_is_refused() {
    let program = |run: &mut Run| Ok::<_, Failure>(run.parallelize(Net::new(run.device()))?);
    let error = compare(&CompareConfig::new(), &[], &new_device().autodiff(), program).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("the program judged no step: call run.judge"),
        "{error}"
    );
}

#[test]
fn a_loss_of_several_elements_is_refused() {
    let program = |run: &mut Run| {
        let model = run.parallelize(Net::new(run.device()))?;
        let (tokens, labels) = batch(1, run);
        let (loss, gradients) = backward(model.loss(tokens, labels, None), &model)?;
        run.judge(&loss.repeat_dim(0, 3), &gradients, &model)?;
        Ok::<_, Failure>(model)
    };
    let error = compare(&CompareConfig::new(), &[], &new_device().autodiff(), program).unwrap_err();
    assert!(
        error.to_string().starts_with("the program judged a loss of shape [3]"),
        "{error}"
    );
}
