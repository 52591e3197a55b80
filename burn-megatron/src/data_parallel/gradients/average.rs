//! `average_gradients`: burn's `GradientsParams`, averaged over a group, for training loops of one's own.

use std::collections::VecDeque;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};

use crate::collectives::{self, ProcessGroup, ReduceOp, TensorCall};
use crate::data_parallel::error::DataParallelError;
use crate::data_parallel::replicas::agreement::compare_lists;
use crate::parameters::{ParameterEntry, list_parameters};

/// Elements that are reduced by one call, about.
const CHUNK_ELEMENTS: usize = 32 << 20;

/// Returns gradients averaged over a group, the same on all its ranks, for a loop of one's own around a burn module.
///
/// The parameters are taken in the module's order. One that received a gradient on some ranks only counts as zero on
/// the others; one that received none anywhere is left out, as burn leaves it out. The result is the gradient of the
/// mean of the ranks' losses: where ranks have different numbers of samples, each multiplies its loss by
/// [`GlobalBatches::weight`](crate::data::GlobalBatches::weight).
///
/// Ranks whose `Device::seed` is the same draw the same masks of burn's `Dropout` in such a loop: seed each one by its
/// data-parallel rank once the model has been made.
///
/// [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel) reduces while the backward pass runs, and
/// needs no second copy of the gradients; this is for code whose backward pass is not at hand.
///
/// # Communication
/// One all-gather of 16 bytes, one all-reduce of 4 bytes per parameter, and one all-reduce of the gradients per 32 Mi
/// elements.
///
/// # Errors
/// When a rank's module has other parameters, when gradients belong to none of the module's, or when a collective
/// fails.
///
/// # Examples
/// ```
/// use burn::nn::LinearConfig;
/// use burn::optim::{AdamWConfig, GradientsParams};
/// use burn::tensor::{Device, Tensor};
/// use burn_megatron::context::ParallelContext;
/// use burn_megatron::data_parallel::average_gradients;
///
/// let device = Device::flex().autodiff();
/// let context = ParallelContext::single(1);
/// let mut model = LinearConfig::new(3, 2).init(&device);
/// let mut optimizer = AdamWConfig::new().init();
/// for _ in 0..3 {
///     let loss = model.forward(Tensor::<2>::ones([4, 3], &device)).mean(); // of this rank's own samples
///     let gradients = GradientsParams::from_grads(loss.backward(), &model);
///     let gradients = average_gradients(&model, gradients, context.data_group())?;
///     model = optimizer.step(1e-3, model, gradients);
/// }
/// # Ok::<(), burn_megatron::data_parallel::DataParallelError>(())
/// ```
pub fn average_gradients<M>(
    module: &M,
    gradients: GradientsParams,
    group: &ProcessGroup,
) -> Result<GradientsParams, DataParallelError>
where
    M: Module,
{
    let mut collector = Collector {
        gradients,
        found: Vec::new(),
    };
    module.visit(&mut collector);
    if !collector.gradients.is_empty() {
        return Err(DataParallelError::ForeignGradients {
            count: collector.gradients.len(),
        });
    }
    let mut found = collector.found;
    let parameters = list_parameters(module);
    let is_present = agree_on_parameters(&parameters, &found, group)?;
    for ((parameter, found), is_present) in parameters.iter().zip(&mut found).zip(is_present) {
        if is_present && found.gradient.is_none() {
            let options = (&found.device, parameter.dtype);
            found.gradient = Some(Tensor::zeros([parameter.len()], options));
        }
    }
    let gradients = found.into_iter().map(|parameter| parameter.gradient).collect();
    let gradients = average(gradients, group)?;
    #[cfg(feature = "cuda")]
    crate::cuda::check_work()?;
    let mut distributor = Distributor {
        gradients,
        params: GradientsParams::new(),
    };
    module.visit(&mut distributor);
    Ok(distributor.params)
}

/// What there is of a parameter of the module.
struct Found {
    device: Device,
    /// `[length]`
    gradient: Option<Tensor<1>>,
}

/// Takes the gradients of the module's parameters, in its order.
struct Collector {
    gradients: GradientsParams,
    found: Vec<Found>,
}

impl ModuleVisitor for Collector {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.val();
        let gradient = self.gradients.remove::<D>(param.id);
        self.found.push(Found {
            device: value.device().inner(),
            gradient: gradient.map(|gradient| gradient.reshape([value.shape().num_elements()])),
        });
    }
}

/// Checks that all ranks have the same parameters, and returns which have a gradient on some rank.
fn agree_on_parameters(
    parameters: &[ParameterEntry],
    found: &[Found],
    group: &ProcessGroup,
) -> Result<Vec<bool>, DataParallelError> {
    let mut present: Vec<i32> = found.iter().map(|found| i32::from(found.gradient.is_some())).collect();
    if group.size() > 1 {
        let describe = |ParameterEntry { path, shape, dtype, .. }: &_| format!("{path} {shape:?} {dtype:?}");
        let lines: Vec<String> = parameters.iter().map(describe).collect();
        compare_lists(&lines, &group.labelled("comparing the modules' parameters"))?;
        group
            .labelled("which parameters have gradients")
            .all_reduce(&mut present, ReduceOp::Max)?;
    }
    Ok(present.into_iter().map(|present| present > 0).collect())
}

/// Averages gradients, several at a time; those that are absent are so on every rank.
fn average(
    gradients: Vec<Option<Tensor<1>>>,
    group: &ProcessGroup,
) -> Result<VecDeque<Option<Tensor<1>>>, DataParallelError> {
    if group.size() == 1 {
        return Ok(gradients.into());
    }
    let mut averaged = VecDeque::with_capacity(gradients.len());
    let mut rest = gradients.into_iter().peekable();
    while rest.peek().is_some() {
        let mut chunk: Vec<Option<Tensor<1>>> = Vec::new();
        let (mut length, mut dtype) = (0, None);
        while let Some(next) = rest.next_if(|next| {
            let fits = |next: &Tensor<1>| length < CHUNK_ELEMENTS && dtype.is_none_or(|dtype| dtype == next.dtype());
            next.as_ref().is_none_or(fits)
        }) {
            if let Some(gradient) = &next {
                length += gradient.dims()[0];
                dtype = Some(gradient.dtype());
            }
            chunk.push(next);
        }
        averaged.extend(average_chunk(chunk, group)?);
    }
    Ok(averaged)
}

/// Averages gradients of one element type in one call.
fn average_chunk(
    chunk: Vec<Option<Tensor<1>>>,
    group: &ProcessGroup,
) -> Result<Vec<Option<Tensor<1>>>, DataParallelError> {
    let lengths: Vec<Option<usize>> = chunk.iter().map(|g| g.as_ref().map(|g| g.dims()[0])).collect();
    let present: Vec<Tensor<1>> = chunk.into_iter().flatten().collect();
    if present.is_empty() {
        return Ok(lengths.iter().map(|_| None).collect());
    }
    let flat = Tensor::cat(present, 0);
    let mean = TensorCall::AllReduce(ReduceOp::Mean);
    let flat = collectives::run(flat, mean, &group.labelled("average_gradients"))?;
    let mut start = 0;
    let slices = lengths.into_iter().map(|length| {
        let end = start + length?;
        let slice = flat.clone().slice(start..end);
        start = end;
        Some(slice)
    });
    Ok(slices.collect())
}

/// Registers averaged gradients with the module's parameters, in its order.
struct Distributor {
    gradients: VecDeque<Option<Tensor<1>>>,
    params: GradientsParams,
}

impl ModuleVisitor for Distributor {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.pop_front().flatten() {
            let gradient = gradient.reshape(param.shape());
            self.params.register::<D>(param.id, gradient);
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};

    use super::*;

    fn layer() -> Linear {
        LinearConfig::new(3, 2).init(&Device::flex().autodiff())
    }

    fn gradients(layer: &Linear) -> GradientsParams {
        let loss = layer
            .forward(Tensor::<2>::ones([4, 3], &Device::flex().autodiff()))
            .sum();
        GradientsParams::from_grads(loss.backward(), layer)
    }

    #[test]
    fn one_rank_keeps_its_gradients() {
        let layer = layer();
        let averaged = average_gradients(&layer, gradients(&layer), &ProcessGroup::single()).expect("one rank");
        let weight = averaged.get::<2>(layer.weight.id).expect("it has one");
        assert_eq!(weight.into_data().try_to_vec::<f32>().expect("f32"), [4.0; 6]);
        assert_eq!(averaged.len(), 2);
    }

    #[test]
    fn gradients_of_another_module_are_counted() {
        let error = average_gradients(&layer(), gradients(&layer()), &ProcessGroup::single());
        let message = error.expect_err("identifiers differ").to_string();
        assert!(
            message.starts_with("2 gradients are not of the module's parameters"),
            "{message}"
        );
    }
}
