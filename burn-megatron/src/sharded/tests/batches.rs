//! Batches of which each rank has its part: loaded whole, and loaded by part.

use burn::tensor::{Device, Int, Tensor};
use burn_flex::{Flex, FlexDevice};

use super::super::{AxisRole, Mesh, describe, device, distribute, from_local, whole};
use super::ranks::{CONTEXT_3, DATA_2_TENSOR_2, on_mesh};

fn numbers(range: std::ops::Range<i64>, device: &Device) -> Tensor<2, Int> {
    let length = range.end - range.start;
    Tensor::<1, Int>::arange(3 * range.start..3 * range.end, device).reshape([length as usize, 3])
}

#[test]
fn a_batch_that_ranks_have_loaded_by_part_is_the_whole_one_distributed() {
    let hybrid = &[(AxisRole::Data, 3), (AxisRole::Data, 2)];
    for (layout, role) in [
        (DATA_2_TENSOR_2, AxisRole::Data),
        (CONTEXT_3, AxisRole::Context),
        (hybrid, AxisRole::Data),
    ] {
        on_mesh(layout, |_, mesh| {
            let device = device::<Flex>(FlexDevice);
            let numbers = |range| numbers(range, &device);
            let own = mesh.part(role, 7);
            let loaded = from_local(numbers(own.start as i64..own.end as i64), mesh, role, 0, 7);
            let distributed = distribute(numbers(0..7), mesh, role, 0);
            assert_eq!(loaded.dims(), [7, 3]);
            assert_eq!(describe(&loaded), describe(&distributed));
            assert_eq!(whole(loaded).into_data(), numbers(0..7).into_data());
            let mask = |range| numbers(range).equal_elem(4);
            let loaded = from_local(mask(own.start as i64..own.end as i64), mesh, role, 0, 7);
            let both = loaded.bool_and(distribute(mask(0..7), mesh, role, 0));
            assert_eq!(whole(both).into_data(), mask(0..7).into_data());
        });
    }
}

#[test]
#[should_panic(expected = "of dimension 0, of length 8, this rank's part is 0..8, got 7")]
fn a_part_of_another_length_is_refused() {
    let mesh = Mesh::new([]).expect("no axis");
    from_local(numbers(0..7, &device::<Flex>(FlexDevice)), &mesh, AxisRole::Data, 0, 8);
}

#[test]
#[should_panic(expected = "a tensor of shape [2, 3] of a graph is distributed")]
fn a_tensor_of_a_graph_is_not_distributed() {
    let mesh = Mesh::new([]).expect("no axis");
    let tensor = Tensor::<2>::ones([2, 3], &device::<Flex>(FlexDevice).autodiff()).require_grad();
    distribute(tensor, &mesh, AxisRole::Data, 0);
}
