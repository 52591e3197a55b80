//! How the ranks of a case are laid out.

use anyhow::Context as _;
use burn_megatron::collectives::GroupConfig;
use burn_megatron::launch::World;
use burn_megatron::sharded::{AxisRole, Mesh, Plan};
use tests::harness::Case;

/// How the ranks of a case are laid out.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub name: &'static str,
    axes: &'static [(AxisRole, usize)],
    /// Whether parameters are cut over the last data axis, too.
    fully_sharded: bool,
    pub sequence: bool,
}

pub const DATA: AxisRole = AxisRole::Data;
pub const TENSOR: AxisRole = AxisRole::Tensor;

pub const LAYOUTS: &[Layout] = &[
    layout("dp2", &[(DATA, 2)]),
    layout("tp2", &[(TENSOR, 2)]),
    layout("tp4", &[(TENSOR, 4)]),
    layout("tp2sp", &[(TENSOR, 2)]).sequence(),
    layout("tp2dp2", &[(DATA, 2), (TENSOR, 2)]),
    layout("fsdp2", &[(DATA, 2)]).fully_sharded(),
    layout("fsdp4", &[(DATA, 4)]).fully_sharded(),
    layout("hsdp2x2", &[(DATA, 2), (DATA, 2)]).fully_sharded(),
    layout("tp2fsdp2sp", &[(DATA, 2), (TENSOR, 2)])
        .fully_sharded()
        .sequence(),
];

const fn layout(name: &'static str, axes: &'static [(AxisRole, usize)]) -> Layout {
    Layout {
        name,
        axes,
        fully_sharded: false,
        sequence: false,
    }
}

impl Layout {
    const fn fully_sharded(self) -> Self {
        Self {
            fully_sharded: true,
            ..self
        }
    }

    const fn sequence(self) -> Self {
        Self { sequence: true, ..self }
    }

    pub fn named(name: &str) -> anyhow::Result<&'static Self> {
        let found = LAYOUTS.iter().find(|layout| layout.name == name);
        found.with_context(|| format!("there is no layout {name}"))
    }

    pub fn of(case: &Case) -> anyhow::Result<&'static Self> {
        Self::named(&case.setting::<String>("layout")?)
    }

    pub fn world_size(&self) -> usize {
        self.axes.iter().map(|axis| axis.1).product()
    }

    pub fn mesh(&self, world: &World) -> anyhow::Result<Mesh> {
        let mesh = Mesh::connect(world, self.axes, &GroupConfig::new())?;
        Ok(if self.sequence {
            mesh.with_sequence_dimension(1)
        } else {
            mesh
        })
    }

    pub fn plan(&self, tensor_plan: Plan) -> Plan {
        let has = |role| self.axes.iter().any(|axis| axis.0 == role);
        let plan = if has(TENSOR) { tensor_plan } else { Plan::new() };
        if self.fully_sharded {
            plan.fully_shard(DATA)
        } else {
            plan
        }
    }
}
