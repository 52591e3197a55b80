//! Which groups span hosts: a tensor-parallel group that does sends the activations of every layer over the network.

use std::collections::BTreeMap;

use burn_megatron_comm::collectives::listed_ranks;
use burn_megatron_comm::launch::host_name;

use super::{GroupKind, RankGrid};

/// The tensor-parallel groups whose ranks are on several hosts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SplitTensorGroups {
    split: usize,
    all: usize,
    /// The first of them, and its first rank on each host.
    first: Vec<usize>,
    first_on_host: Vec<usize>,
}

impl SplitTensorGroups {
    /// Finds them; `None` if each is inside a host.
    pub(crate) fn find(grid: &RankGrid, node_of: impl Fn(usize) -> usize) -> Option<Self> {
        let hosts_of = |ranks: &[usize]| -> BTreeMap<usize, usize> {
            // The first of a host is the last to be entered.
            ranks.iter().rev().map(|&rank| (node_of(rank), rank)).collect()
        };
        let mut split = grid
            .groups(GroupKind::Tensor)
            .filter(|ranks| hosts_of(ranks).len() > 1)
            .peekable();
        let first = split.peek()?.clone();
        Some(Self {
            first_on_host: hosts_of(&first).into_values().collect(),
            first,
            split: split.count(),
            all: grid.groups(GroupKind::Tensor).count(),
        })
    }

    /// What it means, and what helps; `host_of` gives the identity of a rank's host, where it can be had.
    pub(crate) fn warning(&self, host_of: impl Fn(usize) -> Option<String>) -> String {
        let Self { split, all, .. } = self;
        let hosts = self.first_on_host.iter().map(|&rank| match host_of(rank) {
            Some(host) => host_name(&host).to_owned(),
            None => format!("that of rank {rank}"),
        });
        format!(
            "{split} of {all} tensor-parallel groups span hosts, such as {} ({}): the activations of every layer cross \
             the network; let the tensor-parallel size divide the ranks of a host, and number the ranks host by host \
             (srun --distribution block, mpirun --map-by slot)",
            listed_ranks(&self.first),
            hosts.collect::<Vec<_>>().join(", "),
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
        let by_host = |ranks_per_host: usize| move |rank: usize| rank / ranks_per_host;
        let name = |rank: usize| Some(format!("{}/boot", ["a", "b", "c"][rank / 6]));
        assert_eq!(SplitTensorGroups::find(&grid, by_host(8)), None);
        assert_eq!(SplitTensorGroups::find(&grid, by_host(4)), None);
        let split = SplitTensorGroups::find(&grid, by_host(6)).expect("ranks 4 to 7 are on two hosts");
        let text = split.warning(name);
        assert!(
            text.starts_with("1 of 4 tensor-parallel groups span hosts, such as [4, 5, 6, 7] (a, b): "),
            "{text}"
        );
        // One after the other round the hosts.
        let round = SplitTensorGroups::find(&grid, |rank| rank % 2).expect("all");
        assert!(round.warning(|_| None).contains("(that of rank 0, that of rank 1)"));
        assert_eq!((round.split, round.all), (4, 4));
    }
}
