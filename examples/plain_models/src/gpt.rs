//! A GPT of burn's own layers.

use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig, generate_autoregressive_mask};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{
    Dropout, DropoutConfig, Embedding, EmbeddingConfig, Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig,
};
use burn::prelude::*;

/// The sizes of a [`PlainGpt`].
#[derive(Config, Debug)]
pub struct PlainGptConfig {
    pub vocabulary: usize,
    pub seq_length: usize,
    pub d_model: usize,
    pub n_heads: usize,
    pub n_layers: usize,
    #[config(default = 0.0)]
    pub dropout: f64,
}

/// A decoder-only language model.
#[derive(Module, Debug)]
pub struct PlainGpt {
    tokens: Embedding,
    positions: Embedding,
    layers: Vec<Layer>,
    norm: LayerNorm,
    output: Linear,
    dropout: Dropout,
}

/// Attention and a feed-forward layer, each after a norm and added to what came in.
#[derive(Module, Debug)]
pub struct Layer {
    attention_norm: LayerNorm,
    attention: MultiHeadAttention,
    mlp_norm: LayerNorm,
    inner: Linear,
    outer: Linear,
    activation: Gelu,
    dropout: Dropout,
}

impl PlainGptConfig {
    pub fn init(&self, device: &Device) -> PlainGpt {
        PlainGpt {
            tokens: EmbeddingConfig::new(self.vocabulary, self.d_model).init(device),
            positions: EmbeddingConfig::new(self.seq_length, self.d_model).init(device),
            layers: (0..self.n_layers).map(|_| self.layer(device)).collect(),
            norm: LayerNormConfig::new(self.d_model).init(device),
            output: LinearConfig::new(self.d_model, self.vocabulary)
                .with_bias(false)
                .init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
        }
    }

    fn layer(&self, device: &Device) -> Layer {
        let d_model = self.d_model;
        Layer {
            attention_norm: LayerNormConfig::new(d_model).init(device),
            attention: MultiHeadAttentionConfig::new(d_model, self.n_heads)
                .with_dropout(self.dropout)
                .init(device),
            mlp_norm: LayerNormConfig::new(d_model).init(device),
            inner: LinearConfig::new(d_model, 4 * d_model).init(device),
            outer: LinearConfig::new(4 * d_model, d_model).init(device),
            activation: Gelu::new(),
            dropout: DropoutConfig::new(self.dropout).init(),
        }
    }
}

impl PlainGpt {
    /// The mean loss of `[batch, seq]` tokens and their successors.
    pub fn loss(&self, tokens: Tensor<2, Int>, targets: Tensor<2, Int>) -> Tensor<1> {
        let [batch, seq] = tokens.dims();
        let device = tokens.device();
        let positions = Tensor::arange(0..seq as i64, &device).reshape([1, seq]);
        let embedded = self.tokens.forward(tokens) + self.positions.forward(positions);
        let mask = generate_autoregressive_mask(batch, seq, &device);
        let mut hidden = self.dropout.forward(embedded);
        for layer in &self.layers {
            hidden = layer.forward(hidden, mask.clone());
        }
        let logits = self.output.forward(self.norm.forward(hidden));
        let vocabulary = logits.dims()[2];
        let loss = CrossEntropyLossConfig::new().init(&device);
        loss.forward(
            logits.reshape([batch * seq, vocabulary]),
            targets.reshape([batch * seq]),
        )
    }
}

impl Layer {
    fn forward(&self, hidden: Tensor<3>, mask: Tensor<3, Bool>) -> Tensor<3> {
        let input = MhaInput::self_attn(self.attention_norm.forward(hidden.clone())).mask_attn(mask);
        let hidden = hidden + self.dropout.forward(self.attention.forward(input).context);
        let inner = self
            .activation
            .forward(self.inner.forward(self.mlp_norm.forward(hidden.clone())));
        hidden + self.dropout.forward(self.outer.forward(inner))
    }
}
