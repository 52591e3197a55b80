//! Inputs that operations refuse: with the variant of the error for it, and a message that has the values.

use anyhow::{bail, ensure};
use burn::tensor::{Bool, DType, Int, Tensor};
use burn_flex::Flex;
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

use crate::support::backends::plain;
use crate::support::dropout::dropout;

type B = Flex;
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

/// The variants of the error.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Shape,
    MixedTypes,
    Type,
    Device,
    Value,
}

use Fault::{Device, MixedTypes, Shape, Type, Value};

/// Checks that a call is refused for a fault, with a message that has each of the texts.
fn refused<T>(result: Result<T, KernelError>, fault: Fault, texts: &[&str]) -> anyhow::Result<()> {
    let Err(error) = result else {
        bail!("{texts:?}: expected an error of {fault:?}, but it is taken")
    };
    let actual = match &error {
        KernelError::Shape { .. } => Shape,
        KernelError::MixedTypes { .. } => MixedTypes,
        KernelError::Type { .. } => Type,
        KernelError::Device { .. } => Device,
        KernelError::Value { .. } => Value,
    };
    let message = error.to_string();
    ensure!(
        actual == fault,
        "{texts:?}: an error of {actual:?}, expected {fault:?}: {message}"
    );
    for text in texts {
        ensure!(message.contains(text), "{message:?} does not say {text:?}");
    }
    Ok(())
}

fn tensor<const D: usize>(shape: [usize; D]) -> Tensor<B, D> {
    Tensor::zeros(shape, &Default::default())
}

fn of_type<const D: usize>(shape: [usize; D], dtype: DType) -> Tensor<B, D> {
    Tensor::zeros(shape, (&Default::default(), dtype))
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
    let attend = |query, key, value, options| flash_attention::<B>(tensor(query), tensor(key), tensor(value), options);
    let shape = [2, 5, 4, 8];
    let name = "flash_attention";
    refused(
        attend(shape, [3, 5, 4, 8], [3, 5, 4, 8], options()),
        Shape,
        &[name, "the key", "[2, 5, 4, 8]", "[3, 5, 4, 8]"],
    )?;
    refused(
        attend(shape, [2, 5, 4, 7], [2, 5, 4, 7], options()),
        Shape,
        &[name, "the key", "[2, 5, 4, 8]", "[2, 5, 4, 7]"],
    )?;
    refused(
        attend(shape, [2, 6, 4, 8], [2, 7, 4, 8], options()),
        Shape,
        &[name, "the value", "[2, 6, 4, 8]", "[2, 7, 4, 8]"],
    )?;
    let [half, full] = [DType::F16, DType::F32].map(|dtype| of_type(shape, dtype));
    refused(
        flash_attention(full.clone(), half.clone(), full.clone(), options()),
        MixedTypes,
        &[name, "the key", "F32", "F16"],
    )?;
    refused(
        flash_attention(full.clone(), full, half, options()),
        MixedTypes,
        &[name, "the value", "F32", "F16"],
    )?;
    let wide = [1, 2, 1, MAX_HEAD + 1];
    refused(
        attend(wide, wide, wide, options()),
        Value,
        &[name, "d_head", "257", "256"],
    )?;
    let none = [1, 2, 1, 0];
    refused(
        attend(none, none, none, options()),
        Value,
        &[name, "d_head", "1 to 256", "0"],
    )?;
    refused(
        attend(shape, [2, 5, 3, 8], [2, 5, 3, 8], options()),
        Value,
        &[name, "key heads", "3", "4"],
    )?;
    for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let options = AttentionOptions { scale, ..options() };
        let got = format!("got {scale}");
        refused(attend(shape, shape, shape, options), Value, &[name, "the scale", &got])?;
    }
    let causal = AttentionOptions {
        mask: AttentionMask::Causal,
        ..options()
    };
    refused(
        attend(shape, [2, 6, 4, 8], [2, 6, 4, 8], causal),
        Value,
        &[name, "the number of keys", "causal", "5", "got 6"],
    )?;
    let dropping = |dropout| AttentionOptions {
        dropout: Some(dropout),
        ..options()
    };
    refused(
        attend(shape, shape, shape, dropping(dropout(9, 0.5))),
        Value,
        &[name, "places", "10", "got 9"],
    )?;

    let packing = |lengths: Vec<Vec<usize>>| AttentionOptions {
        documents: Documents::from_lengths(lengths[0].iter().sum(), &lengths).ok(),
        ..options()
    };
    refused(
        attend(shape, [2, 6, 4, 8], [2, 6, 4, 8], packing(vec![vec![2, 3]; 2])),
        Value,
        &[name, "the number of keys", "documents", "5", "got 6"],
    )?;
    refused(
        attend(shape, shape, shape, packing(vec![vec![2, 4]; 2])),
        Value,
        &[name, "the tokens of the documents", "5", "got 6"],
    )?;
    refused(
        attend(shape, shape, shape, packing(vec![vec![2, 3]; 3])),
        Value,
        &[name, "all samples' documents", "10", "got 15"],
    )?;

    let masked = |mask| AttentionOptions { mask, ..options() };
    refused(
        attend(shape, shape, shape, masked(AttentionMask::CausalWindow(0))),
        Value,
        &[name, "the window", "at least 1", "got 0"],
    )?;
    refused(
        attend(
            shape,
            [2, 6, 4, 8],
            [2, 6, 4, 8],
            masked(AttentionMask::CausalWindow(2)),
        ),
        Value,
        &[name, "the number of keys", "causal", "5", "got 6"],
    )?;
    let padded = |lengths: &[usize]| AttentionOptions {
        key_lengths: Some(KeyLengths::new(lengths)),
        ..options()
    };
    refused(
        attend(shape, shape, shape, padded(&[5])),
        Value,
        &[name, "the number of lengths of keys", "the samples, 2", "got 1"],
    )?;
    refused(
        attend(shape, shape, shape, padded(&[5, 6])),
        Value,
        &[name, "the keys of sample 1", "the number of keys, 5", "got 6"],
    )?;
    let biased = |bias: Tensor<B, 2>| {
        flash_attention_with_bias::<B>(tensor(shape), tensor(shape), tensor(shape), Some(bias), options())
    };
    let with_bias = "flash_attention_with_bias";
    refused(
        biased(tensor([4, 10])),
        Shape,
        &[with_bias, "the bias", "[4, 9]", "[4, 10]"],
    )?;
    refused(
        biased(of_type([4, 9], DType::F16)),
        MixedTypes,
        &[with_bias, "the bias", "F32", "F16"],
    )?;

    let packed = |shape, heads| flash_attention_packed::<B>(tensor(shape), heads, options());
    let heads = PackedHeads { queries: 4, keys: 2 };
    refused(
        packed([2, 5, 9, 8], heads),
        Shape,
        &[name, "the packed tensor", "[2, 5, 8, 8]", "[2, 5, 9, 8]"],
    )?;
    let heads = PackedHeads { queries: 4, keys: 0 };
    refused(packed([2, 5, 4, 8], heads), Value, &[name, "key heads", "4", "got 0"])
}

fn refuses_softmax() -> anyhow::Result<()> {
    let name = "scaled_masked_softmax";
    let softmax = |shape, mask, scale| scaled_masked_softmax::<B>(tensor(shape), mask, scale);
    refused(
        softmax([1, 1, 1, MAX_KEYS + 1], SoftmaxMask::Nothing, 1.0),
        Value,
        &[name, "the number of keys", "at most 16384", "got 16385"],
    )?;
    for scale in [0.0, -2.0, f64::NAN, f64::INFINITY] {
        let got = format!("got {scale}");
        refused(
            softmax([1, 1, 2, 2], SoftmaxMask::Nothing, scale),
            Value,
            &[name, "the scale", &got],
        )?;
    }
    refused(
        softmax([1, 2, 3, 4], SoftmaxMask::Causal, 1.0),
        Shape,
        &[name, "causally", "[1, 2, 3, 3]", "[1, 2, 3, 4]"],
    )?;
    for mask in [[2, 1, 3, 5], [2, 1, 4, 4], [3, 1, 3, 4], [1, 3, 3, 4]] {
        let given = SoftmaxMask::Given(Tensor::<B, 4, Bool>::empty(mask, &Default::default()));
        let got = format!("got {mask:?}");
        refused(softmax([2, 2, 3, 4], given, 1.0), Shape, &[name, "the mask", &got])?;
    }
    Ok(())
}

fn refuses_linear() -> anyhow::Result<()> {
    let input = || tensor([3, 4]);
    let half = |shape| of_type(shape, DType::F16);
    refused(
        linear(input(), tensor([5, 6]), None),
        Shape,
        &["linear", "the weight", "[4, 6]", "[5, 6]"],
    )?;
    refused(
        linear_transposed(input(), tensor([6, 5])),
        Shape,
        &["linear", "the weight", "[6, 4]", "[6, 5]"],
    )?;
    refused(
        linear(input(), tensor([4, 6]), Some(tensor([5]))),
        Shape,
        &["linear", "the bias", "[6]", "[5]"],
    )?;
    refused(
        linear(input(), half([4, 6]), None),
        MixedTypes,
        &["linear", "the weight", "F32", "F16"],
    )?;
    refused(
        linear(input(), tensor([4, 6]), Some(of_type([6], DType::F64))),
        MixedTypes,
        &["linear", "the bias", "F32", "F64"],
    )
}

fn refuses_norms() -> anyhow::Result<()> {
    let input = || tensor([2, 3, 8]);
    let (weight, other) = (tensor([8]), of_type([8], DType::BF16));
    refused(
        layer_norm(input(), tensor([7]), None, 1e-5),
        Shape,
        &["layer_norm", "the weight", "[8]", "[7]"],
    )?;
    refused(
        layer_norm(input(), weight.clone(), Some(tensor([9])), 1e-5),
        Shape,
        &["layer_norm", "the bias", "[8]", "[9]"],
    )?;
    refused(
        layer_norm(input(), other.clone(), None, 1e-5),
        MixedTypes,
        &["layer_norm", "the weight", "F32", "BF16"],
    )?;
    refused(
        layer_norm(input(), weight.clone(), Some(other.clone()), 1e-5),
        MixedTypes,
        &["layer_norm", "the bias", "F32", "BF16"],
    )?;
    for epsilon in [0.0, -1e-5, f64::NAN] {
        let got = format!("got {epsilon}");
        refused(
            layer_norm(input(), weight.clone(), None, epsilon),
            Value,
            &["layer_norm", "epsilon", &got],
        )?;
    }
    refused(
        rms_norm(input(), tensor([7]), 1e-5),
        Shape,
        &["rms_norm", "the weight", "[8]", "[7]"],
    )?;
    refused(
        rms_norm(input(), other, 1e-5),
        MixedTypes,
        &["rms_norm", "the weight", "F32", "BF16"],
    )?;
    refused(rms_norm(input(), weight, 0.0), Value, &["rms_norm", "epsilon", "got 0"])
}

/// What may be wrong with the addends of a sum.
fn wrong_addends() -> Vec<(Addends<B>, Fault, Vec<&'static str>)> {
    let right = || Addends {
        input: tensor([4, 8]),
        bias: Some(tensor([8])),
        residual: tensor([4, 8]),
        dropout: Some(dropout(4, 0.5)),
    };
    vec![
        (
            Addends {
                residual: tensor([5, 8]),
                ..right()
            },
            Shape,
            vec!["the residual", "[4, 8]", "[5, 8]"],
        ),
        (
            Addends {
                residual: of_type([4, 8], DType::F64),
                ..right()
            },
            MixedTypes,
            vec!["the residual", "F32", "F64"],
        ),
        (
            Addends {
                bias: Some(tensor([4])),
                ..right()
            },
            Shape,
            vec!["the bias", "[8]", "[4]"],
        ),
        (
            Addends {
                bias: Some(of_type([8], DType::F16)),
                ..right()
            },
            MixedTypes,
            vec!["the bias", "F32", "F16"],
        ),
        (
            Addends {
                dropout: Some(dropout(3, 0.5)),
                ..right()
            },
            Value,
            vec!["places", "4", "got 3"],
        ),
    ]
}

fn refuses_sums() -> anyhow::Result<()> {
    for (addends, fault, mut texts) in wrong_addends() {
        texts.push("bias_dropout_add");
        refused(bias_dropout_add(addends), fault, &texts)?;
    }
    let parameters = |columns: usize| NormParameters {
        kind: NormKind::Layer,
        weight: tensor([columns]),
        bias: None,
        epsilon: 1e-5,
    };
    for (addends, fault, mut texts) in wrong_addends() {
        texts.push("add_norm");
        refused(add_norm(addends, parameters(8)), fault, &texts)?;
    }
    let addends = Addends {
        input: tensor([4, 8]),
        bias: None,
        residual: tensor([4, 8]),
        dropout: None,
    };
    refused(
        add_norm(addends, parameters(9)),
        Shape,
        &["add_norm", "the weight", "[8]", "[9]"],
    )
}

fn refuses_dropout() -> anyhow::Result<()> {
    for probability in [1.0, -0.1, f64::NAN, 2.0] {
        let dropout = RowDropout {
            probability,
            ..dropout(4, 0.5)
        };
        let got = format!("got {probability}");
        refused(
            dropout.check("here", 4, 1, 8),
            Value,
            &["here", "the dropout probability", &got],
        )?;
    }
    let (columns, heads) = RowDropout::LIMITS;
    let got = format!("got {}", columns + 1);
    let at_most = format!("at most {columns}");
    refused(
        dropout(4, 0.5).check("here", 4, 1, columns + 1),
        Value,
        &["here", "columns", &at_most, &got],
    )?;
    let late = RowDropout {
        first_head: heads as u32 - 1,
        ..dropout(4, 0.5)
    };
    let (at_most, got) = (format!("at most {heads}"), format!("got {}", heads + 1));
    refused(late.check("here", 4, 2, 8), Value, &["here", "heads", &at_most, &got])?;
    ensure!(late.check("here", 4, 1, columns).is_ok(), "the limits are within");
    Ok(())
}

fn refuses_activations() -> anyhow::Result<()> {
    refused(
        bias_gelu(tensor([3, 4]), tensor([3])),
        Shape,
        &["bias_gelu", "the bias", "[4]", "[3]"],
    )?;
    refused(
        bias_gelu(tensor([3, 4]), of_type([4], DType::F16)),
        MixedTypes,
        &["bias_gelu", "the bias", "F32", "F16"],
    )?;
    refused(swiglu(tensor([3, 7])), Value, &["swiglu", "columns", "even", "got 7"])
}

fn refuses_rotary() -> anyhow::Result<()> {
    let angles = |cosine: [usize; 2], sine: [usize; 2], positions: usize| RotaryAngles::<B> {
        cosine: tensor(cosine),
        sine: tensor(sine),
        positions: Tensor::zeros([positions], &Default::default()),
        layout: RotaryLayout::Halves,
    };
    let turn = |angles| rotary(tensor([5, 2, 4, 6]), Some(angles));
    ensure!(turn(angles([9, 3], [9, 3], 5)).is_ok(), "what fits is taken");
    refused(
        rotary(tensor([5, 2, 2, 6]), None),
        Value,
        &["rotary", "heads of a group", "at least 3", "got 2"],
    )?;
    refused(
        turn(angles([9, 3], [8, 3], 5)),
        Shape,
        &["rotary", "the sine", "[9, 3]", "[8, 3]"],
    )?;
    refused(
        turn(angles([9, 3], [9, 3], 6)),
        Shape,
        &["rotary", "the positions", "[5]", "[6]"],
    )?;
    refused(
        turn(angles([9, 4], [9, 4], 5)),
        Value,
        &["rotary", "the rotated elements", "at most 6", "got 8"],
    )?;
    refused(
        turn(angles([0, 3], [0, 3], 5)),
        Value,
        &["rotary", "the tables' rows", "at least 1", "got 0"],
    )?;
    let half = RotaryAngles {
        sine: of_type([9, 3], DType::BF16),
        ..angles([9, 3], [9, 3], 5)
    };
    refused(turn(half), Type, &["rotary", "the sine", "F32", "BF16"])?;
    let wide = angles([9, 3], [9, 3], 5);
    refused(
        rotary(of_type([5, 2, 4, 6], DType::F64), Some(wide)),
        Type,
        &["rotary", "the cosine", "F64", "F32"],
    )
}

fn refuses_cross_entropy() -> anyhow::Result<()> {
    let loss = |targets: usize, valid| {
        let targets = Tensor::<B, 1, Int>::zeros([targets], &Default::default());
        cross_entropy(tensor([3, 10]), targets, valid, |own| own)
    };
    refused(loss(4, 10), Shape, &["cross_entropy", "the targets", "[3]", "[4]"])?;
    refused(
        loss(3, 11),
        Value,
        &["cross_entropy", "valid columns", "at most 10", "got 11"],
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
    let buffers = || AdamWBuffers {
        parameter: tensor([6]),
        moment_1: tensor([6]),
        moment_2: tensor([6]),
    };
    let step = |buffers, gradient, step: AdamWStep, copy| adamw::<B>(buffers, gradient, &step, copy);
    let half = || of_type([6], DType::F16);
    refused(
        step(
            AdamWBuffers {
                parameter: half(),
                ..buffers()
            },
            tensor([6]),
            STEP,
            None,
        ),
        Type,
        &["adamw", "the main parameters", "[F32, F64]", "got F16"],
    )?;
    for (moment, fault, texts) in [
        (tensor([5]), Shape, ["[6]", "[5]"]),
        (half(), MixedTypes, ["F32", "F16"]),
    ] {
        let first = AdamWBuffers {
            moment_1: moment.clone(),
            ..buffers()
        };
        let texts_of = |which| ["adamw", which, texts[0], texts[1]];
        refused(
            step(first, tensor([6]), STEP, None),
            fault,
            &texts_of("the first moment"),
        )?;
        let second = AdamWBuffers {
            moment_2: moment,
            ..buffers()
        };
        refused(
            step(second, tensor([6]), STEP, None),
            fault,
            &texts_of("the second moment"),
        )?;
    }
    refused(
        step(buffers(), tensor([7]), STEP, None),
        Shape,
        &["adamw", "the gradient", "[6]", "[7]"],
    )?;
    refused(
        step(buffers(), tensor([6]), STEP, Some(DType::I32)),
        Type,
        &["adamw", "the copy", "got I32"],
    )?;
    let never = AdamWStep { time: 0, ..STEP };
    let mut bad = vec![
        (never, ["time", "1 or more", "got 0"]),
        (
            AdamWStep { epsilon: -1e-8, ..STEP },
            ["epsilon", "0 or more", "got -0.00000001"],
        ),
    ];
    for beta in [1.0, -0.5, 2.0, f64::NAN] {
        bad.push((AdamWStep { beta_1: beta, ..STEP }, ["beta_1", "in [0, 1)", "got"]));
        bad.push((AdamWStep { beta_2: beta, ..STEP }, ["beta_2", "in [0, 1)", "got"]));
    }
    for number in [f64::NAN, f64::INFINITY] {
        bad.push((
            AdamWStep {
                learning_rate: number,
                ..STEP
            },
            ["the learning rate", "finite", "got"],
        ));
        bad.push((
            AdamWStep {
                weight_decay: number,
                ..STEP
            },
            ["the weight decay", "finite", "got"],
        ));
        bad.push((
            AdamWStep {
                gradient_scale: number,
                ..STEP
            },
            ["the gradients' scale", "finite", "got"],
        ));
        bad.push((
            AdamWStep {
                epsilon: number,
                ..STEP
            },
            ["epsilon", "finite", "got"],
        ));
    }
    for (bad, texts) in bad {
        refused(
            step(buffers(), tensor([6]), bad, None),
            Value,
            &[&["adamw"], &texts[..]].concat(),
        )?;
    }
    let add = |sums, non_finite, offset, parameter| {
        let place = GradientPlace {
            offset,
            parameter,
            is_first: false,
        };
        accumulate::<B>(GradientSums { sums, non_finite }, tensor([4]), place)
    };
    for (result, fault, texts) in [
        (add(half(), half(), 0, 0), Type, ["the sums", "[F32, F64]", "got F16"]),
        (
            add(tensor([6]), half(), 0, 0),
            MixedTypes,
            ["what is not finite", "F32", "F16"],
        ),
        (
            add(tensor([6]), tensor([2]), 3, 0),
            Value,
            ["offset", "4 elements end at 6", "got 3"],
        ),
        (
            add(tensor([6]), tensor([2]), usize::MAX, 0),
            Value,
            ["offset", "4 elements end at 6", "got 18446"],
        ),
        (
            add(tensor([6]), tensor([2]), 2, 2),
            Value,
            ["number", "less than 2", "got 2"],
        ),
    ] {
        refused(result, fault, &[&["accumulate"], &texts[..]].concat())?;
    }
    refused(
        sum_of_squares(vec![tensor([3]), tensor([3]), half()]),
        MixedTypes,
        &["sums_of_squares", "buffer 2", "F32", "F16"],
    )?;
    for (buffer, range, sum, texts) in [
        (1, 0..3, 0, ["buffer", "less than 1", "got 1"]),
        (0, 2..4, 0, ["end", "2 at least and 3 at most", "got 4"]),
        (0, 0..3, 2, ["sum", "less than 2", "got 2"]),
    ] {
        let part = SquaredPart { buffer, range, sum };
        let texts = [&["sums_of_squares"], &texts[..]].concat();
        refused(sums_of_squares(vec![tensor([3])], &[part], 2), Value, &texts)?;
    }
    Ok(())
}
