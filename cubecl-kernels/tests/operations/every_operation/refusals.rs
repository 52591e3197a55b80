//! Inputs that operations refuse, with a message that has the values.

use anyhow::{bail, ensure};
use burn::tensor::{Bool, DType, Device, Int, Tensor};
use cubecl_kernels::KernelError;
use cubecl_kernels::accumulate::{GradientPlace, GradientSums, accumulate};
use cubecl_kernels::adamw::{AdamWBuffers, AdamWStep, adamw};
use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::bias_gelu::bias_gelu;
use cubecl_kernels::cross_entropy::cross_entropy;
use cubecl_kernels::flash_attention::{
    AttentionMask, AttentionOptions, Documents, KeyLengths, MAX_HEAD, PackedHeads, flash_attention,
    flash_attention_packed, flash_attention_with_bias,
};
use cubecl_kernels::l2_norm::{SquaredPart, sum_of_squares, sums_of_squares};
use cubecl_kernels::linear::{linear, linear_transposed};
use cubecl_kernels::norm::{Addends, NormKind, NormParameters, add_norm, layer_norm, rms_norm};
use cubecl_kernels::random::RowDropout;
use cubecl_kernels::rotary::{RotaryAngles, RotaryLayout, rotary};
use cubecl_kernels::softmax::{MAX_KEYS, SoftmaxMask, scaled_masked_softmax};
use cubecl_kernels::swiglu::swiglu;
use libtest_mimic::Trial;

use crate::support::dropout::dropout;
use crate::support::setting::plain;

/// A name of what is refused, and how it is tried.
type Claim = (&'static str, fn() -> anyhow::Result<()>);

pub fn trials() -> Vec<Trial> {
    let claims: [Claim; 10] = [
        ("attention", refuses_attention),
        ("softmax", refuses_softmax),
        ("linear", refuses_linear),
        ("norms", refuses_norms),
        ("sums", refuses_sums),
        ("dropout", refuses_dropout),
        ("activations", refuses_activations),
        ("rotary", refuses_rotary),
        ("cross_entropy", refuses_cross_entropy),
        ("optimizer", refuses_optimizer),
    ];
    let name = |what| format!("flex::what_{what}_cannot_take_is_refused_with_its_values");
    claims.map(|(what, claim)| plain(name(what), claim)).into()
}

/// Checks that a call is refused with this message.
fn refused<T>(result: Result<T, KernelError>, message: &str) -> anyhow::Result<()> {
    let Err(error) = result else {
        bail!("{message:?} was expected, but it is taken")
    };
    let found = error.to_string();
    ensure!(found == message, "{found:?}, expected {message:?}");
    Ok(())
}

fn tensor<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::zeros(shape, &Device::flex())
}

fn of_type<const D: usize>(shape: [usize; D], dtype: DType) -> Tensor<D> {
    Tensor::zeros(shape, (&Device::flex(), dtype))
}

fn options() -> AttentionOptions {
    AttentionOptions {
        mask: AttentionMask::Full,
        scale: 0.5,
        dropout: None,
        documents: None,
        key_lengths: None,
        is_deterministic: false,
    }
}

fn refuses_attention() -> anyhow::Result<()> {
    let attend = |query, key, value, options| flash_attention(tensor(query), tensor(key), tensor(value), options);
    let shape = [2, 5, 4, 8];
    for (key, value, message) in [
        (
            [3, 5, 4, 8],
            [3, 5, 4, 8],
            "the key must have the shape [2, 5, 4, 8], got [3, 5, 4, 8]",
        ),
        (
            [2, 5, 4, 7],
            [2, 5, 4, 7],
            "the key must have the shape [2, 5, 4, 8], got [2, 5, 4, 7]",
        ),
        (
            [2, 6, 4, 8],
            [2, 7, 4, 8],
            "the value must have the shape [2, 6, 4, 8], got [2, 7, 4, 8]",
        ),
        (
            [2, 5, 3, 8],
            [2, 5, 3, 8],
            "the number of key heads must be a divisor of that of the query heads, 4, got 3",
        ),
    ] {
        refused(
            attend(shape, key, value, options()),
            &format!("flash_attention: {message}"),
        )?;
    }
    let [half, full] = [DType::F16, DType::F32].map(|dtype| of_type(shape, dtype));
    refused(
        flash_attention(full.clone(), half.clone(), full.clone(), options()),
        "flash_attention: the key must be F32, as the other inputs are, got F16",
    )?;
    refused(
        flash_attention(full.clone(), full, half, options()),
        "flash_attention: the value must be F32, as the other inputs are, got F16",
    )?;
    for d_head in [MAX_HEAD + 1, 0] {
        let shape = [1, 2, 1, d_head];
        let message = format!("flash_attention: d_head must be 1 to 256, got {d_head}");
        refused(attend(shape, shape, shape, options()), &message)?;
    }

    let same = |options| attend(shape, shape, shape, options);
    let one_more = |options| attend(shape, [2, 6, 4, 8], [2, 6, 4, 8], options);
    for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let message = format!("flash_attention: the scale must be finite and above 0, got {scale}");
        refused(same(AttentionOptions { scale, ..options() }), &message)?;
    }
    let masked = |mask| AttentionOptions { mask, ..options() };
    for mask in [AttentionMask::Causal, AttentionMask::CausalWindow(2)] {
        refused(
            one_more(masked(mask)),
            "flash_attention: the number of keys must be that of the queries under causal attention, 5, got 6",
        )?;
    }
    refused(
        same(masked(AttentionMask::CausalWindow(0))),
        "flash_attention: the window must be at least 1, got 0",
    )?;
    let dropping = AttentionOptions {
        dropout: Some(dropout(9, 0.5)),
        ..options()
    };
    refused(
        same(dropping),
        "flash_attention: the number of the dropout's places must be that of the rows, 10, got 9",
    )?;

    let packing = |lengths: Vec<Vec<usize>>| AttentionOptions {
        documents: Documents::from_lengths(lengths[0].iter().sum(), &lengths).ok(),
        ..options()
    };
    refused(
        one_more(packing(vec![vec![2, 3]; 2])),
        "flash_attention: the number of keys must be that of the queries, whose documents they are, 5, got 6",
    )?;
    refused(
        same(packing(vec![vec![2, 4]; 2])),
        "flash_attention: the tokens of the documents must be the number of queries, 5, got 6",
    )?;
    refused(
        same(packing(vec![vec![2, 3]; 3])),
        "flash_attention: the tokens of all samples' documents must be those of the batch, 10, got 15",
    )?;
    let padded = |lengths: &[usize]| AttentionOptions {
        key_lengths: Some(KeyLengths::new(lengths)),
        ..options()
    };
    refused(
        same(padded(&[5])),
        "flash_attention: the number of lengths of keys must be that of the samples, 2, got 1",
    )?;
    refused(
        same(padded(&[5, 6])),
        "flash_attention: the length of the keys of sample 1 must be at most the number of keys, 5, got 6",
    )?;
    let biased =
        |bias: Tensor<2>| flash_attention_with_bias(tensor(shape), tensor(shape), tensor(shape), Some(bias), options());
    refused(
        biased(tensor([4, 10])),
        "flash_attention_with_bias: the bias must have the shape [4, 9], got [4, 10]",
    )?;
    refused(
        biased(of_type([4, 9], DType::F16)),
        "flash_attention_with_bias: the bias must be F32, as the other inputs are, got F16",
    )?;

    let packed = |shape, keys| flash_attention_packed(tensor(shape), PackedHeads { queries: 4, keys }, options());
    refused(
        packed([2, 5, 9, 8], 2),
        "flash_attention_packed: the packed tensor must have the shape [2, 5, 8, 8], got [2, 5, 9, 8]",
    )?;
    refused(
        packed([2, 5, 4, 8], 0),
        "flash_attention_packed: the number of key heads must be a divisor of that of the query heads, 4, got 0",
    )
}

fn refuses_softmax() -> anyhow::Result<()> {
    let softmax = |shape, mask, scale| scaled_masked_softmax(tensor(shape), mask, scale);
    refused(
        softmax([1, 1, 1, MAX_KEYS + 1], SoftmaxMask::Nothing, 1.0),
        "scaled_masked_softmax: the number of keys must be at most 16384, got 16385",
    )?;
    for scale in [0.0, -2.0, f64::NAN, f64::INFINITY] {
        let message = format!("scaled_masked_softmax: the scale must be finite and above 0, got {scale}");
        refused(softmax([1, 1, 2, 2], SoftmaxMask::Nothing, scale), &message)?;
    }
    refused(
        softmax([1, 2, 3, 4], SoftmaxMask::Causal, 1.0),
        "scaled_masked_softmax: causally masked scores must have the shape [1, 2, 3, 3], got [1, 2, 3, 4]",
    )?;
    for (mask, expected) in [
        ([2, 1, 3, 5], [2, 1, 3, 4]),
        ([2, 1, 4, 4], [2, 1, 3, 4]),
        ([3, 1, 3, 4], [2, 1, 3, 4]),
        ([1, 3, 3, 4], [1, 2, 3, 4]),
    ] {
        let given = SoftmaxMask::Given(Tensor::<4, Bool>::empty(mask, &Device::flex()));
        let message = format!("scaled_masked_softmax: the mask must have the shape {expected:?}, got {mask:?}");
        refused(softmax([2, 2, 3, 4], given, 1.0), &message)?;
    }
    Ok(())
}

fn refuses_linear() -> anyhow::Result<()> {
    let input = || tensor([3, 4]);
    refused(
        linear(input(), tensor([5, 6]), None),
        "linear: the weight must have the shape [4, 6], got [5, 6]",
    )?;
    refused(
        linear_transposed(input(), tensor([6, 5])),
        "linear_transposed: the weight must have the shape [6, 4], got [6, 5]",
    )?;
    refused(
        linear(input(), tensor([4, 6]), Some(tensor([5]))),
        "linear: the bias must have the shape [6], got [5]",
    )?;
    refused(
        linear(input(), of_type([4, 6], DType::F16), None),
        "linear: the weight must be F32, as the other inputs are, got F16",
    )?;
    refused(
        linear(input(), tensor([4, 6]), Some(of_type([6], DType::F64))),
        "linear: the bias must be F32, as the other inputs are, got F64",
    )
}

fn refuses_norms() -> anyhow::Result<()> {
    let input = || tensor([2, 3, 8]);
    let (weight, other) = (tensor([8]), of_type([8], DType::BF16));
    refused(
        layer_norm(input(), tensor([7]), None, 1e-5),
        "layer_norm: the weight must have the shape [8], got [7]",
    )?;
    refused(
        layer_norm(input(), weight.clone(), Some(tensor([9])), 1e-5),
        "layer_norm: the bias must have the shape [8], got [9]",
    )?;
    refused(
        layer_norm(input(), other.clone(), None, 1e-5),
        "layer_norm: the weight must be F32, as the other inputs are, got BF16",
    )?;
    refused(
        layer_norm(input(), weight.clone(), Some(other.clone()), 1e-5),
        "layer_norm: the bias must be F32, as the other inputs are, got BF16",
    )?;
    for epsilon in [0.0, -1e-5, f64::NAN] {
        let message = format!("layer_norm: epsilon must be finite and above 0, got {epsilon}");
        refused(layer_norm(input(), weight.clone(), None, epsilon), &message)?;
    }
    refused(
        rms_norm(input(), tensor([7]), 1e-5),
        "rms_norm: the weight must have the shape [8], got [7]",
    )?;
    refused(
        rms_norm(input(), other, 1e-5),
        "rms_norm: the weight must be F32, as the other inputs are, got BF16",
    )?;
    refused(
        rms_norm(input(), weight, 0.0),
        "rms_norm: epsilon must be finite and above 0, got 0",
    )
}

/// Addends of a sum with one fault each, and the words that name it.
fn wrong_addends() -> [(Addends, &'static str); 5] {
    let right = || Addends {
        input: tensor([4, 8]),
        bias: Some(tensor([8])),
        residual: tensor([4, 8]),
        dropout: Some(dropout(4, 0.5)),
    };
    let residual = |residual| Addends { residual, ..right() };
    let bias = |bias| Addends {
        bias: Some(bias),
        ..right()
    };
    let dropout = Addends {
        dropout: Some(dropout(3, 0.5)),
        ..right()
    };
    [
        (
            residual(tensor([5, 8])),
            "the residual must have the shape [4, 8], got [5, 8]",
        ),
        (
            residual(of_type([4, 8], DType::F64)),
            "the residual must be F32, as the other inputs are, got F64",
        ),
        (bias(tensor([4])), "the bias must have the shape [8], got [4]"),
        (
            bias(of_type([8], DType::F16)),
            "the bias must be F32, as the other inputs are, got F16",
        ),
        (
            dropout,
            "the number of the dropout's places must be that of the rows, 4, got 3",
        ),
    ]
}

fn refuses_sums() -> anyhow::Result<()> {
    let parameters = |columns: usize| NormParameters {
        kind: NormKind::Layer,
        weight: tensor([columns]),
        bias: None,
        epsilon: 1e-5,
    };
    for (addends, message) in wrong_addends() {
        refused(
            bias_dropout_add(addends.clone()),
            &format!("bias_dropout_add: {message}"),
        )?;
        refused(add_norm(addends, parameters(8)), &format!("add_norm: {message}"))?;
    }
    let addends = Addends {
        input: tensor([4, 8]),
        bias: None,
        residual: tensor([4, 8]),
        dropout: None,
    };
    refused(
        add_norm(addends, parameters(9)),
        "add_norm: the weight must have the shape [8], got [9]",
    )
}

fn refuses_dropout() -> anyhow::Result<()> {
    for probability in [1.0, -0.1, f64::NAN, 2.0] {
        let dropout = RowDropout {
            probability,
            ..dropout(4, 0.5)
        };
        let message = format!("here: the dropout probability must be in [0, 1), got {probability}");
        refused(dropout.check("here", 4, 1, 8), &message)?;
    }
    let (columns, heads) = RowDropout::LIMITS;
    let got = columns + 1;
    refused(
        dropout(4, 0.5).check("here", 4, 1, got),
        &format!("here: the columns under dropout must be at most {columns}, got {got}"),
    )?;
    let late = RowDropout {
        first_head: heads as u32 - 1,
        ..dropout(4, 0.5)
    };
    let got = heads + 1;
    refused(
        late.check("here", 4, 2, 8),
        &format!("here: the heads under dropout must be at most {heads}, got {got}"),
    )?;
    ensure!(late.check("here", 4, 1, columns).is_ok(), "the limits are within");
    Ok(())
}

fn refuses_activations() -> anyhow::Result<()> {
    refused(
        bias_gelu(tensor([3, 4]), tensor([3])),
        "bias_gelu: the bias must have the shape [4], got [3]",
    )?;
    refused(
        bias_gelu(tensor([3, 4]), of_type([4], DType::F16)),
        "bias_gelu: the bias must be F32, as the other inputs are, got F16",
    )?;
    refused(
        swiglu(tensor([3, 7])),
        "swiglu: the input's columns must be even, got 7",
    )
}

fn refuses_rotary() -> anyhow::Result<()> {
    let angles = |cosine: [usize; 2], sine: [usize; 2], positions: usize| RotaryAngles {
        cosine: tensor(cosine),
        sine: tensor(sine),
        positions: Tensor::zeros([positions], &Device::flex()),
        layout: RotaryLayout::Halves,
    };
    let turn = |angles| rotary(tensor([5, 2, 4, 6]), Some(angles));
    ensure!(turn(angles([9, 3], [9, 3], 5)).is_ok(), "what fits is taken");
    refused(
        rotary(tensor([5, 2, 2, 6]), None),
        "rotary: the heads of a group must be at least 3: queries, a key, a value, got 2",
    )?;
    let half = RotaryAngles {
        sine: of_type([9, 3], DType::BF16),
        ..angles([9, 3], [9, 3], 5)
    };
    for (angles, message) in [
        (
            angles([9, 3], [8, 3], 5),
            "the sine must have the shape [9, 3], got [8, 3]",
        ),
        (
            angles([9, 3], [9, 3], 6),
            "the positions must have the shape [5], got [6]",
        ),
        (
            angles([9, 4], [9, 4], 5),
            "the rotated elements must be at most 6, as a head has, got 8",
        ),
        (
            angles([0, 3], [0, 3], 5),
            "the tables' rows must be at least 1, for 5 tokens, got 0",
        ),
        (half, "the sine must be one of [F32], got BF16"),
    ] {
        refused(turn(angles), &format!("rotary: {message}"))?;
    }
    let wide = angles([9, 3], [9, 3], 5);
    refused(
        rotary(of_type([5, 2, 4, 6], DType::F64), Some(wide)),
        "rotary: the cosine must be one of [F64], got F32",
    )
}

fn refuses_cross_entropy() -> anyhow::Result<()> {
    let loss = |targets: usize, valid| {
        let targets = Tensor::<1, Int>::zeros([targets], &Device::flex());
        cross_entropy(tensor([3, 10]), targets, valid, |own| own)
    };
    refused(
        loss(4, 10),
        "cross_entropy: the targets must have the shape [3], got [4]",
    )?;
    refused(
        loss(3, 11),
        "cross_entropy: the number of valid columns must be at most 10, got 11",
    )
}

fn refuses_optimizer() -> anyhow::Result<()> {
    const STEP: AdamWStep = AdamWStep {
        learning_rate: 0.1,
        beta_1: 0.9,
        beta_2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.0,
        gradient_scale: 1.0,
        time: 1,
    };
    let half = || of_type([6], DType::F16);
    let adamw_of = |buffers: [Tensor<1>; 3], gradient, step: AdamWStep, copy| {
        adamw(AdamWBuffers::from_array(buffers), gradient, &step, copy)
    };
    let six = || tensor([6]);
    for (buffers, gradient, copy, message) in [
        (
            [half(), six(), six()],
            six(),
            None,
            "the main parameters must be one of [F32, F64], got F16",
        ),
        (
            [six(), tensor([5]), six()],
            six(),
            None,
            "the first moment must have the shape [6], got [5]",
        ),
        (
            [six(), six(), tensor([5])],
            six(),
            None,
            "the second moment must have the shape [6], got [5]",
        ),
        (
            [six(), half(), six()],
            six(),
            None,
            "the first moment must be F32, as the other inputs are, got F16",
        ),
        (
            [six(), six(), half()],
            six(),
            None,
            "the second moment must be F32, as the other inputs are, got F16",
        ),
        (
            [six(), six(), six()],
            tensor([7]),
            None,
            "the gradient must have the shape [6], got [7]",
        ),
        (
            [six(), six(), six()],
            six(),
            Some(DType::I32),
            "the copy must be one of [F32, F16, BF16, F64], got I32",
        ),
    ] {
        refused(adamw_of(buffers, gradient, STEP, copy), &format!("adamw: {message}"))?;
    }

    let mut bad = vec![
        (
            AdamWStep { time: 0, ..STEP },
            "the step's time must be 1 or more, got 0".to_owned(),
        ),
        (
            AdamWStep { epsilon: -1e-8, ..STEP },
            "epsilon must be finite and 0 or more, got -0.00000001".to_owned(),
        ),
    ];
    for beta in [1.0, -0.5, 2.0, f64::NAN] {
        let message = |which: u8| format!("beta_{which} must be in [0, 1), got {beta}");
        bad.push((AdamWStep { beta_1: beta, ..STEP }, message(1)));
        bad.push((AdamWStep { beta_2: beta, ..STEP }, message(2)));
    }
    for number in [f64::NAN, f64::INFINITY] {
        let mut push = |step, what| bad.push((step, format!("{what}, got {number}")));
        let (learning_rate, weight_decay, gradient_scale, epsilon) = (number, number, number, number);
        push(AdamWStep { learning_rate, ..STEP }, "the learning rate must be finite");
        push(AdamWStep { weight_decay, ..STEP }, "the weight decay must be finite");
        push(
            AdamWStep { gradient_scale, ..STEP },
            "the gradients' scale must be finite",
        );
        push(AdamWStep { epsilon, ..STEP }, "epsilon must be finite and 0 or more");
    }
    for (step, message) in bad {
        refused(
            adamw_of([six(), six(), six()], six(), step, None),
            &format!("adamw: {message}"),
        )?;
    }
    let add = |sums, non_finite, offset, parameter| {
        let place = GradientPlace {
            offset,
            parameter,
            is_first: false,
        };
        accumulate(GradientSums { sums, non_finite }, tensor([4]), place)
    };
    let beyond = |offset: usize| {
        let offset = offset as f64;
        format!("accumulate: the gradient's offset must be such that its 4 elements end at 6 at most, got {offset}")
    };
    refused(
        add(half(), half(), 0, 0),
        "accumulate: the sums must be one of [F32, F64], got F16",
    )?;
    refused(
        add(six(), half(), 0, 0),
        "accumulate: what is not finite must be F32, as the other inputs are, got F16",
    )?;
    for offset in [3, usize::MAX] {
        refused(add(six(), tensor([2]), offset, 0), &beyond(offset))?;
    }
    refused(
        add(six(), tensor([2]), 2, 2),
        "accumulate: the parameter's number must be less than 2, got 2",
    )?;
    refused(
        sum_of_squares(vec![tensor([3]), tensor([3]), half()]),
        "sums_of_squares: buffer 2 must be F32, as the other inputs are, got F16",
    )?;
    for (buffer, range, sum, message) in [
        (1, 0..3, 0, "a part's buffer must be less than 1, got 1"),
        (0, 2..4, 0, "a part's end must be 2 at least and 3 at most, got 4"),
        (0, 0..3, 2, "a part's sum must be less than 2, got 2"),
    ] {
        let part = SquaredPart { buffer, range, sum };
        let result = sums_of_squares(vec![tensor([3])], &[part], 2);
        refused(result, &format!("sums_of_squares: {message}"))?;
    }
    Ok(())
}
