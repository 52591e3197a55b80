//! The references in 16 bits: what they are in f32, rounded once. Trials named `reference` run them in f32 and f64 on a
//! backend that has no numbers of 16 bits; here they are called on one that has.

use anyhow::ensure;
use burn::tensor::{DType, Int, Tensor, TensorData, backend::Backend};
use burn_flex::Flex;
use cubecl_kernels::accumulate::{self, GradientPlace, GradientSums};
use cubecl_kernels::adamw::{self, AdamWBuffers, AdamWStep};
use cubecl_kernels::embedding::{self, TokenRange};
use cubecl_kernels::flash_attention::{self, AttentionBackward, AttentionMask, AttentionOptions, BackwardBias};
use cubecl_kernels::linear::{self, LinearInputs, LinearWanted, WeightOrder};
use cubecl_kernels::norm::{self, AddRule, Addends, NormKind, NormParameters};
use cubecl_kernels::rotary::{self, RotaryAngles, RotaryHeads, RotaryLayout};
use cubecl_kernels::softmax::{self, SoftmaxMask};
use cubecl_kernels::{bias_dropout_add, bias_gelu, cross_entropy, l2_norm, swiglu};
use libtest_mimic::Trial;

use crate::support::backends::Setting;
use crate::support::compare::{expect_close, normal};
use crate::support::dropout::dropout;

type B = Flex;

const ROWS: usize = 7;
const COLUMNS: usize = 12;

pub fn trials() -> Vec<Trial> {
    [DType::F16, DType::BF16]
        .map(|dtype| {
            let name = format!("reference_{dtype:?}::references_are_those_of_f32_rounded").to_lowercase();
            Trial::test(name, move || Ok(are_those_of_f32(dtype)?))
        })
        .into()
}

fn are_those_of_f32(dtype: DType) -> anyhow::Result<()> {
    let results = everything(dtype, dtype);
    let wide = everything(dtype, DType::F32);
    ensure!(results.len() == wide.len());
    for ((what, result), (_, wide)) in results.into_iter().zip(wide) {
        let found = result.dtype();
        ensure!(found == dtype || found == DType::F32, "{what} is {found:?}");
        let wide: Vec<f64> = wide.into_data().iter::<f64>().collect();
        // One rounding; of the sum before a norm there is one more, of numbers below 8.
        let (roundings, scale) = if what.starts_with("add_norm") {
            (1.5, 8.0)
        } else {
            (0.5, 0.0)
        };
        expect_close(what, result, &wide, roundings, scale)?;
    }
    Ok(())
}

/// What each reference gives for numbers of one type, as numbers of another.
fn everything(of: DType, dtype: DType) -> Vec<(&'static str, Tensor<B, 1>)> {
    let device = Default::default();
    let drawn = Setting::<B> { device, dtype: of };
    let setting = Setting::<B> { device, dtype };
    let matrix =
        |seed| -> Tensor<B, 2> { setting.tensor(&drawn.rounded(&normal(ROWS * COLUMNS, seed)), [ROWS, COLUMNS]) };
    let vector = |seed| -> Tensor<B, 1> { setting.tensor(&drawn.rounded(&normal(COLUMNS, seed)), [COLUMNS]) };
    let mut results: Vec<(&'static str, Tensor<B, 1>)> = Vec::new();

    let gradients = bias_gelu::reference::backward(matrix(1), vector(2), matrix(3));
    results.push(("bias_gelu", flat(bias_gelu::reference::forward(matrix(1), vector(2)))));
    results.push(("bias_gelu's input", flat(gradients.input)));
    results.push(("bias_gelu's bias", gradients.bias));
    results.push(("swiglu", flat(swiglu::reference::forward(matrix(1)))));
    let half = matrix(3).narrow(1, 0, COLUMNS / 2);
    results.push(("swiglu's input", flat(swiglu::reference::backward(matrix(1), half))));

    let angles = |layout| {
        let wide = Setting::<B> {
            device,
            dtype: DType::F32,
        };
        let table = |seed| wide.tensor(&normal(ROWS * 2, seed), [ROWS, 2]);
        Some(RotaryAngles {
            cosine: table(8),
            sine: table(9),
            positions: Tensor::arange(0..ROWS as i64, &device),
            layout,
        })
    };
    let heads = RotaryHeads { groups: 1, queries: 1 };
    for layout in [RotaryLayout::Halves, RotaryLayout::Interleaved] {
        let packed = matrix(1).reshape([ROWS, 1, 3, 4]);
        results.push(("rotary", flat(rotary::reference::forward(packed, angles(layout)))));
        let gradient = matrix(3).reshape([ROWS, 3, 4]);
        let gradient = rotary::reference::backward(gradient, heads, angles(layout));
        results.push(("rotary's input", flat(gradient)));
    }

    let dropout = dropout(ROWS, 0.25);
    let addends = || Addends {
        input: matrix(1),
        bias: Some(vector(2)),
        residual: matrix(4),
        dropout: Some(dropout.clone()),
    };
    let rule = AddRule {
        has_bias: true,
        dropout: Some(dropout.clone()),
    };
    let gradients = bias_dropout_add::reference::backward(matrix(3), &rule);
    results.push((
        "bias_dropout_add",
        flat(bias_dropout_add::reference::forward(addends())),
    ));
    results.push(("an addend", flat(gradients.input)));
    results.push(("the residual", flat(gradients.residual)));
    results.push(("the sum's bias", gradients.bias.expect("there is one")));

    let parameters = NormParameters {
        kind: NormKind::Layer,
        weight: vector(5),
        bias: Some(vector(6)),
        epsilon: 1e-3,
    };
    let (output, statistics) = norm::reference::forward(matrix(1), &parameters);
    let gradients = norm::reference::backward(matrix(1), &parameters, statistics, matrix(3));
    results.push(("norm", flat(output)));
    results.push(("norm's input", flat(gradients.input)));
    results.push(("norm's weight", gradients.weight));
    results.push(("norm's bias", gradients.bias.expect("there is one")));
    let ([hidden, output], _) = norm::reference::add_forward(addends(), &parameters);
    results.push(("add_norm's sum", flat(hidden)));
    results.push(("add_norm", flat(output)));
    let (_, statistics) = norm::reference::forward(matrix(1), &parameters);
    let gradients = [Some(matrix(7)), Some(matrix(3))];
    let (of_addends, _) = norm::reference::add_backward(matrix(1), &parameters, statistics, gradients, &rule);
    results.push(("add_norm's residual", flat(of_addends.residual)));
    results.push(("add_norm's input", flat(of_addends.input)));

    let scores = || matrix(1).reshape([1, 1, ROWS, COLUMNS]);
    let shares = softmax::reference::forward(scores(), SoftmaxMask::Nothing, 0.5);
    results.push(("softmax", flat(shares)));
    let gradient = matrix(3).reshape([1, 1, ROWS, COLUMNS]);
    results.push((
        "softmax's scores",
        flat(softmax::reference::backward(scores(), gradient, 0.5)),
    ));

    let targets = || Tensor::<B, 1, Int>::from_data(TensorData::new(vec![3i64; ROWS], [ROWS]), &device);
    let statistics = cross_entropy::reference::statistics(matrix(1), targets(), COLUMNS - 1);
    results.push(("losses", statistics.losses()));
    let ones = Tensor::<B, 1>::ones([ROWS], (&device, DType::F32));
    let of_logits = cross_entropy::reference::backward(matrix(1), targets(), COLUMNS - 1, statistics, ones);
    results.push(("logits", flat(of_logits)));

    let inputs = |order| LinearInputs {
        input: matrix(1),
        weight: matrix(4).transpose(),
        bias: None,
        order,
    };
    results.push((
        "linear",
        flat(linear::reference::forward(inputs(WeightOrder::InputFirst))),
    ));
    let wanted = LinearWanted {
        input: true,
        weight: true,
        bias: true,
    };
    let gradient = matrix(3).narrow(1, 0, ROWS);
    let gradients = linear::reference::backward(
        matrix(1),
        matrix(4).transpose(),
        WeightOrder::InputFirst,
        gradient,
        wanted,
    );
    results.push(("linear's input", flat(gradients.input.expect("wanted"))));
    results.push(("linear's weight", flat(gradients.weight.expect("wanted"))));
    results.push(("linear's bias", gradients.bias.expect("wanted")));

    let heads = |seed| matrix(seed).reshape([1, ROWS, 2, COLUMNS / 2]);
    let options = AttentionOptions {
        mask: AttentionMask::Causal,
        scale: 0.5,
        dropout: Some(dropout),
        documents: None,
        key_lengths: None,
        is_deterministic: true,
    };
    let inputs = [heads(1), heads(4), heads(7)];
    // In the type that scores are in.
    let wide = Setting::<B> {
        device,
        dtype: DType::F32,
    };
    let bias: Tensor<B, 2> = wide.tensor(&normal(2 * (2 * ROWS - 1), 10), [2, 2 * ROWS - 1]);
    let forward = flash_attention::reference::forward(inputs.clone(), Some(bias.clone()), &options);
    results.push(("attention", flat(forward.output.clone())));
    let pass = AttentionBackward {
        forward,
        gradient: heads(3),
        bias: Some(BackwardBias {
            table: bias,
            is_wanted: true,
        }),
    };
    let (gradients, of_bias) = flash_attention::reference::backward(inputs, pass, &options);
    results.push(("the attention's bias", flat(of_bias.expect("wanted"))));
    results.extend(["dq", "dk", "dv"].into_iter().zip(gradients.map(flat)));

    let all = l2_norm::SquaredPart {
        buffer: 0,
        range: 0..COLUMNS,
        sum: 0,
    };
    let sums = l2_norm::reference::sums_of_squares(vec![vector(1)], &[all], 1);
    results.push(("sum of squares", sums));
    let range = TokenRange { first: 2, count: 5 };
    let rows = embedding::reference::forward(matrix(1), targets(), range);
    results.push(("embeddings", flat(rows)));
    let nothing = setting.tensor(&[0.0; ROWS * COLUMNS], [ROWS * COLUMNS]);
    let of_table = embedding::reference::add_rows(nothing, 0, targets(), matrix(3), range);
    results.push(("the table", of_table));
    let main = Setting::<B> {
        device,
        dtype: DType::F32,
    };
    let buffer = |value: f64| main.tensor(&[value; COLUMNS], [COLUMNS]);
    let buffers = AdamWBuffers {
        parameter: buffer(1.0),
        moment_1: buffer(0.5),
        moment_2: buffer(0.25),
    };
    let step = AdamWStep {
        learning_rate: 0.1,
        beta_1: 0.9,
        beta_2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.1,
        gradient_scale: 0.5,
        time: 3,
    };
    let (buffers, copy) = adamw::reference::step(buffers, vector(1), &step, Some(dtype));
    results.push(("adamw", buffers.parameter));
    results.push(("adamw's copy", copy.expect("asked for")));
    let sums = GradientSums {
        sums: buffer(1.0),
        non_finite: main.tensor(&[0.0], [1]),
    };
    let place = GradientPlace {
        offset: 0,
        parameter: 0,
        is_first: false,
    };
    let sums = accumulate::reference::add(sums, vector(1), place);
    results.push(("sums", sums.sums));
    results.push(("what is not finite", sums.non_finite));
    results
}

fn flat<A: Backend, const D: usize>(tensor: Tensor<A, D>) -> Tensor<A, 1> {
    tensor.flatten(0, D - 1)
}
