//! Lesson 5: train with burn-train's `Learner` on several ranks.
//!
//! ```text
//! cargo run --release --example 05_burn_train_learner                      # one rank
//! cargo run --release --example 05_burn_train_learner -- --world-size 2    # two: the same metrics
//! cargo run --release --example 05_burn_train_learner -- --folder run      # keeps logs and checkpoints in a folder
//! cargo run --release --example 05_burn_train_learner -- --folder run --resume 3 --world-size 2    # epoch 4 again
//! ```
//!
//! What is new against a single-process program with burn-train is marked with a number: four places.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::{Dataset, DatasetError};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::AdamWConfig;
use burn::prelude::*;
use burn::train::metric::store::{Aggregate, Direction, Split};
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{
    ClassificationOutput, InferenceStep, Learner, LearnerSummary, MetricEarlyStoppingStrategy, MetricSummary,
    StoppingCondition, SupervisedTraining, TrainOutput, TrainStep,
};
use burn_megatron::data::LastBatch;
use burn_megatron::learner::SilentRenderer;
use burn_megatron::prelude::*;
use clap::Parser;
use examples::spots::{IMAGE_SIZE, Images, Spot};

const EPOCHS: usize = 4;
const GLOBAL_BATCH: usize = 64;
const LEARNING_RATE: f64 = 3e-3;

/// A small convolutional classifier, plain burn.
#[derive(Module, Debug)]
struct Classifier {
    conv: Conv2d,
    activation: Relu,
    output: Linear,
}

impl Classifier {
    fn new(device: &Device) -> Self {
        Self {
            conv: Conv2dConfig::new([1, 8], [3, 3]).init(device),
            activation: Relu::new(),
            output: LinearConfig::new(8 * (IMAGE_SIZE - 2) * (IMAGE_SIZE - 2), 4).init(device),
        }
    }

    fn classify(&self, Images { pixels, labels }: Images) -> ClassificationOutput {
        let features = self.activation.forward(self.conv.forward(pixels)).flatten(1, 3);
        let output = self.output.forward(features);
        let loss = CrossEntropyLossConfig::new().init(&labels.device());
        ClassificationOutput::new(loss.forward(output.clone(), labels.clone()), output, labels)
    }
}

impl TrainStep for Classifier {
    type Input = Images;
    type Output = ClassificationOutput;

    fn step(&self, images: Images) -> TrainOutput<ClassificationOutput> {
        let item = self.classify(images);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl InferenceStep for Classifier {
    type Input = Images;
    type Output = ClassificationOutput;

    fn step(&self, images: Images) -> ClassificationOutput {
        self.classify(images)
    }
}

/// Trains a small burn model with burn-train on one rank or on several.
#[derive(Parser)]
struct Arguments {
    /// Ranks that share each batch
    #[arg(long, default_value_t = 1)]
    world_size: usize,
    /// Keep logs and checkpoints in this folder
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Resume from the checkpoint of this epoch
    #[arg(long, requires = "folder")]
    resume: Option<usize>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    anyhow::ensure!(
        (1..=GLOBAL_BATCH).contains(&arguments.world_size),
        "--world-size must be from 1 to the {GLOBAL_BATCH} images of a batch, got {}",
        arguments.world_size
    );
    // (1) This process becomes a rank, or starts one process per rank and waits for them.
    Ok(burn_megatron::run(arguments.world_size, |world| {
        match &arguments.folder {
            Some(folder) => train(world, folder, arguments.resume),
            None => train(world, tempfile::tempdir()?.path(), None),
        }
    }))
}

fn train(world: &World, folder: &Path, resume: Option<usize>) -> anyhow::Result<()> {
    let device = Device::flex().autodiff();
    // (2) The ranks of this job: all of them data-parallel.
    let context = ParallelConfig::new().init(world)?;

    device.seed(1);
    let model = Classifier::new(&device);
    // (3) Each rank loads its share of every batch, in place of burn's `DataLoaderBuilder::new(ToImages)`. Ranks may
    // have shares that differ by an image, or none of the last batch: the learner weights them.
    let images = shard_loader(ToImages, &context)
        .batch_size(GLOBAL_BATCH)
        .shuffle(42)
        .num_workers(1)
        .last_batch(LastBatch::Uneven)
        .build(Spots { first: 0, count: 1000 })?;
    let others = shard_loader(ToImages, &context)
        .batch_size(GLOBAL_BATCH)
        .last_batch(LastBatch::Uneven)
        .build(Spots {
            first: 1000,
            count: 250,
        })?;
    // All ranks stop after the same epoch, as the first one decides.
    let early_stopping = MetricEarlyStoppingStrategy::new(
        &LossMetric::new(),
        Aggregate::Mean,
        Direction::Lowest,
        Split::Valid,
        StoppingCondition::NoImprovementSince { n_epochs: 2 },
    );
    let mut training = SupervisedTraining::new(folder, images, others)
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .early_stopping(early_stopping)
        .with_default_checkpointers()
        .renderer(Box::new(SilentRenderer))
        .num_epochs(EPOCHS);
    if let Some(epoch) = resume {
        training = training.checkpoint(epoch);
    }
    // (4) All ranks train, each with its share of the optimizer's state; the first one logs and saves.
    let mut ranks = ParallelLearner::new(&context, DataParallelConfig::new());
    let optimizer = ranks.shard(ElementWiseOptimizer::from(AdamWConfig::new().build()));
    ranks.launch(training, Learner::new(model, optimizer, LEARNING_RATE))?;

    if world.rank() == 0 {
        let summary = LearnerSummary::new(folder, &["Accuracy", "Loss"]).map_err(anyhow::Error::msg)?;
        print(&summary.metrics.train, "training");
        print(&summary.metrics.valid, "validation");
    }
    Ok(())
}

/// Prints the metrics of each epoch.
fn print(metrics: &[MetricSummary], split: &str) {
    let [accuracy, loss] = metrics else { return };
    for (accuracy, loss) in accuracy.entries.iter().zip(&loss.entries) {
        println!(
            "epoch {} | {split:10} | loss {:.4} | accuracy {:.2} %",
            loss.step, loss.value, accuracy.value
        );
    }
}

/// Images by number.
struct Spots {
    first: usize,
    count: usize,
}

impl Dataset<Spot> for Spots {
    fn len(&self) -> usize {
        self.count
    }

    fn get(&self, index: usize) -> Result<Spot, DatasetError> {
        assert!(index < self.count, "image {index} of {}", self.count);
        Ok(Spot::numbered(self.first + index, 4.0))
    }
}

/// Makes a batch of images.
struct ToImages;

impl Batcher<Spot, Images> for ToImages {
    fn batch(&self, spots: Vec<Spot>, device: &Device) -> Images {
        Images::of(spots, device)
    }
}
