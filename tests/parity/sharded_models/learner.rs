//! burn-train's `Learner` on a placed model: outputs are made whole on the training thread.

use anyhow::ensure;
use burn::backend::Autodiff;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::{AutodiffModule, Module};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{AdamW, AdamWConfig, Optimizer};
use burn::record::{BinFileRecorder, DoublePrecisionSettings, Recorder};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep};
use burn_flex::{Flex, FlexDevice};
use burn_megatron::data::placed_loader;
use burn_megatron::learner::SilentRenderer;
use burn_megatron::parity::compare_shard;
use burn_megatron::sharded::{Mesh, Plan, Sharded, parallelize, whole, whole_records};
use plain_models::classifier::{CLASSES, Classifier, SEQ, VOCABULARY};

use super::training::{Array, read_parameters};

type B = Autodiff<Sharded<Flex>>;

/// The last batch is an odd one.
const SAMPLES: usize = 23;
const BATCH: usize = 8;

/// A classifier in training.
#[derive(Module, Debug)]
struct Learned<B: Backend> {
    classifier: Classifier<B>,
}

type Batch<B> = (Tensor<B, 2, Int>, Tensor<B, 1, Int>);

impl TrainStep for Learned<B> {
    type Input = Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, (tokens, labels): Batch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let logits = self.classifier.logits(tokens);
        let loss = loss_of(logits.clone(), labels.clone());
        // The metrics read on a thread of their own.
        let item = ClassificationOutput::new(whole(loss.clone()), whole(logits), whole(labels));
        TrainOutput::new(self, loss.backward(), item)
    }
}

impl InferenceStep for Learned<Sharded<Flex>> {
    type Input = Batch<Sharded<Flex>>;
    type Output = ClassificationOutput<Sharded<Flex>>;

    fn step(&self, (tokens, labels): Batch<Sharded<Flex>>) -> ClassificationOutput<Sharded<Flex>> {
        let logits = self.classifier.logits(tokens);
        let loss = loss_of(logits.clone(), labels.clone());
        ClassificationOutput::new(whole(loss), whole(logits), whole(labels))
    }
}

fn loss_of<B: Backend>(logits: Tensor<B, 2>, labels: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    let loss = CrossEntropyLossConfig::new().init(&logits.device());
    loss.forward(logits, labels)
}

/// Sample by number.
#[derive(Clone)]
struct Texts;

impl<B: Backend> Batcher<B, usize, Batch<B>> for Texts {
    fn batch(&self, samples: Vec<usize>, device: &B::Device) -> Batch<B> {
        let count = samples.len();
        let tokens: Vec<i64> = samples
            .iter()
            .flat_map(|sample| (0..SEQ).map(move |place| ((sample * 7 + place * 3) % VOCABULARY) as i64))
            .collect();
        let labels: Vec<i64> = samples.iter().map(|sample| (sample % CLASSES) as i64).collect();
        let tokens = Tensor::<B, 1, Int>::from_data(&tokens[..], device).reshape([count, SEQ]);
        (tokens, Tensor::from_data(&labels[..], device))
    }
}

/// Two epochs in a layout and on one rank give the same parameters.
pub fn learn(mesh: &Mesh, plan: &Plan, device: &FlexDevice) -> anyhow::Result<()> {
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

fn train(mesh: &Mesh, plan: &Plan, device: &FlexDevice) -> anyhow::Result<Vec<Array>> {
    B::seed(device, 3);
    let classifier = parallelize(Classifier::<B>::new(0.1, device), plan, mesh)?;
    // Each rank writes its own logs and checkpoints.
    let folder = tempfile::tempdir()?;
    let samples = || InMemDataset::new((0..SAMPLES).collect::<Vec<usize>>());
    let training = placed_loader::<B, _, _>(Texts, mesh)
        .batch_size(BATCH)
        .shuffle(5)
        .build(samples())?;
    let validation = placed_loader::<Sharded<Flex>, _, _>(Texts, mesh)
        .batch_size(BATCH)
        .build(samples())?;
    let training = SupervisedTraining::new(folder.path(), training, validation)
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .renderer(SilentRenderer)
        .with_application_logger(None)
        .num_epochs(2);
    let recorder = BinFileRecorder::<DoublePrecisionSettings>::new();
    let training = training.with_file_checkpointer(recorder.clone());
    let optimizer = whole_records(AdamWConfig::new().init::<B, Learned<B>>());
    let trained = training
        .launch(Learner::new(Learned { classifier }, optimizer, 1e-2))
        .model;
    let parameters = read_parameters::<Sharded<Flex>, Learned<Sharded<Flex>>>(&trained);

    // What burn's checkpointer saved on threads of its own is the whole of it.
    let saved = |name: &str| folder.path().join("checkpoint").join(name);
    let classifier = parallelize(Classifier::<B>::new(0.1, device), plan, mesh)?;
    let again = Learned { classifier }.load_file(saved("model-2"), &recorder, device)?;
    let again = read_parameters::<Sharded<Flex>, Learned<Sharded<Flex>>>(&again.valid());
    // burn loads what is f32.
    let near = |(ours, theirs): (&f64, &f64)| (ours - theirs).abs() <= 1e-6 * theirs.abs().max(1.0);
    for (ours, theirs) in again.iter().zip(&parameters) {
        let is_near = ours.values.len() == theirs.values.len() && ours.values.iter().zip(&theirs.values).all(near);
        ensure!(is_near, "{} has other values in the checkpoint", theirs.name);
    }
    let state: RecordOf = Recorder::<B>::load(&recorder, saved("optim-2"), device)?;
    ensure!(
        state.len() == parameters.len(),
        "the state of {} parameters",
        state.len()
    );
    Ok(parameters)
}

type RecordOf = <OptimizerAdaptor<AdamW, Learned<B>, B> as Optimizer<Learned<B>, B>>::Record;
