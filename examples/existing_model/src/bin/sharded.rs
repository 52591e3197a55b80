//! The program `serial` on two data-parallel ranks, each with a share of the optimizer's state.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::prelude::*;
use burn_megatron::prelude::*;

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

fn main() -> std::process::ExitCode {
    burn_megatron::run(2, train)
}

fn train(world: &World) -> anyhow::Result<()> {
    let device = Device::flex().autodiff();
    device.seed(7);
    let context = ParallelConfig::new().init(world)?;
    let config = DataParallelConfig::new().with_sharding(ShardingStrategy::Optim);
    let mut model = DistributedDataParallel::new(Classifier::new(&device), &context, config)?;
    let mut optimizer = ShardedOptimizer::new(&model, ElementWiseOptimizer::from(AdamWConfig::new().build()))?;
    for step in 0..STEPS {
        let (tokens, labels) = batch(context.data_shard(step * BATCH..(step + 1) * BATCH)?, &device);
        let loss = model.train_step(5e-4, &mut optimizer, |model| model.loss(tokens, labels))?;
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
