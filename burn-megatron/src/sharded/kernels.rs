//! Fused operations on placed tensors: the inner backend's kernels on each rank's part.
//!
//! Attention is cut over samples and heads, norms over rows, bias-GELU over rows and columns. The others run in burn's
//! operations, each by its rule.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorPrimitive};
use cubecl_kernels::bias_gelu::BiasGeluGradients;
use cubecl_kernels::flash_attention::host::AttentionSizes;
use cubecl_kernels::flash_attention::{AttentionForward, AttentionOptions};
use cubecl_kernels::norm::{NormGradients, NormKind, NormParameters, NormStatistics};
use cubecl_kernels::{KernelBackend, KernelError};

use super::apply::{Placed, apply};
use super::kind::Float;
use super::rules::module::Named;
use super::{Sharded, ShardedTensor};
use crate::collectives::CollectiveBackend;

type FloatSharded<B> = ShardedTensor<B, Float>;

impl<B: CollectiveBackend> KernelBackend for Sharded<B> {
    fn check_attention(
        device: &B::Device,
        operation: &'static str,
        dtype: DType,
        sizes: AttentionSizes,
    ) -> Result<(), KernelError> {
        B::check_attention(device, operation, dtype, sizes)
    }

    fn flash_attention_forward(inputs: [Tensor<Self, 4>; 3], options: &AttentionOptions) -> AttentionForward<Self> {
        let names = Heads::of(&inputs).names("b.h.,b.h.,b.h.->b.h.,bh.", "b...,b...,b...->b...,b..");
        let dims = inputs[0].dims();
        let [query, key, value] = inputs.map(placed);
        let rule = || Box::new(Named::new(names)) as _;
        let (output, log_sum_exp) = apply(
            "flash_attention",
            (query, key, value),
            rule,
            |(query, key, value), placed| {
                let inputs = [query, key, value].map(local::<B, 4>);
                let forward = B::flash_attention_forward(inputs, &of_part(options, dims, placed));
                (primitive(forward.output), primitive(forward.log_sum_exp))
            },
        );
        AttentionForward {
            output: tensor(output),
            log_sum_exp: tensor(log_sum_exp),
        }
    }

    fn flash_attention_backward(
        inputs: [Tensor<Self, 4>; 3],
        forward: AttentionForward<Self>,
        gradient: Tensor<Self, 4>,
        options: &AttentionOptions,
    ) -> [Tensor<Self, 4>; 3] {
        let names = Heads::of(&inputs).names(
            "b.h.,b.h.,b.h.,b.h.,bh.,b.h.->b.h.,b.h.,b.h.",
            "b...,b...,b...,b...,b..,b...->b...,b...,b...",
        );
        let dims = inputs[0].dims();
        let [query, key, value] = inputs.map(placed);
        let (output, log_sum_exp) = (placed(forward.output), placed(forward.log_sum_exp));
        let operands = (query, key, value, output, log_sum_exp, placed(gradient));
        let rule = || Box::new(Named::new(names).linear(&[5])) as _;
        let gradients: Vec<Option<FloatSharded<B>>> = apply(
            "flash_attention_backward",
            operands,
            rule,
            |(query, key, value, output, log_sum_exp, gradient), placed| {
                let inputs = [query, key, value].map(local::<B, 4>);
                let forward = AttentionForward {
                    output: local(output),
                    log_sum_exp: local(log_sum_exp),
                };
                let options = of_part(options, dims, placed);
                let gradients = B::flash_attention_backward(inputs, forward, local(gradient), &options);
                gradients.map(|gradient| Some(primitive(gradient))).to_vec()
            },
        );
        let mut gradients = gradients.into_iter().flatten().map(tensor);
        std::array::from_fn(|_| gradients.next().expect("of query, key and value"))
    }

    fn norm_forward(
        input: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
    ) -> (Tensor<Self, 2>, NormStatistics<Self>) {
        let names = match (parameters.kind, &parameters.bias) {
            (NormKind::Layer, Some(_)) => "r.,.,.->r.,r,r",
            (NormKind::Layer, None) => "r.,.->r.,r,r",
            (NormKind::Rms, Some(_)) => "r.,.,.->r.,r",
            (NormKind::Rms, None) => "r.,.->r.,r",
        };
        let bias = parameters.bias.clone().map(placed);
        let operands = (placed(input), placed(parameters.weight.clone()), bias);
        let rule = || Box::new(Named::new(names)) as _;
        let results: Vec<Option<FloatSharded<B>>> = apply("norm", operands, rule, |(input, weight, bias), _| {
            let (output, statistics) = B::norm_forward(local(input), &with(parameters, weight, bias));
            let results = [Some(output.into_primitive().tensor()), statistics.mean.map(primitive)];
            let results = results.into_iter().flatten().chain([primitive(statistics.reciprocal)]);
            results.map(Some).collect()
        });
        let mut results = results.into_iter().flatten();
        let mut next = || results.next().expect("one for each name");
        let output = tensor(next());
        let mean = (parameters.kind == NormKind::Layer).then(|| tensor(next()));
        let reciprocal = tensor(next());
        (output, NormStatistics { mean, reciprocal })
    }

    fn norm_backward(
        input: Tensor<Self, 2>,
        parameters: &NormParameters<Self>,
        statistics: NormStatistics<Self>,
        gradient: Tensor<Self, 2>,
    ) -> NormGradients<Self> {
        let (names, last): (_, &[usize]) = match (parameters.kind, &parameters.bias) {
            (NormKind::Layer, Some(_)) => ("r.,.,.,r,r,r.->r.,.,.", &[5]),
            (NormKind::Layer, None) => ("r.,.,r,r,r.->r.,.", &[4]),
            (NormKind::Rms, Some(_)) => ("r.,.,.,r,r.->r.,.,.", &[4]),
            (NormKind::Rms, None) => ("r.,.,r,r.->r.,.", &[3]),
        };
        let operands = (
            placed(input),
            placed(parameters.weight.clone()),
            parameters.bias.clone().map(placed),
            statistics.mean.map(placed),
            placed(statistics.reciprocal),
            placed(gradient),
        );
        // Of the weight and the bias each rank has the terms of its rows.
        let rule = || Box::new(Named::new(names).linear(last)) as _;
        let gradients: Vec<Option<FloatSharded<B>>> = apply(
            "norm_backward",
            operands,
            rule,
            |(input, weight, bias, mean, reciprocal, gradient), _| {
                let statistics = NormStatistics {
                    mean: mean.map(local),
                    reciprocal: local(reciprocal),
                };
                let parameters = with(parameters, weight, bias);
                let gradients = B::norm_backward(local(input), &parameters, statistics, local(gradient));
                let mut all = vec![Some(primitive(gradients.input)), Some(primitive(gradients.weight))];
                all.extend(gradients.bias.map(|bias| Some(primitive(bias))));
                all
            },
        );
        let mut gradients = gradients.into_iter().flatten();
        let mut next = || gradients.next().expect("one for each name");
        NormGradients {
            input: tensor(next()),
            weight: tensor(next()),
            bias: parameters.bias.as_ref().map(|_| tensor(next())),
        }
    }

    fn bias_gelu(input: Tensor<Self, 2>, bias: Tensor<Self, 1>) -> Tensor<Self, 2> {
        let rule = || Box::new(Named::new("rc,c->rc")) as _;
        let operands = (placed(input), placed(bias));
        tensor(apply("bias_gelu", operands, rule, |(input, bias), _| {
            primitive(B::bias_gelu(local(input), local(bias)))
        }))
    }

    fn bias_gelu_backward(
        input: Tensor<Self, 2>,
        bias: Tensor<Self, 1>,
        gradient: Tensor<Self, 2>,
    ) -> BiasGeluGradients<Self> {
        let rule = || Box::new(Named::new("rc,c,rc->rc,c").linear(&[2])) as _;
        let operands = (placed(input), placed(bias), placed(gradient));
        let (input, bias) = apply("bias_gelu_backward", operands, rule, |(input, bias, gradient), _| {
            let gradients = B::bias_gelu_backward(local(input), local(bias), local(gradient));
            (primitive(gradients.input), primitive(gradients.bias))
        });
        BiasGeluGradients {
            input: tensor(input),
            bias: tensor(bias),
        }
    }

    fn swiglu(input: Tensor<Self, 2>) -> Tensor<Self, 2> {
        let rule = || Box::new(Named::new("r.->r.")) as _;
        let output = apply("swiglu", placed(input), rule, |input, _| {
            primitive(B::swiglu(local(input)))
        });
        tensor(output)
    }

    fn swiglu_backward(input: Tensor<Self, 2>, gradient: Tensor<Self, 2>) -> Tensor<Self, 2> {
        let rule = || Box::new(Named::new("r.,r.->r.").linear(&[1])) as _;
        let operands = (placed(input), placed(gradient));
        tensor(apply("swiglu_backward", operands, rule, |(input, gradient), _| {
            primitive(B::swiglu_backward(local(input), local(gradient)))
        }))
    }
}

/// Whether queries, keys and values have the same heads.
enum Heads {
    Same,
    Shared,
}

impl Heads {
    fn of<B: CollectiveBackend>([query, key, _]: &[Tensor<Sharded<B>, 4>; 3]) -> Self {
        if query.dims()[2] == key.dims()[2] {
            Self::Same
        } else {
            Self::Shared
        }
    }

    /// Heads that share keys stay together.
    fn names(&self, same: &'static str, shared: &'static str) -> &'static str {
        match self {
            Self::Same => same,
            Self::Shared => shared,
        }
    }
}

/// The options of this rank's samples and heads, for queries `[batch, queries, heads, d_head]`.
fn of_part(options: &AttentionOptions, [batch, queries, heads, _]: [usize; 4], placed: &Placed) -> AttentionOptions {
    let (samples, own_heads) = (placed.operand_range(0, 0, batch), placed.operand_range(0, 2, heads));
    let mut options = options.clone();
    if let Some(dropout) = &mut options.dropout {
        dropout.first_head += own_heads.start as u32;
        dropout.places = dropout.places[samples.start * queries..samples.end * queries].into();
    }
    options.documents = options.documents.map(|documents| documents.of_samples(samples));
    options
}

fn with<B: CollectiveBackend>(
    parameters: &NormParameters<Sharded<B>>,
    weight: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
) -> NormParameters<B> {
    NormParameters {
        kind: parameters.kind,
        weight: local(weight),
        bias: bias.map(local),
        epsilon: parameters.epsilon,
    }
}

fn placed<B: CollectiveBackend, const D: usize>(tensor: Tensor<Sharded<B>, D>) -> FloatSharded<B> {
    tensor.into_primitive().tensor()
}

fn tensor<B: CollectiveBackend, const D: usize>(tensor: FloatSharded<B>) -> Tensor<Sharded<B>, D> {
    Tensor::from_primitive(TensorPrimitive::Float(tensor))
}

fn local<B: CollectiveBackend, const D: usize>(tensor: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(tensor))
}

fn primitive<B: CollectiveBackend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}
