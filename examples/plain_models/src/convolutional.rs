//! A classifier of images: convolutions, batch norm, pooling.

use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d, Relu};
use burn::prelude::*;

pub const SIZE: usize = 8;
pub const CLASSES: usize = 3;

/// Two convolutions with batch norm, each pooled, then a linear layer.
#[derive(Module, Debug)]
pub struct ConvNet {
    first: Conv2d,
    first_norm: BatchNorm,
    pool: MaxPool2d,
    second: Conv2d,
    second_norm: BatchNorm,
    average: AdaptiveAvgPool2d,
    output: Linear,
    activation: Relu,
}

impl ConvNet {
    pub fn new(device: &Device) -> Self {
        let convolution = |channels| {
            Conv2dConfig::new(channels, [3, 3])
                .with_padding(PaddingConfig2d::Same)
                .init(device)
        };
        Self {
            first: convolution([1, 4]),
            first_norm: BatchNormConfig::new(4).init(device),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            second: convolution([4, 8]),
            second_norm: BatchNormConfig::new(8).init(device),
            average: AdaptiveAvgPool2dConfig::new([2, 2]).init(),
            output: LinearConfig::new(8 * 4, CLASSES).init(device),
            activation: Relu::new(),
        }
    }

    /// The mean loss of `[batch, 1, SIZE, SIZE]` images and `[batch]` labels.
    pub fn loss(&self, images: Tensor<4>, labels: Tensor<1, Int>) -> Tensor<1> {
        let hidden = self
            .activation
            .forward(self.first_norm.forward(self.first.forward(images)));
        let hidden = self.second.forward(self.pool.forward(hidden));
        let hidden = self.activation.forward(self.second_norm.forward(hidden));
        let logits = self.output.forward(self.average.forward(hidden).flatten(1, 3));
        CrossEntropyLossConfig::new()
            .init(&logits.device())
            .forward(logits, labels)
    }
}
