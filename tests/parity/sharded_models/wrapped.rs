//! Placed models in `DistributedDataParallel`, with its optimizers and checkpoints, against one rank of plain burn.

use anyhow::{Context as _, ensure};
use burn::grad_clipping::GradientClippingConfig;
use burn::optim::{AdamW, AdamWConfig};
use burn::tensor::Tensor;
use burn_flex::{Flex, FlexDevice};
use burn_megatron::checkpoint::{Checkpoint, CheckpointConfig, CheckpointWriter};
use burn_megatron::context::ParallelContext;
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, StepPart};
use burn_megatron::launch::World;
use burn_megatron::optimizer::ShardedOptimizer;
use burn_megatron::sharded::{Mesh, PlacedDataParallel, Plan, parallelize};
use burn_megatron::topology::ParallelConfig;
use burn_megatron::training::{restore, snapshot};
use tests::rank_folder::RankFolder;

use super::passes::{OnMesh, Placed, Plain, Serial};
use super::subjects::Subject;
use super::training::{Array, Options, Run, SAMPLES, STEPS, read_parameters};

/// The layouts, each with its sizes and whether tokens are cut and gradients are sharded.
pub const LAYOUTS: [(&str, usize, usize, bool, bool); 5] = [
    ("dp2", 2, 1, false, false),
    ("dp2_sharded", 2, 1, false, true),
    ("tp2", 1, 2, false, false),
    ("tp2sp", 1, 2, true, true),
    ("tp2sp_dp2_sharded", 2, 2, true, true),
];

/// The ranks of a case.
pub struct Ranks {
    context: ParallelContext,
    mesh: Mesh,
    shards_gradients: bool,
}

impl Ranks {
    pub fn new(layout: &str, world: &World) -> anyhow::Result<Self> {
        let found = LAYOUTS.iter().find(|other| other.0 == layout);
        let &(_, _, tensor, sequence, shards_gradients) = found.context("a layout of the list")?;
        let config = ParallelConfig::new().with_tensor_parallel_size(tensor);
        let context = config.with_sequence_parallel(sequence).init(world)?;
        let mesh = Mesh::of(&context)?;
        Ok(Self {
            context,
            mesh,
            shards_gradients,
        })
    }

    fn plan(&self, tensor_plan: Plan) -> Plan {
        if self.context.tensor_group().size() > 1 {
            tensor_plan
        } else {
            Plan::new()
        }
    }
}

/// A placed model in training.
pub struct Wrapped<'a, M> {
    ranks: &'a Ranks,
    model: PlacedDataParallel<Placed, M>,
    optimizer: ShardedOptimizer<Flex, AdamW>,
    options: Options,
}

impl<'a, M: Subject<Placed>> Wrapped<'a, M> {
    pub fn new(whole: M, options: Options, ranks: &'a Ranks) -> anyhow::Result<Self> {
        let placed = parallelize(whole, &ranks.plan(M::tensor_plan()), &ranks.mesh)?;
        // Small buckets: some are reduced while the backward pass runs.
        let config = DataParallelConfig::new()
            .with_bucket_size(Some(500))
            .with_shard_gradients(ranks.shards_gradients);
        let model = PlacedDataParallel::<Placed, M>::new(placed, &ranks.mesh, &ranks.context, config)?;
        let clipping = options.clips.then_some(GradientClippingConfig::Norm(0.05));
        let adam = AdamWConfig::new().with_weight_decay(0.1).with_grad_clipping(clipping);
        let optimizer = ShardedOptimizer::new(model.local(), adam.init())?;
        Ok(Self {
            ranks,
            model,
            optimizer,
            options,
        })
    }

    /// Trains as [`train`](super::training::train) does, and adds to `run`.
    pub fn train(&mut self, steps: std::ops::Range<usize>, run: &mut Run, device: &FlexDevice) -> anyhow::Result<()> {
        let mesh = &self.ranks.mesh;
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
                let place = OnMesh(mesh.clone());
                let loss = |model: M| model.loss_of(samples, &place, device) / count;
                sum += value(self.model.backward(part, loss)?)?;
            }
            run.losses.push(sum);
            let mut gradients = self.model.gradients()?;
            run.norms.push(gradients.global_norm(&self.ranks.context)?);
            gradients.gather()?;
            let arrays = gradients.entries().iter().map(|entry| Array {
                name: entry.name.clone(),
                placement: entry.placement.clone(),
                values: gradients.values(entry),
            });
            run.gradients.push(arrays.collect());
            self.model
                .step(2e-2 / (1 + step) as f64, &mut self.optimizer, gradients)?;
        }
        run.parameters = read_parameters::<Placed, M>(&self.model.model());
        Ok(self.model.local().check_replicas()?)
    }
}

fn value<B: burn::tensor::backend::Backend>(loss: Tensor<B, 1>) -> anyhow::Result<f64> {
    loss.into_data().iter::<f64>().next().context("a loss")
}

/// A run that is saved, and resumed by other ranks, against one that was not interrupted: `ranks` end it.
pub fn resume<M: Subject<Placed>>(
    fresh: impl Fn() -> anyhow::Result<M>,
    [saving, resuming]: [&Ranks; 2],
    device: &FlexDevice,
) -> anyhow::Result<Run> {
    let folder = RankFolder::new(saving.context.world_group())?;
    let mut run = Run::default();
    let mut first = Wrapped::new(fresh()?, Options::default(), saving)?;
    first.train(0..STEPS / 2, &mut run, device)?;
    let world = saving.context.world_group();
    let mut writer = CheckpointWriter::new(world.clone(), &folder.path, CheckpointConfig::new())?;
    let parts = snapshot(first.model.local(), &first.optimizer, &saving.context);
    writer.save(1, parts, serde_json::Value::Null)?;

    let checkpoint = Checkpoint::latest(&folder.path)?.context("there is no checkpoint")?;
    let mut second = Wrapped::new(fresh()?, Options::default(), resuming)?;
    // A pass without a step: what it leaves in running statistics must not come back.
    let place = OnMesh(resuming.mesh.clone());
    second
        .model
        .backward(StepPart::Last, |model: M| model.loss_of(90..98, &place, device))?;
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

/// On one rank, 16-bit parameters with main values and gradients in f32: the bits of the plain model in
/// `DistributedDataParallel`.
pub fn is_plain_on_one_rank<P: Subject<Plain>, M: Subject<Placed>>(
    plain: P,
    whole: M,
    world: &World,
    device: &FlexDevice,
) -> anyhow::Result<()> {
    let ranks = Ranks::new("dp2", world)?;
    let mut run = Run::default();
    Wrapped::new(whole, Options::default(), &ranks)?.train(0..STEPS, &mut run, device)?;

    let config = DataParallelConfig::new();
    let mut plain = DistributedDataParallel::<Plain, P>::new(plain, &ranks.context, config)?;
    let adam = AdamWConfig::new().with_weight_decay(0.1);
    let mut optimizer = ShardedOptimizer::new(&plain, adam.init())?;
    for step in 0..STEPS {
        let samples = step * SAMPLES..(step + 1) * SAMPLES;
        let loss = plain.backward(StepPart::Last, |model| model.loss_of(samples, &Serial, device))?;
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
    let theirs = read_parameters::<Plain, P>(&plain.into_module());
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
