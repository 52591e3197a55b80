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
pub struct Recurrent {
    lstm: Lstm,
    output: Linear,
}

impl Recurrent {
    pub fn new(device: &Device) -> Self {
        Self {
            lstm: LstmConfig::new(WIDTH, HIDDEN, true).init(device),
            output: LinearConfig::new(HIDDEN, CLASSES).init(device),
        }
    }

    /// The mean loss of `[batch, SEQ, WIDTH]` sequences and `[batch]` labels.
    pub fn loss(&self, sequences: Tensor<3>, labels: Tensor<1, Int>) -> Tensor<1> {
        let (_, state) = self.lstm.forward(sequences, None);
        let logits = self.output.forward(state.hidden);
        CrossEntropyLossConfig::new()
            .init(&logits.device())
            .forward(logits, labels)
    }
}
