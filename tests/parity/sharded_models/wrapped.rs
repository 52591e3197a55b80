//! Placed models in `DistributedDataParallel`, with its optimizers and checkpoints, against one rank of plain burn.

use anyhow::{Context as _, ensure};
use burn::grad_clipping::GradientClipping;
use burn::module::{Module as _, ModuleMapper, Param};
use burn::optim::{AdamW, AdamWConfig};
use burn::tensor::{Device, Tensor};
use burn_megatron::checkpoint::{Checkpoint, CheckpointConfig, CheckpointWriter};
use burn_megatron::collectives::{GroupConfig, ProcessGroup, ReduceOp};
use burn_megatron::context::ParallelContext;
use burn_megatron::data_parallel::{
    DataParallelConfig, DistributedDataParallel, ElementWiseOptimizer, GradientEntry, ShardingStrategy, StepPart,
};
use burn_megatron::launch::World;
use burn_megatron::optimizer::ShardedOptimizer;
use burn_megatron::parameters::{Distribution, Placement};
use burn_megatron::sharded::{Mesh, PlacedDataParallel, Plan, parallelize};
use burn_megatron::topology::ParallelConfig;
use burn_megatron::training::{restore, snapshot};
use tests::rank_folder::RankFolder;

use super::layouts::{DATA, TENSOR};
use super::passes::{Passes, value};
use super::subjects::Subject;
use super::training::{Array, Options, Run, SAMPLES, STEPS, read_parameters};

/// A layout of `DistributedDataParallel`.
#[derive(Clone, Copy)]
pub struct Layout {
    pub name: &'static str,
    /// Replicas, ranks that parameters are fully sharded over, tensor-parallel ranks.
    sizes: [usize; 3],
    sequence: bool,
    /// Whether the optimizer's state is cut over replicas.
    shards_gradients: bool,
}

pub const LAYOUTS: [Layout; 8] = [
    layout("dp2", [2, 1, 1]),
    layout("dp2_sharded", [2, 1, 1]).shards_gradients(),
    layout("tp2", [1, 1, 2]),
    layout("tp2sp", [1, 1, 2]).sequence().shards_gradients(),
    layout("tp2sp_dp2_sharded", [2, 1, 2]).sequence().shards_gradients(),
    layout("fsdp2", [1, 2, 1]),
    layout("tp2fsdp2sp", [1, 2, 2]).sequence(),
    layout("hsdp2x2_sharded", [2, 2, 1]).shards_gradients(),
];

const fn layout(name: &'static str, sizes: [usize; 3]) -> Layout {
    Layout {
        name,
        sizes,
        sequence: false,
        shards_gradients: false,
    }
}

impl Layout {
    const fn sequence(self) -> Self {
        Self { sequence: true, ..self }
    }

    const fn shards_gradients(self) -> Self {
        Self {
            shards_gradients: true,
            ..self
        }
    }

    pub fn world_size(&self) -> usize {
        self.sizes.iter().product()
    }

    fn named(name: &str) -> anyhow::Result<Self> {
        let found = LAYOUTS.iter().find(|layout| layout.name == name);
        found.copied().with_context(|| format!("there is no layout {name}"))
    }
}

/// The ranks of a case.
pub struct Ranks {
    context: ParallelContext,
    mesh: Mesh,
    layout: Layout,
}

impl Ranks {
    pub fn new(layout: &str, world: &World) -> anyhow::Result<Self> {
        let layout = Layout::named(layout)?;
        let [replicas, shards, tensor] = layout.sizes;
        let parallel = |tensor| {
            let config = ParallelConfig::new().with_tensor_parallel_size(tensor);
            config.with_sequence_parallel(layout.sequence)
        };
        let (context, mesh) = if replicas > 1 && shards > 1 {
            let axes = [(DATA, replicas), (DATA, shards), (TENSOR, tensor)];
            let mesh = Mesh::connect(world, &axes, &GroupConfig::new())?;
            (parallel(shards * tensor).init(world)?, mesh)
        } else {
            let context = parallel(tensor).init(world)?;
            let mesh = Mesh::of(&context)?;
            let is_fully_sharded = shards > 1;
            let context = if is_fully_sharded {
                context.fully_sharded()?
            } else {
                context
            };
            (context, mesh)
        };
        Ok(Self { context, mesh, layout })
    }

    fn plan(&self, tensor_plan: Plan) -> Plan {
        let [_, shards, tensor] = self.layout.sizes;
        let plan = if tensor > 1 { tensor_plan } else { Plan::new() };
        if shards > 1 { plan.fully_shard(DATA) } else { plan }
    }
}

/// A placed model in training.
pub struct Wrapped<'a, M> {
    ranks: &'a Ranks,
    model: PlacedDataParallel<M>,
    optimizer: ShardedOptimizer<AdamW>,
    options: Options,
}

fn adam() -> ElementWiseOptimizer<AdamW> {
    AdamWConfig::new().with_weight_decay(0.1).build().into()
}

impl<'a, M: Subject> Wrapped<'a, M> {
    pub fn new(whole: M, options: Options, ranks: &'a Ranks) -> anyhow::Result<Self> {
        Self::configured(whole, options, ranks, DataParallelConfig::new())
    }

    fn configured(whole: M, options: Options, ranks: &'a Ranks, config: DataParallelConfig) -> anyhow::Result<Self> {
        let placed = parallelize(whole, &ranks.plan(M::tensor_plan()), &ranks.mesh)?;
        // Small buckets: some are reduced while the backward pass runs.
        let config = config
            .with_bucket_size(Some(500))
            .with_sharding(if ranks.layout.shards_gradients {
                ShardingStrategy::Optim
            } else {
                ShardingStrategy::NoShard
            });
        let model = PlacedDataParallel::new(placed, &ranks.mesh, &ranks.context, config)?;
        let adam = if options.clips {
            adam().with_grad_clipping(GradientClipping::Norm(0.05))
        } else {
            adam()
        };
        let optimizer = ShardedOptimizer::new(model.local(), adam)?;
        Ok(Self {
            ranks,
            model,
            optimizer,
            options,
        })
    }

    /// Trains as [`train`](super::training::train) does, and adds to `run`.
    pub fn train(&mut self, steps: std::ops::Range<usize>, run: &mut Run, device: &Device) -> anyhow::Result<()> {
        let passes = Passes::OnMesh(self.ranks.mesh.clone());
        for step in steps {
            let first = step * SAMPLES;
            let parts = if self.options.accumulates {
                let half = first + SAMPLES / 2;
                vec![(StepPart::More, first..half), (StepPart::Last, half..first + SAMPLES)]
            } else {
                vec![(StepPart::Last, first..first + SAMPLES)]
            };
            let mut sum = 0.0;
            let count = parts.len() as f64;
            for (part, samples) in parts {
                let loss = |model: M| model.loss_of(samples, &passes, device) / count;
                sum += value(self.model.backward(part, loss)?)?;
            }
            run.losses.push(sum);
            let mut gradients = self.model.gradients()?;
            run.norms.push(gradients.global_norm(&self.ranks.context)?);
            gradients.gather()?;
            let arrays = gradients.entries().iter().map(|entry| {
                let values = gradients.values(entry);
                whole_array(entry, &values, self.ranks.context.tensor_group())
            });
            run.gradients.push(arrays.collect::<Result<_, _>>()?);
            self.model
                .step(2e-2 / (1 + step) as f64, &mut self.optimizer, gradients)?;
        }
        run.parameters = read_parameters(&self.model.model());
        Ok(self.model.local().check_replicas()?)
    }
}

/// An array of which each rank of a group has its part, whole. What every rank has is compared on each.
fn whole_array(entry: &GradientEntry, part: &[f64], group: &ProcessGroup) -> anyhow::Result<Array> {
    let values = if entry.distribution == Distribution::Sharded {
        let mut whole = vec![0.0; entry.placement.logical_len()];
        for run in entry.placement.runs() {
            whole[run.logical..][..run.length].copy_from_slice(&part[run.local..][..run.length]);
        }
        group.all_reduce(&mut whole, ReduceOp::Sum)?;
        whole
    } else {
        part.to_vec()
    };
    Ok(Array {
        name: entry.name.clone(),
        placement: Placement::whole(entry.placement.logical_shape()),
        values,
    })
}

/// A run that is saved, and resumed by other ranks, against one that was not interrupted: `ranks` end it.
pub fn resume<M: Subject>(
    fresh: impl Fn() -> M,
    [saving, resuming]: [&Ranks; 2],
    device: &Device,
) -> anyhow::Result<Run> {
    let folder = RankFolder::new(saving.context.world_group())?;
    let mut run = Run::default();
    let mut first = Wrapped::new(fresh(), Options::default(), saving)?;
    first.train(0..STEPS / 2, &mut run, device)?;
    let world = saving.context.world_group();
    let mut writer = CheckpointWriter::new(world.clone(), &folder.path, CheckpointConfig::new())?;
    let parts = snapshot(first.model.local(), &first.optimizer, &saving.context)?;
    writer.save(1, parts, serde_json::Value::Null)?;

    let checkpoint = Checkpoint::latest(&folder.path)?.context("there is no checkpoint")?;
    let mut second = Wrapped::new(fresh(), Options::default(), resuming)?;
    // A pass without a step: what it leaves in running statistics must not come back.
    let passes = Passes::OnMesh(resuming.mesh.clone());
    second
        .model
        .backward(StepPart::Last, |model: M| model.loss_of(90..98, &passes, device))?;
    drop(second.model.gradients()?);
    let optimizer = &mut second.optimizer;
    restore(
        &checkpoint,
        &mut second.model.local_mut(),
        optimizer,
        &resuming.context,
        true,
    )?;
    world.barrier()?;
    second.train(STEPS / 2..STEPS, &mut run, device)?;
    Ok(run)
}

/// A parameter that is changed on one rank is found at the next check, in the middle of training.
pub fn drift<M: Subject>(whole: M, world: &World, device: &Device) -> anyhow::Result<()> {
    struct Change(bool);
    impl ModuleMapper for Change {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            if std::mem::replace(&mut self.0, true) {
                return param;
            }
            param.map(|tensor| (tensor.inner() + 1.0).autodiff().require_grad())
        }
    }
    let ranks = Ranks::new("dp2", world)?;
    let config = DataParallelConfig::new().with_check_replicas_interval(2);
    let mut wrapped = Wrapped::configured(whole, Options::default(), &ranks, config)?;
    for step in 0..3 {
        if step == 1 {
            // Every rank makes the same updates; one of them is another.
            wrapped.model.local_mut().update(|parts| match world.rank() {
                1 => parts.map(&mut Change(false)),
                _ => parts,
            })?;
        }
        let passes = Passes::OnMesh(ranks.mesh.clone());
        let loss = |model: M| model.loss_of(step * SAMPLES..(step + 1) * SAMPLES, &passes, device);
        wrapped.model.backward(StepPart::Last, loss)?;
        let gradients = wrapped.model.gradients()?;
        wrapped.model.step(1e-2, &mut wrapped.optimizer, gradients)?;
    }
    anyhow::bail!("it was not noticed")
}

/// On one rank, 16-bit parameters with main values and gradients in f32: the bits of the plain model in
/// `DistributedDataParallel`.
pub fn is_plain_on_one_rank<M: Subject>(
    [plain, whole]: [M; 2],
    world: &World,
    [plain_device, device]: [&Device; 2],
) -> anyhow::Result<()> {
    let ranks = Ranks::new("dp2", world)?;
    let mut run = Run::default();
    Wrapped::new(whole, Options::default(), &ranks)?.train(0..STEPS, &mut run, device)?;

    let config = DataParallelConfig::new();
    let mut plain = DistributedDataParallel::new(plain, &ranks.context, config)?;
    let mut optimizer = ShardedOptimizer::new(&plain, adam())?;
    for step in 0..STEPS {
        let samples = step * SAMPLES..(step + 1) * SAMPLES;
        let forward = |model: M| model.loss_of(samples, &Passes::Serial, plain_device);
        let loss = plain.backward(StepPart::Last, forward)?;
        let gradients = plain.gradients()?;
        let (ours, theirs) = (&run.gradients[step], gradients.entries());
        ensure!(ours.len() == theirs.len(), "{} gradients, {}", ours.len(), theirs.len());
        for (array, entry) in ours.iter().zip(theirs) {
            let same = array.name == entry.name && array.values == gradients.values(entry);
            ensure!(same, "step {step}: the gradients of {} differ", array.name);
        }
        let loss = value(loss)?;
        ensure!(loss == run.losses[step], "step {step}: {loss} and {}", run.losses[step]);
        optimizer.step(2e-2 / (1 + step) as f64, &mut plain, gradients)?;
    }
    let theirs = read_parameters(&plain.into_module());
    ensure!(theirs.len() == run.parameters.len(), "{} parameters", theirs.len());
    for (ours, theirs) in run.parameters.iter().zip(theirs) {
        ensure!(
            ours.name == theirs.name && ours.values == theirs.values,
            "{} differs",
            ours.name
        );
    }
    Ok(())
}
