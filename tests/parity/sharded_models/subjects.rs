//! The models, each with its data and with the plan that makes it tensor-parallel.

use std::ops::Range;

use burn::module::AutodiffModule;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor, TensorData};
use burn_megatron::random::RandomStream;
use burn_megatron::sharded::Plan;
use cubecl_kernels::KernelBackend;
use plain_models::classifier::{self, Classifier};
use plain_models::convolutional::{self, ConvNet};
use plain_models::fused_gpt::FusedGpt;
use plain_models::gpt::{PlainGpt, PlainGptConfig};
use plain_models::recurrent::{self, Recurrent};

/// What happens to the tensors of a batch before a model sees them.
pub trait PlaceBatch<B: Backend> {
    fn floats<const D: usize>(&self, tensor: Tensor<B, D>) -> Tensor<B, D>;
    fn ints<const D: usize>(&self, tensor: Tensor<B, D, Int>) -> Tensor<B, D, Int>;
}

/// A model that the tests train.
pub trait Subject<B: AutodiffBackend>: AutodiffModule<B> {
    /// Makes the model; burn draws its parameters.
    fn make(dropout: f64, device: &B::Device) -> Self;
    /// The mean loss of these samples of the run.
    fn loss_of(&self, samples: Range<usize>, place: &impl PlaceBatch<B>, device: &B::Device) -> Tensor<B, 1>;
    /// Cuts its matrices over tensor-parallel ranks.
    fn tensor_plan() -> Plan;
    /// As [`tensor_plan`](Self::tensor_plan), by someone who cuts what follows a cut in the same way.
    fn careless_plan() -> Plan {
        Self::tensor_plan()
    }
    /// All-reduces, all-gathers and reduce-scatters of a step on two tensor-parallel ranks, forward, backward and for
    /// gradients, with and without sequence parallelism.
    fn collectives(_is_sequence_parallel: bool) -> Vec<[usize; 3]> {
        Vec::new()
    }
}

impl<B: AutodiffBackend> Subject<B> for Classifier<B> {
    fn make(dropout: f64, device: &B::Device) -> Self {
        Classifier::new(dropout, device)
    }

    fn loss_of(&self, samples: Range<usize>, place: &impl PlaceBatch<B>, device: &B::Device) -> Tensor<B, 1> {
        let tokens = tokens(samples.clone(), classifier::SEQ, classifier::VOCABULARY, device);
        self.loss(
            place.ints(tokens),
            place.ints(labels(samples, classifier::CLASSES, device)),
        )
    }

    fn tensor_plan() -> Plan {
        Plan::new()
            .transformer_encoder("encoder")
            .vocabulary("embedding")
            .column("output")
    }

    fn careless_plan() -> Plan {
        Plan::new()
            .column("encoder.layers.*.mha.{query,key,value}")
            .column("encoder.layers.*.mha.output")
            .column("encoder.layers.*.pwff.linear_inner")
            .column("encoder.layers.*.pwff.linear_outer")
    }

    fn collectives(is_sequence_parallel: bool) -> Vec<[usize; 3]> {
        // Two of each layer, and those of the two ends, which are cut by the vocabulary and the classes.
        if is_sequence_parallel {
            vec![[5, 3, 4], [1, 8, 4], [1, 0, 0]]
        } else {
            vec![[4 + 4, 0, 0], [4 + 1, 0, 0], [1, 0, 0]]
        }
    }
}

impl<B: AutodiffBackend> Subject<B> for ConvNet<B> {
    fn make(_dropout: f64, device: &B::Device) -> Self {
        ConvNet::new(device)
    }

    fn loss_of(&self, samples: Range<usize>, place: &impl PlaceBatch<B>, device: &B::Device) -> Tensor<B, 1> {
        let images = floats(samples.clone(), [1, convolutional::SIZE, convolutional::SIZE], device);
        self.loss(
            place.floats(images),
            place.ints(labels(samples, convolutional::CLASSES, device)),
        )
    }

    fn tensor_plan() -> Plan {
        Plan::new().channels("{first,second}").row("output")
    }
}

impl<B: AutodiffBackend> Subject<B> for Recurrent<B> {
    fn make(_dropout: f64, device: &B::Device) -> Self {
        Recurrent::new(device)
    }

    fn loss_of(&self, samples: Range<usize>, place: &impl PlaceBatch<B>, device: &B::Device) -> Tensor<B, 1> {
        let sequences = floats(samples.clone(), [recurrent::SEQ, recurrent::WIDTH], device);
        self.loss(
            place.floats(sequences),
            place.ints(labels(samples, recurrent::CLASSES, device)),
        )
    }

    fn tensor_plan() -> Plan {
        Plan::new().column("lstm.*.*_transform").row("output")
    }
}

fn gpt_config(dropout: f64) -> PlainGptConfig {
    PlainGptConfig::new(24, GPT_SEQ, 16, 4, 2).with_dropout(dropout)
}

/// Tokens and their successors.
fn text<B: Backend>(samples: Range<usize>, place: &impl PlaceBatch<B>, device: &B::Device) -> [Tensor<B, 2, Int>; 2] {
    let tokens = tokens(samples, GPT_SEQ + 1, 24, device);
    let targets = tokens.clone().narrow(1, 1, GPT_SEQ);
    [place.ints(tokens.narrow(1, 0, GPT_SEQ)), place.ints(targets)]
}

fn gpt_plan() -> Plan {
    Plan::new()
        .vocabulary("tokens")
        .column("layers.*.attention.{query,key,value}")
        .row("layers.*.attention.output")
        .column("layers.*.inner")
        .row("layers.*.outer")
        .column("output")
}

impl<B: AutodiffBackend> Subject<B> for PlainGpt<B> {
    fn make(dropout: f64, device: &B::Device) -> Self {
        gpt_config(dropout).init(device)
    }

    fn loss_of(&self, samples: Range<usize>, place: &impl PlaceBatch<B>, device: &B::Device) -> Tensor<B, 1> {
        let [tokens, targets] = text(samples, place, device);
        self.loss(tokens, targets)
    }

    fn tensor_plan() -> Plan {
        gpt_plan()
    }
}

impl<B: AutodiffBackend + KernelBackend> Subject<B> for FusedGpt<B> {
    fn make(dropout: f64, device: &B::Device) -> Self {
        gpt_config(dropout).init_fused(device)
    }

    fn loss_of(&self, samples: Range<usize>, place: &impl PlaceBatch<B>, device: &B::Device) -> Tensor<B, 1> {
        let [tokens, targets] = text(samples, place, device);
        self.loss(tokens, targets).expect("its sizes are the kernels'")
    }

    fn tensor_plan() -> Plan {
        gpt_plan()
    }

    fn careless_plan() -> Plan {
        Plan::new()
            .column("layers.*.attention.{query,key,value,output}")
            .column("layers.*.{inner,outer}")
    }

    fn collectives(is_sequence_parallel: bool) -> Vec<[usize; 3]> {
        // Two of each layer, and those of the two ends: the loss reduces two numbers of each token. The output layer's
        // gradient finds its gathered input still there.
        if is_sequence_parallel {
            vec![[2, 4 + 1, 4 + 1], [0, 2 * 4 + 1, 4 + 1], [1, 0, 0]]
        } else {
            vec![[4 + 1 + 2, 0, 0], [4 + 1, 0, 0], [0, 0, 0]]
        }
    }
}

const GPT_SEQ: usize = 8;

/// Numbers of a sample that do not depend on what else is in its batch.
fn numbers(sample: usize, count: usize) -> Vec<f64> {
    let mut numbers = vec![0.0; count];
    RandomStream::new(sample as u64, "sample").fill_uniform(0, 1.0, &mut numbers);
    numbers
}

fn floats<B: Backend, const S: usize, const D: usize>(
    samples: Range<usize>,
    shape: [usize; S],
    device: &B::Device,
) -> Tensor<B, D> {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = samples.clone().flat_map(|sample| numbers(sample, count)).collect();
    let shape: Vec<usize> = [samples.len()].into_iter().chain(shape).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn tokens<B: Backend>(samples: Range<usize>, seq: usize, vocabulary: usize, device: &B::Device) -> Tensor<B, 2, Int> {
    let token = |number: f64| (((number + 1.0) / 2.0 * vocabulary as f64) as i64).min(vocabulary as i64 - 1);
    let values: Vec<i64> = samples
        .clone()
        .flat_map(|sample| numbers(sample, seq))
        .map(token)
        .collect();
    Tensor::from_data(TensorData::new(values, [samples.len(), seq]), device)
}

fn labels<B: Backend>(samples: Range<usize>, classes: usize, device: &B::Device) -> Tensor<B, 1, Int> {
    let values: Vec<i64> = samples.clone().map(|sample| (sample % classes) as i64).collect();
    Tensor::from_data(TensorData::new(values, [samples.len()]), device)
}
