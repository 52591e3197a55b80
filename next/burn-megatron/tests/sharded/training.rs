//! A model trained for some steps, and what of it is compared.

use std::error::Error;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{DType, Device, Tensor};
use burn_megatron::parameters::Placement;
use burn_megatron::parity::{Judge, Tolerance, compare_shard};
use burn_megatron::random::RandomStream;
use burn_megatron::sharded::{AxisRole, Mesh, backward, distribute};

use super::models::{Subject, filled, of_values};

const STEPS: usize = 5;

/// An array of a model by its name.
#[derive(Clone, Debug)]
struct Array {
    name: String,
    values: Vec<f64>,
}

/// What a run computed.
#[derive(Debug, Default)]
pub struct Run {
    losses: Vec<f64>,
    /// Of every step, in the order of the model.
    gradients: Vec<Vec<Array>>,
    parameters: Vec<Array>,
}

/// How a run's batches are placed, and its gradients made.
pub enum Ranks<'a> {
    /// burn's own passes.
    One,
    /// Batches cut over the data-parallel ranks of a mesh.
    Many(&'a Mesh),
    /// As burn's own program has it, on a mesh: gradients and updates are placed by the rules alone.
    Unplaced(&'a Mesh),
}

/// Trains with AdamW and a learning rate that falls, after `place` has made something of the model.
pub fn train<M: Subject>(
    device: &Device,
    dtype: DType,
    ranks: &Ranks,
    place: impl FnOnce(M) -> Result<M, Box<dyn Error>>,
) -> Result<Run, Box<dyn Error>> {
    let mut model = place(filled(M::make(device), dtype))?;
    let mut optimizer = AdamWConfig::new().with_weight_decay(0.1).init();
    let mut run = Run::default();
    for step in 0..STEPS {
        let [input, target] = ["input", "target"].map(|what| {
            let mut values = vec![0.0; M::SHAPE.iter().product()];
            RandomStream::new(step as u64, what).fill_normal(0, 1.0, &mut values);
            let batch = of_values(values, M::SHAPE, dtype, device);
            match ranks {
                Ranks::One => batch,
                Ranks::Many(mesh) | Ranks::Unplaced(mesh) => distribute(batch, mesh, AxisRole::Data, 0),
            }
        });
        let loss = (model.forward(input) - target).powi_scalar(2).mean();
        let (loss, gradients) = match ranks {
            Ranks::One | Ranks::Unplaced(_) => (
                loss.clone().inner(),
                GradientsParams::from_grads(loss.backward(), &model),
            ),
            Ranks::Many(_) => backward(loss, &model)?,
        };
        run.losses.push(loss.into_data().iter::<f64>().next().ok_or("a loss")?);
        run.gradients.push(arrays(&model, |param| param.gradient(&gradients)));
        model = optimizer.step(2e-2 / (1 + step) as f64, model, gradients);
    }
    run.parameters = arrays(&model, |param| Some(param.value()));
    Ok(run)
}

/// A parameter of any number of dimensions.
pub trait AnyParam {
    fn value(&self) -> Vec<f64>;
    fn gradient(&self, gradients: &GradientsParams) -> Option<Vec<f64>>;
}

impl<const D: usize> AnyParam for Param<Tensor<D>> {
    fn value(&self) -> Vec<f64> {
        self.val().inner().into_data().iter::<f64>().collect()
    }

    fn gradient(&self, gradients: &GradientsParams) -> Option<Vec<f64>> {
        let gradient = gradients.get::<D>(self.id)?;
        Some(gradient.into_data().iter::<f64>().collect())
    }
}

/// What `of` says of each parameter, with its name.
fn arrays<M: Module>(model: &M, of: impl Fn(&dyn AnyParam) -> Option<Vec<f64>>) -> Vec<Array> {
    struct Reader<F> {
        of: F,
        path: Vec<String>,
        arrays: Vec<Array>,
    }
    impl<F: Fn(&dyn AnyParam) -> Option<Vec<f64>>> ModuleVisitor for Reader<F> {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.path.push(name.to_owned());
        }

        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(values) = (self.of)(param) {
                self.arrays.push(Array {
                    name: self.path.join("."),
                    values,
                });
            }
        }
    }
    let mut reader = Reader {
        of,
        path: Vec::new(),
        arrays: Vec::new(),
    };
    model.visit(&mut reader);
    reader.arrays
}

/// Compares all losses, gradients and parameters of two runs.
pub fn compare(dtype: DType, reference: &Run, run: &Run) -> Result<(), Box<dyn Error>> {
    let elements = reference.parameters.iter().map(|array| array.values.len()).sum();
    let mut judge = Judge::new(Tolerance::of(dtype), elements, dtype == DType::F64);
    let num_parameters = reference.parameters.len();
    let counts: Vec<usize> = [reference, run]
        .iter()
        .flat_map(|run| run.gradients.iter().map(Vec::len))
        .collect();
    if counts.iter().any(|&count| count != num_parameters) || counts.len() != 2 * STEPS {
        return Err(format!("gradients of steps {counts:?}, of {num_parameters} parameters").into());
    }
    for step in 0..STEPS {
        let [theirs, ours] = [reference, run].map(|run| &run.gradients[step]);
        let [norm, our_norm] = [theirs, ours].map(|arrays| norm(arrays));
        judge.scalars(
            step as u64,
            [run.losses[step], reference.losses[step]],
            [our_norm, norm],
        );
        for (theirs, ours) in theirs.iter().zip(ours) {
            for part in differences(theirs, ours)? {
                judge.gradient(step as u64, &part, norm);
            }
        }
    }
    for (theirs, ours) in reference.parameters.iter().zip(&run.parameters) {
        for part in differences(theirs, ours)? {
            judge.parameter(STEPS as u64, &part);
        }
    }
    println!(
        "largest differences: loss {:.1e}, gradient {:.1e}, parameter {:.1e}",
        judge.worst_loss(),
        judge.worst_gradient(),
        judge.worst_parameter()
    );
    match judge.failures() {
        [] => Ok(()),
        failures => Err(failures.join("\n").into()),
    }
}

fn differences(theirs: &Array, ours: &Array) -> Result<Vec<burn_megatron::parity::PartDifference>, Box<dyn Error>> {
    if theirs.name != ours.name {
        return Err(format!("{} in place of {}", ours.name, theirs.name).into());
    }
    let whole = Placement::whole([theirs.values.len()]);
    Ok(compare_shard(&ours.name, &theirs.values, &ours.values, &whole))
}

fn norm(arrays: &[Array]) -> f64 {
    let values = arrays.iter().flat_map(|array| &array.values);
    values.map(|value| value * value).sum::<f64>().sqrt()
}
