//! Which groups span hosts: a tensor-parallel group that does sends the activations of every layer over the network.

use std::collections::BTreeSet;

use burn_megatron_comm::collectives::listed_ranks;
use burn_megatron_comm::launch::host_name;

use super::{GroupKind, RankGrid};

/// The tensor-parallel groups whose ranks are on several hosts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SplitTensorGroups {
    split: usize,
    all: usize,
    /// The first of them, and its hosts.
    first: Vec<usize>,
    hosts: Vec<String>,
}

impl SplitTensorGroups {
    /// Finds them; `None` if each is inside a host.
    pub(crate) fn find<'a>(grid: &RankGrid, host_of: impl Fn(usize) -> &'a str) -> Option<Self> {
        let hosts_of = |ranks: &[usize]| -> BTreeSet<&'a str> { ranks.iter().map(|&rank| host_of(rank)).collect() };
        let mut split = grid
            .groups(GroupKind::Tensor)
            .filter(|ranks| hosts_of(ranks).len() > 1)
            .peekable();
        let first = split.peek()?.clone();
        let hosts = hosts_of(&first)
            .into_iter()
            .map(|host| host_name(host).to_owned())
            .collect();
        Some(Self {
            hosts,
            first,
            split: split.count(),
            all: grid.groups(GroupKind::Tensor).count(),
        })
    }

    /// What it means, and what helps.
    pub(crate) fn warning(&self) -> String {
        let Self { split, all, .. } = self;
        format!(
            "{split} of {all} tensor-parallel groups span hosts, such as {} ({}): the activations of every layer cross \
             the network; let the tensor-parallel size divide the ranks of a host, and number the ranks host by host \
             (srun --distribution block, mpirun --map-by slot)",
            listed_ranks(&self.first),
            self.hosts.join(", "),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::ParallelConfig;
    use super::*;

    #[test]
    fn groups_of_several_hosts_are_found() {
        let grid = ParallelConfig::new().with_tensor_parallel_size(4);
        let grid = grid.grid(16).expect("it divides");
        let by_host =
            |ranks_per_host: usize| move |rank: usize| ["a", "b", "c", "d", "e", "f"][(rank / ranks_per_host).min(5)];
        assert_eq!(SplitTensorGroups::find(&grid, by_host(8)), None);
        assert_eq!(SplitTensorGroups::find(&grid, by_host(4)), None);
        let split = SplitTensorGroups::find(&grid, by_host(6)).expect("ranks 4 to 7 are on two hosts");
        let text = split.warning();
        assert!(
            text.starts_with("1 of 4 tensor-parallel groups span hosts, such as [4, 5, 6, 7] (a, b): "),
            "{text}"
        );
        // One after the other round the hosts.
        let round = SplitTensorGroups::find(&grid, |rank| ["a", "b"][rank % 2]).expect("all");
        assert_eq!((round.split, round.all), (4, 4));
    }
}
