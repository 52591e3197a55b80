//! Property tests of the grid and its groups, and the messages of bad configurations.

use proptest::prelude::*;

use super::*;

fn config(tensor: usize, pipeline: usize) -> ParallelConfig {
    ParallelConfig {
        tensor_parallel_size: tensor,
        pipeline_parallel_size: pipeline,
        sequence_parallel: false,
    }
}

proptest! {
    #[test]
    fn rank_and_coordinates_are_inverse(tensor in 1usize..5, data in 1usize..5, pipeline in 1usize..5) {
        let grid = config(tensor, pipeline).grid(tensor * data * pipeline).expect("divides");
        prop_assert_eq!(grid.data_parallel_size(), data);
        for rank in 0..grid.world_size() {
            prop_assert_eq!(grid.rank(grid.coordinates(rank)), rank);
        }
    }

    #[test]
    fn every_rank_is_in_exactly_one_group_of_each_kind_and_groups_tile_the_world(
        tensor in 1usize..5, data in 1usize..5, pipeline in 1usize..5,
    ) {
        let grid = config(tensor, pipeline).grid(tensor * data * pipeline).expect("divides");
        for kind in GroupKind::ALL {
            let size = match kind {
                GroupKind::World => grid.world_size(),
                GroupKind::Tensor => tensor,
                GroupKind::Data => data,
                GroupKind::Pipeline => pipeline,
                GroupKind::Embedding => pipeline.min(2),
                GroupKind::Model => tensor * pipeline,
            };
            let firsts = (0..grid.world_size()).filter_map(|rank| {
                grid.group(kind, rank).filter(|ranks| ranks[0] == rank)
            });
            prop_assert_eq!(grid.groups(kind).collect::<Vec<_>>(), firsts.collect::<Vec<_>>());
            let mut seen = std::collections::BTreeSet::new();
            for rank in 0..grid.world_size() {
                let Some(ranks) = grid.group(kind, rank) else {
                    let stage = grid.coordinates(rank).pipeline;
                    prop_assert!(kind == GroupKind::Embedding && stage > 0 && stage + 1 < pipeline);
                    continue;
                };
                prop_assert_eq!(ranks.len(), size);
                prop_assert!(ranks.is_sorted());
                prop_assert_eq!(ranks.iter().filter(|&&r| r == rank).count(), 1);
                // Every member sees the same group, so the groups of a kind are disjoint.
                for &member in &ranks {
                    let members = grid.group(kind, member);
                    prop_assert_eq!(members.as_ref(), Some(&ranks));
                }
                seen.extend(ranks);
            }
            if kind != GroupKind::Embedding {
                prop_assert_eq!(seen.len(), grid.world_size());
            }
        }
    }

    #[test]
    fn a_world_that_does_not_divide_names_valid_neighbours(tensor in 2usize..9, world_size in 1usize..64) {
        prop_assume!(!world_size.is_multiple_of(tensor));
        let message = config(tensor, 1).grid(world_size).expect_err("does not divide").to_string();
        let above = world_size.next_multiple_of(tensor);
        prop_assert!(message.contains(&above.to_string()), "{}", message);
        prop_assert!(config(tensor, 1).grid(above).is_ok());
    }
}

#[test]
fn tensor_axis_is_fastest_then_data_then_pipeline() {
    let grid = config(2, 2).grid(8).expect("divides");
    assert_eq!(grid.group(GroupKind::Tensor, 5), Some(vec![4, 5]));
    assert_eq!(grid.group(GroupKind::Data, 5), Some(vec![5, 7]));
    assert_eq!(grid.group(GroupKind::Pipeline, 5), Some(vec![1, 5]));
    assert_eq!(grid.group(GroupKind::Model, 5), Some(vec![0, 1, 4, 5]));
}

#[test]
fn key_heads_are_shared_where_there_are_more_ranks() {
    let copies = |heads, tensor| key_head_copies("the number of key heads", heads, 8, tensor);
    for (heads, tensor, expected) in [(2, 1, 1), (2, 2, 1), (2, 4, 2), (2, 8, 4), (1, 8, 8), (8, 4, 1)] {
        assert_eq!(copies(heads, tensor), Ok(expected), "{heads} heads on {tensor} ranks");
    }
    for (heads, tensor, valid) in [(4, 3, "1, 2, 4, 8"), (2, 16, "1, 2, 4, 8")] {
        assert_eq!(
            copies(heads, tensor).expect_err("it does not fit").to_string(),
            format!(
                "the number of key heads and tensor_parallel_size must divide one another, got {heads} and {tensor}; \
                 valid tensor_parallel_size for {heads} of them and 8 query heads: {valid}"
            )
        );
    }
}

#[test]
fn bad_configurations_give_rule_values_and_neighbours() {
    assert_eq!(
        config(4, 1).grid(6).expect_err("6 ranks").to_string(),
        "the world size must be a multiple of tensor_parallel_size * pipeline_parallel_size = 4 * 1 = 4, got 6; \
         the nearest valid world sizes are 4 and 8"
    );
    assert!(config(0, 1).grid(1).is_err());
    let sequence = ParallelConfig {
        sequence_parallel: true,
        ..config(1, 1)
    };
    assert_eq!(sequence.grid(1), Err(TopologyError::SequenceWithoutTensor));
    assert_eq!(
        config(4, 1)
            .check_tensor_divides("the number of attention heads", 6)
            .expect_err("6 heads")
            .to_string(),
        "the number of attention heads must be divisible by tensor_parallel_size = 4, got 6; \
         the nearest valid values are 4 and 8"
    );
}
