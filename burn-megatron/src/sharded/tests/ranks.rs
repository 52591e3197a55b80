//! Meshes of ranks that are threads.

use burn_megatron_comm::rank_threads::{TIMEOUT, run_ranks};

use super::super::{AxisRole, Mesh, MeshAxis};
use crate::collectives::{EngineChoice, ProcessGroup};
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
        let mesh = connect(&world, layout);
        body(&world, &mesh)
    })
}

/// This rank's mesh: the last axis has neighbouring ranks.
fn connect(world: &World, layout: Layout) -> Mesh {
    let mut stride = 1;
    let mut axes = Vec::new();
    for (axis, &(role, size)) in layout.iter().enumerate().rev() {
        let first = world.rank() - world.rank() / stride % size * stride;
        let ranks: Vec<usize> = (0..size).map(|index| first + index * stride).collect();
        let name = format!("axis {axis} from {first}");
        let group = ProcessGroup::connect(world, &name, &ranks, &EngineChoice::SharedMemory).expect("ranks are here");
        axes.push(MeshAxis { role, group });
        stride *= size;
    }
    axes.reverse();
    Mesh::new(axes).expect("two axes at most")
}
