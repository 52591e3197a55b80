//! Batches of which each rank has its part: loaded whole, and loaded by part.

use burn::tensor::{Int, Tensor};
use burn_flex::{Flex, FlexDevice};

use super::super::{AxisRole, Sharded, describe, distribute, from_local, whole};
use super::ranks::{CONTEXT_3, DATA_2_TENSOR_2, on_mesh};

type S = Sharded<Flex>;

fn numbers(range: std::ops::Range<i64>) -> Tensor<S, 2, Int> {
    let length = range.end - range.start;
    Tensor::<S, 1, Int>::arange(3 * range.start..3 * range.end, &FlexDevice).reshape([length as usize, 3])
}

#[test]
fn a_batch_that_ranks_have_loaded_by_part_is_the_whole_one_distributed() {
    for (layout, role) in [(DATA_2_TENSOR_2, AxisRole::Data), (CONTEXT_3, AxisRole::Context)] {
        on_mesh(layout, |_, mesh| {
            let (ranks, rank) = (mesh.shape().size(0), mesh.ranks()[0]);
            let own = (rank * 7 / ranks) as i64..((rank + 1) * 7 / ranks) as i64;
            let loaded = from_local(numbers(own), mesh, role, 0, 7);
            let distributed = distribute(numbers(0..7), mesh, role, 0);
            assert_eq!(loaded.dims(), [7, 3]);
            assert_eq!(describe(&loaded.clone().float()), describe(&distributed.float()));
            assert_eq!(whole(loaded).into_data(), numbers(0..7).into_data());
        });
    }
}

#[test]
#[should_panic(expected = "of dimension 0, of length 8, this rank's part is 0..8, got 7")]
fn a_part_of_another_length_is_refused() {
    let mesh = super::super::Mesh::new([]).expect("no axis");
    from_local(numbers(0..7), &mesh, AxisRole::Data, 0, 8);
}
