//! Cores next to a rank's GPU: those of its NUMA node, shared evenly with the ranks whose GPUs are on the same.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use burn_megatron_comm::collectives::ProcessGroup;
use burn_megatron_comm::launch::{CoreSet, World};
use cudarc::driver::sys::CUdevice_attribute::{
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
};

use super::{CudaError, driver};

/// Where the operating system describes what is on PCI.
const PCI: &str = "/sys/bus/pci/devices";

/// The cores that a rank computes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundCores {
    /// The cores.
    pub cores: CoreSet,
    /// The NUMA node of the rank's GPU, where the machine has several.
    pub numa_node: Option<usize>,
}

impl fmt::Display for BoundCores {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cores {}, next to its GPU", self.cores)?;
        match self.numa_node {
            Some(node) => write!(formatter, " (NUMA node {node})"),
            None => Ok(()),
        }
    }
}

/// Lets this process run only on its share of the cores next to its GPU. Collective over the group, which has all
/// ranks.
///
/// The share is taken of the cores that the process may use so far: what Slurm or a container allows stays. Ranks of
/// one host that have the same cores next to their GPUs share them evenly. Returns `None`, and changes nothing, where
/// the system does not know the GPU, or none of its cores is allowed.
///
/// # Communication
/// One all-gather of 8 bytes.
///
/// # Errors
/// When that fails, or the system refuses.
pub fn bind_cores(gpu: usize, world: &World, group: &ProcessGroup) -> Result<Option<BoundCores>, CudaError> {
    let near = Near::of(&pci_folder(gpu)?).filter(|near| !near.cores.is_empty());
    let allowed = CoreSet::allowed().map_err(CudaError::Cores)?;
    let cores = near.as_ref().map(|near| near.cores.and(&allowed)).unwrap_or_default();
    let mut all = vec![0; group.size()];
    group.all_gather(&[hash(&cores)], &mut all)?;
    let nodes: Vec<usize> = group.ranks().iter().map(|&rank| world.node_of(rank)).collect();
    let Some(near) = near.filter(|_| !cores.is_empty()) else {
        return Ok(None);
    };
    let (index, count) = place_among_equals(group.rank(), &all, &nodes);
    let cores = cores.share(index, count);
    cores.bind_process().map_err(CudaError::Cores)?;
    Ok(Some(BoundCores {
        cores,
        numa_node: near.numa_node,
    }))
}

/// The place of a GPU, as the operating system describes it.
#[derive(Debug, PartialEq, Eq)]
struct Near {
    cores: CoreSet,
    numa_node: Option<usize>,
}

impl Near {
    /// Reads a device's folder; `None` where there is none.
    fn of(folder: &Path) -> Option<Self> {
        let read = |name: &str| -> io::Result<String> { std::fs::read_to_string(folder.join(name)) };
        let cores = read("local_cpulist").ok()?.trim().parse().ok()?;
        // -1 where there is one node only.
        let numa_node = read("numa_node").ok().and_then(|text| text.trim().parse().ok());
        Some(Self { cores, numa_node })
    }
}

/// The folder of a GPU by its address: `0000:3b:00.0`.
fn pci_folder(gpu: usize) -> Result<PathBuf, CudaError> {
    let place = [
        CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
        CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
    ];
    let [domain, bus, slot] = driver::attributes(gpu, place)?;
    Ok(Path::new(PCI).join(format!("{domain:04x}:{bus:02x}:{slot:02x}.0")))
}

/// Which of the ranks with the same cores on the same host a rank is, and how many they are.
fn place_among_equals(rank: usize, cores: &[i64], nodes: &[usize]) -> (usize, usize) {
    let is_equal = |&other: &usize| cores[other] == cores[rank] && nodes[other] == nodes[rank];
    let count = (0..cores.len()).filter(is_equal).count();
    ((0..rank).filter(is_equal).count(), count)
}

fn hash(cores: &CoreSet) -> i64 {
    let mut hasher = DefaultHasher::new();
    cores.to_string().hash(&mut hasher);
    hasher.finish() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_gpu_is_read_from_its_folder() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert_eq!(Near::of(folder.path()), None);
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("it is writable");
        write("local_cpulist", "32-63,96-127\n");
        write("numa_node", "1\n");
        let near = Near::of(folder.path()).expect("it is there");
        let bound = BoundCores {
            cores: near.cores,
            numa_node: near.numa_node,
        };
        assert_eq!(bound.to_string(), "cores 32-63,96-127, next to its GPU (NUMA node 1)");
        write("numa_node", "-1\n");
        assert_eq!(Near::of(folder.path()).expect("it is there").numa_node, None);
    }

    #[test]
    fn ranks_share_with_those_of_their_host_that_have_the_same_cores() {
        let nodes = [0, 0, 0, 0, 1];
        let cores = [1, 2, 1, 2, 1];
        let places = [0, 1, 2, 3, 4].map(|rank| place_among_equals(rank, &cores, &nodes));
        assert_eq!(places, [(0, 2), (0, 2), (1, 2), (1, 2), (0, 1)]);
    }
}
