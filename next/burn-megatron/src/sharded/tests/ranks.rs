//! Meshes of ranks that are threads.

use burn_megatron_comm::rank_threads::{TIMEOUT, run_ranks};

use super::super::{AxisRole, Mesh};
use crate::collectives::{EngineChoice, GroupConfig};
use crate::launch::World;

/// The roles and sizes of a mesh's axes.
pub type Layout = &'static [(AxisRole, usize)];

pub const DATA_2: Layout = &[(AxisRole::Data, 2)];
pub const TENSOR_2: Layout = &[(AxisRole::Tensor, 2)];
pub const TENSOR_4: Layout = &[(AxisRole::Tensor, 4)];
pub const CONTEXT_3: Layout = &[(AxisRole::Context, 3)];
pub const DATA_2_TENSOR_2: Layout = &[(AxisRole::Data, 2), (AxisRole::Tensor, 2)];
pub const CONTEXT_2_TENSOR_2: Layout = &[(AxisRole::Context, 2), (AxisRole::Tensor, 2)];
pub const TENSOR_2_DATA_2: Layout = &[(AxisRole::Tensor, 2), (AxisRole::Data, 2)];

/// Runs `body` on every rank of a mesh, and returns what each returned.
pub fn on_mesh<R: Send>(layout: Layout, body: impl Fn(&World, &Mesh) -> R + Sync) -> Vec<R> {
    let ranks = layout.iter().map(|&(_, size)| size).product();
    run_ranks(ranks, TIMEOUT, |world| {
        let groups = GroupConfig::new().with_engine(EngineChoice::SharedMemory);
        let mesh = Mesh::connect(&world, layout, &groups).expect("ranks are here");
        body(&world, &mesh)
    })
}
