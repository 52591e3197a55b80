//! The inputs and outputs that several operations have in common: a norm's parameters and statistics, addends, sums of
//! gradients, the optimizer's buffers.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor};
use burn_fusion::{Fusion, FusionBackend};

use super::custom::{Custom, Inputs, Outputs};
use crate::accumulate::{GradientPlace, GradientSums, VectorSums};
use crate::adamw::AdamWBuffers;
use crate::flash_attention::{AttentionBackward, AttentionForward, BackwardBias};
use crate::norm::{AddRule, AddendGradients, Addends, NormGradients, NormKind, NormParameters, NormStatistics};
use crate::precision::compute_type;
use crate::rotary::{RotaryAngles, RotaryLayout};
use crate::tape::primitive;

/// What of a norm's parameters is no tensor.
#[derive(Clone, Copy)]
pub(super) struct NormShape {
    pub(super) kind: NormKind,
    pub(super) has_bias: bool,
    epsilon: f64,
}

impl NormShape {
    pub(super) fn of<B: FusionBackend>(parameters: &NormParameters<Fusion<B>>) -> Self {
        Self {
            kind: parameters.kind,
            has_bias: parameters.bias.is_some(),
            epsilon: parameters.epsilon,
        }
    }

    pub(super) fn next<B: FusionBackend>(self, inputs: &mut Inputs<'_, B>) -> NormParameters<B> {
        NormParameters {
            kind: self.kind,
            weight: inputs.next(),
            bias: inputs.next_if(self.has_bias),
            epsilon: self.epsilon,
        }
    }

    pub(super) fn next_statistics<B: FusionBackend>(self, inputs: &mut Inputs<'_, B>) -> NormStatistics<B> {
        NormStatistics {
            mean: inputs.next_if(self.kind == NormKind::Layer),
            reciprocal: inputs.next(),
        }
    }
}

impl<B: FusionBackend> Custom<B> {
    pub(super) fn with_norm(self, parameters: &NormParameters<Fusion<B>>) -> Self {
        self.with(&parameters.weight).with_some(parameters.bias.as_ref())
    }

    pub(super) fn with_statistics(self, statistics: &NormStatistics<Fusion<B>>) -> Self {
        self.with_some(statistics.mean.as_ref()).with(&statistics.reciprocal)
    }

    pub(super) fn with_addends(self, addends: &Addends<Fusion<B>>) -> Self {
        self.with(&addends.input)
            .with_some(addends.bias.as_ref())
            .with(&addends.residual)
    }

    /// With the angles of a rotation, if there are any; returns their layout.
    pub(super) fn with_angles(self, angles: Option<RotaryAngles<Fusion<B>>>) -> (Self, Option<RotaryLayout>) {
        match angles {
            Some(angles) => {
                let custom = self.with(&angles.cosine).with(&angles.sine);
                (custom.with_int(&angles.positions), Some(angles.layout))
            }
            None => (self, None),
        }
    }

    pub(super) fn statistics_outputs(self, kind: NormKind, rows: usize, dtype: DType) -> Self {
        let named = match kind {
            NormKind::Layer => self.output([rows], compute_type(dtype)),
            NormKind::Rms => self,
        };
        named.output([rows], compute_type(dtype))
    }
}

impl<B: FusionBackend> Outputs<B> {
    pub(super) fn next_if<const D: usize>(&mut self, is_there: bool) -> Option<Tensor<Fusion<B>, D>> {
        is_there.then(|| self.next())
    }

    pub(super) fn next_statistics(&mut self, kind: NormKind) -> NormStatistics<Fusion<B>> {
        NormStatistics {
            mean: self.next_if(kind == NormKind::Layer),
            reciprocal: self.next(),
        }
    }
}

/// The angles of a rotation, in the order in which [`Custom::with_angles`] names them.
pub(super) fn next_angles<B: FusionBackend>(
    inputs: &mut Inputs<'_, B>,
    layout: Option<RotaryLayout>,
) -> Option<RotaryAngles<B>> {
    layout.map(|layout| RotaryAngles {
        cosine: inputs.next(),
        sine: inputs.next(),
        positions: inputs.next_int(),
        layout,
    })
}

/// What of an attention's backward pass is no tensor.
#[derive(Clone, Copy)]
pub(super) struct BackwardShape {
    has_bias: bool,
    pub(super) is_bias_wanted: bool,
}

impl<B: FusionBackend> Custom<B> {
    /// With what an attention's backward pass takes in addition to its inputs; the gradient of the bias is an output
    /// where it is wanted.
    pub(super) fn with_attention(self, pass: AttentionBackward<Fusion<B>>) -> (Self, BackwardShape) {
        let bias = pass.bias.as_ref();
        let shape = BackwardShape {
            has_bias: bias.is_some(),
            is_bias_wanted: bias.is_some_and(|bias| bias.is_wanted),
        };
        let mut custom = self
            .with_owned(pass.forward.output)
            .with_owned(pass.forward.log_sum_exp)
            .with_owned(pass.gradient);
        if let Some(bias) = pass.bias {
            let (dims, dtype) = (bias.table.dims(), bias.table.dtype());
            custom = custom.with_owned(bias.table);
            if bias.is_wanted {
                custom = custom.output(dims, dtype);
            }
        }
        (custom, shape)
    }
}

/// What an attention's backward pass takes, in the order in which [`Custom::with_attention`] names it.
pub(super) fn next_attention<B: FusionBackend>(
    inputs: &mut Inputs<'_, B>,
    shape: BackwardShape,
) -> AttentionBackward<B> {
    AttentionBackward {
        forward: AttentionForward {
            output: inputs.next(),
            log_sum_exp: inputs.next(),
        },
        gradient: inputs.next(),
        bias: inputs.next_if(shape.has_bias).map(|table| BackwardBias {
            table,
            is_wanted: shape.is_bias_wanted,
        }),
    }
}

/// The optimizer's buffers, in the order in which [`Custom::with_buffers`] names them.
pub(super) fn next_buffers<B: FusionBackend>(inputs: &mut Inputs<'_, B>) -> AdamWBuffers<B> {
    AdamWBuffers::from_array([inputs.next(), inputs.next(), inputs.next()])
}

impl<B: FusionBackend> Custom<B> {
    /// Names the optimizer's buffers as inputs and as outputs.
    pub(super) fn with_buffers(self, buffers: AdamWBuffers<Fusion<B>>) -> Self {
        let buffers = buffers.into_array().into_iter();
        buffers.fold(self, |custom, buffer| {
            let (dims, dtype) = (buffer.dims(), buffer.dtype());
            custom.with_owned(buffer).output(dims, dtype)
        })
    }
}

impl<B: FusionBackend> Outputs<B> {
    pub(super) fn next_buffers(&mut self) -> AdamWBuffers<Fusion<B>> {
        AdamWBuffers::from_array([self.next(), self.next(), self.next()])
    }
}

pub(super) fn next_addends<B: FusionBackend>(inputs: &mut Inputs<'_, B>, rule: &AddRule) -> Addends<B> {
    Addends {
        input: inputs.next(),
        bias: inputs.next_if(rule.has_bias),
        residual: inputs.next(),
        dropout: rule.dropout.clone(),
    }
}

pub(super) fn statistics_primitives<B: FusionBackend>(
    statistics: NormStatistics<B>,
) -> impl Iterator<Item = FloatTensor<B>> {
    let mean = statistics.mean.map(primitive);
    mean.into_iter().chain([primitive(statistics.reciprocal)])
}

impl<B: FusionBackend> Custom<B> {
    pub(super) fn parameter_outputs(self, shape: NormShape, columns: usize, dtype: DType) -> Self {
        let named = self.output([columns], dtype);
        if shape.has_bias {
            named.output([columns], dtype)
        } else {
            named
        }
    }

    pub(super) fn addend_outputs(self, rule: &AddRule, dims: [usize; 2], dtype: DType) -> Self {
        let named = self.output(dims, dtype).output(dims, dtype);
        if rule.has_bias {
            named.output([dims[1]], dtype)
        } else {
            named
        }
    }
}

impl<B: FusionBackend> Outputs<B> {
    pub(super) fn next_norm_gradients(&mut self, shape: NormShape) -> NormGradients<Fusion<B>> {
        NormGradients {
            input: self.next(),
            weight: self.next(),
            bias: self.next_if(shape.has_bias),
        }
    }

    pub(super) fn next_addend_gradients(&mut self, rule: &AddRule) -> AddendGradients<Fusion<B>> {
        AddendGradients {
            input: self.next(),
            residual: self.next(),
            bias: self.next_if(rule.has_bias),
        }
    }
}

/// In the order in which [`Outputs::next_norm_gradients`] takes them.
pub(super) fn norm_primitives<B: FusionBackend>(gradients: NormGradients<B>) -> impl Iterator<Item = FloatTensor<B>> {
    let parameters = [primitive(gradients.input), primitive(gradients.weight)].into_iter();
    parameters.chain(gradients.bias.map(primitive))
}

/// In the order in which [`Outputs::next_addend_gradients`] takes them.
pub(super) fn addend_primitives<B: FusionBackend>(
    gradients: AddendGradients<B>,
) -> impl Iterator<Item = FloatTensor<B>> {
    let sums = [primitive(gradients.input), primitive(gradients.residual)].into_iter();
    sums.chain(gradients.bias.map(primitive))
}

impl<B: FusionBackend> Custom<B> {
    /// Sums that are given up, and come back as the next outputs.
    pub(super) fn with_sums(mut self, sums: GradientSums<Fusion<B>>) -> Self {
        for buffer in [sums.sums, sums.non_finite] {
            let (dims, dtype) = (buffer.dims(), buffer.dtype());
            self = self.with_owned(buffer).output(dims, dtype);
        }
        self
    }

    /// As [`with_sums`](Self::with_sums), with the places.
    pub(super) fn with_vector_sums(self, to: VectorSums<Fusion<B>>) -> (Self, Vec<GradientPlace>) {
        (self.with_sums(to.sums), to.places)
    }
}

impl<B: FusionBackend> Outputs<B> {
    pub(super) fn next_sums(&mut self) -> GradientSums<Fusion<B>> {
        GradientSums {
            sums: self.next(),
            non_finite: self.next(),
        }
    }
}

pub(super) fn next_sums<B: FusionBackend>(inputs: &mut Inputs<'_, B>) -> GradientSums<B> {
    GradientSums {
        sums: inputs.next(),
        non_finite: inputs.next(),
    }
}

pub(super) fn next_vector_sums<B: FusionBackend>(
    inputs: &mut Inputs<'_, B>,
    places: &[GradientPlace],
) -> VectorSums<B> {
    VectorSums {
        sums: next_sums(inputs),
        places: places.to_vec(),
    }
}

/// In the order in which [`Outputs::next_sums`] takes them.
pub(super) fn sums_primitives<B: FusionBackend>(sums: GradientSums<B>) -> impl Iterator<Item = FloatTensor<B>> {
    [sums.sums, sums.non_finite].map(primitive).into_iter()
}
