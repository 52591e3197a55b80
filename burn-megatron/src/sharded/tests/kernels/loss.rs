//! Cross-entropy of logits whose rows or vocabulary are cut.

use burn::tensor::{Device, Int, Tensor, TensorData};
use cubecl_kernels::cross_entropy::cross_entropy;

use super::super::super::{AxisRole, Mesh, TrafficKind, distribute};
use super::super::ranks::{DATA_2_TENSOR_2, Layout, TENSOR_2, TENSOR_4, on_mesh};
use super::{Cuts, expect_same, operand, placed_device, plain, plain_device};

/// Rows, and a vocabulary that no number of ranks cuts evenly.
const LOGITS: [usize; 2] = [6, 10];
/// Of four ranks, the last one's columns are padding alone.
const VALID: usize = 7;

fn targets(device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::from([0i64, 6, 3, 2, 5, 1]), device)
}

fn losses(logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    cross_entropy(logits, targets, VALID, |own| own).expect("they fit")
}

/// The targets' rows are cut on every axis of a role that `rows` names.
fn placed_losses(mesh: &Mesh, cuts: Cuts, rows: &[AxisRole]) -> (Tensor<1>, Tensor<2>) {
    let logits = operand(4, LOGITS, mesh, cuts);
    let mut of_rows = targets(&placed_device());
    for &role in rows {
        of_rows = distribute(of_rows, mesh, role, 0);
    }
    (losses(logits.clone(), of_rows), logits)
}

#[test]
fn cross_entropy_is_the_same_over_rows_and_vocabulary() {
    const ALL: [(Layout, Option<usize>, Option<usize>); 8] = [
        (TENSOR_2, None, None),
        (TENSOR_2, None, Some(0)),
        (TENSOR_2, None, Some(1)),
        (TENSOR_4, None, Some(1)),
        (DATA_2_TENSOR_2, Some(0), Some(1)),
        (DATA_2_TENSOR_2, Some(0), None),
        (DATA_2_TENSOR_2, Some(1), Some(1)),
        (DATA_2_TENSOR_2, Some(1), Some(0)),
    ];
    for (layout, data, tensor) in ALL {
        on_mesh(layout, |_, mesh| {
            for rows in [&[][..], &[AxisRole::Data], &[AxisRole::Tensor]] {
                let cuts = [(AxisRole::Data, data), (AxisRole::Tensor, tensor)];
                let (output, logits) = placed_losses(mesh, cuts, rows);
                let other = plain(4, LOGITS);
                let expected = losses(other.clone(), targets(&plain_device()));
                let name = format!("cut {data:?} and {tensor:?}, targets over {rows:?}");
                expect_same(&name, (output, vec![logits]), (expected, vec![other]));
            }
        });
    }
}

/// As the parallel layers do: no rank sees all logits.
#[test]
fn a_cut_vocabulary_costs_two_all_reduces_of_rows() {
    on_mesh(TENSOR_4, |_, mesh| {
        let cuts = [(AxisRole::Data, None), (AxisRole::Tensor, Some(1))];
        let logits = operand(4, LOGITS, mesh, cuts);
        mesh.start_counting();
        let loss = losses(logits.clone(), targets(&placed_device())).mean();
        let gradients = loss.backward();
        assert!(logits.grad(&gradients).is_some());
        let traffic = mesh.stop_counting();
        let found: Vec<_> = traffic.iter().map(|record| (record.kind, record.bytes)).collect();
        let bytes = LOGITS[0] * size_of::<f64>();
        assert_eq!(
            found,
            [(TrafficKind::AllReduce, bytes), (TrafficKind::AllReduce, 2 * bytes)]
        );
    });
}
