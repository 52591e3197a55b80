//! A classifier of sequences: an LSTM.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, Lstm, LstmConfig};
use burn::prelude::*;

pub const SEQ: usize = 5;
pub const WIDTH: usize = 6;
pub const CLASSES: usize = 3;
const HIDDEN: usize = 8;

/// The last hidden state, then a linear layer.
#[derive(Module, Debug)]
pub struct Recurrent<B: Backend> {
    lstm: Lstm<B>,
    output: Linear<B>,
}

impl<B: Backend> Recurrent<B> {
    pub fn new(device: &B::Device) -> Self {
        Self {
            lstm: LstmConfig::new(WIDTH, HIDDEN, true).init(device),
            output: LinearConfig::new(HIDDEN, CLASSES).init(device),
        }
    }

    /// The mean loss of `[batch, SEQ, WIDTH]` sequences and `[batch]` labels.
    pub fn loss(&self, sequences: Tensor<B, 3>, labels: Tensor<B, 1, Int>) -> Tensor<B, 1> {
        let (_, state) = self.lstm.forward(sequences, None);
        let logits = self.output.forward(state.hidden);
        CrossEntropyLossConfig::new()
            .init(&logits.device())
            .forward(logits, labels)
    }
}
