//! `CausalSelfAttention` of documents that are packed into samples against burn's operations on one document after the
//! other.

use burn::nn::Linear;
use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Tensor};
use burn_megatron::parameters::ParameterInit;
use burn_megatron::random::{DropoutSite, StepCoordinates, TokenMap};
use burn_megatron::tensor_parallel::{
    CausalSelfAttention, CausalSelfAttentionConfig, CausalSelfAttentionNames, ColumnParallelLinearConfig,
    RowParallelLinearConfig, TokenContext,
};
use cubecl_kernels::flash_attention::Documents;

use super::linear::{plain_linear, whole_linear};
use super::{ALL, BOTH_TYPES, Check, checks};
use crate::parity::cases::comparison::{Pass, Scene};

pub const CHECKS: &[Check] = checks! {
    attention_of_packed_documents_is_that_of_each: ALL, BOTH_TYPES;
};

/// Four ranks hold one head of four elements each, whose root burn's division has exactly; 20 tokens.
const D_MODEL: usize = 16;
const HEADS: usize = 4;
const SEQ: usize = 10;
const LENGTHS: [&[usize]; 2] = [&[3, 1, 6], &[10]];

fn attention_of_packed_documents_is_that_of_each(scene: &Scene) -> anyhow::Result<()> {
    let shape = [LENGTHS.len() * SEQ, D_MODEL];
    // Weights that are not all on one key, and no bias, of which the keys' has no gradient but rounding.
    let input = scene.random("input", shape.iter().product());
    let input: Vec<f64> = input.iter().map(|number| number / 4.0).collect();
    let output_gradient = scene.random("output gradient", shape.iter().product());
    let qkv = plain_linear(scene, "qkv", D_MODEL, 3 * D_MODEL, false);
    let output = plain_linear(scene, "output", D_MODEL, D_MODEL, true);
    let serial = Pass::run(
        scene.tensor(input.clone(), shape),
        scene.tensor(output_gradient.clone(), shape),
        |input| output.forward(one_after_the_other(qkv.forward(input))),
    );
    let named = [("qkv", &qkv), ("output", &output)].map(|(name, linear)| {
        let parts = whole_linear(linear, &serial.gradients).into_iter();
        parts.map(move |(part, values)| (format!("{name}.{part}"), values))
    });
    let expected = named.into_iter().flatten().collect();

    let layer = attention(scene, qkv, output)?;
    let placement = scene.placement(&shape, scene.token_cut());
    let local = [placement.local_len() / D_MODEL, D_MODEL];
    let tokens = tokens(scene)?;
    let parallel = Pass::run(
        scene.part(&input, &placement, local),
        scene.part(&output_gradient, &placement, local),
        |input| layer.forward(input, &tokens),
    );
    parallel.compare(scene, "attention", &serial, &placement, &placement)?;
    scene.parameters("attention", &layer, &parallel.gradients, &expected)
}

fn tokens(scene: &Scene) -> anyhow::Result<TokenContext> {
    let step = StepCoordinates {
        seed: 9,
        iteration: 4,
        tokens: TokenMap::of_samples(&[5, 11], SEQ),
    };
    let lengths = LENGTHS.map(<[usize]>::to_vec);
    let group = scene.context.is_sequence_parallel().then(|| scene.group());
    let documents = Documents::from_lengths(SEQ, &lengths)?;
    Ok(TokenContext::new(&step, SEQ, group).with_documents(Some(documents)))
}

/// This rank's heads of an attention whose projections are given.
fn attention(scene: &Scene, qkv: Linear, output: Linear) -> anyhow::Result<CausalSelfAttention> {
    let scope = scene.context.scope("attention");
    let config = CausalSelfAttentionConfig::new(D_MODEL, HEADS, ParameterInit::Zeros, ParameterInit::Zeros);
    let names = CausalSelfAttentionNames {
        qkv: "replaced_qkv",
        output: "replaced_output",
    };
    let site = DropoutSite { layer: 0, number: 1 };
    let mut layer = config.init(site, &names, &qkv.weight.device(), &scope)?;
    let columns = ColumnParallelLinearConfig::new(D_MODEL, 3 * D_MODEL).with_fused(3);
    let rows = RowParallelLinearConfig::new(D_MODEL, D_MODEL);
    layer.qkv = columns.from_linear(qkv, &scope.scope("qkv"))?;
    layer.output = rows.from_linear(output, &scope.scope("output"))?;
    Ok(layer)
}

/// `[batch * seq, 3 * d_model]` to `[batch * seq, d_model]`: attention of each document alone, in burn's operations.
fn one_after_the_other(qkv: Tensor<2>) -> Tensor<2> {
    let mut first = 0;
    let mut outputs = Vec::new();
    for &length in LENGTHS.iter().copied().flatten() {
        outputs.push(attend(qkv.clone().narrow(0, first, length)));
        first += length;
    }
    Tensor::cat(outputs, 0)
}

/// Causal attention of the tokens of one document.
fn attend(qkv: Tensor<2>) -> Tensor<2> {
    let [length, _] = qkv.dims();
    let d_head = D_MODEL / HEADS;
    let [query, key, value] = [0, 1, 2].map(|part| {
        let rows = qkv.clone().narrow(1, part * D_MODEL, D_MODEL);
        rows.reshape([length, HEADS, d_head]).swap_dims(0, 1)
    });
    let scores = query.matmul(key.swap_dims(1, 2)).div_scalar((d_head as f64).sqrt());
    let later = Tensor::<2, Bool>::tril_mask([length, length], 0, &scores.device());
    let scores = scores.mask_fill(
        later.unsqueeze::<3>().expand([HEADS, length, length]),
        f64::NEG_INFINITY,
    );
    let output = softmax(scores, 2).matmul(value);
    output.swap_dims(0, 1).reshape([length, D_MODEL])
}
