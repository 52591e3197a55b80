//! The models that are wrapped, their samples, and one step of either: wrapped on all ranks, or plain in one process.
//!
//! No line of burn-megatron is used by the models.

use std::collections::BTreeMap;

use anyhow::ensure;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::{ModuleOptimizer, Sgd, SgdConfig};
use burn::tensor::activation::tanh;
use burn::tensor::{Gradients, Tensor};
use burn_megatron::data_parallel::{
    DataParallelConfig, DistributedDataParallel, ElementWise, ElementWiseOptimizer, ReducedGradients, StepPart,
};
use burn_megatron::parameters::{Placement, read_host};

use crate::parity::cases::comparison::{Closeness, Scene};

/// Micro-batches of a step, over all ranks.
pub const MICRO_BATCHES: usize = 4;
const SAMPLES: usize = 3;

/// A model and its samples.
pub trait Net: Module {
    /// Returns the model with numbers of this name.
    fn new(scene: &Scene, numbers: &str) -> Self;

    /// The mean loss over the samples of a micro-batch, counted over the whole run.
    fn loss(&self, scene: &Scene, micro_batch: usize) -> Tensor<1>;
}

/// Convolution, batch norm, linear layer; its fields are listed in the opposite order.
#[derive(Module, Debug)]
pub struct ConvNet {
    pub head: Linear,
    pub norm: BatchNorm,
    pub conv: Conv2d,
}

impl Net for ConvNet {
    fn new(scene: &Scene, numbers: &str) -> Self {
        let device = &tests::device();
        let net = ConvNet {
            head: LinearConfig::new(27, 4).init(device),
            norm: BatchNormConfig::new(3).init(device),
            conv: Conv2dConfig::new([2, 3], [3, 3]).init(device),
        };
        numbered(net, scene, numbers)
    }

    fn loss(&self, scene: &Scene, micro_batch: usize) -> Tensor<1> {
        let images = scene.random(&format!("images {micro_batch}"), SAMPLES * 2 * 25);
        let hidden = self.conv.forward(scene.tensor(images, [SAMPLES, 2, 5, 5]));
        let hidden = tanh(self.norm.forward(hidden));
        squared_error(self.head.forward(hidden.flatten::<2>(1, 3)), scene, micro_batch)
    }
}

/// Parameters of every kind: frozen, used twice, used in every second micro-batch only, and never used.
#[derive(Module, Debug)]
pub struct OddNet {
    pub never: Linear,
    pub sometimes: Linear,
    pub twice: Linear,
    pub frozen: Linear,
    pub head: Linear,
}

impl Net for OddNet {
    fn new(scene: &Scene, numbers: &str) -> Self {
        let linear = |d_output| LinearConfig::new(5, d_output).init(&tests::device());
        let net = OddNet {
            never: linear(2),
            sometimes: linear(5),
            twice: linear(5),
            frozen: linear(5),
            head: linear(4),
        };
        let mut net = numbered(net, scene, numbers);
        net.frozen = net.frozen.no_grad();
        net
    }

    fn loss(&self, scene: &Scene, micro_batch: usize) -> Tensor<1> {
        let input = scene.random(&format!("input {micro_batch}"), SAMPLES * 5);
        let hidden = tanh(self.frozen.forward(scene.tensor(input, [SAMPLES, 5])));
        let hidden = self.twice.forward(tanh(self.twice.forward(hidden)));
        let hidden = match micro_batch % 2 {
            0 => tanh(hidden),
            _ => self.sometimes.forward(tanh(hidden)),
        };
        squared_error(self.head.forward(hidden), scene, micro_batch)
    }
}

/// Reads its parameters through itself and through a copy, as recomputation does.
#[derive(Module, Debug)]
pub struct CopiedNet {
    pub net: MatrixNet,
}

impl Net for CopiedNet {
    fn new(scene: &Scene, numbers: &str) -> Self {
        CopiedNet {
            net: MatrixNet::new(scene, numbers),
        }
    }

    fn loss(&self, scene: &Scene, micro_batch: usize) -> Tensor<1> {
        let copy = self.net.clone();
        (copy.loss(scene, micro_batch) + self.net.loss(scene, micro_batch)).mul_scalar(0.5)
    }
}

/// Matrices only.
#[derive(Module, Debug)]
pub struct MatrixNet {
    pub hidden: Linear,
    pub head: Linear,
}

impl Net for MatrixNet {
    fn new(scene: &Scene, numbers: &str) -> Self {
        let linear = |d_input, d_output| {
            let config = LinearConfig::new(d_input, d_output).with_bias(false);
            config.init(&tests::device())
        };
        let net = MatrixNet {
            hidden: linear(5, 7),
            head: linear(7, 4),
        };
        numbered(net, scene, numbers)
    }

    fn loss(&self, scene: &Scene, micro_batch: usize) -> Tensor<1> {
        let input = scene.random(&format!("input {micro_batch}"), SAMPLES * 5);
        let hidden = tanh(self.hidden.forward(scene.tensor(input, [SAMPLES, 5])));
        squared_error(self.head.forward(hidden), scene, micro_batch)
    }
}

fn squared_error(output: Tensor<2>, scene: &Scene, micro_batch: usize) -> Tensor<1> {
    let targets = scene.random(&format!("targets {micro_batch}"), SAMPLES * 4);
    let difference = output - scene.tensor(targets, [SAMPLES, 4]);
    // Not a division by a number: burn's backward pass of it divides in f32, also in a model of f64.
    (difference.clone() * difference).sum().mul_scalar(1.0 / SAMPLES as f64)
}

/// Gives every trained parameter numbers by its place in the module: the same on every rank.
pub fn numbered<M: Module>(module: M, scene: &Scene, name: &str) -> M {
    struct Numberer<'a>(&'a Scene, &'a str, usize);
    impl ModuleMapper for Numberer<'_> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let Self(scene, name, index) = self;
            *index += 1;
            param.map(|tensor| {
                if !tensor.is_require_grad() {
                    tensor
                } else {
                    let numbers = scene.random(&format!("{name} {index}"), tensor.shape().num_elements());
                    scene.tensor(numbers, tensor.dims()).mul_scalar(0.5).require_grad()
                }
            })
        }
    }
    module.map(&mut Numberer(scene, name, 0))
}

/// Runs a step's micro-batches of this rank and returns the reduced gradients.
pub fn wrapped_step<M: Net>(
    wrapped: &mut DistributedDataParallel<M>,
    scene: &Scene,
    step: usize,
) -> anyhow::Result<ReducedGradients> {
    let mine = micro_batches_of(scene, step, scene.context.coordinates().data);
    let share = 1.0 / mine.len() as f64;
    for (round, &micro_batch) in mine.iter().enumerate() {
        let part = if round + 1 == mine.len() {
            StepPart::Last
        } else {
            StepPart::More
        };
        wrapped.backward(part, |net| net.loss(scene, micro_batch).mul_scalar(share))?;
    }
    Ok(wrapped.gradients()?)
}

/// The numbers of the micro-batches of a step that a data-parallel rank takes.
pub fn micro_batches_of(scene: &Scene, step: usize, rank: usize) -> Vec<usize> {
    let size = scene.context.grid().data_parallel_size();
    (rank..MICRO_BATCHES)
        .step_by(size)
        .map(|micro_batch| step * MICRO_BATCHES + micro_batch)
        .collect()
}

/// The gradients of a step by plain burn in one process: the mean over all samples.
pub fn plain_step<M: Net>(net: &M, scene: &Scene, step: usize) -> Gradients {
    let losses = (0..MICRO_BATCHES).map(|micro_batch| net.loss(scene, step * MICRO_BATCHES + micro_batch));
    let losses = losses.collect();
    Tensor::cat(losses, 0)
        .sum()
        .mul_scalar(1.0 / MICRO_BATCHES as f64)
        .backward()
}

/// What a module's parameters are, by path.
pub struct Named {
    pub values: BTreeMap<String, Vec<f64>>,
    /// Of the trained ones that have a gradient.
    pub gradients: BTreeMap<String, Vec<f64>>,
}

/// Reads a module's parameters, buffers too, and their gradients where there are any.
pub fn named<M: Module>(module: &M, gradients: Option<&Gradients>) -> Named {
    struct Reader<'a> {
        path: Vec<String>,
        gradients: Option<&'a Gradients>,
        named: Named,
    }
    impl ModuleVisitor for Reader<'_> {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.path.push(name.to_owned());
        }
        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let (name, value) = (self.path.join("."), param.val());
            if let Some(gradient) = self.gradients.and_then(|gradients| value.grad(gradients)) {
                self.named.gradients.insert(name.clone(), read_host(gradient));
            }
            self.named.values.insert(name, read_host(value));
        }
    }
    let mut reader = Reader {
        path: Vec::new(),
        gradients,
        named: Named {
            values: BTreeMap::new(),
            gradients: BTreeMap::new(),
        },
    };
    module.visit(&mut reader);
    reader.named
}

/// Wraps a model with buckets of `bucket_size` elements.
pub fn wrap<M: Net>(net: M, scene: &Scene, bucket_size: usize) -> anyhow::Result<DistributedDataParallel<M>> {
    let config = DataParallelConfig::new().with_bucket_size(Some(bucket_size));
    Ok(DistributedDataParallel::new(net, &scene.context, config)?)
}

/// burn's gradient descent.
pub fn sgd() -> ElementWiseOptimizer<Sgd> {
    ElementWiseOptimizer::from(SgdConfig::new().build())
}

/// Returns the same optimizer as plain burn has it, which clips by itself.
pub fn plain_optimizer<O: ElementWise>(optimizer: &ElementWiseOptimizer<O>) -> ModuleOptimizer {
    let plain = ModuleOptimizer::from(optimizer.optimizer().clone());
    match optimizer.grad_clipping() {
        Some(clipping) => plain.with_grad_clipping(clipping.clone()),
        None => plain,
    }
}

/// Fails unless two sets of values are as close as asked.
pub fn same_values(
    scene: &Scene,
    closeness: Closeness,
    values: &BTreeMap<String, Vec<f64>>,
    expected: &BTreeMap<String, Vec<f64>>,
) -> anyhow::Result<()> {
    ensure!(
        values.keys().eq(expected.keys()),
        "{:?} against {:?}",
        values.keys(),
        expected.keys()
    );
    for (name, expected) in expected {
        let placement = Placement::whole([expected.len()]);
        scene.compare(closeness, name, &values[name], expected, &placement)?;
    }
    Ok(())
}
