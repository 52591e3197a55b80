//! Fused operations and their gradients, with operands placed in many ways, against the inner backend's.

mod linear;
mod loss;
mod rows;

use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use cubecl_kernels::bias_gelu::bias_gelu;
use cubecl_kernels::flash_attention::{
    AttentionMask, AttentionOptions, Documents, KeyLengths, PackedHeads, flash_attention, flash_attention_packed,
    flash_attention_packed_with_bias, flash_attention_with_bias,
};
use cubecl_kernels::norm::{layer_norm, rms_norm};
use cubecl_kernels::random::{RowDropout, RowPlace};
use cubecl_kernels::rotary::{RotaryAngles, RotaryLayout, rotary};
use cubecl_kernels::swiglu::swiglu;

use super::super::{AxisRole, Mesh, device, distribute, whole};
use super::ranks::{DATA_2_TENSOR_2, TENSOR_2, on_mesh};

thread_local! {
    /// Of a rank, which is a thread.
    static PLACED: Device = device::<Flex>(FlexDevice).autodiff();
}

/// This rank's device.
fn placed_device() -> Device {
    PLACED.with(Device::clone)
}

fn plain_device() -> Device {
    Device::flex().autodiff()
}

/// Samples, tokens, heads and the width of a head; of two ranks one has more samples.
const QUERIES: [usize; 4] = [3, 4, 4, 5];

/// Numbers that look random.
fn numbers(seed: usize, shape: &[usize]) -> TensorData {
    let count = shape.iter().product();
    let number = |index: usize| ((index * 37 + seed * 101) % 61) as f64 / 30.0 - 1.0;
    TensorData::new((0..count).map(number).collect::<Vec<f64>>(), shape.to_vec())
}

/// The dimension of an operand that is cut over the ranks of a role, if one is.
type Cuts = [(AxisRole, Option<usize>); 2];

fn operand<const D: usize>(seed: usize, shape: [usize; D], mesh: &Mesh, cuts: Cuts) -> Tensor<D> {
    let mut tensor = Tensor::<D>::from_data(numbers(seed, &shape), (&placed_device(), DType::F64));
    for (role, dimension) in cuts {
        if let Some(dimension) = dimension {
            tensor = distribute(tensor, mesh, role, dimension);
        }
    }
    tensor.require_grad()
}

fn plain<const D: usize>(seed: usize, shape: [usize; D]) -> Tensor<D> {
    Tensor::from_data(numbers(seed, &shape), (&plain_device(), DType::F64)).require_grad()
}

/// Compares an output and the gradients of operands, for another gradient of each of the output's elements.
fn expect_same<const D: usize, const E: usize>(
    name: &str,
    (output, operands): (Tensor<D>, Vec<Tensor<E>>),
    (expected, plain): (Tensor<D>, Vec<Tensor<E>>),
) {
    let weights = numbers(9, &expected.dims());
    let weighted = |output: &Tensor<D>| {
        let weights = Tensor::from_data(weights.clone(), (&output.device(), DType::F64));
        (output.clone() * weights).sum()
    };
    let (of_placed, of_plain) = (weighted(&output), weighted(&expected));
    let (gradients, others) = (of_placed.backward(), of_plain.backward());
    let mut pairs = vec![(whole(output.inner()).into_data(), expected.inner().into_data())];
    for (placed, plain) in operands.iter().zip(&plain) {
        let gradient = whole(placed.grad(&gradients).expect("it is tracked"));
        pairs.push((
            gradient.into_data(),
            plain.grad(&others).expect("it is tracked").into_data(),
        ));
    }
    for (number, (found, expected)) in pairs.iter().enumerate() {
        assert_eq!(found.shape(), expected.shape(), "{name}, tensor {number}");
        let largest = found.iter::<f64>().zip(expected.iter::<f64>());
        let largest = largest.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(largest < 1e-12, "{name}, tensor {number} differs by {largest:e}");
    }
}

fn options(mask: AttentionMask) -> AttentionOptions {
    AttentionOptions {
        mask,
        scale: 0.4,
        dropout: None,
        documents: None,
        key_lengths: None,
        is_deterministic: true,
    }
}

#[test]
fn attention_is_the_same_over_samples_and_heads() {
    let dropout = || RowDropout {
        key: [3, 5],
        iteration: 2,
        first_head: 1,
        probability: 0.3,
        places: (0..12)
            .map(|row| RowPlace {
                position: row % 4,
                sample: row / 4,
            })
            .collect(),
    };
    let documents = || Documents::from_lengths(4, &[vec![1, 3], vec![4], vec![2, 2]]).expect("they add up");
    let cuts = [None, Some(0), Some(1), Some(2), Some(3)];
    for kv_heads in [4, 2, 1] {
        let shapes = [QUERIES, [3, 4, kv_heads, 5], [3, 4, kv_heads, 5]];
        on_mesh(DATA_2_TENSOR_2, |_, mesh| {
            for (index, dimension) in cuts.into_iter().enumerate() {
                let options = AttentionOptions {
                    dropout: (index % 2 == 1).then(dropout),
                    documents: (index == 2).then(documents),
                    ..options(AttentionMask::Causal)
                };
                let of_operand = |operand: usize| {
                    let fits = dimension != Some(2) || shapes[operand][2] >= 2;
                    let data = (index != 1).then_some(0);
                    [
                        (AxisRole::Data, data),
                        (
                            AxisRole::Tensor,
                            dimension.filter(|&d| fits && (d != 0 || data.is_none())),
                        ),
                    ]
                };
                let placed: Vec<_> = (0..3).map(|n| operand(n, shapes[n], mesh, of_operand(n))).collect();
                let others: Vec<_> = (0..3).map(|n| plain(n, shapes[n])).collect();
                fn run(tensors: &[Tensor<4>], options: AttentionOptions) -> Tensor<4> {
                    let [query, key, value] = [0, 1, 2].map(|n| tensors[n].clone());
                    flash_attention(query, key, value, options).expect("they fit")
                }
                let (output, expected) = (run(&placed, options.clone()), run(&others, options));
                expect_same(
                    &format!("{kv_heads} heads, cut {dimension:?}"),
                    (output, placed),
                    (expected, others),
                );
            }
        });
    }
}

/// The gradient of the bias is a sum over the samples, of which each rank has a term.
#[test]
fn attention_with_a_bias_is_the_same_over_samples_and_heads() {
    let options = || AttentionOptions {
        key_lengths: Some(KeyLengths::new([4, 2, 3])),
        ..options(AttentionMask::CausalWindow(3))
    };
    for kv_heads in [4, 2] {
        let shapes = [QUERIES, [3, 4, kv_heads, 5], [3, 4, kv_heads, 5]];
        on_mesh(DATA_2_TENSOR_2, |_, mesh| {
            for (data, tensor, of_bias) in [
                (None, None, None),
                (Some(0), None, None),
                (Some(0), Some(2), Some(0)),
                (None, Some(2), None),
                (Some(1), None, Some(1)),
            ] {
                let cuts = [(AxisRole::Data, data), (AxisRole::Tensor, tensor)];
                let own_bias = operand(3, [4, 7], mesh, [(AxisRole::Data, None), (AxisRole::Tensor, of_bias)]);
                let other_bias = plain(3, [4, 7]);
                let own: Vec<_> = (0..3).map(|n| operand(n, shapes[n], mesh, cuts)).collect();
                let others: Vec<_> = (0..3).map(|n| plain(n, shapes[n])).collect();
                fn run(tensors: &[Tensor<4>], bias: Tensor<2>, options: AttentionOptions) -> Tensor<4> {
                    let [query, key, value] = [0, 1, 2].map(|n| tensors[n].clone());
                    flash_attention_with_bias(query, key, value, Some(bias), options).expect("they fit")
                }
                let name = format!("{kv_heads} heads, cut {data:?}, {tensor:?} and {of_bias:?}");
                let output = || run(&own, own_bias.clone(), options());
                let expected = || run(&others, other_bias.clone(), options());
                let bias = (vec![own_bias.clone()], vec![other_bias.clone()]);
                expect_same(&name, (output(), bias.0), (expected(), bias.1));
                expect_same(&name, (output(), own.clone()), (expected(), others.clone()));
            }
        });
    }
    let heads = PackedHeads { queries: 4, keys: 2 };
    on_mesh(DATA_2_TENSOR_2, |_, mesh| {
        for (data, tensor) in [(None, None), (Some(0), None), (None, Some(0)), (Some(0), Some(2))] {
            let cuts = [(AxisRole::Data, data), (AxisRole::Tensor, tensor)];
            let (own, other) = (operand(0, [3, 4, 8, 5], mesh, cuts), plain(0, [3, 4, 8, 5]));
            let own_bias = operand(3, [4, 7], mesh, [(AxisRole::Data, None), (AxisRole::Tensor, None)]);
            let other_bias = plain(3, [4, 7]);
            let output = flash_attention_packed_with_bias(own, heads, Some(own_bias.clone()), options());
            let expected = flash_attention_packed_with_bias(other, heads, Some(other_bias.clone()), options());
            expect_same(
                &format!("packed, cut {data:?} and {tensor:?}"),
                (output.expect("it fits"), vec![own_bias]),
                (expected.expect("it fits"), vec![other_bias]),
            );
        }
    });
}

#[test]
fn norms_and_activations_are_the_same_over_rows_and_columns() {
    on_mesh(TENSOR_2, |_, mesh| {
        for dimension in [None, Some(0), Some(1)] {
            let cuts = |dimension| [(AxisRole::Data, None), (AxisRole::Tensor, dimension)];
            let input = || operand(0, [5, 6], mesh, cuts(dimension));
            let vector = |seed: usize| operand(seed, [6], mesh, cuts(dimension.and_then(|d: usize| d.checked_sub(1))));
            let other_vector = |seed: usize| plain(seed, [6]);

            let (own, weight, bias) = (input(), vector(1), vector(2));
            let (other, other_weight, other_bias) = (plain(0, [5, 6]), other_vector(1), other_vector(2));
            // A graph is good for one backward pass.
            let norm = || layer_norm(own.clone(), weight.clone(), Some(bias.clone()), 1e-5).expect("they fit");
            let other_norm = || {
                let bias = Some(other_bias.clone());
                layer_norm(other.clone(), other_weight.clone(), bias, 1e-5).expect("they fit")
            };
            expect_same("norm", (norm(), vec![own.clone()]), (other_norm(), vec![other.clone()]));
            let vectors = (
                vec![weight.clone(), bias.clone()],
                vec![other_weight.clone(), other_bias.clone()],
            );
            expect_same("norm", (norm(), vectors.0), (other_norm(), vectors.1));

            let norm = rms_norm(own.clone(), weight, 1e-5).expect("they fit");
            let other_norm = rms_norm(other.clone(), other_weight, 1e-5).expect("they fit");
            expect_same("rms norm", (norm, vec![own.clone()]), (other_norm, vec![other.clone()]));

            let gelu = || bias_gelu(own.clone(), bias.clone()).expect("they fit");
            let other_gelu = || bias_gelu(other.clone(), other_bias.clone()).expect("they fit");
            expect_same(
                "bias_gelu",
                (gelu(), vec![own.clone()]),
                (other_gelu(), vec![other.clone()]),
            );
            expect_same(
                "bias_gelu",
                (gelu(), vec![bias.clone()]),
                (other_gelu(), vec![other_bias.clone()]),
            );

            let (own, other) = (input(), plain(0, [5, 6]));
            let gated = swiglu(own.clone()).expect("it fits");
            let plain_gated = swiglu(other.clone()).expect("it fits");
            expect_same("swiglu", (gated, vec![own]), (plain_gated, vec![other]));
        }
    });
}

#[test]
fn attention_of_one_packed_tensor_is_the_same() {
    let heads = PackedHeads { queries: 4, keys: 2 };
    const PACKED: [usize; 4] = [3, 4, 8, 5];
    on_mesh(DATA_2_TENSOR_2, |_, mesh| {
        for (data, tensor) in [
            (None, None),
            (Some(0), None),
            (Some(0), Some(2)),
            (None, Some(0)),
            (None, Some(1)),
        ] {
            let options = options(AttentionMask::Causal);
            let own = operand(0, PACKED, mesh, [(AxisRole::Data, data), (AxisRole::Tensor, tensor)]);
            let other = plain(0, PACKED);
            let output = flash_attention_packed(own.clone(), heads, options.clone()).expect("it fits");
            let expected = flash_attention_packed(other.clone(), heads, options).expect("it fits");
            let name = format!("packed, cut {data:?} and {tensor:?}");
            expect_same(&name, (output, vec![own]), (expected, vec![other]));
        }
    });
}

/// Angles of seven positions for `tokens` tokens.
fn angles(tokens: i64, half: usize, device: &Device) -> RotaryAngles {
    let table = |seed| Tensor::from_data(numbers(seed, &[7, half]), (device, DType::F64));
    RotaryAngles {
        cosine: table(3),
        sine: table(4),
        positions: Tensor::arange(0..tokens, device).mul_scalar(3).remainder_scalar(7),
        layout: RotaryLayout::Interleaved,
    }
}

#[test]
fn rotary_is_the_same_over_tokens_and_heads() {
    on_mesh(DATA_2_TENSOR_2, |_, mesh| {
        // Five tokens: one rank has more of them.
        let shape = [5, 2, 4, 6];
        for cuts in [
            [None, None],
            [Some(0), None],
            [Some(0), Some(1)],
            [None, Some(0)],
            [Some(3), Some(2)],
        ] {
            let cuts = [(AxisRole::Data, cuts[0]), (AxisRole::Tensor, cuts[1])];
            for is_turned in [true, false] {
                let (own, other) = (operand(0, shape, mesh, cuts), plain(0, shape));
                let output = rotary(own.clone(), is_turned.then(|| angles(5, 2, &placed_device()))).expect("it fits");
                let expected =
                    rotary(other.clone(), is_turned.then(|| angles(5, 2, &plain_device()))).expect("it fits");
                expect_same("rotary", (output, vec![own]), (expected, vec![other]));
            }
        }
    });
}
