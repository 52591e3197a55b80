//! The models that burn-train trains, their samples, and what steps do in addition.
//!
//! `Net` is a model of burn's own layers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::{Dataset, DatasetError};
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::TransformerEncoderConfig;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::activation::tanh;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn::train::{ClassificationOutput, InferenceStep, Interrupter, TrainOutput, TrainStep};
use burn_megatron::context::ParallelContext;
use burn_megatron::parameters::{read_host, settle_running_states};
use burn_megatron::random::RandomStream;
use burn_megatron::tensor_parallel::{ParallelTransformerEncoder, TransformerEncoderInput};
use tests::device;

const FEATURES: usize = 6;
const CLASSES: usize = 3;

/// Training steps that this process has made.
pub static STEPS: AtomicUsize = AtomicUsize::new(0);
/// Who is interrupted in which training step.
pub static INTERRUPTED: Mutex<Option<(Interrupter, usize)>> = Mutex::new(None);

#[derive(Module, Debug)]
pub struct Net {
    first: Linear,
    norm: Option<BatchNorm>,
    second: Linear,
    /// Used by the samples of the first class alone, which some ranks have none of.
    rare: Linear,
    /// Whether an update keeps the first bias within bounds that it reaches.
    is_bounded: bool,
}

impl Net {
    pub fn new() -> Self {
        let device = &device();
        device.seed(5);
        burn_megatron::initialize(Self {
            first: LinearConfig::new(FEATURES, 5).init(device),
            norm: None,
            second: LinearConfig::new(5, CLASSES).init(device),
            rare: LinearConfig::new(FEATURES, CLASSES).init(device),
            is_bounded: false,
        })
    }

    pub fn with_norm() -> Self {
        let norm = Some(BatchNormConfig::new(5).init(&device()));
        Self { norm, ..Self::new() }
    }

    pub fn bounded() -> Self {
        Self {
            is_bounded: true,
            ..Self::new()
        }
    }

    fn classify(&self, Samples { inputs, labels }: Samples) -> ClassificationOutput {
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
        settle_running_states(self);
        values_of(self)
    }

    /// The mean loss over samples.
    pub fn loss(&self, samples: Samples) -> Tensor<1> {
        self.classify(samples).loss
    }
}

impl TrainStep for Net {
    type Input = Samples;
    type Output = ClassificationOutput;

    fn step(&self, samples: Samples) -> TrainOutput<ClassificationOutput> {
        let step = STEPS.fetch_add(1, Ordering::Relaxed) + 1;
        let interrupted = INTERRUPTED.lock().expect("no panic");
        if let Some((interrupter, _)) = interrupted.as_ref().filter(|(_, at)| *at == step) {
            interrupter.stop(Some("asked in a step"));
        }
        let item = self.classify(samples);
        TrainOutput::new(self, item.loss.backward(), item)
    }

    fn optimize(
        self,
        optimizer: &mut ModuleOptimizer,
        learning_rate: ModuleLearningRate,
        gradients: GradientsParams,
    ) -> Self {
        let mut net = optimizer.step(learning_rate, self, gradients);
        if !net.is_bounded {
            return net;
        }
        net.first.bias = net.first.bias.map(|bias| {
            bias.map(|bias| {
                let (inner, is_trained) = (bias.clone().inner().clamp(-0.2, 0.2), bias.is_require_grad());
                Tensor::from_inner(inner).set_require_grad(is_trained)
            })
        });
        net
    }
}

impl InferenceStep for Net {
    type Input = Samples;
    type Output = ClassificationOutput;

    fn step(&self, samples: Samples) -> ClassificationOutput {
        self.classify(samples)
    }
}

/// Every parameter's values, in order.
fn values_of<M: Module>(module: &M) -> Vec<f64> {
    struct Reader(Vec<f64>);
    impl ModuleVisitor for Reader {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
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
pub struct Dropping {
    encoder: ParallelTransformerEncoder,
}

impl Dropping {
    pub fn new(context: &ParallelContext) -> anyhow::Result<Self> {
        device().seed(5);
        let config = TransformerEncoderConfig::new(CLASSES, 8, 1, 2).with_dropout(0.2);
        let encoder = burn_megatron::initialize(config.init(&device()));
        let encoder = ParallelTransformerEncoder::from_encoder(encoder, &config, &context.scope("encoder"))?;
        Ok(Self { encoder })
    }

    fn classify(&self, Samples { inputs, labels }: Samples) -> ClassificationOutput {
        let [count, _] = inputs.dims();
        let input = inputs.reshape([count, FEATURES / CLASSES, CLASSES]); // [batch, seq, d_model]
        let hidden = self.encoder.forward(TransformerEncoderInput::new(input));
        let output = hidden.mean_dim(1).squeeze_dim::<2>(1); // [batch, d_model]
        let loss = CrossEntropyLossConfig::new().init(&labels.device());
        ClassificationOutput::new(loss.forward(output.clone(), labels.clone()), output, labels)
    }

    /// Every parameter's values, in order.
    pub fn values(&self) -> Vec<f64> {
        values_of(self)
    }
}

impl TrainStep for Dropping {
    type Input = Samples;
    type Output = ClassificationOutput;

    fn step(&self, samples: Samples) -> TrainOutput<ClassificationOutput> {
        let item = self.classify(samples);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl InferenceStep for Dropping {
    type Input = Samples;
    type Output = ClassificationOutput;

    fn step(&self, samples: Samples) -> ClassificationOutput {
        self.classify(samples)
    }
}

/// A batch.
#[derive(Clone, Debug)]
pub struct Samples {
    inputs: Tensor<2>,
    labels: Tensor<1, Int>,
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

    fn get(&self, index: usize) -> Result<Sample, DatasetError> {
        assert!(index < self.count, "sample {index} of {}", self.count);
        let mut features = vec![0.0; FEATURES];
        RandomStream::new(3, &format!("{} {index}", self.name)).fill_normal(0, 1.0, &mut features);
        let sum: f64 = features[..3].iter().sum();
        let label = match sum {
            sum if sum < -1.0 => 0,
            sum if sum < 1.0 => 1,
            _ => 2,
        };
        Ok(Sample { features, label })
    }
}

/// Makes batches in the type of the case.
#[derive(Clone)]
pub struct Batches(pub DType);

impl Batcher<Sample, Samples> for Batches {
    fn batch(&self, samples: Vec<Sample>, device: &Device) -> Samples {
        let count = samples.len();
        let labels: Vec<i32> = samples.iter().map(|sample| sample.label).collect();
        let inputs: Vec<f64> = samples.into_iter().flat_map(|sample| sample.features).collect();
        Samples {
            inputs: Tensor::from_data(TensorData::new(inputs, [count, FEATURES]), (device, self.0)),
            labels: Tensor::from_data(TensorData::new(labels, [count]), (device, DType::I32)),
        }
    }
}
