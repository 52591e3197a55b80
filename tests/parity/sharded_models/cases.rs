//! The layouts, and the trials of each model in each.

use anyhow::{Context as _, ensure};
use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module};
use burn::optim::GradientsParams;
use burn::record::{BinBytesRecorder, DoublePrecisionSettings, Recorder};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, FloatDType, Int, IntDType, Tensor, set_default_dtypes};
use burn_flex::{Flex, FlexDevice};
use burn_megatron::collectives::GroupConfig;
use burn_megatron::initialize;
use burn_megatron::launch::World;
use burn_megatron::sharded::{AxisRole, Mesh, Plan, Sharded, ShardedBackend};
use burn_megatron::sharded::{backward, backward_unplaced, distribute, parallelize, place_gradients};
use libtest_mimic::Trial;
use plain_models::classifier::Classifier;
use plain_models::convolutional::ConvNet;
use plain_models::gpt::PlainGpt;
use plain_models::recurrent::Recurrent;

use super::subjects::{PlaceBatch, Subject};
use super::training::{Options, Passes, compare, train};
use tests::harness::{Case, Job};

/// The serial program's backend, and the one whose tensors are placed.
type Plain = Autodiff<Flex>;
type Placed = Autodiff<Sharded<Flex>>;

const SEED: u64 = 11;

/// How the ranks of a case are laid out.
#[derive(Clone, Copy, Debug)]
struct Layout {
    name: &'static str,
    axes: &'static [(AxisRole, usize)],
    /// Whether parameters are cut over the last data axis, too.
    fully_sharded: bool,
    sequence: bool,
}

const DATA: AxisRole = AxisRole::Data;
const TENSOR: AxisRole = AxisRole::Tensor;

const LAYOUTS: &[Layout] = &[
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

    fn world_size(&self) -> usize {
        self.axes.iter().map(|axis| axis.1).product()
    }

    fn mesh(&self, world: &World) -> anyhow::Result<Mesh> {
        let mesh = Mesh::connect(world, self.axes, &GroupConfig::new())?;
        Ok(if self.sequence {
            mesh.with_sequence_dimension(1)
        } else {
            mesh
        })
    }

    fn plan(&self, tensor_plan: Plan) -> Plan {
        let has = |role| self.axes.iter().any(|axis| axis.0 == role);
        let plan = if has(TENSOR) { tensor_plan } else { Plan::new() };
        if self.fully_sharded {
            plan.fully_shard(DATA)
        } else {
            plan
        }
    }
}

const MODELS: [&str; 4] = ["classifier", "convolutional", "recurrent", "gpt"];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for model in MODELS {
        let has_tokens = ["classifier", "gpt"].contains(&model);
        let case = |kind: &str, layout: &str, dtype: &str, dropout: f64| {
            Case::new(kind)
                .with("model", model)
                .with("layout", layout)
                .with("dtype", dtype)
                .with("dropout", dropout)
        };
        let one = case("unplaced", "dp2", "f64", 0.0);
        trials.push(Job::new(one, 1).succeeds(format!("{model}_on_one_rank_is_plain_burns_to_the_bit")));
        for layout in LAYOUTS {
            // Without a sequence there is none to cut.
            if layout.sequence && !has_tokens {
                continue;
            }
            let ranks = layout.world_size();
            let name = layout.name;
            let placed = case("placed", name, "f64", 0.0);
            trials.push(Job::new(placed, ranks).succeeds(format!("{model}_trains_as_on_one_rank_in_{name}_f64")));
            if ["tp2", "tp2fsdp2sp", "fsdp2"].contains(&name) {
                let placed = case("placed", name, "f32", 0.0)
                    .with("accumulates", true)
                    .with("clips", true);
                let trial = format!("{model}_accumulates_and_clips_as_on_one_rank_in_{name}_f32");
                trials.push(Job::new(placed, ranks).succeeds(trial));
            }
            if has_tokens && ["tp2dp2", "tp2sp", "fsdp4"].contains(&name) {
                let dropping = case("placed", name, "f64", 0.2).with("accumulates", true);
                trials.push(Job::new(dropping, ranks).succeeds(format!("{model}_drops_as_on_one_rank_in_{name}_f64")));
            }
        }
    }
    trials
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let model: String = case.setting("model")?;
    match model.as_str() {
        "classifier" => run_model::<Classifier<Plain>, Classifier<Placed>>(case, world),
        "convolutional" => run_model::<ConvNet<Plain>, ConvNet<Placed>>(case, world),
        "recurrent" => run_model::<Recurrent<Plain>, Recurrent<Placed>>(case, world),
        "gpt" => run_model::<PlainGpt<Plain>, PlainGpt<Placed>>(case, world),
        other => anyhow::bail!("there is no model {other}"),
    }
}

fn run_model<P: Subject<Plain>, M: Subject<Placed>>(case: &Case, world: &World) -> anyhow::Result<()> {
    let device = FlexDevice;
    let dtype: String = case.setting("dtype")?;
    let (dtype, float) = match dtype.as_str() {
        "f64" => (DType::F64, FloatDType::F64),
        _ => (DType::F32, FloatDType::F32),
    };
    set_default_dtypes::<Placed>(&device, float, IntDType::I64)?;
    let dropout: f64 = case.setting("dropout")?;
    let options = Options {
        accumulates: case.setting("accumulates").unwrap_or(false),
        clips: case.setting("clips").unwrap_or(false),
    };
    match case.name.as_str() {
        "unplaced" => {
            Plain::seed(&device, SEED);
            let plain = initialize(P::make(dropout, &device));
            // burn loads what is f32: from here on both have the same.
            let plain = with_record::<Plain, P>(plain.clone(), record_of::<Plain, P>(&plain)?, &device)?;
            let record = record_of::<Plain, P>(&plain)?;
            let unplaced = with_record::<Placed, M>(initialize(M::make(dropout, &device)), record.clone(), &device)?;
            ensure!(record_of::<Placed, M>(&unplaced)? == record, "the records differ");
            let reference = train(plain, &Serial, options, &device)?;
            let run = train(unplaced, &Serial, options, &device)?;
            ensure!(
                reference.losses == run.losses,
                "{:?} and {:?}",
                reference.losses,
                run.losses
            );
            compare(dtype, &reference, &run)
        }
        "placed" => {
            let layout: String = case.setting("layout")?;
            let layout = LAYOUTS
                .iter()
                .find(|other| other.name == layout)
                .context("a layout of the list")?;
            Placed::seed(&device, SEED);
            let whole = initialize(M::make(dropout, &device));
            let whole = with_record::<Placed, M>(whole.clone(), record_of::<Placed, M>(&whole)?, &device)?;
            let record = record_of::<Placed, M>(&whole)?;
            Placed::seed(&device, SEED + 1);
            let reference = train(whole, &Serial, options, &device)?;

            let mesh = layout.mesh(world)?;
            let plan = layout.plan(M::tensor_plan());
            // A record that is loaded is placed as the parameters were.
            let placed = parallelize(M::make(dropout, &device), &plan, &mesh)?;
            let placed = with_record::<Placed, M>(placed, record.clone(), &device)?;
            ensure!(
                record_of::<Placed, M>(&placed)? == record,
                "the record of a placed model is not the whole one's"
            );
            Placed::seed(&device, SEED + 1);
            let run = train(placed, &OnMesh(mesh), options, &device)?;
            compare(dtype, &reference, &run)
        }
        other => anyhow::bail!("there is no case {other}"),
    }
}

/// A model's record as bytes; parameters keep their names and lose what burn draws of their identity.
fn record_of<B: AutodiffBackend, M: Module<B>>(model: &M) -> anyhow::Result<Vec<u8>> {
    Ok(BinBytesRecorder::<DoublePrecisionSettings>::default().record(model.clone().into_record(), ())?)
}

fn with_record<B: AutodiffBackend, M: Module<B>>(model: M, record: Vec<u8>, device: &B::Device) -> anyhow::Result<M> {
    let record = BinBytesRecorder::<DoublePrecisionSettings>::default().load(record, device)?;
    Ok(model.load_record(record))
}

/// burn's own passes, of tensors that have no mesh.
struct Serial;

impl<B: Backend> PlaceBatch<B> for Serial {
    fn floats<const D: usize>(&self, tensor: Tensor<B, D>) -> Tensor<B, D> {
        tensor
    }

    fn ints<const D: usize>(&self, tensor: Tensor<B, D, Int>) -> Tensor<B, D, Int> {
        tensor
    }
}

impl<B: AutodiffBackend, M: AutodiffModule<B>> Passes<B, M> for Serial {
    fn backward(&self, loss: Tensor<B, 1>, model: &M) -> anyhow::Result<(f64, GradientsParams)> {
        let value = loss.clone().into_data().iter::<f64>().next().context("a loss")?;
        Ok((value, GradientsParams::from_grads(loss.backward(), model)))
    }

    fn backward_part(&self, loss: Tensor<B, 1>, model: &M) -> anyhow::Result<(f64, GradientsParams)> {
        self.backward(loss, model)
    }

    fn finish(&self, gradients: GradientsParams, _model: &M) -> anyhow::Result<GradientsParams> {
        Ok(gradients)
    }
}

/// A batch cut over the data-parallel ranks.
struct OnMesh(Mesh);

impl<B: ShardedBackend> PlaceBatch<B> for OnMesh {
    fn floats<const D: usize>(&self, tensor: Tensor<B, D>) -> Tensor<B, D> {
        distribute(tensor, &self.0, DATA, 0)
    }

    fn ints<const D: usize>(&self, tensor: Tensor<B, D, Int>) -> Tensor<B, D, Int> {
        distribute(tensor, &self.0, DATA, 0)
    }
}

impl<M: AutodiffModule<Placed>> Passes<Placed, M> for OnMesh {
    fn backward(&self, loss: Tensor<Placed, 1>, model: &M) -> anyhow::Result<(f64, GradientsParams)> {
        let (loss, gradients) = backward(loss, model)?;
        // Every rank has it.
        let value = loss.into_data().iter::<f64>().next().context("a loss")?;
        Ok((value, gradients))
    }

    fn backward_part(&self, loss: Tensor<Placed, 1>, model: &M) -> anyhow::Result<(f64, GradientsParams)> {
        let value = loss.clone().into_data().iter::<f64>().next().context("a loss")?;
        Ok((value, backward_unplaced(loss, model)?))
    }

    fn finish(&self, gradients: GradientsParams, model: &M) -> anyhow::Result<GradientsParams> {
        Ok(place_gradients(gradients, model)?)
    }
}
