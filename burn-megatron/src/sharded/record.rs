//! [`whole_record`]: an optimizer's record that every rank can save.

use std::cell::Cell;
use std::collections::HashMap;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::module::{Module, ParamId, list_param_ids};
use burn::optim::SimpleOptimizer;
use burn::optim::record::{AdaptorRecord, AdaptorRecordV1};

use super::Sharded;
use crate::collectives::{CollectiveBackend, CollectiveError, catch_collective_error};

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
/// nothing of the kind. A record that is loaded is cut again by the first step.
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
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_GATHERING.set(false);
        }
    }
    let mut records: HashMap<ParamId, AdaptorRecord<O, Autodiff<Sharded<B>, C>>> = record.into_iter().collect();
    let order = list_param_ids(model);
    let others = records.keys().filter(|id| !order.contains(id)).count();
    assert!(
        others == 0,
        "the record has the state of {others} parameters that the model does not have"
    );
    catch_collective_error(|| {
        IS_GATHERING.set(true);
        let _restore = Restore;
        let gathered = order.into_iter().filter_map(|id| {
            let record = records.remove(&id)?;
            Some((id, whole::<O, B, C>(record, device)))
        });
        gathered.collect()
    })
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
