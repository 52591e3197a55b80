//! The models, each with its data and with the plan that makes it tensor-parallel.

use std::ops::Range;

use burn::module::Module;
use burn::nn::{Gelu, Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_megatron::random::RandomStream;
use burn_megatron::sharded::Plan;
use plain_models::classifier::{self, Classifier};
use plain_models::convolutional::{self, ConvNet};
use plain_models::fused_gpt::FusedGpt;
use plain_models::gpt::{PlainGpt, PlainGptConfig};
use plain_models::recurrent::{self, Recurrent};

use super::passes::Passes;

/// A model that the tests train.
pub trait Subject: Module {
    /// Makes the model; burn draws its parameters.
    fn make(dropout: f64, device: &Device) -> Self;
    /// The mean loss of these samples of the run.
    fn loss_of(&self, samples: Range<usize>, passes: &Passes, device: &Device) -> Tensor<1>;
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

impl Subject for Classifier {
    fn make(dropout: f64, device: &Device) -> Self {
        Classifier::new(dropout, device)
    }

    fn loss_of(&self, samples: Range<usize>, passes: &Passes, device: &Device) -> Tensor<1> {
        let tokens = tokens(samples.clone(), classifier::SEQ, classifier::VOCABULARY, device);
        self.loss(
            passes.place(tokens),
            passes.place(labels(samples, classifier::CLASSES, device)),
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
        // Two of each layer, and those of the two ends, which are cut by the vocabulary and the classes. Under sequence
        // parallelism the backward pass gathers once more in each layer than Megatron's.
        if is_sequence_parallel {
            vec![[5, 3, 4], [1, 8 + 2, 4], [1, 0, 0]]
        } else {
            vec![[4 + 4, 0, 0], [4 + 1, 0, 0], [1, 0, 0]]
        }
    }
}

impl Subject for ConvNet {
    fn make(_dropout: f64, device: &Device) -> Self {
        ConvNet::new(device)
    }

    fn loss_of(&self, samples: Range<usize>, passes: &Passes, device: &Device) -> Tensor<1> {
        let images = floats(samples.clone(), [1, convolutional::SIZE, convolutional::SIZE], device);
        self.loss(
            passes.place(images),
            passes.place(labels(samples, convolutional::CLASSES, device)),
        )
    }

    fn tensor_plan() -> Plan {
        Plan::new().channels("{first,second}").row("output")
    }
}

impl Subject for Recurrent {
    fn make(_dropout: f64, device: &Device) -> Self {
        Recurrent::new(device)
    }

    fn loss_of(&self, samples: Range<usize>, passes: &Passes, device: &Device) -> Tensor<1> {
        let sequences = floats(samples.clone(), [recurrent::SEQ, recurrent::WIDTH], device);
        self.loss(
            passes.place(sequences),
            passes.place(labels(samples, recurrent::CLASSES, device)),
        )
    }

    fn tensor_plan() -> Plan {
        Plan::new().column("lstm.*.*_transform").row("output")
    }
}

/// Two linear layers on sequences that no number of ranks divides, of a width that none does either.
#[derive(Module, Debug)]
pub struct OddPair {
    inner: Linear,
    activation: Gelu,
    outer: Linear,
}

const ODD_SEQ: usize = 5;
const ODD_WIDTH: usize = 7;

impl Subject for OddPair {
    fn make(_dropout: f64, device: &Device) -> Self {
        Self {
            inner: LinearConfig::new(ODD_WIDTH, 20).init(device),
            activation: Gelu::new(),
            outer: LinearConfig::new(20, ODD_WIDTH).init(device),
        }
    }

    fn loss_of(&self, samples: Range<usize>, passes: &Passes, device: &Device) -> Tensor<1> {
        let input: Tensor<3> = passes.place(floats(samples, [ODD_SEQ, ODD_WIDTH], device));
        let hidden = self.activation.forward(self.inner.forward(input));
        (self.outer.forward(hidden) - 0.5).powi_scalar(2).mean()
    }

    fn tensor_plan() -> Plan {
        Plan::new().column("inner").row("outer")
    }
}

fn gpt_config(dropout: f64) -> PlainGptConfig {
    PlainGptConfig::new(24, GPT_SEQ, 16, 4, 2).with_dropout(dropout)
}

/// Tokens and their successors.
fn text(samples: Range<usize>, passes: &Passes, device: &Device) -> [Tensor<2, Int>; 2] {
    let tokens = tokens(samples, GPT_SEQ + 1, 24, device);
    let targets = tokens.clone().narrow(1, 1, GPT_SEQ);
    [passes.place(tokens.narrow(1, 0, GPT_SEQ)), passes.place(targets)]
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

impl Subject for PlainGpt {
    fn make(dropout: f64, device: &Device) -> Self {
        gpt_config(dropout).init(device)
    }

    fn loss_of(&self, samples: Range<usize>, passes: &Passes, device: &Device) -> Tensor<1> {
        let [tokens, targets] = text(samples, passes, device);
        self.loss(tokens, targets)
    }

    fn tensor_plan() -> Plan {
        gpt_plan()
    }
}

impl Subject for FusedGpt {
    fn make(dropout: f64, device: &Device) -> Self {
        gpt_config(dropout).init_fused(device)
    }

    fn loss_of(&self, samples: Range<usize>, passes: &Passes, device: &Device) -> Tensor<1> {
        let [tokens, targets] = text(samples, passes, device);
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
        // gradient finds its gathered input still there. Without sequence parallelism the last norm's gradients are
        // summed with the step's, as is the bias before it.
        if is_sequence_parallel {
            vec![[2, 4 + 1, 4 + 1], [0, 2 * 4 + 1, 4 + 1], [1, 0, 0]]
        } else {
            vec![[4 + 1 + 2, 0, 0], [4 + 1, 0, 0], [1, 0, 0]]
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

fn floats<const S: usize, const D: usize>(samples: Range<usize>, shape: [usize; S], device: &Device) -> Tensor<D> {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = samples.clone().flat_map(|sample| numbers(sample, count)).collect();
    let shape: Vec<usize> = [samples.len()].into_iter().chain(shape).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn tokens(samples: Range<usize>, seq: usize, vocabulary: usize, device: &Device) -> Tensor<2, Int> {
    let token = |number: f64| (((number + 1.0) / 2.0 * vocabulary as f64) as i64).min(vocabulary as i64 - 1);
    let values: Vec<i64> = samples
        .clone()
        .flat_map(|sample| numbers(sample, seq))
        .map(token)
        .collect();
    Tensor::from_data(TensorData::new(values, [samples.len(), seq]), device)
}

fn labels(samples: Range<usize>, classes: usize, device: &Device) -> Tensor<1, Int> {
    let values: Vec<i64> = samples.clone().map(|sample| (sample % classes) as i64).collect();
    Tensor::from_data(TensorData::new(values, [samples.len()]), device)
}
