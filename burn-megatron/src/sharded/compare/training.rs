//! [`training`]: the plainest program to compare: a model, batches, a loss, and AdamW.

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Distribution, Tensor};

use super::super::backward;
use super::{Run, mark};

const LEARNING_RATE: f64 = 1e-2;
const WEIGHT_DECAY: f32 = 0.1;
/// Of what is added to parameters of one dimension.
const DEVIATION: f64 = 0.02;

/// Returns a program for [`compare`](super::compare): a step of AdamW for each batch.
///
/// `make` makes the model, on the device of [`compare`](super::compare). Biases and the weights of norms then get
/// N(0, 0.02²) added: many start as constants, and zeros hide what is wrong with a layout. `loss` gets the whole batch,
/// which it cuts with [`Run::distribute`].
pub fn training<M: Module, T>(
    batches: &[T],
    make: impl Fn(&Device) -> M,
    loss: impl Fn(&M, &T, &Run) -> Tensor<1>,
) -> impl Fn(&mut Run) -> Result<M, Box<dyn std::error::Error + Send + Sync>> {
    move |run| {
        let model = make(run.device()).map(&mut Perturb);
        let mut model = run.parallelize(model)?;
        let mut optimizer = AdamWConfig::new().with_weight_decay(WEIGHT_DECAY).init();
        for batch in batches {
            let value = loss(&model, batch, run);
            let (value, gradients) = backward(value, &model)?;
            run.judge(&value, &gradients, &model)?;
            model = mark("optimizer", || optimizer.step(LEARNING_RATE, model, gradients));
        }
        Ok(model)
    }
}

/// Adds random numbers to parameters of one dimension.
struct Perturb;

impl ModuleMapper for Perturb {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if D != 1 {
            return param;
        }
        param.map(|tensor| {
            let is_trained = tensor.is_require_grad();
            let tensor = tensor.inner();
            let noise = tensor.random_like(Distribution::Normal(0.0, DEVIATION));
            Tensor::from_inner(tensor + noise).set_require_grad(is_trained)
        })
    }
}
