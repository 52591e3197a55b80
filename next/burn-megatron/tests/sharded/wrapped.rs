//! Placed models in `DistributedDataParallel`, with its optimizers and checkpoints, against one rank of plain burn.

use std::error::Error;

use burn::grad_clipping::GradientClipping;
use burn::module::{Module as _, ModuleMapper, Param};
use burn::optim::{AdamW, AdamWConfig};
use burn::tensor::{DType, Device, Tensor};
use burn_flex::{Flex, FlexDevice};
use burn_megatron::checkpoint::{Checkpoint, CheckpointConfig, CheckpointWriter};
use burn_megatron::collectives::{GroupConfig, ProcessGroup, ReduceOp};
use burn_megatron::context::ParallelContext;
use burn_megatron::data_parallel::{
    DataParallelConfig, DistributedDataParallel, ElementWiseOptimizer, GradientEntry, ShardingStrategy, StepPart,
};
use burn_megatron::launch::World;
use burn_megatron::optimizer::ShardedOptimizer;
use burn_megatron::parameters::Distribution;
use burn_megatron::sharded::{AxisRole, Mesh, PlacedDataParallel, Plan, device, distribute, parallelize};
use burn_megatron::topology::ParallelConfig;
use burn_megatron::training::{restore, snapshot};
use libtest_mimic::Trial;

use super::job;
use super::models::{Subject, filled};
use super::training::{
    Array, Options, Ranks, Run, STEPS, compare, learning_rate, loss, micro_batches, parameter_arrays, train, value,
};

/// A layout of `DistributedDataParallel`.
#[derive(Clone, Copy)]
struct Layout {
    name: &'static str,
    /// Replicas, ranks that parameters are fully sharded over, tensor-parallel ranks.
    sizes: [usize; 3],
    sequence: bool,
    /// Whether the optimizer's state is cut over replicas.
    shards_gradients: bool,
}

const LAYOUTS: [Layout; 9] = [
    layout("one", [1, 1, 1]),
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

    fn named(name: &str) -> Option<Self> {
        LAYOUTS.into_iter().find(|layout| layout.name == name)
    }
}

/// Returns the number of ranks of a case, if it is one of these: that of its layout, the last word, or the two that
/// it goes from and to.
pub fn ranks(case: &str) -> Option<usize> {
    let [_, what, layout] = case.split(' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    if !what.starts_with("wrapped") {
        return None;
    }
    let layout = Layout::named(layout.split('+').next()?)?;
    Some(layout.sizes.iter().product())
}

pub fn trials() -> Vec<Trial> {
    let trial = |case: String, name: String| Trial::test(name, move || job::run(&case));
    let mut trials = Vec::new();
    for Layout { name, .. } in &LAYOUTS[1..] {
        trials.push(trial(
            format!("encoder wrapped {name}"),
            format!("encoder_in_distributed_data_parallel_trains_as_on_one_rank_in_{name}"),
        ));
        trials.push(trial(
            format!("normed wrapped {name}"),
            format!("normed_in_distributed_data_parallel_accumulates_and_clips_as_on_one_rank_in_{name}"),
        ));
    }
    for (model, saved, resumed) in [
        ("encoder", "dp2_sharded", "tp2sp"),
        ("normed", "dp2_sharded", "tp2sp"),
        ("encoder", "tp2", "fsdp2"),
        ("normed", "fsdp2", "dp2"),
    ] {
        trials.push(trial(
            format!("{model} wrapped_resumed {saved}+{resumed}"),
            format!("a_checkpoint_of_{model}_in_{saved}_resumes_in_{resumed}_as_on_one_rank"),
        ));
    }
    trials.push(trial(
        "encoder wrapped_alone one".to_owned(),
        "encoder_in_distributed_data_parallel_on_one_rank_has_the_bits_of_plain_burn_in_bf16".to_owned(),
    ));
    trials.push(trial(
        "encoder wrapped_refused dp2".to_owned(),
        "distributed_data_parallel_refuses_parameters_that_are_cut_over_its_replicas".to_owned(),
    ));
    trials.push(trial(
        "encoder wrapped_drifts dp2".to_owned(),
        "a_replica_in_distributed_data_parallel_that_differs_is_named_at_the_next_check".to_owned(),
    ));
    trials
}

/// Plays a case of a model on this rank.
pub fn play<M: Subject>(what: &str, layout: &str, world: &World) -> Result<(), Box<dyn Error>> {
    let is_normed = std::any::type_name::<M>().ends_with("Normed");
    let options = Options {
        accumulates: is_normed && what == "wrapped",
        clips: is_normed && what == "wrapped",
        ..Options::default()
    };
    let plain = |options| train::<M>(&Device::flex().autodiff(), DType::F64, &Ranks::One, options, Ok);
    match what {
        "wrapped" => {
            let setting = Setting::new(layout, world)?;
            let mut wrapped = Wrapped::<M>::new(DType::F64, options, &setting)?;
            let mut run = Run::default();
            wrapped.train(0..STEPS, &mut run)?;
            compare(DType::F64, &plain(options)?, &run)
        }
        "wrapped_resumed" => {
            let (saved, resumed) = layout.split_once('+').ok_or("two layouts")?;
            let run = resume::<M>([&Setting::new(saved, world)?, &Setting::new(resumed, world)?])?;
            compare(DType::F64, &plain(options)?, &run)
        }
        "wrapped_alone" => is_plain_on_one_rank::<M>(world),
        "wrapped_refused" => refused::<M>(world),
        _ => drift::<M>(world),
    }
}

/// The ranks of a case.
struct Setting {
    context: ParallelContext,
    mesh: Mesh,
    layout: Layout,
    device: Device,
}

impl Setting {
    fn new(layout: &str, world: &World) -> Result<Self, Box<dyn Error>> {
        let layout = Layout::named(layout).ok_or_else(|| format!("there is no layout {layout}"))?;
        let [replicas, shards, tensor] = layout.sizes;
        let parallel = |tensor| {
            let config = ParallelConfig::new().with_tensor_parallel_size(tensor);
            config.with_sequence_parallel(layout.sequence)
        };
        let (context, mesh) = if replicas > 1 && shards > 1 {
            let axes = [
                (AxisRole::Data, replicas),
                (AxisRole::Data, shards),
                (AxisRole::Tensor, tensor),
            ];
            let mesh = Mesh::connect(world, &axes, &GroupConfig::new())?;
            (parallel(shards * tensor).init(world)?, mesh)
        } else {
            let context = parallel(tensor).init(world)?;
            let mesh = Mesh::of(&context)?;
            match shards {
                1 => (context, mesh),
                _ => (context.fully_sharded()?, mesh),
            }
        };
        Ok(Self {
            context,
            mesh,
            layout,
            device: device::<Flex>(FlexDevice).autodiff(),
        })
    }

    fn plan(&self, tensor_plan: Plan) -> Plan {
        let [_, shards, tensor] = self.layout.sizes;
        let plan = if tensor > 1 { tensor_plan } else { Plan::new() };
        match shards {
            1 => plan,
            _ => plan.fully_shard(AxisRole::Data),
        }
    }
}

/// A placed model in training.
struct Wrapped<'a, M> {
    setting: &'a Setting,
    model: PlacedDataParallel<M>,
    optimizer: ShardedOptimizer<AdamW>,
    dtype: DType,
    options: Options,
}

fn adam() -> ElementWiseOptimizer<AdamW> {
    ElementWiseOptimizer::from(AdamWConfig::new().with_weight_decay(0.1).build())
}

impl<'a, M: Subject> Wrapped<'a, M> {
    fn new(dtype: DType, options: Options, setting: &'a Setting) -> Result<Self, Box<dyn Error>> {
        Self::configured(dtype, options, setting, DataParallelConfig::new())
    }

    fn configured(
        dtype: DType,
        options: Options,
        setting: &'a Setting,
        config: DataParallelConfig,
    ) -> Result<Self, Box<dyn Error>> {
        let whole = filled(M::make(&setting.device), dtype);
        let placed = parallelize(whole, &setting.plan(M::tensor_plan()), &setting.mesh)?;
        // Small buckets: some are reduced while the backward pass runs.
        let config = config
            .with_bucket_size(Some(500))
            .with_sharding(if setting.layout.shards_gradients {
                ShardingStrategy::Optim
            } else {
                ShardingStrategy::NoShard
            });
        let model = PlacedDataParallel::new(placed, &setting.mesh, &setting.context, config)?;
        let adam = if options.clips {
            adam().with_grad_clipping(GradientClipping::Norm(0.05))
        } else {
            adam()
        };
        let optimizer = ShardedOptimizer::new(model.local(), adam)?;
        Ok(Self {
            setting,
            model,
            optimizer,
            dtype,
            options,
        })
    }

    fn backward(
        &mut self,
        step: usize,
        part: StepPart,
        samples: std::ops::Range<usize>,
        count: f64,
    ) -> Result<Tensor<1>, Box<dyn Error>> {
        let Setting { mesh, device, .. } = self.setting;
        let place = |batch| distribute(batch, mesh, AxisRole::Data, 0);
        let dtype = self.dtype;
        let forward = |model: M| loss(&model, step, samples, (dtype, device), place) / count;
        Ok(self.model.backward(part, forward)?)
    }

    /// Trains as [`train`] does, and adds to `run`.
    fn train(&mut self, steps: std::ops::Range<usize>, run: &mut Run) -> Result<(), Box<dyn Error>> {
        for step in steps {
            let parts = micro_batches::<M>(self.options.accumulates);
            let count = parts.len();
            let mut sum = 0.0;
            for (number, samples) in parts.into_iter().enumerate() {
                let part = if number + 1 == count {
                    StepPart::Last
                } else {
                    StepPart::More
                };
                sum += value(self.backward(step, part, samples, count as f64)?)?;
            }
            run.losses.push(sum);
            let mut gradients = self.model.gradients()?;
            gradients.gather()?;
            let arrays = gradients.entries().iter().map(|entry| {
                let values = gradients.values(entry);
                whole_array(entry, &values, self.setting.context.tensor_group())
            });
            run.gradients.push(arrays.collect::<Result<_, _>>()?);
            self.model.step(learning_rate(step), &mut self.optimizer, gradients)?;
        }
        run.parameters = parameter_arrays(&self.model.model());
        Ok(self.model.local().check_replicas()?)
    }
}

/// An array of which each rank of a group has its part, whole. What every rank has is compared on each.
fn whole_array(entry: &GradientEntry, part: &[f64], group: &ProcessGroup) -> Result<Array, Box<dyn Error>> {
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
        values,
    })
}

/// A run that is saved, and resumed by other ranks, against one that was not interrupted.
fn resume<M: Subject>([saving, resuming]: [&Setting; 2]) -> Result<Run, Box<dyn Error>> {
    let world = saving.context.world_group();
    // Of a name that all ranks know: this process is started by the launcher.
    let folder = std::env::temp_dir().join(format!(
        "burn_megatron_wrapped_{}_{}_{}_{}",
        std::os::unix::process::parent_id(),
        std::any::type_name::<M>().replace("::", "_"),
        saving.layout.name,
        resuming.layout.name
    ));
    let mut run = Run::default();
    let mut first = Wrapped::<M>::new(DType::F64, Options::default(), saving)?;
    first.train(0..STEPS / 2, &mut run)?;
    let mut writer = CheckpointWriter::new(world.clone(), &folder, CheckpointConfig::new())?;
    let parts = snapshot(first.model.local(), &first.optimizer, &saving.context)?;
    writer.save(1, parts, serde_json::Value::Null)?;

    let checkpoint = Checkpoint::latest(&folder)?.ok_or("there is no checkpoint")?;
    let mut second = Wrapped::<M>::new(DType::F64, Options::default(), resuming)?;
    // A pass without a step: what it leaves in running statistics must not come back.
    second.backward(90, StepPart::Last, 0..M::SHAPE[0], 1.0)?;
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
    if world.rank() == 0 {
        std::fs::remove_dir_all(&folder)?;
    }
    second.train(STEPS / 2..STEPS, &mut run)?;
    Ok(run)
}

/// Fully sharded parameters in a context whose data-parallel ranks are replicas.
fn refused<M: Subject>(world: &World) -> Result<(), Box<dyn Error>> {
    let setting = Setting::new("dp2", world)?;
    let plan = Plan::new().fully_shard(AxisRole::Data);
    let model = parallelize(M::make(&setting.device), &plan, &setting.mesh)?;
    let wrapped = PlacedDataParallel::new(model, &setting.mesh, &setting.context, DataParallelConfig::new());
    let message = wrapped.err().ok_or("it was wrapped")?.to_string();
    let says = |words: &str| message.contains(words);
    if says("is cut over the data-parallel ranks [0, 1]") && says("give context.fully_sharded()") {
        Ok(())
    } else {
        Err(message.into())
    }
}

/// A parameter that is changed on one rank is found at the next check, in the middle of training.
fn drift<M: Subject>(world: &World) -> Result<(), Box<dyn Error>> {
    struct Change(bool);
    impl ModuleMapper for Change {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            if std::mem::replace(&mut self.0, true) {
                return param;
            }
            param.map(|tensor| (tensor.inner() + 1.0).autodiff().require_grad())
        }
    }
    let setting = Setting::new("dp2", world)?;
    let config = DataParallelConfig::new().with_check_replicas_interval(2);
    let mut wrapped = Wrapped::<M>::configured(DType::F32, Options::default(), &setting, config)?;
    for step in 0..3 {
        if step == 1 {
            // Every rank makes the same updates; one of them is another.
            wrapped.model.local_mut().update(|parts| match world.rank() {
                1 => parts.map(&mut Change(false)),
                _ => parts,
            })?;
        }
        if let Err(error) = wrapped.backward(step, StepPart::Last, 0..M::SHAPE[0], 1.0) {
            let message = error.to_string();
            let named = "differs between rank 0 and rank 1";
            return if message.contains("after step 2: parameter layers.0.") && message.contains(named) {
                Ok(())
            } else {
                Err(message.into())
            };
        }
        let gradients = wrapped.model.gradients()?;
        wrapped.model.step(1e-2, &mut wrapped.optimizer, gradients)?;
    }
    Err("it was not noticed".into())
}

/// On one rank, 16-bit parameters with main values and gradients in f32: the bits of the plain model in
/// `DistributedDataParallel`.
fn is_plain_on_one_rank<M: Subject>(world: &World) -> Result<(), Box<dyn Error>> {
    let dtype = DType::BF16;
    let setting = Setting::new("one", world)?;
    let mut run = Run::default();
    Wrapped::<M>::new(dtype, Options::default(), &setting)?.train(0..STEPS, &mut run)?;

    let device = Device::flex().autodiff();
    let config = DataParallelConfig::new();
    let mut plain = DistributedDataParallel::new(filled(M::make(&device), dtype), &setting.context, config)?;
    let mut optimizer = ShardedOptimizer::new(&plain, adam())?;
    for step in 0..STEPS {
        let forward = |model: M| loss(&model, step, 0..M::SHAPE[0], (dtype, &device), |batch| batch);
        let loss = value(plain.backward(StepPart::Last, forward)?)?;
        let gradients = plain.gradients()?;
        let theirs = gradients.entries().iter();
        let theirs: Vec<(&str, Vec<f64>)> = theirs.map(|entry| (&*entry.name, gradients.values(entry))).collect();
        is_same(&format!("gradients of step {step}"), &run.gradients[step], &theirs)?;
        if loss != run.losses[step] {
            return Err(format!("step {step}: {loss} and {}", run.losses[step]).into());
        }
        optimizer.step(learning_rate(step), &mut plain, gradients)?;
    }
    let theirs = parameter_arrays(&plain.into_module());
    let theirs: Vec<(&str, Vec<f64>)> = theirs
        .iter()
        .map(|array| (&*array.name, array.values.clone()))
        .collect();
    is_same("parameters", &run.parameters, &theirs)
}

fn is_same(what: &str, ours: &[Array], theirs: &[(&str, Vec<f64>)]) -> Result<(), Box<dyn Error>> {
    if ours.is_empty() || ours.len() != theirs.len() {
        return Err(format!("{what}: {} and {}", ours.len(), theirs.len()).into());
    }
    for (ours, (name, values)) in ours.iter().zip(theirs) {
        if ours.name != *name || ours.values != *values {
            return Err(format!("{what}: {} and {name} differ", ours.name).into());
        }
    }
    Ok(())
}
