//! `sharded::compare` on real ranks: a plain model that trains as on one rank, and mistakes that it names.
//!
//! The mistakes are those of Megatron-LM's issue 7452, "Silent numerical-correctness bugs in Megatron Core parallelism
//! composition", that a program of one's own can still make around a model that is placed by a plan. Those that a
//! rule of an operation would have to make are planted in the tests of `sharded::compare` itself.
//!
//! | finding | counterpart |
//! |---|---|
//! | 1, label smoothing with a rank's part of the vocabulary | a rule's: the sum over classes is not made |
//! | 2, whole logits taken for a part of the vocabulary | a rule's: whole logits are summed over ranks |
//! | 3 and 9, a loss divided by a rank's own number of tokens | [`Mistake::OwnTokenCount`] |
//! | 4, 5 and 7, a collective over another group than the tensor's | none: the group follows from the placement, and tensors of two meshes that meet are an error |
//! | 8, parameters that are cut missing from the clipping norm | [`Mistake::NormOfWholeParameters`] |
//! | 10, a count that a collective changed in place | none: operations make tensors, and change none |
//! | 11, a norm's gradient that is not summed over tensor ranks | a rule's: the sum over tokens is not made |
//! | 12, a checkpoint that takes a stage's layer numbers for the model's | [`Mistake::LayersSwapped`] |
//!
//! Findings 6 and 13 are not looked at here.

use anyhow::{Context as _, ensure};
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{Dropout, DropoutConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use burn_megatron::collectives::GroupConfig;
use burn_megatron::initialize;
use burn_megatron::launch::World;
use burn_megatron::parameters::read_host;
use burn_megatron::sharded::{
    AxisRole, CompareConfig, Layout, Mesh, Plan, Run, Stage, Trace, What, backward, compare, mark, training,
};
use plain_models::classifier::Classifier;
use plain_models::convolutional::ConvNet;
use plain_models::gpt::PlainGpt;
use plain_models::recurrent::Recurrent;
use tests::harness::Case;

use super::passes::{Passes, placed_device};
use super::subjects::Subject;

const STEPS: usize = 3;
const SAMPLES: usize = 4;
const SEQ: usize = 6;
const D_MODEL: usize = 8;
const CLASSES: usize = 5;

/// Models that train as on one rank: nothing differs, operation by operation.
pub fn equal(case: &Case, world: &World) -> anyhow::Result<()> {
    let dtype: String = case.setting("dtype")?;
    let float = if dtype == "f64" {
        FloatDType::F64
    } else {
        FloatDType::F32
    };
    let (meshes, device) = (Meshes::connect(world)?, placed_device(float)?);
    equal_model::<Classifier>(&meshes, &device)?;
    equal_model::<ConvNet>(&meshes, &device)?;
    equal_model::<Recurrent>(&meshes, &device)?;
    equal_model::<PlainGpt>(&meshes, &device)
}

fn equal_model<M: Subject>(meshes: &Meshes, device: &Device) -> anyhow::Result<()> {
    let program = training(
        &[0usize, 8, 16],
        |device| M::make(0.2, device),
        |model: &M, &first: &usize, run: &Run| {
            // Of the one-rank run's mesh, which has no axes, tensors are whole.
            let passes = Passes::OnMesh(run.mesh().clone());
            model.loss_of(first..first + 8, &passes, run.device())
        },
    );
    let config = CompareConfig::new().with_trace(Trace::Always);
    for comparison in compare(&config, &meshes.layouts(M::tensor_plan()), device, program)? {
        ensure!(comparison.is_traced && comparison.first.is_none(), "{comparison}");
        println!("{}", comparison.into_result()?);
    }
    Ok(())
}

struct Meshes {
    tensor: Mesh,
    sequence: Mesh,
    data: Mesh,
}

impl Meshes {
    fn connect(world: &World) -> anyhow::Result<Self> {
        let connect = |role| Mesh::connect(world, &[(role, 2)], &GroupConfig::new());
        let tensor = connect(AxisRole::Tensor)?;
        Ok(Self {
            sequence: tensor.clone().with_sequence_dimension(1),
            tensor,
            data: connect(AxisRole::Data)?,
        })
    }

    fn layouts(&self, tensor_plan: Plan) -> [Layout; 3] {
        [
            Layout::new("tp2", &self.tensor, tensor_plan.clone()),
            Layout::new("tp2sp", &self.sequence, tensor_plan),
            Layout::new("dp2", &self.data, Plan::new()),
        ]
    }
}

/// What is wrong with the program in a layout.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    /// Gradients, means over the whole batch already, are divided by the number of data-parallel ranks.
    DividedAgain,
    /// Gradients, which are sums over the ranks already, are summed over them again in host memory.
    SummedAgain,
    /// The loss of all tokens is divided by those of a rank and the number of ranks: a mean only where all have as
    /// many.
    OwnTokenCount,
    /// Each rank draws what it drops for itself.
    OwnDraws,
    /// The output layer is used as it was before the first update.
    StaleWeight,
    /// The output layer is returned as it was before the last update.
    StaleAtTheEnd,
    /// The norm for clipping is that of the gradients of parameters that every rank has.
    NormOfWholeParameters,
    /// The first layer's parameters are loaded into the second, and the other way round.
    LayersSwapped,
    /// A rank has the samples in another order, which all ranks have before they are distributed.
    OtherBatch,
}

/// What must be named.
struct Named {
    mistake: Mistake,
    layout: usize,
    operation: &'static str,
    what: What,
    stage: Stage,
    step: usize,
    module: &'static str,
    near: &'static str,
}

/// Each mistake is named by the first tensor that differs.
pub fn mistakes(world: &World) -> anyhow::Result<()> {
    let device = placed_device(FloatDType::F64)?;
    let (tp2, dp2) = (0, 2);
    let result = What::Result { index: 0 };
    let operand = |index| What::Operand { index };
    let named = |mistake, layout, operation, what| Named {
        mistake,
        layout,
        operation,
        what,
        stage: Stage::Forward,
        step: 1,
        module: "",
        near: "",
    };
    let expected = [
        Named {
            stage: Stage::Update,
            near: "gradient of layers.0.norm.gamma",
            ..named(Mistake::DividedAgain, dp2, "float_div_scalar", result.clone())
        },
        Named {
            stage: Stage::Update,
            near: "gradient of layers.0.norm.gamma",
            ..named(Mistake::SummedAgain, dp2, "gradient", result.clone())
        },
        Named {
            module: "loss",
            ..named(Mistake::OwnTokenCount, dp2, "float_div_scalar", result.clone())
        },
        Named {
            module: "layers.0",
            ..named(Mistake::OwnDraws, tp2, "float_mul", operand(1))
        },
        Named {
            step: 2,
            module: "output",
            near: "output.weight",
            // burn gives a weight of so few columns a dimension for the batch.
            ..named(Mistake::StaleWeight, tp2, "float_reshape", operand(0))
        },
        Named {
            stage: Stage::Update,
            step: STEPS,
            near: "output.weight",
            ..named(Mistake::StaleAtTheEnd, tp2, "parameter", result.clone())
        },
        Named {
            stage: Stage::Update,
            module: "clipping",
            near: "gradient of layers.0.norm.gamma",
            ..named(Mistake::NormOfWholeParameters, tp2, "float_mul_scalar", result.clone())
        },
        Named {
            module: "layers.0",
            near: "layers.0.inner.weight",
            ..named(Mistake::LayersSwapped, tp2, "float_matmul", operand(1))
        },
        Named {
            module: "layers.0",
            ..named(Mistake::OtherBatch, dp2, "float_mean_dim", operand(0))
        },
    ];
    let plan = Plan::new().column("layers.*.inner").row("layers.*.outer");
    let layouts = Meshes::connect(world)?.layouts(plan);
    for expected in expected {
        check(world, &layouts, &expected, &device).with_context(|| format!("{:?}", expected.mistake))?;
    }
    Ok(())
}

fn check(world: &World, layouts: &[Layout], expected: &Named, device: &Device) -> anyhow::Result<()> {
    let layout = &layouts[expected.layout..=expected.layout];
    let program = |run: &mut Run| train(run, expected.mistake, world);
    let comparisons = compare(&CompareConfig::new(), layout, device, program)?;
    let comparison = comparisons.first().context("one layout")?;
    if world.rank() == 0 {
        println!("{:?}: {comparison}\n", expected.mistake);
    }
    let first = comparison.first.as_ref();
    let first = first.with_context(|| format!("nothing is named: {comparison}"))?;
    let found = (&first.operation[..], &first.what, first.stage, first.step);
    let wanted = (expected.operation, &expected.what, expected.stage, expected.step);
    ensure!(found == wanted, "{wanted:?}: {comparison}");
    ensure!(
        first.module == expected.module,
        "module {}: {comparison}",
        expected.module
    );
    let is_near = expected.near.is_empty() || first.near.iter().any(|name| name == expected.near);
    ensure!(is_near, "near {}: {comparison}", expected.near);
    let is_result = matches!(first.what, What::Result { .. });
    let are_right = first.operands.iter().all(|operand| operand.relative < 1e-10);
    ensure!(!is_result || are_right, "the operands are right: {comparison}");
    Ok(())
}

/// Two layers with residual connections, and a class for each token.
#[derive(Module, Debug)]
struct Tagger {
    layers: Vec<Layer>,
    output: Linear,
}

#[derive(Module, Debug)]
struct Layer {
    norm: LayerNorm,
    inner: Linear,
    outer: Linear,
    dropout: Dropout,
}

impl Tagger {
    fn new(device: &Device) -> Self {
        let layer = || Layer {
            norm: LayerNormConfig::new(D_MODEL).init(device),
            inner: LinearConfig::new(D_MODEL, 2 * D_MODEL).init(device),
            outer: LinearConfig::new(2 * D_MODEL, D_MODEL).init(device),
            dropout: DropoutConfig::new(0.2).init(),
        };
        Self {
            layers: vec![layer(), layer()],
            output: LinearConfig::new(D_MODEL, CLASSES).init(device),
        }
    }

    /// Squared distances to 1, of each token.
    fn errors(&self, input: Tensor<3>) -> Tensor<3> {
        let mut hidden = input;
        for (number, layer) in self.layers.iter().enumerate() {
            let added = mark(format_args!("layers.{number}"), || {
                let inner = layer.inner.forward(layer.norm.forward(hidden.clone()));
                layer.dropout.forward(layer.outer.forward(inner.tanh()))
            });
            hidden = hidden + added;
        }
        let output = mark("output", || self.output.forward(hidden));
        (output - 1.0).powi_scalar(2).mean_dim(2)
    }
}

/// Some steps, with a mistake in a layout.
fn train(run: &mut Run, mistake: Mistake, world: &World) -> anyhow::Result<Tagger> {
    let is_in_layout = run.layout().is_some();
    let makes = |other: Mistake| is_in_layout && other == mistake;
    let device = run.device();
    let mut model = initialize(Tagger::new(device));
    if makes(Mistake::LayersSwapped) {
        model.layers.swap(0, 1);
    }
    let mut model = run.parallelize(model)?;
    device.seed(if makes(Mistake::OwnDraws) {
        world.rank() as u64
    } else {
        0
    });
    let mut optimizer = AdamWConfig::new().init();
    let ranks = run.mesh().num_ranks();
    for step in 0..STEPS {
        let is_other = makes(Mistake::OtherBatch) && world.rank() == 1;
        let samples = |sample: usize| step * SAMPLES + if is_other { SAMPLES - 1 - sample } else { sample };
        let (input, mask) = batch(samples, device);
        let [input, mask] = [input, mask].map(|tensor| run.distribute(tensor, AxisRole::Data, 0));
        let errors = model.errors(input);
        let loss = mark("loss", || {
            let count = if makes(Mistake::OwnTokenCount) {
                let own = SAMPLES / ranks * world.rank()..SAMPLES / ranks * (world.rank() + 1);
                own.map(num_tokens).sum::<usize>() * ranks
            } else {
                (0..SAMPLES).map(num_tokens).sum()
            };
            (errors * mask).sum().div_scalar(count as f64)
        });
        let (loss, mut gradients) = backward(loss, &model)?;
        let divisor = if makes(Mistake::DividedAgain) { ranks } else { 1 };
        scale(&mut gradients, &model, Change::Divide(divisor as f64));
        if mistake == Mistake::SummedAgain {
            scale(&mut gradients, &model, Change::MultiplyInHostMemory(ranks as f64));
        }
        run.judge(&loss, &gradients, &model)?;
        let norm = norm(&gradients, &model, |name| {
            let is_cut = name.contains("inner") || name.contains("outer.weight");
            !(makes(Mistake::NormOfWholeParameters) && is_cut)
        });
        mark("clipping", || {
            scale(&mut gradients, &model, Change::Multiply(0.1 / norm))
        });
        let before = model.output.clone();
        model = mark("optimizer", || optimizer.step(1e-2, model, gradients));
        if makes(Mistake::StaleWeight) || makes(Mistake::StaleAtTheEnd) && step + 1 == STEPS {
            model.output = before;
        }
    }
    Ok(model)
}

/// Samples and which of their tokens count, `[SAMPLES, SEQ, D_MODEL]` and `[SAMPLES, SEQ, 1]`.
fn batch(number: impl Fn(usize) -> usize, device: &Device) -> (Tensor<3>, Tensor<3>) {
    let (mut values, mut mask) = (Vec::new(), Vec::new());
    for sample in 0..SAMPLES {
        let start = number(sample) * SEQ * D_MODEL;
        values.extend((start..start + SEQ * D_MODEL).map(|index| (index as f64 * 0.37).sin()));
        mask.extend((0..SEQ).map(|token| f64::from(u8::from(token < num_tokens(sample)))));
    }
    (
        Tensor::from_data(TensorData::new(values, [SAMPLES, SEQ, D_MODEL]), device),
        Tensor::from_data(TensorData::new(mask, [SAMPLES, SEQ, 1]), device),
    )
}

/// The first samples are shorter.
fn num_tokens(sample: usize) -> usize {
    2 + sample
}

/// What is done with every gradient.
#[derive(Clone, Copy)]
enum Change {
    Divide(f64),
    Multiply(f64),
    /// Multiplied where no operation sees it.
    MultiplyInHostMemory(f64),
}

fn scale(gradients: &mut GradientsParams, model: &Tagger, change: Change) {
    struct Scale<'a>(&'a mut GradientsParams, Change);
    impl ModuleVisitor for Scale<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let gradient = self.0.remove::<D>(param.id).expect("every parameter has one");
            let changed = match self.1 {
                Change::Divide(by) => gradient.div_scalar(by),
                Change::Multiply(by) => gradient.mul_scalar(by),
                Change::MultiplyInHostMemory(by) => {
                    let (shape, device) = (gradient.shape(), gradient.device());
                    let values: Vec<f64> = read_host(gradient).into_iter().map(|value| value * by).collect();
                    Tensor::from_data(TensorData::new(values, shape), &device)
                }
            };
            self.0.register(param.id, changed);
        }
    }
    model.visit(&mut Scale(gradients, change));
}

/// The norm of the gradients of the parameters that count.
fn norm(gradients: &GradientsParams, model: &Tagger, counts: impl Fn(&str) -> bool) -> f64 {
    struct Squares<'a, F> {
        gradients: &'a GradientsParams,
        counts: F,
        path: Vec<String>,
        sum: f64,
    }
    impl<F: Fn(&str) -> bool> ModuleVisitor for Squares<'_, F> {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.path.push(name.to_owned());
        }
        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if (self.counts)(&self.path.join(".")) {
                let gradient = self.gradients.get::<D>(param.id);
                let values = read_host(gradient.expect("every parameter has one"));
                self.sum += values.iter().map(|value| value * value).sum::<f64>();
            }
        }
    }
    let mut squares = Squares {
        gradients,
        counts,
        path: Vec::new(),
        sum: 0.0,
    };
    model.visit(&mut squares);
    squares.sum.sqrt()
}
