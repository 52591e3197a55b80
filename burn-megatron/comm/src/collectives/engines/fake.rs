//! The engine of a fake world: this rank answers for its peers.

use super::engine::Engine;
use crate::collectives::call::CallDescriptor;
use crate::collectives::error::CollectiveError;

/// The engine of a group whose other ranks do not exist ([`World::fake`](crate::launch::World::fake)): every one of
/// them contributes what this rank does, and sends zeros.
#[derive(Debug)]
pub(crate) struct FakeEngine {
    rank: usize,
    size: usize,
}

impl FakeEngine {
    /// Returns the engine of the rank with group index `rank` of a group of `size`.
    pub fn new(rank: usize, size: usize) -> Self {
        Self { rank, size }
    }
}

impl Engine for FakeEngine {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn place(&self) -> (usize, usize) {
        (self.rank, self.size)
    }

    fn all_gather(&self, _: &CallDescriptor, shard: &[u8], output: &mut [u8]) -> Result<(), CollectiveError> {
        if !shard.is_empty() {
            output
                .chunks_exact_mut(shard.len())
                .for_each(|part| part.copy_from_slice(shard));
        }
        Ok(())
    }

    fn send(&self, _: &CallDescriptor, _: &[u8]) -> Result<(), CollectiveError> {
        Ok(())
    }

    fn recv(&self, _: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        buffer.fill(0);
        Ok(())
    }

    fn disconnect_reason(&self, _: usize) -> Option<String> {
        None
    }

    fn bytes_communicated(&self) -> u64 {
        0
    }

    fn leave(&self, _: &str) {}
}

#[cfg(test)]
mod tests {
    use crate::collectives::{EngineChoice, ProcessGroup, ReduceOp};
    use crate::launch::World;

    #[test]
    fn a_rank_of_a_fake_world_gets_its_own_numbers_from_all_ranks() {
        let world = World::fake(2, 5);
        assert_eq!((world.rank(), world.world_size(), world.local_rank()), (2, 5, 0));
        let group = ProcessGroup::connect(&world, "pair", &[2, 4], &EngineChoice::Auto).unwrap();
        assert_eq!((group.engine_name(), group.rank()), ("fake", 0));
        let mut sum = [3.0_f32, 1.0];
        group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        assert_eq!(sum, [6.0, 2.0]);
        let mut gathered = [0_i32; 4];
        group.all_gather(&[7, 8], &mut gathered).unwrap();
        assert_eq!(gathered, [7, 8, 7, 8]);
        let mut sent = [5_i64];
        group.broadcast(&mut sent, 1).unwrap();
        assert_eq!(sent, [5]);
        group.send(&[1_u8], 1).unwrap();
        let mut received = [1_u8; 2];
        group.recv(&mut received, 1).unwrap();
        assert_eq!(received, [0, 0]);
        group.barrier().unwrap();
    }

    #[test]
    fn only_a_fake_world_of_several_ranks_is_fake() {
        assert!(World::fake(0, 2).is_fake());
        assert!(!World::single().is_fake());
    }

    #[test]
    #[should_panic(expected = "rank 2 is not below the world size 2")]
    fn a_rank_that_a_fake_world_does_not_have_is_refused() {
        World::fake(2, 2);
    }
}
