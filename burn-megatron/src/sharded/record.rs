//! [`whole_record`]: an optimizer's record that every rank can save; [`whole_records`]: an optimizer that gives such.

use std::cell::Cell;
use std::collections::HashMap;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::module::{AutodiffModule, Module, ModuleVisitor, Param, ParamId, list_param_ids};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::record::{AdaptorRecord, AdaptorRecordV1};
use burn::optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer, SimpleOptimizer};
use burn::tensor::Tensor;

use super::Sharded;
use super::movement::redistribute::gather;
use super::parallelize::ShardedBackend;
use super::traffic::set_operation;
use crate::collectives::{CollectiveBackend, CollectiveError, catch_collective_error};
use crate::parameters::settle_running_states;

thread_local! {
    static IS_GATHERING: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if a tensor that is brought to a device is made whole there.
pub(super) fn is_gathering() -> bool {
    IS_GATHERING.get()
}

/// Returns what `Optimizer::to_record` gives with all tensors whole, on every rank.
///
/// burn saves the state of parameter after parameter in the order of a hash map, which differs by rank: ranks would
/// gather different tensors at the same time. Here they are gathered in the order of the model. Models' records need
/// nothing of the kind, and an optimizer in [`whole_records`] gives such a record by itself. A record that is loaded is
/// cut again by the first step.
///
/// # Communication
/// One all-gather for each tensor of the state that is cut. Each rank then holds the whole state.
///
/// # Errors
/// The error of the first collective that failed.
///
/// # Panics
/// When the record has the state of parameters that the model does not have.
pub fn whole_record<O, B, C, M, R>(record: R, model: &M, device: &B::Device) -> Result<R, CollectiveError>
where
    B: CollectiveBackend,
    C: CheckpointStrategy,
    O: SimpleOptimizer<Sharded<B>>,
    M: Module<Autodiff<Sharded<B>, C>>,
    R: IntoIterator<Item = (ParamId, AdaptorRecord<O, Autodiff<Sharded<B>, C>>)>
        + FromIterator<(ParamId, AdaptorRecord<O, Autodiff<Sharded<B>, C>>)>,
{
    let records: HashMap<ParamId, AdaptorRecord<O, Autodiff<Sharded<B>, C>>> = record.into_iter().collect();
    let order = list_param_ids(model);
    let others = records.keys().filter(|id| !order.contains(id)).count();
    assert!(
        others == 0,
        "the record has the state of {others} parameters that the model does not have"
    );
    catch_collective_error(|| gathered(records, &order, device))
}

/// Makes the states whole, in this order.
fn gathered<O, B, C, R>(
    mut records: HashMap<ParamId, AdaptorRecord<O, Autodiff<Sharded<B>, C>>>,
    order: &[ParamId],
    device: &B::Device,
) -> R
where
    B: CollectiveBackend,
    C: CheckpointStrategy,
    O: SimpleOptimizer<Sharded<B>>,
    R: FromIterator<(ParamId, AdaptorRecord<O, Autodiff<Sharded<B>, C>>)>,
{
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_GATHERING.set(false);
        }
    }
    IS_GATHERING.set(true);
    let _restore = Restore;
    let gathered = order.iter().filter_map(|id| {
        let record = records.remove(id)?;
        Some((*id, whole::<O, B, C>(record, device)))
    });
    gathered.collect()
}

/// Returns the optimizer with records that are whole, as by [`whole_record`]: for burn's `Learner` with a file
/// checkpointer, and wherever `to_record` is saved as on one rank.
///
/// # Examples
/// ```
/// use burn::backend::Autodiff;
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::{AdamWConfig, Optimizer};
/// use burn_flex::{Flex, FlexDevice};
/// use burn_megatron::sharded::{Sharded, whole_records};
///
/// type B = Autodiff<Sharded<Flex>>;
///
/// let optimizer = whole_records(AdamWConfig::new().init::<B, Linear<B>>());
/// assert!(optimizer.to_record().is_empty());
/// ```
pub fn whole_records<O, M, B, C>(optimizer: OptimizerAdaptor<O, M, Autodiff<Sharded<B>, C>>) -> WholeRecords<O, M, B, C>
where
    B: CollectiveBackend,
    C: CheckpointStrategy,
    O: SimpleOptimizer<Sharded<B>>,
    M: AutodiffModule<Autodiff<Sharded<B>, C>>,
{
    WholeRecords {
        optimizer,
        order: Vec::new(),
        device: None,
    }
}

/// An optimizer of burn's whose records are whole; returned by [`whole_records`].
///
/// `to_record` is a collective that every rank must call, on the thread that trains: see [`whole_record`].
#[derive(Clone)]
pub struct WholeRecords<O, M, B, C>
where
    B: CollectiveBackend,
    C: CheckpointStrategy,
    O: SimpleOptimizer<Sharded<B>>,
    M: AutodiffModule<Autodiff<Sharded<B>, C>>,
{
    optimizer: OptimizerAdaptor<O, M, Autodiff<Sharded<B>, C>>,
    /// The parameters in the order of the model, as the last step has seen them.
    order: Vec<ParamId>,
    device: Option<B::Device>,
}

impl<O, M, B, C> WholeRecords<O, M, B, C>
where
    B: CollectiveBackend,
    C: CheckpointStrategy,
    O: SimpleOptimizer<Sharded<B>>,
    M: AutodiffModule<Autodiff<Sharded<B>, C>>,
{
    fn after_step(&mut self, module: M) -> M {
        self.order = list_param_ids(&module);
        self.device = module.devices().first().cloned();
        // Running statistics may be sums that have not been made, and another thread saves them.
        settle_running_states::<Autodiff<Sharded<B>, C>, M>(&module);
        module.visit(&mut SumMaker);
        module
    }
}

impl<O, M, B, C> Optimizer<M, Autodiff<Sharded<B>, C>> for WholeRecords<O, M, B, C>
where
    B: CollectiveBackend,
    C: CheckpointStrategy,
    O: SimpleOptimizer<Sharded<B>>,
    M: AutodiffModule<Autodiff<Sharded<B>, C>>,
{
    type Record = <OptimizerAdaptor<O, M, Autodiff<Sharded<B>, C>> as Optimizer<M, Autodiff<Sharded<B>, C>>>::Record;

    fn step(&mut self, lr: LearningRate, module: M, grads: GradientsParams) -> M {
        let module = self.optimizer.step(lr, module, grads);
        self.after_step(module)
    }

    fn step_multi(&mut self, lr: LearningRate, module: M, grads: MultiGradientsParams) -> M {
        let module = self.optimizer.step_multi(lr, module, grads);
        self.after_step(module)
    }

    /// # Panics
    /// When a collective fails, with its error as payload.
    fn to_record(&self) -> Self::Record {
        let record = self.optimizer.to_record();
        match &self.device {
            Some(device) => gathered(record.into_iter().collect(), &self.order, device),
            // As it was loaded: whole.
            None => record,
        }
    }

    fn load_record(self, record: Self::Record) -> Self {
        Self {
            optimizer: self.optimizer.load_record(record),
            ..self
        }
    }
}

/// Makes the sums of what is not trained: clones have them, too.
struct SumMaker;

impl<B: ShardedBackend> ModuleVisitor<B> for SumMaker {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let value = param.val();
        if !value.is_require_grad() {
            let tensor = B::float(value.into_primitive().tensor());
            if tensor.places().iter().any(|place| place.is_partial()) {
                set_operation("running statistics");
                drop(gather(tensor));
            }
        }
    }
}

fn whole<O: SimpleOptimizer<Sharded<B>>, B: CollectiveBackend, C: CheckpointStrategy>(
    record: AdaptorRecord<O, Autodiff<Sharded<B>, C>>,
    device: &B::Device,
) -> AdaptorRecord<O, Autodiff<Sharded<B>, C>> {
    let AdaptorRecord::V1(record) = record;
    AdaptorRecord::V1(match record {
        AdaptorRecordV1::Rank0(state) => AdaptorRecordV1::Rank0(O::to_device(state, device)),
        AdaptorRecordV1::Rank1(state) => AdaptorRecordV1::Rank1(O::to_device(state, device)),
        AdaptorRecordV1::Rank2(state) => AdaptorRecordV1::Rank2(O::to_device(state, device)),
        AdaptorRecordV1::Rank3(state) => AdaptorRecordV1::Rank3(O::to_device(state, device)),
        AdaptorRecordV1::Rank4(state) => AdaptorRecordV1::Rank4(O::to_device(state, device)),
        AdaptorRecordV1::Rank5(state) => AdaptorRecordV1::Rank5(O::to_device(state, device)),
        AdaptorRecordV1::Rank6(state) => AdaptorRecordV1::Rank6(O::to_device(state, device)),
        AdaptorRecordV1::Rank7(state) => AdaptorRecordV1::Rank7(O::to_device(state, device)),
        AdaptorRecordV1::Rank8(state) => AdaptorRecordV1::Rank8(O::to_device(state, device)),
    })
}
