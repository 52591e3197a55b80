//! [`whole_record`]: an optimizer's record that every rank can save.

use std::cell::RefCell;
use std::collections::HashMap;

use burn::optim::{ModuleOptimizer, OptimizerRecord};
use burn_backend::TensorData;

use super::any_tensor::AnyTensor;
use super::traffic::set_operation;
use crate::collectives::{CollectiveError, catch_collective_error};

/// What a record's tensors are read for.
enum Reading {
    /// To know which are not whole here.
    List(Vec<Box<dyn AnyTensor>>),
    /// Their elements, by their numbers.
    Read(HashMap<u64, Vec<TensorData>>),
}

thread_local! {
    static READING: RefCell<Option<Reading>> = const { RefCell::new(None) };
}

/// Returns what [`ModuleOptimizer::to_record`] gives with all tensors whole, on every rank.
///
/// burn reads the state of parameter after parameter in the order of a hash map, which differs by rank: ranks would
/// gather different tensors at the same time. Here they are gathered in the order in which the optimizer has made them.
/// Models' records need nothing of the kind. A record that is loaded is cut again by the first step.
///
/// # Communication
/// One all-gather for each tensor of the state that is cut. Each rank then holds the whole state.
///
/// # Errors
/// The error of the first collective that failed.
///
/// # Example
/// ```
/// use burn::optim::AdamWConfig;
/// use burn_megatron::sharded::whole_record;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let optimizer = AdamWConfig::new().init();
/// assert!(whole_record(&optimizer)?.is_empty());
/// # Ok(())
/// # }
/// ```
pub fn whole_record(optimizer: &ModuleOptimizer) -> Result<OptimizerRecord, CollectiveError> {
    let (_, listed) = reading(Reading::List(Vec::new()), || optimizer.to_record());
    let Reading::List(mut tensors) = listed else {
        unreachable!("listing does not read")
    };
    // Numbers grow on every rank alike, and are not the same.
    tensors.sort_by_key(|tensor| tensor.id());
    catch_collective_error(|| {
        set_operation("whole_record");
        let mut elements: HashMap<u64, Vec<TensorData>> = HashMap::new();
        for tensor in tensors {
            elements.entry(tensor.id()).or_default().push(tensor.all());
        }
        reading(Reading::Read(elements), || optimizer.to_record()).0
    })
}

fn reading<T>(mode: Reading, run: impl FnOnce() -> T) -> (T, Reading) {
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            READING.set(None);
        }
    }
    READING.set(Some(mode));
    let _off = Off;
    let result = run();
    (result, READING.take().expect("it was set above"))
}

/// The elements of a tensor that is read for a record.
pub(super) fn read<T: AnyTensor + Clone + 'static>(tensor: &T) -> Option<TensorData> {
    READING.with_borrow_mut(|reading| match reading.as_mut()? {
        Reading::List(listed) => {
            tensor.mesh()?;
            listed.push(Box::new(tensor.clone()));
            Some(TensorData::new(Vec::<f32>::new(), [0]))
        }
        Reading::Read(elements) => elements.get_mut(&tensor.id())?.pop(),
    })
}
