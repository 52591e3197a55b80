//! A model trained for some steps, and what of it is compared.

use std::error::Error;

use burn::grad_clipping::GradientClipping;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::{AdamWConfig, GradientsAccumulator, GradientsParams};
use burn::tensor::{DType, Device, FloatDType, Tensor};
use burn_megatron::parameters::{Placement, settle_running_states};
use burn_megatron::parity::{Judge, Tolerance, compare_shard};
use burn_megatron::random::RandomStream;
use burn_megatron::sharded::{
    AxisRole, Mesh, backward, backward_unplaced, cast_parameters, distribute, place_gradients,
};

use super::models::{Subject, filled, of_values};

pub const STEPS: usize = 5;

/// Ways in which a run differs from the plainest one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Two micro-batches a step, whose gradients are added up.
    pub accumulates: bool,
    /// burn's clipping of each gradient by its norm.
    pub clips: bool,
    /// Passes in bf16, with parameters and gradients in the run's type.
    pub is_half: bool,
}

/// An array of a model by its name.
#[derive(Clone, Debug)]
pub struct Array {
    pub name: String,
    pub values: Vec<f64>,
}

/// What a run computed.
#[derive(Debug, Default)]
pub struct Run {
    pub losses: Vec<f64>,
    /// Of every step, in the order of the model.
    pub gradients: Vec<Vec<Array>>,
    pub parameters: Vec<Array>,
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

impl Ranks<'_> {
    fn place(&self, batch: Tensor<3>) -> Tensor<3> {
        match self {
            Self::One => batch,
            Self::Many(mesh) | Self::Unplaced(mesh) => distribute(batch, mesh, AxisRole::Data, 0),
        }
    }

    /// The loss and the gradients of a step's micro-batches.
    fn gradients<M: Module>(
        &self,
        model: &M,
        losses: Vec<Tensor<1>>,
    ) -> Result<(f64, GradientsParams), Box<dyn Error>> {
        if let (Self::Many(_), [loss]) = (self, &losses[..]) {
            let (loss, gradients) = backward(loss.clone(), model)?;
            return Ok((value(loss)?, gradients));
        }
        let (mut sum, mut accumulator) = (0.0, GradientsAccumulator::new());
        for loss in losses {
            sum += value(loss.clone().inner())?;
            let gradients = match self {
                Self::Many(_) => backward_unplaced(loss, model)?,
                Self::One | Self::Unplaced(_) => GradientsParams::from_grads(loss.backward(), model),
            };
            accumulator.accumulate(model, gradients);
        }
        let gradients = accumulator.grads();
        match self {
            Self::Many(_) => Ok((sum, place_gradients(gradients, model)?)),
            Self::One | Self::Unplaced(_) => Ok((sum, gradients)),
        }
    }
}

pub fn value(loss: Tensor<1>) -> Result<f64, Box<dyn Error>> {
    Ok(loss.into_data().iter::<f64>().next().ok_or("a loss")?)
}

/// The loss of a part of a step's samples: the input and the target of each step are random.
pub fn loss<M: Subject>(
    model: &M,
    step: usize,
    samples: std::ops::Range<usize>,
    (dtype, device): (DType, &Device),
    place: impl Fn(Tensor<3>) -> Tensor<3>,
) -> Tensor<1> {
    let [input, target] = ["input", "target"].map(|what| {
        let mut values = vec![0.0; M::SHAPE.iter().product()];
        RandomStream::new(step as u64, what).fill_normal(0, 1.0, &mut values);
        let batch = of_values(values, M::SHAPE, dtype, device);
        place(batch.slice([samples.clone()]))
    });
    (model.forward(input) - target).powi_scalar(2).mean()
}

/// Samples of a step's micro-batches.
pub fn micro_batches<M: Subject>(accumulates: bool) -> Vec<std::ops::Range<usize>> {
    let [samples, ..] = M::SHAPE;
    let parts = if accumulates { 2 } else { 1 };
    let of_part = |part| part * samples / parts..(part + 1) * samples / parts;
    (0..parts).map(of_part).collect()
}

/// Learning rate of a step.
pub fn learning_rate(step: usize) -> f64 {
    2e-2 / (1 + step) as f64
}

/// Trains with AdamW and a learning rate that falls, after `place` has made something of the model.
pub fn train<M: Subject>(
    device: &Device,
    dtype: DType,
    ranks: &Ranks,
    options: Options,
    place: impl FnOnce(M) -> Result<M, Box<dyn Error>>,
) -> Result<Run, Box<dyn Error>> {
    let mut model = place(filled(M::make(device), dtype))?;
    let mut optimizer = AdamWConfig::new().with_weight_decay(0.1).init();
    if options.clips {
        optimizer = optimizer.with_grad_clipping(GradientClipping::Norm(0.05));
    }
    let mut run = Run::default();
    for step in 0..STEPS {
        let parts = micro_batches::<M>(options.accumulates);
        let count = parts.len() as f64;
        let losses = parts.into_iter().map(|samples| {
            if options.is_half {
                let half = cast_parameters(&model, FloatDType::BF16);
                let place = |batch| ranks.place(batch);
                loss(&half, step, samples, (DType::BF16, device), place).cast(dtype) / count
            } else {
                loss(&model, step, samples, (dtype, device), |batch| ranks.place(batch)) / count
            }
        });
        let (loss, gradients) = ranks.gradients(&model, losses.collect())?;
        run.losses.push(loss);
        run.gradients.push(gradient_arrays(&model, &gradients));
        model = optimizer.step(learning_rate(step), model, gradients);
    }
    run.parameters = parameter_arrays(&model);
    Ok(run)
}

/// Gradients of a model, in its order.
pub fn gradient_arrays<M: Module>(model: &M, gradients: &GradientsParams) -> Vec<Array> {
    arrays(model, |param| param.gradient(gradients))
}

/// Parameters and running statistics of a model, in its order.
pub fn parameter_arrays<M: Module>(model: &M) -> Vec<Array> {
    settle_running_states(model);
    arrays(model, |param| Some(param.value()))
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
    let [theirs, ours] = [reference, run].map(|run| run.parameters.len());
    if theirs != ours {
        return Err(format!("{ours} parameters in place of {theirs}").into());
    }
    let trained = reference.gradients.first().map_or(0, Vec::len);
    let counts: Vec<usize> = [reference, run]
        .iter()
        .flat_map(|run| run.gradients.iter().map(Vec::len))
        .collect();
    if trained == 0 || counts.iter().any(|&count| count != trained) || counts.len() != 2 * STEPS {
        return Err(format!("gradients of steps {counts:?}, of {theirs} parameters").into());
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

/// The norm of all arrays together.
pub fn norm(arrays: &[Array]) -> f64 {
    let values = arrays.iter().flat_map(|array| &array.values);
    values.map(|value| value * value).sum::<f64>().sqrt()
}
