//! A classifier of short texts around burn's `TransformerEncoder`.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::prelude::*;

pub const VOCABULARY: usize = 20;
pub const SEQ: usize = 6;
pub const CLASSES: usize = 4;
const D_MODEL: usize = 16;

/// Mean of the encoded tokens, then a linear layer.
#[derive(Module, Debug)]
pub struct Classifier {
    embedding: Embedding,
    encoder: TransformerEncoder,
    output: Linear,
}

impl Classifier {
    pub fn new(dropout: f64, device: &Device) -> Self {
        let encoder = TransformerEncoderConfig::new(D_MODEL, 2 * D_MODEL, 4, 2).with_dropout(dropout);
        Self {
            embedding: EmbeddingConfig::new(VOCABULARY, D_MODEL).init(device),
            encoder: encoder.init(device),
            output: LinearConfig::new(D_MODEL, CLASSES).init(device),
        }
    }

    /// `[batch, CLASSES]` for `[batch, SEQ]` tokens.
    pub fn logits(&self, tokens: Tensor<2, Int>) -> Tensor<2> {
        let hidden = self
            .encoder
            .forward(TransformerEncoderInput::new(self.embedding.forward(tokens)));
        self.output.forward(hidden.mean_dim(1).squeeze_dim::<2>(1))
    }

    /// The mean loss of `[batch, SEQ]` tokens and `[batch]` labels.
    pub fn loss(&self, tokens: Tensor<2, Int>, labels: Tensor<1, Int>) -> Tensor<1> {
        let logits = self.logits(tokens);
        CrossEntropyLossConfig::new()
            .init(&logits.device())
            .forward(logits, labels)
    }
}
