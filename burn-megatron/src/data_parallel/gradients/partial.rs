//! The sums that the tensor-parallel ranks of a layer need, for programs that train without the data-parallel wrapper.
//!
//! [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel) does this by itself.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use crate::collectives::{self, CollectiveError, ReduceOp, TensorCall};
use crate::context::ParallelContext;
use crate::data_parallel::buckets::summing_ranks::SummingRanks;
use crate::parameters::Distribution;

/// Sums over the tensor group the gradients of those parameters that see this rank's tokens or heads only: norms and
/// the biases of row-parallel layers under sequence parallelism, norms of heads and what every rank holds of low-rank
/// adapters always. Sums those of keys and values that the query heads of several ranks share over these.
///
/// # Communication
/// One all-reduce per such parameter over the tensor group, of what the whole group holds of it.
///
/// # Errors
/// When a collective fails.
pub fn sum_partial_gradients<M>(
    gradients: &mut GradientsParams,
    module: &M,
    context: &ParallelContext,
) -> Result<(), CollectiveError>
where
    M: Module,
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

impl ModuleVisitor for Summer<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let declared = self.context.registry().declaration(param.id);
        let group = self.context.tensor_group();
        let ranks = match declared.map(|declared| declared.distribution) {
            Some(Distribution::PartialOverTensor) => SummingRanks::all(group),
            Some(Distribution::Shared { copies }) => SummingRanks::each(copies, group),
            _ => return,
        };
        if ranks.is_alone() || self.error.is_some() {
            return;
        }
        let Some(gradient) = self.gradients.remove::<D>(param.id) else {
            return;
        };
        let (shape, length) = (gradient.shape(), gradient.shape().num_elements());
        let all = ranks.among_all(gradient.reshape([length]));
        let sum = TensorCall::AllReduce(ReduceOp::Sum);
        match collectives::run(all, sum, group) {
            Ok(sums) => {
                let sum = ranks.of_all(sums).reshape::<D, _>(shape);
                self.gradients.register(param.id, sum);
            }
            Err(error) => self.error = Some(error),
        }
    }
}
