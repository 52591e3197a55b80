//! burn-train's `Learner` on a placed model: outputs are made whole on the training thread.

use anyhow::ensure;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Int, Tensor};
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep};
use burn_megatron::data::placed_loader;
use burn_megatron::learner::SilentRenderer;
use burn_megatron::parity::compare_shard;
use burn_megatron::sharded::{Mesh, Plan, parallelize, whole};
use plain_models::classifier::{CLASSES, Classifier, SEQ, VOCABULARY};

use super::training::{Array, read_parameters};

/// The last batch is an odd one.
const SAMPLES: usize = 23;
const BATCH: usize = 8;

/// A classifier in training.
#[derive(Module, Debug)]
struct Learned {
    classifier: Classifier,
}

type Batch = (Tensor<2, Int>, Tensor<1, Int>);

impl Learned {
    /// The loss, and an output that is whole: the metrics read on a thread of their own.
    fn classify(&self, (tokens, labels): Batch) -> (Tensor<1>, ClassificationOutput) {
        let logits = self.classifier.logits(tokens);
        let loss = CrossEntropyLossConfig::new().init(&logits.device());
        let loss = loss.forward(logits.clone(), labels.clone());
        let output = ClassificationOutput::new(whole(loss.clone()), whole(logits), whole(labels));
        (loss, output)
    }
}

impl TrainStep for Learned {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> TrainOutput<ClassificationOutput> {
        let (loss, output) = self.classify(batch);
        TrainOutput::new(self, loss.backward(), output)
    }
}

impl InferenceStep for Learned {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> ClassificationOutput {
        self.classify(batch).1
    }
}

/// Sample by number.
#[derive(Clone)]
struct Texts;

impl Batcher<usize, Batch> for Texts {
    fn batch(&self, samples: Vec<usize>, device: &Device) -> Batch {
        let count = samples.len();
        let tokens: Vec<i64> = samples
            .iter()
            .flat_map(|sample| (0..SEQ).map(move |place| ((sample * 7 + place * 3) % VOCABULARY) as i64))
            .collect();
        let labels: Vec<i64> = samples.iter().map(|sample| (sample % CLASSES) as i64).collect();
        let tokens = Tensor::<1, Int>::from_data(&tokens[..], device).reshape([count, SEQ]);
        (tokens, Tensor::from_data(&labels[..], device))
    }
}

/// Two epochs in a layout and on one rank give the same parameters.
pub fn learn(mesh: &Mesh, plan: &Plan, device: &Device) -> anyhow::Result<()> {
    let one = train(&Mesh::new([])?, &Plan::new(), device)?;
    let placed = train(mesh, plan, device)?;
    ensure!(one.len() == placed.len(), "{} parameters, {}", one.len(), placed.len());
    for (theirs, ours) in one.iter().zip(&placed) {
        for part in compare_shard(&ours.name, &theirs.values, &ours.values, &ours.placement) {
            ensure!(
                part.difference <= 1e-10 * part.reference_norm,
                "{} differs by {:.1e}",
                part.name,
                part.difference
            );
        }
    }
    Ok(())
}

fn train(mesh: &Mesh, plan: &Plan, device: &Device) -> anyhow::Result<Vec<Array>> {
    device.seed(3);
    let classifier = parallelize(Classifier::new(0.1, device), plan, mesh)?;
    // Each rank writes its own logs.
    let folder = tempfile::tempdir()?;
    let samples = || InMemDataset::new((0..SAMPLES).collect::<Vec<usize>>());
    let loader = || placed_loader(Texts, mesh).batch_size(BATCH).set_device(device.clone());
    let training = SupervisedTraining::new(
        folder.path(),
        loader().shuffle(5).build(samples())?,
        loader().build(samples())?,
    );
    let training = training
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .renderer(Box::new(SilentRenderer))
        .with_application_logger(None)
        .num_epochs(2);
    let learner = Learner::new(Learned { classifier }, AdamWConfig::new().init(), 1e-2);
    let result = training.launch(learner);
    ensure!(result.error.is_none(), "{:?}", result.error);
    Ok(read_parameters(&result.model))
}
