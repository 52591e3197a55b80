//! The models that burn-train trains, their samples, and what steps do in addition.
//!
//! `Net` uses no line of burn-megatron.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::TransformerEncoderConfig;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::activation::tanh;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Int, Tensor, TensorData};
use burn::train::{ClassificationOutput, InferenceStep, Interrupter, TrainOutput, TrainStep};
use burn_flex::{Flex, FlexDevice};
use burn_megatron::collectives::CollectiveBackend;
use burn_megatron::context::ParallelContext;
use burn_megatron::parameters::{read_host, settle_running_states};
use burn_megatron::random::RandomStream;
use burn_megatron::tensor_parallel::{ParallelTransformerEncoder, TransformerEncoderInput};

use crate::parity::learner::cases::B;

const FEATURES: usize = 6;
const CLASSES: usize = 3;

/// Training steps that this process has made.
pub static STEPS: AtomicUsize = AtomicUsize::new(0);
/// Who is interrupted in which training step.
pub static INTERRUPTED: Mutex<Option<(Interrupter, usize)>> = Mutex::new(None);

#[derive(Module, Debug)]
pub struct Net<B: Backend> {
    first: Linear<B>,
    norm: Option<BatchNorm<B>>,
    second: Linear<B>,
    /// Used by the samples of the first class alone, which some ranks have none of.
    rare: Linear<B>,
}

impl Net<B> {
    pub fn new() -> Self {
        let device = &FlexDevice;
        B::seed(device, 5);
        let net = Self {
            first: LinearConfig::new(FEATURES, 5).init(device),
            norm: None,
            second: LinearConfig::new(5, CLASSES).init(device),
            rare: LinearConfig::new(FEATURES, CLASSES).init(device),
        };
        net.num_params(); // clones of lazy parameters would draw others
        net
    }

    pub fn with_norm() -> Self {
        let norm = Some(BatchNormConfig::new(5).init(&FlexDevice));
        Self { norm, ..Self::new() }
    }
}

impl<B: Backend> Net<B> {
    fn classify(&self, Samples { inputs, labels }: Samples<B>) -> ClassificationOutput<B> {
        let hidden = self.first.forward(inputs.clone());
        let hidden = match &self.norm {
            None => hidden,
            Some(norm) => norm.forward(hidden),
        };
        let mut output = self.second.forward(tanh(hidden));
        if labels
            .clone()
            .equal_elem(0)
            .any()
            .into_data()
            .iter::<bool>()
            .any(|any| any)
        {
            let is_first = labels.clone().equal_elem(0).float().unsqueeze_dim::<2>(1);
            output = output + self.rare.forward(inputs) * is_first;
        }
        let loss = CrossEntropyLossConfig::new().init(&labels.device());
        ClassificationOutput::new(loss.forward(output.clone(), labels.clone()), output, labels)
    }

    /// Every parameter's values and the running means, in order.
    pub fn values(&self) -> Vec<f64> {
        settle_running_states::<B, Self>(self);
        values_of::<B, Self>(self)
    }

    /// The mean loss over samples.
    pub fn loss(&self, samples: Samples<B>) -> Tensor<B, 1> {
        self.classify(samples).loss
    }
}

impl<B: AutodiffBackend> TrainStep for Net<B> {
    type Input = Samples<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, samples: Samples<B>) -> TrainOutput<ClassificationOutput<B>> {
        let step = STEPS.fetch_add(1, Ordering::Relaxed) + 1;
        let interrupted = INTERRUPTED.lock().expect("no panic");
        if let Some((interrupter, _)) = interrupted.as_ref().filter(|(_, at)| *at == step) {
            interrupter.stop(Some("asked in a step"));
        }
        let item = self.classify(samples);
        TrainOutput::new(self, item.loss.backward(), item)
    }

    /// Keeps the first bias within bounds that it reaches.
    fn optimize<A, O>(self, optimizer: &mut O, learning_rate: f64, gradients: GradientsParams) -> Self
    where
        A: AutodiffBackend,
        O: Optimizer<Self, A>,
        Self: AutodiffModule<A>,
    {
        let mut net = optimizer.step(learning_rate, self, gradients);
        net.first.bias = net.first.bias.map(|bias| {
            bias.map(|bias| {
                let (inner, is_trained) = (bias.clone().inner().clamp(-0.2, 0.2), bias.is_require_grad());
                Tensor::from_inner(inner).set_require_grad(is_trained)
            })
        });
        net
    }
}

impl<B: Backend> InferenceStep for Net<B> {
    type Input = Samples<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, samples: Samples<B>) -> ClassificationOutput<B> {
        self.classify(samples)
    }
}

/// Every parameter's values, in order.
fn values_of<B: Backend, M: Module<B>>(module: &M) -> Vec<f64> {
    struct Reader(Vec<f64>);
    impl<B: Backend> ModuleVisitor<B> for Reader {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            self.0.extend(read_host(param.val()));
        }
    }
    let mut reader = Reader(Vec::new());
    module.visit(&mut reader);
    reader.0
}

/// A converted encoder whose dropout asks for the step: a sample is a sequence of two tokens, the mean of the output
/// its classes.
#[derive(Module, Debug)]
pub struct Dropping<B: Backend> {
    encoder: ParallelTransformerEncoder<B>,
}

impl Dropping<B> {
    pub fn new(context: &ParallelContext) -> anyhow::Result<Self> {
        B::seed(&FlexDevice, 5);
        let config = TransformerEncoderConfig::new(CLASSES, 8, 1, 2).with_dropout(0.2);
        let encoder = burn_megatron::initialize(config.init::<B>(&FlexDevice));
        let encoder = ParallelTransformerEncoder::from_encoder(encoder, &config, &context.scope("encoder"))?;
        Ok(Self { encoder })
    }
}

impl<B: CollectiveBackend> Dropping<B> {
    fn classify(&self, Samples { inputs, labels }: Samples<B>) -> ClassificationOutput<B> {
        let [count, _] = inputs.dims();
        let input = inputs.reshape([count, FEATURES / CLASSES, CLASSES]); // [batch, seq, d_model]
        let hidden = self.encoder.forward(TransformerEncoderInput::new(input));
        let output = hidden.mean_dim(1).squeeze_dim::<2>(1); // [batch, d_model]
        let loss = CrossEntropyLossConfig::new().init(&labels.device());
        ClassificationOutput::new(loss.forward(output.clone(), labels.clone()), output, labels)
    }
}

impl<B: Backend> Dropping<B> {
    /// Every parameter's values, in order.
    pub fn values(&self) -> Vec<f64> {
        values_of::<B, Self>(self)
    }
}

impl TrainStep for Dropping<B> {
    type Input = Samples<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, samples: Samples<B>) -> TrainOutput<ClassificationOutput<B>> {
        let item = self.classify(samples);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl InferenceStep for Dropping<Flex> {
    type Input = Samples<Flex>;
    type Output = ClassificationOutput<Flex>;

    fn step(&self, samples: Samples<Flex>) -> ClassificationOutput<Flex> {
        self.classify(samples)
    }
}

/// A batch.
#[derive(Clone, Debug)]
pub struct Samples<B: Backend> {
    inputs: Tensor<B, 2>,
    labels: Tensor<B, 1, Int>,
}

/// A sample: N(0, 1) features, and the class that a sum of them decides.
#[derive(Clone, Debug)]
pub struct Sample {
    features: Vec<f64>,
    label: i32,
}

/// `count` samples, by a name.
pub struct Numbered {
    pub name: &'static str,
    pub count: usize,
}

impl Dataset<Sample> for Numbered {
    fn len(&self) -> usize {
        self.count
    }

    fn get(&self, index: usize) -> Option<Sample> {
        let mut features = vec![0.0; FEATURES];
        RandomStream::new(3, &format!("{} {index}", self.name)).fill_normal(0, 1.0, &mut features);
        let sum: f64 = features[..3].iter().sum();
        let label = match sum {
            sum if sum < -1.0 => 0,
            sum if sum < 1.0 => 1,
            _ => 2,
        };
        (index < self.count).then_some(Sample { features, label })
    }
}

/// Makes batches in the type of the case.
#[derive(Clone)]
pub struct Batches(pub DType);

impl<B: Backend> Batcher<B, Sample, Samples<B>> for Batches {
    fn batch(&self, samples: Vec<Sample>, device: &B::Device) -> Samples<B> {
        let count = samples.len();
        let labels: Vec<i32> = samples.iter().map(|sample| sample.label).collect();
        let inputs: Vec<f64> = samples.into_iter().flat_map(|sample| sample.features).collect();
        Samples {
            inputs: Tensor::from_data(TensorData::new(inputs, [count, FEATURES]), (device, self.0)),
            labels: Tensor::from_data(TensorData::new(labels, [count]), (device, DType::I32)),
        }
    }
}
