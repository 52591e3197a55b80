//! Fused linear layers whose rows, columns or sums are cut, and the update of their weights.

use burn::tensor::{DType, Device, Tensor};
use cubecl_kernels::adamw::{AdamWStep, adamw_elements};
use cubecl_kernels::linear::{linear, linear_transposed};

use super::super::super::{AxisRole, Mesh, distribute, whole};
use super::super::ranks::{DATA_2_TENSOR_2, TENSOR_2, on_mesh};
use super::{expect_same, numbers, operand, placed_device, plain};

const INPUT: [usize; 2] = [5, 6];
const WEIGHT: [usize; 2] = [6, 7];
const TURNED: [usize; 2] = [7, 6];

fn forward(turned: bool, [input, weight]: [Tensor<2>; 2], bias: Tensor<1>) -> Tensor<2> {
    if turned {
        linear_transposed(input, weight).expect("they fit")
    } else {
        linear(input, weight, Some(bias)).expect("they fit")
    }
}

/// With an input and a weight that are cut along these dimensions over tensor-parallel ranks.
fn expect_same_products(mesh: &Mesh, rows: Option<usize>, [input, weight]: [Option<usize>; 2]) {
    for turned in [false, true] {
        let shape = if turned { TURNED } else { WEIGHT };
        let on_tensor = |cut| [(AxisRole::Data, None), (AxisRole::Tensor, cut)];
        let own = operand(0, INPUT, mesh, [(AxisRole::Data, rows), (AxisRole::Tensor, input)]);
        let own_weight = operand(1, shape, mesh, on_tensor(weight));
        let own_bias = operand(2, [7], mesh, on_tensor(weight.filter(|&cut| cut == 1).map(|_| 0)));
        let (other, other_weight, other_bias) = (plain(0, INPUT), plain(1, shape), plain(2, [7]));
        // A graph is good for one backward pass.
        let run = || forward(turned, [own.clone(), own_weight.clone()], own_bias.clone());
        let expected = || forward(turned, [other.clone(), other_weight.clone()], other_bias.clone());
        let name = format!("turned {turned}, cut {rows:?}, {input:?} and {weight:?}");
        let matrices = (vec![own.clone()], vec![other.clone()]);
        expect_same(&name, (run(), matrices.0), (expected(), matrices.1));
        let weights = (vec![own_weight.clone()], vec![other_weight.clone()]);
        expect_same(&name, (run(), weights.0), (expected(), weights.1));
        if !turned {
            let biases = (vec![own_bias.clone()], vec![other_bias.clone()]);
            expect_same(&name, (run(), biases.0), (expected(), biases.1));
        }
    }
}

#[test]
fn products_are_the_same_over_rows_columns_and_sums() {
    let cuts = [None, Some(0), Some(1)];
    on_mesh(TENSOR_2, |_, mesh| {
        for input in cuts {
            for weight in cuts {
                expect_same_products(mesh, None, [input, weight]);
            }
        }
    });
    on_mesh(DATA_2_TENSOR_2, |_, mesh| {
        for (input, weight) in [(None, Some(1)), (Some(1), Some(0)), (None, None)] {
            expect_same_products(mesh, Some(0), [input, weight]);
        }
    });
}

/// No rank sees more of a parameter than its part, whichever dimension is cut.
#[test]
fn adamw_updates_each_ranks_part() {
    let step = AdamWStep {
        learning_rate: 0.1,
        beta_1: 0.9,
        beta_2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.1,
        gradient_scale: 1.0,
        time: 3,
    };
    let made = |seed: usize| numbers(seed, &WEIGHT);
    on_mesh(TENSOR_2, |_, mesh| {
        let expected = {
            let tensor = |seed| Tensor::<2>::from_data(made(seed), (&Device::flex(), DType::F64));
            let moments = [tensor(0), tensor(1), tensor(2).abs()];
            adamw_elements(moments, tensor(3), &step).expect("they fit")
        };
        for dimension in [0, 1] {
            let tensor = |seed| Tensor::<2>::from_data(made(seed), (&placed_device().inner(), DType::F64));
            let cut = |tensor| distribute(tensor, mesh, AxisRole::Tensor, dimension);
            mesh.start_counting();
            // Moments that every rank has, as they are before the first step.
            let tensors = [cut(tensor(0)), tensor(1), tensor(2).abs()];
            let updated = adamw_elements(tensors, cut(tensor(3)), &step).expect("they fit");
            assert_eq!(mesh.stop_counting(), []);
            for (updated, expected) in updated.into_iter().zip(&expected) {
                whole(updated)
                    .into_data()
                    .assert_eq(&expected.clone().into_data(), true);
            }
        }
    });
}
