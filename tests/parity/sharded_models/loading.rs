//! Batches of which each rank has loaded its samples, against those of one rank.

use std::sync::{Arc, Mutex};

use anyhow::{Context as _, ensure};
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::nn::LinearConfig;
use burn::optim::AdamWConfig;
use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData};
use burn_megatron::collectives::{GroupConfig, ProcessGroup, ReduceOp};
use burn_megatron::data::{LastBatch, placed_loader};
use burn_megatron::launch::World;
use burn_megatron::sharded::{AxisRole, CompareConfig, Layout, Mesh, Plan, Run, backward, compare, describe};
use libtest_mimic::Trial;
use tests::harness::{Case, Job};

use super::layouts::{DATA, TENSOR};
use super::passes::{placed_device, plain_device};

type Axes = &'static [(AxisRole, usize)];
type Batch = (Tensor<2>, Tensor<1, Int>);

const MESHES: [(&str, Axes); 5] = [
    ("dp2", &[(DATA, 2)]),
    ("dp3", &[(DATA, 3)]),
    ("dp2x2", &[(DATA, 2), (DATA, 2)]),
    ("tp2", &[(TENSOR, 2)]),
    ("tp2dp2", &[(DATA, 2), (TENSOR, 2)]),
];

pub fn trials() -> Vec<Trial> {
    let trial = |kind: &str, name: &str, (mesh, axes): (&str, Axes)| {
        let ranks = axes.iter().map(|axis| axis.1).product();
        let case = Case::new("sharded_models", kind).with("mesh", mesh);
        Job::new(case, ranks).succeeds(format!("{name}_in_{mesh}"))
    };
    let loaded = "batches_are_those_of_burns_loader_and_each_rank_loads_its_own";
    let mut trials = Vec::from(MESHES.map(|mesh| trial("loaded", loaded, mesh)));
    let [dp2, dp3, .., tp2dp2] = MESHES;
    let trained = "training_on_placed_batches_is_as_on_one_rank";
    trials.extend([dp2, dp3].map(|mesh| trial("loaded_in_training", trained, mesh)));
    let cut = "a_batch_is_cut_over_the_data_axes_and_the_last_one_may_be_left_out";
    trials.push(trial("loaded_without_the_rest", cut, tp2dp2));
    trials
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let name: String = case.setting("mesh")?;
    let found = MESHES.iter().find(|mesh| mesh.0 == name);
    let (_, axes) = *found.with_context(|| format!("there is no mesh {name}"))?;
    let mesh = Mesh::connect(world, axes, &GroupConfig::new())?;
    match case.name.as_str() {
        "loaded" => loads_its_own(world, &mesh),
        "loaded_in_training" => trains_as_on_one_rank(&mesh),
        _ => leaves_the_rest_out(&mesh),
    }
}

/// Makes batches of numbers, and notes which it was given.
#[derive(Clone, Default)]
struct Numbers {
    seen: Arc<Mutex<Vec<usize>>>,
}

impl Batcher<usize, Batch> for Numbers {
    fn batch(&self, items: Vec<usize>, device: &Device) -> Batch {
        self.seen.lock().expect("no batch panics").extend(&items);
        let count = items.len();
        let row = |&item: &usize| [item as f32, (item as f32).sin(), 0.5 * item as f32];
        let rows: Vec<f32> = items.iter().flat_map(row).collect();
        let labels: Vec<i32> = items.iter().map(|&item| item as i32).collect();
        (
            Tensor::from_data(TensorData::new(rows, [count, 3]), device),
            Tensor::from_data(TensorData::new(labels, [count]), device),
        )
    }
}

fn samples(count: usize) -> InMemDataset<usize> {
    InMemDataset::new((0..count).collect())
}

fn loader(
    numbers: &Numbers,
    mesh: &Mesh,
    count: usize,
    last: LastBatch,
    device: &Device,
) -> anyhow::Result<Arc<dyn DataLoader<Batch>>> {
    let loader = placed_loader(numbers.clone(), mesh)
        .batch_size(8)
        .shuffle(7)
        .num_workers(2)
        .last_batch(last)
        .set_device(device.clone());
    Ok(loader.build(samples(count))?)
}

/// The values of two epochs.
fn two_epochs(loader: &dyn DataLoader<Batch>) -> anyhow::Result<Vec<(TensorData, Vec<i64>)>> {
    let batches = loader.iter().chain(loader.iter());
    let values = batches.map(|batch| {
        let (rows, labels) = batch?;
        anyhow::Ok((rows.into_data(), labels.into_data().iter::<i64>().collect()))
    });
    values.collect()
}

/// The last batch of 23 samples is an odd one, that of 25 has fewer samples than there are ranks.
fn loads_its_own(world: &World, mesh: &Mesh) -> anyhow::Result<()> {
    let (plain_device, device) = (plain_device(FloatDType::F32)?, placed_device(FloatDType::F32)?);
    let everyone: Vec<usize> = (0..world.world_size()).collect();
    let group = ProcessGroup::connect(world, "everyone", &everyone, &GroupConfig::new())?;
    let data: usize = mesh.shape().axes_of(DATA).map(|axis| mesh.shape().size(axis)).product();
    for count in [23, 25] {
        let burn = DataLoaderBuilder::new(Numbers::default())
            .batch_size(8)
            .shuffle(7)
            .set_device(plain_device.clone())
            .build(samples(count));
        let numbers = Numbers::default();
        let placed = loader(&numbers, mesh, count, LastBatch::Share, &device)?;
        ensure!(placed.num_items() == count, "{} items", placed.num_items());
        let (expected, found) = (two_epochs(&*burn)?, two_epochs(&*placed)?);
        ensure!(found == expected, "{count} samples: {found:?}, expected {expected:?}");

        let seen = numbers.seen.lock().expect("no batch panics").len();
        ensure!(seen <= 2 * count.div_ceil(data) + 4, "this rank has loaded {seen}");
        let mut all = [seen as i64];
        group.all_reduce(&mut all, ReduceOp::Sum)?;
        // Of each epoch a last batch of one sample is on all ranks.
        let more = if count == 25 { data - 1 } else { 0 };
        let loaded = 2 * (count + more) * (world.world_size() / data);
        ensure!(all[0] == loaded as i64, "{all:?} samples of {loaded} are loaded");
    }
    Ok(())
}

fn leaves_the_rest_out(mesh: &Mesh) -> anyhow::Result<()> {
    let device = placed_device(FloatDType::F32)?;
    let loader = loader(&Numbers::default(), mesh, 23, LastBatch::Drop, &device)?;
    let batches: Vec<_> = loader
        .iter()
        .map(|batch| Ok(describe(&batch?.0)))
        .collect::<anyhow::Result<_>>()?;
    ensure!(batches == ["[8, 3] F32, S(0) R"; 2], "{batches:?}");
    ensure!(loader.num_items() == 16, "{} items", loader.num_items());
    // Of all ranks, so that a batch is one of the whole job.
    let slice = loader.slice(3, 14);
    let rows: Vec<usize> = slice
        .iter()
        .map(|batch| Ok(batch?.0.dims()[0]))
        .collect::<anyhow::Result<_>>()?;
    ensure!(
        rows == [8, 3] && slice.num_items() == 11,
        "{rows:?} of {}",
        slice.num_items()
    );
    let mut iterator = loader.iter();
    iterator.next();
    let processed = iterator.progress().items_processed;
    ensure!(processed == 8, "{processed} are processed");
    Ok(())
}

fn trains_as_on_one_rank(mesh: &Mesh) -> anyhow::Result<()> {
    let program = |run: &mut Run| {
        let device = run.device();
        let mut model = run.parallelize(LinearConfig::new(3, 2).init(device))?;
        let mut optimizer = AdamWConfig::new().init();
        let loader = placed_loader(Numbers::default(), run.mesh())
            .batch_size(5)
            .shuffle(3)
            .set_device(device.clone())
            .build(samples(12))?;
        for batch in loader.iter() {
            let (rows, labels) = batch?;
            let labels = labels.float().unsqueeze_dim::<2>(1);
            let loss = (model.forward(rows).tanh() - labels.sin()).powi_scalar(2).mean();
            let (loss, gradients) = backward(loss, &model)?;
            run.judge(&loss, &gradients, &model)?;
            model = optimizer.step(1e-2, model, gradients);
        }
        anyhow::Ok(model)
    };
    let layouts = [Layout::new("data", mesh, Plan::new())];
    let device = placed_device(FloatDType::F32)?;
    let comparison = compare(&CompareConfig::new(), &layouts, &device, program)?.remove(0);
    ensure!(
        comparison.judgement.num_steps == 3 && comparison.is_equal(),
        "{comparison}"
    );
    Ok(())
}
