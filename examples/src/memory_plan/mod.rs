//! [`MemoryPlan`]: what memory the ranks of a run need, known before one is started. Shown, it is a table of all stages
//! of ZeRO, and the GPUs that hold each.

mod gpus;
mod table;

use std::fmt;

use burn_megatron::data_parallel::{BucketParameter, ParameterOffload, ShardingStrategy};
use burn_megatron::optimizer::{MemoryParts, OptimizerOffload, StateMemory, StateMemoryConfig};
use burn_megatron::topology::RankGrid;

use crate::figures::bytes;
use table::{COLUMNS, aligned};

/// What the ranks of a run need, and what it would take in other ways.
#[derive(Clone, Debug)]
pub struct MemoryPlan {
    pub grid: RankGrid,
    /// By pipeline stage.
    pub stages: Vec<StagePlan>,
    /// What the state of parameters depends on.
    pub state: StateMemoryConfig,
    /// What data-parallel ranks share out.
    pub sharding: ShardingStrategy,
    /// The groups of data-parallel ranks, each of which shares out a whole.
    pub num_instances: usize,
    /// The micro-batches of a global batch, of all ranks together.
    pub micro_batches: usize,
    /// Where the optimizer's state is.
    pub offload: OptimizerOffload,
    /// Whether the optimizer can be offloaded.
    pub can_offload: bool,
    /// Where shards of the parameters are, in stage 3.
    pub offload_parameters: ParameterOffload,
    /// Whether adapters alone are trained, which are few: parameters have no gradients and no state then.
    pub has_adapters: bool,
    /// Whether layers could have their activations in host memory, and have them on the device.
    pub can_offload_layers: bool,
    /// Whether all layers run again already.
    pub is_recomputed: bool,
    /// The run, in words.
    pub run: Vec<String>,
}

/// What a rank of a pipeline stage has.
#[derive(Clone, Debug)]
pub struct StagePlan {
    /// Its trained parameters, in the order of its module.
    pub parameters: Vec<BucketParameter>,
    /// The elements of those that are frozen.
    pub frozen: usize,
    pub activations: StageActivations,
}

/// The bytes of a rank's activations at the worst moment.
#[derive(Clone, Copy, Debug)]
pub struct StageActivations {
    /// On the device.
    pub as_run: f64,
    /// Where the host's memory is the device's.
    pub on_host: f64,
    /// On the device, if all layers have theirs in host memory.
    pub offloaded: f64,
    /// On the device, if every layer runs again before its backward pass.
    pub recomputed: f64,
}

/// The bytes of a rank.
#[derive(Clone, Copy, Debug)]
struct RankMemory {
    state: StateMemory,
    activations: f64,
}

impl RankMemory {
    fn total(&self) -> f64 {
        self.state.total() + self.activations
    }

    /// Returns the parts of the need.
    fn parts(&self) -> [(&'static str, f64); 7] {
        let StateMemory {
            parts,
            buffers,
            gathered,
        } = self.state;
        [
            ("parameters", parts.parameters),
            ("gradients", parts.gradients),
            ("main copies", parts.main),
            ("moments", parts.moments),
            ("activations", self.activations),
            ("buffers", buffers),
            ("gathered", gathered),
        ]
    }
}

/// Which memory of a run is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// All but what is offloaded: that of a device.
    AsRun,
    /// All but what is in files: that of a host which trains on its CPUs.
    OnHost,
    /// No main copies and no optimizer's state, wherever those of the run are.
    Offloaded,
    /// No parameters either, but for those that are gathered.
    AllOffloaded,
    /// All layers have their activations in host memory.
    OffloadedLayers,
    /// Every layer runs again before its backward pass.
    FullRecomputation,
}

impl MemoryPlan {
    /// Returns the bytes that a rank of each pipeline stage needs where the host's memory is the device's.
    pub fn host_bytes_of_stages(&self) -> Vec<f64> {
        let of_stage = |stage| self.of_stage(stage, self.sharding, self.num_shards(), Counted::OnHost);
        (0..self.stages.len()).map(|stage| of_stage(stage).total()).collect()
    }

    /// The need of the rank that needs most there, by its parts, in words.
    pub fn host_parts(&self) -> String {
        let (_, memory) = self.largest(self.sharding, self.num_shards(), Counted::OnHost);
        let parts = memory.parts().into_iter().filter(|(_, figure)| *figure > 0.0);
        let parts = parts.map(|(name, figure)| format!("{name} {}", bytes(figure as u64)));
        parts.collect::<Vec<_>>().join(", ")
    }

    /// The data-parallel sizes that the global batch can be shared out over, in order.
    fn data_parallel_sizes(&self) -> Vec<usize> {
        let divides = |size: &usize| self.micro_batches.is_multiple_of(*size);
        let sizes = (1..=self.micro_batches).filter(divides);
        sizes.filter(|size| size.is_multiple_of(self.num_instances)).collect()
    }

    /// The ranks that share out a whole.
    fn num_shards(&self) -> usize {
        self.grid.data_parallel_size() / self.num_instances
    }

    fn of_stage(&self, stage: usize, sharding: ShardingStrategy, num_shards: usize, counted: Counted) -> RankMemory {
        let plan = &self.stages[stage];
        let mut state = if self.has_adapters {
            self.of_parameters_alone(plan)
        } else {
            self.state.of_parameters(&plan.parameters, sharding, num_shards)
        };
        let held = match counted {
            Counted::AsRun | Counted::OffloadedLayers | Counted::FullRecomputation => 1.0 - self.offload.fraction(),
            Counted::OnHost => 1.0 - self.offload.fraction_on_disk(),
            Counted::Offloaded | Counted::AllOffloaded => 0.0,
        };
        state.parts.main *= held;
        state.parts.moments *= held;
        let is_elsewhere = match counted {
            Counted::OnHost => matches!(self.offload_parameters, ParameterOffload::Nvme { .. }),
            Counted::AllOffloaded => true,
            _ => self.offload_parameters != ParameterOffload::None,
        };
        if is_elsewhere && sharding.shards_parameters() {
            state.parts.parameters = 0.0;
        }
        // Which each rank has whole.
        state.parts.parameters += (plan.frozen * self.state.dtype.size()) as f64;
        RankMemory {
            state,
            activations: match counted {
                Counted::OnHost => plan.activations.on_host,
                Counted::OffloadedLayers => plan.activations.offloaded,
                Counted::FullRecomputation => plan.activations.recomputed,
                _ => plan.activations.as_run,
            },
        }
    }

    fn of_parameters_alone(&self, plan: &StagePlan) -> StateMemory {
        let count: usize = plan.parameters.iter().map(|parameter| parameter.len).sum();
        StateMemory {
            parts: MemoryParts {
                parameters: (count * self.state.dtype.size()) as f64,
                ..MemoryParts::default()
            },
            ..StateMemory::default()
        }
    }

    /// Returns the pipeline stage that needs most, and what a rank of it needs.
    fn largest(&self, sharding: ShardingStrategy, num_shards: usize, counted: Counted) -> (usize, RankMemory) {
        let stages = 0..self.stages.len();
        let all = stages.map(|stage| (stage, self.of_stage(stage, sharding, num_shards, counted)));
        // The first of equal ones.
        let largest = all.reduce(|most, next| if next.1.total() > most.1.total() { next } else { most });
        largest.expect("a run has a stage")
    }

    fn allows(&self, sharding: ShardingStrategy) -> bool {
        sharding.check_stages(self.stages.len()).is_ok()
    }

    fn table(&self) -> String {
        let num_shards = self.num_shards();
        let head: [&str; COLUMNS] = [
            "",
            "parameters",
            "gradients",
            "main copies",
            "moments",
            "activations",
            "buffers",
            "gathered",
            "total",
            if self.stages.len() > 1 { "pipeline stage" } else { "" },
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let mut row = |name: String, sharding: ShardingStrategy, counted: Counted| {
            if !self.allows(sharding) {
                rows.push(vec![name, "not with pipeline stages".to_owned()]);
                return;
            }
            let (stage, memory) = self.largest(sharding, num_shards, counted);
            let figures = memory
                .parts()
                .into_iter()
                .map(|(_, figure)| figure)
                .chain([memory.total()]);
            let figures = figures.map(|figure| match figure {
                0.0 => "-".to_owned(),
                figure => bytes(figure as u64),
            });
            let stage = if self.stages.len() > 1 {
                stage.to_string()
            } else {
                String::new()
            };
            rows.push(std::iter::once(name).chain(figures).chain([stage]).collect());
        };
        for sharding in ShardingStrategy::ALL {
            let mark = if sharding == self.sharding { '*' } else { ' ' };
            let name = format!("{mark} ZeRO stage {}, {}", sharding.stage(), sharding.name());
            row(name, sharding, Counted::AsRun);
        }
        if self.offload == OptimizerOffload::None && self.can_offload {
            let name = "* with --offload-optimizer cpu or nvme".to_owned();
            row(name, self.sharding, Counted::Offloaded);
        }
        let sharded = ShardingStrategy::OptimGradsParams;
        if self.offload_parameters == ParameterOffload::None && self.can_offload && self.allows(sharded) {
            let name = "  stage 3 with --offload-param, too".to_owned();
            row(name, sharded, Counted::AllOffloaded);
        }
        if self.can_offload_layers {
            row(
                "* with --cpu-offloading".to_owned(),
                self.sharding,
                Counted::OffloadedLayers,
            );
        }
        if !self.is_recomputed {
            let name = "* with --recompute-granularity full".to_owned();
            row(name, self.sharding, Counted::FullRecomputation);
        }
        aligned(&rows)
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.run {
            writeln!(formatter, "{line}")?;
        }
        let most = if self.stages.len() > 1 {
            ", of the pipeline stage that needs most"
        } else {
            ""
        };
        writeln!(formatter, "\nmemory of a rank{most} (* as this run):\n{}", self.table())?;
        writeln!(formatter, "fewest GPUs, {}:", gpus::RESERVE)?;
        let model = [self.grid.tensor_parallel_size(), self.grid.pipeline_parallel_size()];
        for sharding in ShardingStrategy::ALL {
            write!(formatter, "  ZeRO stage {}: ", sharding.stage())?;
            if !self.allows(sharding) {
                writeln!(formatter, "not with pipeline stages")?;
                continue;
            }
            let needs = |size: usize| {
                self.largest(sharding, size.div_ceil(self.num_instances), Counted::AsRun)
                    .1
            };
            let sizes = self.data_parallel_sizes();
            let fits = gpus::SIZES.map(|gigabytes| gpus::fewest(gigabytes, model, &sizes, needs));
            writeln!(formatter, "{}", fits.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
