//! An existing burn program: trains a classifier around burn's `TransformerEncoder` in one process.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::prelude::*;

const STEPS: usize = 40;
const BATCH: usize = 32;
const SEQ: usize = 12;
const VOCAB: usize = 50;
const CLASSES: usize = 4;

#[derive(Module, Debug)]
struct Classifier {
    embedding: Embedding,
    encoder: TransformerEncoder,
    output: Linear,
}

impl Classifier {
    fn new(device: &Device) -> Self {
        let config = TransformerEncoderConfig::new(32, 64, 4, 2).with_dropout(0.0);
        let embedding = EmbeddingConfig::new(VOCAB, 32).init(device);
        let encoder = config.init(device);
        let output = LinearConfig::new(32, CLASSES).init(device);
        Self {
            embedding,
            encoder,
            output,
        }
    }

    fn loss(&self, tokens: Tensor<2, Int>, labels: Tensor<1, Int>) -> Tensor<1> {
        let hidden = self
            .encoder
            .forward(TransformerEncoderInput::new(self.embedding.forward(tokens)));
        let logits = self.output.forward(hidden.mean_dim(1).squeeze_dim::<2>(1));
        CrossEntropyLossConfig::new()
            .init(&labels.device())
            .forward(logits, labels)
    }
}

fn main() -> anyhow::Result<()> {
    train()
}

fn train() -> anyhow::Result<()> {
    let device = Device::flex().autodiff();
    device.seed(7);
    let mut model = Classifier::new(&device);
    let mut optimizer = AdamWConfig::new().init();
    for step in 0..STEPS {
        let (tokens, labels) = batch(step * BATCH..(step + 1) * BATCH, &device);
        let loss = model.loss(tokens, labels);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(5e-4, model, gradients);
        println!("step {:2} | loss {:.7}", step + 1, loss.into_scalar::<f32>());
    }
    Ok(())
}

/// Samples by number: sequences of tokens, half of them from the quarter of the vocabulary that is the label.
fn batch(samples: std::ops::Range<usize>, device: &Device) -> (Tensor<2, Int>, Tensor<1, Int>) {
    let (mut tokens, mut labels) = (Vec::new(), Vec::new());
    for sample in samples.clone() {
        let label = sample % CLASSES;
        let drawn = |place: usize| (sample * SEQ + place).wrapping_mul(2654435761) >> 7;
        let token = |place: usize| match place % 2 {
            0 => (label * VOCAB / CLASSES + drawn(place) % (VOCAB / CLASSES)) as i32,
            _ => (drawn(place) % VOCAB) as i32,
        };
        tokens.extend((0..SEQ).map(token));
        labels.push(label as i32);
    }
    (
        Tensor::from_data(TensorData::new(tokens, [samples.len(), SEQ]), device),
        Tensor::from_data(TensorData::new(labels, [samples.len()]), device),
    )
}
