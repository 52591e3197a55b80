//! A convolutional model of burn's own layers, whole or cut into stages, and its samples.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::tanh;
use burn::tensor::{DType, Tensor};
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, ReducedGradients};
use burn_megatron::parameters::{settle_running_states, tensor_from_host};
use burn_megatron::pipeline_parallel::schedule::{ScheduleConfig, ScheduleKind};
use burn_megatron::pipeline_parallel::{PipelineExecutor, PipelineStage, StageOutput};

use crate::parity::cases::comparison::Scene;
use crate::parity::cases::wrapper::nets::{micro_batches_of, named, numbered};

/// Equal to the largest number of virtual stages.
const LAYERS: usize = 4;
const CHANNELS: usize = 3;
const SIZE: usize = 5;
const CLASSES: usize = 2;

pub type Wrapped = DistributedDataParallel<Vec<Part>>;

/// Convolution, tanh, batch norm: directly after the convolution, the norm would leave its bias without a gradient.
#[derive(Module, Debug)]
pub struct Layer {
    pub conv: Conv2d,
    pub norm: BatchNorm,
}

/// Some of the model's layers; the last part has the head.
#[derive(Module, Debug)]
pub struct Part {
    pub layers: Vec<Layer>,
    pub head: Option<Linear>,
    /// The number of the first layer.
    pub first: usize,
    #[module(skip)]
    pub variant: Variant,
}

/// What varies between the checks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Variant {
    /// Layers that are not trained, from the first.
    pub frozen: usize,
    /// Whether the last micro-batch of each step has fewer samples.
    pub is_last_smaller: bool,
    /// Whether every layer is a segment, and all but the last are recomputed.
    pub is_recomputed: bool,
}

/// The samples of a micro-batch.
#[derive(Clone, Debug)]
pub struct Samples {
    size: usize,
    images: Vec<f64>,
    targets: Vec<f64>,
    dtype: DType,
    /// What the process sends itself where the micro-batch is run forward.
    pub signal: Option<i32>,
}

impl Samples {
    /// Micro-batch `number`, counted over the whole run.
    pub fn new(scene: &Scene, variant: Variant, number: usize, is_last: bool) -> Self {
        let size = if variant.is_last_smaller && is_last { 1 } else { 3 };
        Self {
            size,
            images: scene.random(&format!("images {number}"), size * CHANNELS * SIZE * SIZE),
            targets: scene.random(&format!("targets {number}"), size * CLASSES),
            dtype: scene.dtype,
            signal: None,
        }
    }

    /// Those of a step that a data-parallel rank takes.
    pub fn of_step(scene: &Scene, variant: Variant, step: usize, data: usize) -> Vec<Self> {
        let numbers = micro_batches_of(scene, step, data);
        let count = numbers.len();
        numbers
            .into_iter()
            .enumerate()
            .map(|(round, number)| Self::new(scene, variant, number, round + 1 == count))
            .collect()
    }
}

impl Part {
    pub fn whole(scene: &Scene, variant: Variant) -> Self {
        let device = &tests::device();
        let layer = || Layer {
            conv: Conv2dConfig::new([CHANNELS, CHANNELS], [3, 3])
                .with_padding(PaddingConfig2d::Same)
                .init(device),
            norm: BatchNormConfig::new(CHANNELS).init(device),
        };
        let part = Part {
            layers: (0..LAYERS).map(|_| layer()).collect(),
            head: Some(LinearConfig::new(CHANNELS * SIZE * SIZE, CLASSES).init(device)),
            first: 0,
            variant,
        };
        let mut part = numbered(part, scene, "net");
        part.layers = part
            .layers
            .into_iter()
            .enumerate()
            .map(|(number, layer)| {
                if number < variant.frozen {
                    layer.no_grad()
                } else {
                    layer
                }
            })
            .collect();
        part
    }

    /// The part of a virtual stage.
    pub fn cut(self, virtual_stage: usize, num_virtual_stages: usize) -> Self {
        let share = LAYERS / num_virtual_stages;
        let first = virtual_stage * share;
        Part {
            layers: self.layers.into_iter().skip(first).take(share).collect(),
            head: self.head.filter(|_| virtual_stage + 1 == num_virtual_stages),
            first,
            ..self
        }
    }
}

impl PipelineStage<4> for Part {
    type MicroBatch = Samples;

    fn input_shape(&self, samples: &Samples) -> [usize; 4] {
        [samples.size, CHANNELS, SIZE, SIZE]
    }

    fn forward(&self, input: Option<Tensor<4>>, samples: &Samples) -> StageOutput<4> {
        self.run(0..self.layers.len(), input, samples)
    }

    fn num_segments(&self) -> usize {
        if self.variant.is_recomputed {
            self.layers.len()
        } else {
            1
        }
    }

    fn is_recomputed(&self, segment: usize) -> bool {
        self.variant.is_recomputed && self.first + segment + 1 < LAYERS
    }

    fn forward_segment(&self, segment: usize, input: Option<Tensor<4>>, samples: &Samples) -> StageOutput<4> {
        if self.variant.is_recomputed {
            self.run(segment..segment + 1, input, samples)
        } else {
            self.forward(input, samples)
        }
    }
}

impl Part {
    fn run(&self, layers: std::ops::Range<usize>, input: Option<Tensor<4>>, samples: &Samples) -> StageOutput<4> {
        if let Some(signal) = samples.signal {
            // What was sent so far has left.
            std::thread::sleep(std::time::Duration::from_millis(300));
            match signal {
                // Only this thread hangs: heartbeats and started calls continue.
                0 => std::thread::sleep(std::time::Duration::from_secs(30)),
                // SAFETY: stops or kills this very process.
                _ => drop(unsafe { libc::raise(signal) }),
            }
        }
        let is_end = layers.end == self.layers.len();
        let device = self.devices().first().cloned().unwrap_or_default();
        let input = input.unwrap_or_else(|| {
            let shape = [samples.size, CHANNELS, SIZE, SIZE];
            tensor_from_host(samples.images.clone(), shape, samples.dtype, &device)
        });
        let features = self.layers[layers].iter().fold(input, |features, layer| {
            layer.norm.forward(tanh(layer.conv.forward(features)))
        });
        let Some(head) = self.head.as_ref().filter(|_| is_end) else {
            return StageOutput::Activation(features);
        };
        let targets = tensor_from_host(samples.targets.clone(), [samples.size, CLASSES], samples.dtype, &device);
        let difference = head.forward(features.flatten::<2>(1, 3)) - targets;
        StageOutput::Losses((difference.clone() * difference).sum_dim(1).flatten(0, 1))
    }

    /// The mean loss of a micro-batch, of the whole model.
    pub fn loss(&self, samples: &Samples) -> Tensor<1> {
        match self.forward(None, samples) {
            StageOutput::Losses(losses) => mean(losses),
            StageOutput::Activation(_) => panic!("the whole model has a head"),
        }
    }
}

/// Not a division by a number: burn's backward pass of it divides in f32, also in a model of f64.
pub fn mean(losses: Tensor<1>) -> Tensor<1> {
    let count = losses.dims()[0];
    losses.sum().mul_scalar(1.0 / count as f64)
}

/// This rank's chunks, wrapped in small buckets, and their executor.
pub fn pipeline(
    scene: &Scene,
    num_chunks: usize,
    kind: ScheduleKind,
    num_micro_batches: usize,
    variant: Variant,
) -> anyhow::Result<(Wrapped, PipelineExecutor)> {
    let context = &scene.context;
    let (stage, num_stages) = (context.coordinates().pipeline, context.grid().pipeline_parallel_size());
    let chunks = (0..num_chunks).map(|chunk| {
        let virtual_stage = chunk * num_stages + stage;
        Part::whole(scene, variant).cut(virtual_stage, num_chunks * num_stages)
    });
    let config = DataParallelConfig::new().with_bucket_size(Some(40));
    let wrapped = DistributedDataParallel::new(chunks.collect(), context, config)?;
    let schedule = ScheduleConfig {
        kind,
        num_stages,
        num_chunks,
        num_micro_batches,
    };
    Ok((wrapped, PipelineExecutor::new(schedule.init()?, context)?))
}

/// Gradients by the names that the whole model has for their parameters.
pub fn gradients_by_name(chunks: &[Part], reduced: &ReducedGradients) -> BTreeMap<String, Vec<f64>> {
    let entries = reduced.entries().iter();
    entries
        .map(|entry| {
            let (chunk, name) = entry.name.split_once('.').expect("the path in a list of chunks");
            let chunk: usize = chunk.parse().expect("the number of a chunk");
            (whole_name(&chunks[chunk], name), reduced.values(entry))
        })
        .collect()
}

/// Parameters and buffers by the names that the whole model has for them.
pub fn values_by_name(chunks: &[Part]) -> BTreeMap<String, Vec<f64>> {
    let mut values = BTreeMap::new();
    for part in chunks {
        settle_running_states(part);
        let of_part = named(part, None).values.into_iter();
        values.extend(of_part.map(|(name, value)| (whole_name(part, &name), value)));
    }
    values
}

fn whole_name(part: &Part, name: &str) -> String {
    let numbered = name.strip_prefix("layers.").and_then(|rest| rest.split_once('.'));
    match numbered {
        Some((layer, rest)) => {
            let layer: usize = layer.parse().expect("the number of a layer");
            format!("layers.{}.{rest}", part.first + layer)
        }
        None => name.to_owned(),
    }
}
