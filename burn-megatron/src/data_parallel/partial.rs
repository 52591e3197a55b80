//! The sum that sequence parallelism needs, for programs that train without the data-parallel wrapper.
//!
//! [`DistributedDataParallel`](super::DistributedDataParallel) does this by itself.

use burn::module::{AutodiffModule, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorPrimitive, backend::AutodiffBackend};

use crate::collectives::{CollectiveBackend, CollectiveError, ReduceOp, TensorCall};
use crate::context::ParallelContext;
use crate::parameters::Distribution;

/// Sums over the tensor group the gradients of those parameters that see this rank's tokens or heads only: norms and the
/// biases of row-parallel layers under sequence parallelism, and norms of heads.
///
/// # Communication
/// One all-reduce per such parameter over the tensor group.
///
/// # Errors
/// When a collective fails.
pub fn sum_partial_gradients<B, M>(
    gradients: &mut GradientsParams,
    module: &M,
    context: &ParallelContext,
) -> Result<(), CollectiveError>
where
    B: AutodiffBackend<InnerBackend: CollectiveBackend>,
    M: AutodiffModule<B>,
{
    let mut summer = Summer {
        gradients,
        context,
        error: None,
    };
    module.visit(&mut summer);
    summer.error.map_or(Ok(()), Err)
}

struct Summer<'a> {
    gradients: &'a mut GradientsParams,
    context: &'a ParallelContext,
    error: Option<CollectiveError>,
}

impl<B: AutodiffBackend<InnerBackend: CollectiveBackend>> ModuleVisitor<B> for Summer<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let declared = self.context.registry().declaration(param.id);
        let is_partial = declared.is_some_and(|d| d.distribution == Distribution::PartialOverTensor);
        if !is_partial || self.error.is_some() {
            return;
        }
        let Some(gradient) = self.gradients.remove::<B::InnerBackend, D>(param.id) else {
            return;
        };
        let (sum, group) = (TensorCall::AllReduce(ReduceOp::Sum), self.context.tensor_group());
        match B::InnerBackend::run(gradient.into_primitive().tensor(), sum, group) {
            Ok(sum) => {
                let sum = Tensor::<B::InnerBackend, D>::from_primitive(TensorPrimitive::Float(sum));
                self.gradients.register(param.id, sum);
            }
            Err(error) => self.error = Some(error),
        }
    }
}
