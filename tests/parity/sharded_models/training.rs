//! A model trained for some steps, and what of it is compared.

use anyhow::ensure;
use burn::grad_clipping::GradientClippingConfig;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::{AdamWConfig, GradientsAccumulator, GradientsParams};
use burn::tensor::{DType, Device, FloatDType, Tensor};
use burn_megatron::parameters::{Placement, read_host, settle_running_states};
use burn_megatron::parity::{Judge, Tolerance, compare_shard};
use burn_megatron::sharded::cast_parameters;

use super::passes::Passes;
use super::subjects::Subject;

pub const STEPS: usize = 5;
pub const SAMPLES: usize = 8;

/// How a run differs from the plainest one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Two micro-batches a step, whose gradients are added up.
    pub accumulates: bool,
    /// burn's clipping of each gradient by its norm.
    pub clips: bool,
    /// Whether the passes are in bf16; parameters and gradients are not.
    pub is_half: bool,
}

/// An array of a model, or a rank's part of one, by its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub name: String,
    pub placement: Placement,
    pub values: Vec<f64>,
}

/// What a run computed.
#[derive(Debug, Default)]
pub struct Run {
    pub losses: Vec<f64>,
    /// Of every step, in the order of the model.
    pub gradients: Vec<Vec<Array>>,
    /// Of all gradients of every step.
    pub norms: Vec<f64>,
    pub parameters: Vec<Array>,
}

/// Trains with AdamW and a learning rate that falls.
pub fn train<M: Subject>(mut model: M, passes: &Passes, options: Options, device: &Device) -> anyhow::Result<Run> {
    let clipping = options.clips.then_some(GradientClippingConfig::Norm(0.05));
    let mut optimizer = AdamWConfig::new()
        .with_weight_decay(0.1)
        .with_grad_clipping(clipping)
        .init();
    let mut run = Run::default();
    for step in 0..STEPS {
        let first = step * SAMPLES;
        let (loss, gradients) = if options.accumulates {
            let mut accumulator = GradientsAccumulator::new();
            let mut sum = 0.0;
            for half in [first..first + SAMPLES / 2, first + SAMPLES / 2..first + SAMPLES] {
                let loss = model.loss_of(half, passes, device) / 2.0;
                let (loss, gradients) = passes.backward_part(loss, &model)?;
                sum += loss;
                accumulator.accumulate(&model, gradients);
            }
            (sum, passes.finish(accumulator.grads(), &model)?)
        } else {
            let samples = first..first + SAMPLES;
            let loss = if options.is_half {
                let half = cast_parameters(&model, FloatDType::BF16);
                half.loss_of(samples, passes, device).cast(FloatDType::F32)
            } else {
                model.loss_of(samples, passes, device)
            };
            passes.backward(loss, &model)?
        };
        run.losses.push(loss);
        let arrays = read_gradients(&model, &gradients);
        run.norms.push(norm(&arrays));
        run.gradients.push(arrays);
        model = optimizer.step(2e-2 / (1 + step) as f64, model, gradients);
    }
    run.parameters = read_parameters(&model);
    Ok(run)
}

/// Every gradient, in the order of the model.
pub fn read_gradients<M: Module>(model: &M, gradients: &GradientsParams) -> Vec<Array> {
    read(model, Some(gradients))
}

/// Every parameter and buffer, in the order of the model.
pub fn read_parameters<M: Module>(model: &M) -> Vec<Array> {
    settle_running_states(model);
    read(model, None)
}

/// The gradients, or without these the parameters and buffers.
fn read<M: Module>(model: &M, gradients: Option<&GradientsParams>) -> Vec<Array> {
    struct Reader<'a> {
        gradients: Option<&'a GradientsParams>,
        path: Vec<String>,
        arrays: Vec<Array>,
    }
    impl ModuleVisitor for Reader<'_> {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.path.push(name.to_owned());
        }
        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let tensor = match self.gradients {
                None => Some(param.val()),
                Some(gradients) => gradients.get::<D>(param.id),
            };
            if let Some(tensor) = tensor {
                self.arrays.push(Array {
                    name: self.path.join("."),
                    placement: Placement::whole(tensor.dims()),
                    values: read_host(tensor),
                });
            }
        }
    }
    let mut reader = Reader {
        gradients,
        path: Vec::new(),
        arrays: Vec::new(),
    };
    model.visit(&mut reader);
    reader.arrays
}

/// Compares all losses, gradients and parameters of two runs.
pub fn compare(dtype: DType, reference: &Run, run: &Run) -> anyhow::Result<()> {
    let elements: usize = reference.parameters.iter().map(|array| array.values.len()).sum();
    let mut judge = Judge::new(Tolerance::of(dtype), elements, dtype == DType::F64);
    for step in 0..STEPS {
        let [theirs, ours] = [reference, run].map(|run| &run.gradients[step]);
        let norms = [reference, run].map(|run| run.norms[step]);
        judge.scalars(
            step as u64,
            [run.losses[step], reference.losses[step]],
            [norms[1], norms[0]],
        );
        pairs(theirs, ours, |name, theirs, ours, placement| {
            for part in compare_shard(name, theirs, ours, placement) {
                judge.gradient(step as u64, &part, norms[0]);
            }
        })?;
    }
    pairs(
        &reference.parameters,
        &run.parameters,
        |name, theirs, ours, placement| {
            for part in compare_shard(name, theirs, ours, placement) {
                judge.parameter(STEPS as u64, &part);
            }
        },
    )?;
    ensure!(judge.failures().is_empty(), "{}", judge.failures().join("\n"));
    println!(
        "largest differences: loss {:.1e}, gradient {:.1e}, parameter {:.1e}",
        judge.worst_loss(),
        judge.worst_gradient(),
        judge.worst_parameter()
    );
    Ok(())
}

/// The norm of all arrays together.
pub fn norm(arrays: &[Array]) -> f64 {
    let values = arrays.iter().flat_map(|array| &array.values);
    values.map(|value| value * value).sum::<f64>().sqrt()
}

fn pairs(
    theirs: &[Array],
    ours: &[Array],
    mut compare: impl FnMut(&str, &[f64], &[f64], &Placement),
) -> anyhow::Result<()> {
    ensure!(
        theirs.len() == ours.len(),
        "{} arrays in place of {}",
        ours.len(),
        theirs.len()
    );
    for (theirs, ours) in theirs.iter().zip(ours) {
        ensure!(theirs.name == ours.name, "{} in place of {}", ours.name, theirs.name);
        ensure!(
            theirs.placement.logical_shape() == ours.placement.logical_shape(),
            "{}: {:?} in place of {:?}",
            ours.name,
            ours.placement,
            theirs.placement
        );
        compare(&ours.name, &theirs.values, &ours.values, &ours.placement);
    }
    Ok(())
}
