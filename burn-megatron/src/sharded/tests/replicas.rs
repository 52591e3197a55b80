//! Replicas that are compared at an interval of steps.

use burn::nn::{Initializer, LinearConfig};

use super::new_device;
use super::ranks::{DATA_2_TENSOR_2, on_mesh};
use crate::sharded::{AxisRole, Plan, ReplicaCheck, ReplicaError, parallelize};

#[test]
fn a_replica_that_was_changed_is_named_at_the_next_check_with_the_step() {
    let errors = on_mesh(DATA_2_TENSOR_2, |world, mesh| {
        let layer = LinearConfig::new(4, 2)
            .with_initializer(Initializer::Ones)
            .init(&new_device());
        let mut model = parallelize(layer, &Plan::new().shard("weight", AxisRole::Tensor, 0), mesh).unwrap();
        let [mut watched, mut never] = [ReplicaCheck::every(3), ReplicaCheck::every(0)];
        let mut results = Vec::new();
        for step in 1..=7 {
            if (step, world.rank()) == (4, 2) {
                model.weight = model.weight.map(|tensor| tensor * 2.0);
            }
            never.after_step(&model, mesh).unwrap();
            results.push(watched.after_step(&model, mesh));
        }
        assert!(
            results
                .iter()
                .enumerate()
                .all(|(index, result)| result.is_err() == (index == 5)),
            "{results:?}"
        );
        results.remove(5).unwrap_err()
    });
    // Ranks 0 and 2 have the same half of the weight.
    for rank in [0, 2] {
        let expected =
            "after step 6: parameter weight is not the same on rank 0 and rank 2, which both have the same part";
        assert!(errors[rank].to_string().starts_with(expected), "{}", errors[rank]);
    }
    for rank in [1, 3] {
        let ReplicaError::AfterStep { step: 6, source } = &errors[rank] else {
            panic!("{}", errors[rank])
        };
        assert!(matches!(**source, ReplicaError::Elsewhere), "{source}");
    }
}
