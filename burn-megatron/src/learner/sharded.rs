//! `LearnerState`: a `ShardedOptimizer` in the place of a learner's own optimizer, and the optimizer that the learner
//! is given for burn-train's checkpoints of it.

use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::optim::{GradientsParams, LearningRate, ModuleOptimizer, Optimizer, RecordState, StateSink, StateSource};
use burn::tensor::{DType, Device, Tensor, TensorData};
use burn::train::{Learner, LearnerModel};
use parking_lot::Mutex;

use super::error::LearnerError;
use super::packing::{pack, unpack};
use crate::context::{ParallelContext, gather_bytes};
use crate::data_parallel::{DistributedDataParallel, ElementWiseOptimizer, GradientEntry, ReducedGradients};
use crate::optimizer::{ShardedOptimizer, StoredOptimizer};

/// Main values of a 16-bit parameter, among the tensors of its record.
const MAIN: &str = "main";
/// The number of its updates.
const UPDATES: &str = "updates";
/// The name of a parameter's record in burn's.
const PACKED: &str = "packed";

/// The training loop's side of a sharded optimizer.
pub(super) trait ShardedUpdate<M: LearnerModel> {
    /// Makes the optimizer of a wrapped module, with the state that the learner has loaded if it `is_resumed`.
    fn bind(
        &self,
        wrapper: &DistributedDataParallel<M>,
        learner: &mut Learner<M>,
        is_resumed: bool,
    ) -> Result<(), LearnerError>;

    /// Updates the module.
    ///
    /// # Errors
    /// When parameters have different learning rates; when a collective fails.
    fn step(
        &self,
        learning_rate: &ModuleLearningRate,
        wrapper: &mut DistributedDataParallel<M>,
        gradients: ReducedGradients,
    ) -> Result<(), LearnerError>;

    /// Gathers the state on the first data-parallel rank, whose learner's record it then is.
    fn gather_record(&self, wrapper: &DistributedDataParallel<M>) -> Result<(), LearnerError>;
}

/// A sharded optimizer, and the records of its parameters' states.
pub(super) struct LearnerState<S: StoredOptimizer> {
    context: ParallelContext,
    given: ElementWiseOptimizer<S>,
    /// `None` before the model is wrapped; the records by the numbers of their parameters.
    bound: Mutex<Option<(ShardedOptimizer<S>, Vec<ParameterRecord>)>>,
    handed: Handed,
}

/// Records with the numbers of their parameters, while the learner hands them over.
type Handed = Arc<Mutex<Option<Vec<(usize, ParameterRecord)>>>>;

/// Record of one parameter's state, whole, as bytes; none unless it has just been gathered or loaded.
#[derive(Clone, Debug, Default)]
struct ParameterRecord(Arc<Mutex<Option<Vec<u8>>>>);

impl RecordState for ParameterRecord {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        if let Some(bytes) = self.0.lock().take() {
            let length = bytes.len();
            out.push_tensor(prefix, PACKED, TensorData::new(bytes, [length]));
        }
    }

    fn state_unflatten(prefix: &str, source: &mut StateSource, _device: &Device) -> Option<Self> {
        let packed = source.take_tensor(prefix, PACKED)?;
        Some(Self(Arc::new(Mutex::new(Some(packed.try_into_vec().ok()?)))))
    }
}

/// The optimizer for `Learner::new`: it holds the records, and updates nothing.
#[derive(Clone)]
struct RecordHolder(Handed);

impl Optimizer for RecordHolder {
    type State<const D: usize> = ParameterRecord;

    /// Hands over the record of the parameter whose number is the gradient.
    fn step<const D: usize>(
        &self,
        _learning_rate: LearningRate,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<ParameterRecord>,
    ) -> (Tensor<D>, Option<ParameterRecord>) {
        let record = state.unwrap_or_default();
        match &mut *self.0.lock() {
            Some(records) => records.push((gradient.into_scalar::<f64>() as usize, record.clone())),
            None => panic!("{}", LearnerError::OutsideLaunch),
        }
        (tensor, Some(record))
    }

    fn to_device<const D: usize>(state: ParameterRecord, _device: &Device) -> ParameterRecord {
        state
    }
}

impl<S: StoredOptimizer> LearnerState<S> {
    pub(super) fn new(given: ElementWiseOptimizer<S>, context: &ParallelContext) -> Self {
        Self {
            context: context.clone(),
            given,
            bound: Mutex::default(),
            handed: Handed::default(),
        }
    }

    /// Returns the optimizer for `Learner::new`.
    pub(super) fn holder(&self) -> ModuleOptimizer {
        ModuleOptimizer::from(RecordHolder(self.handed.clone()))
    }

    /// Returns the records of the trained parameters, by number, which the learner's optimizer holds from now on.
    fn records<M: LearnerModel>(
        &self,
        wrapper: &DistributedDataParallel<M>,
        learner: &mut Learner<M>,
    ) -> Result<Vec<ParameterRecord>, LearnerError> {
        // Another optimizer takes gradients of the parameters' own type only.
        if self.hand_over(wrapper, learner, None).is_empty() {
            return Err(LearnerError::OptimizerNotUsed);
        }
        let mut handed = self.hand_over(wrapper, learner, Some(DType::F32));
        handed.sort_by_key(|(number, _)| *number);
        let (numbers, records): (Vec<_>, Vec<_>) = handed.into_iter().unzip();
        if numbers.into_iter().eq(0..wrapper.trained().len()) {
            Ok(records)
        } else {
            Err(LearnerError::OptimizerNotUsed)
        }
    }

    /// Returns what the learner's optimizer hands over for gradients that are the numbers of their parameters, in an
    /// element type or in the parameters' own, which may round them.
    fn hand_over<M: LearnerModel>(
        &self,
        wrapper: &DistributedDataParallel<M>,
        learner: &mut Learner<M>,
        dtype: Option<DType>,
    ) -> Vec<(usize, ParameterRecord)> {
        let mut numbers = Numbers {
            entries: wrapper.trained(),
            dtype,
            gradients: GradientsParams::new(),
        };
        learner.model().visit(&mut numbers);
        *self.handed.lock() = Some(Vec::new());
        learner.optimizer_step(numbers.gradients);
        self.handed.lock().take().unwrap_or_default()
    }

    /// Gathers the state of a parameter on the first data-parallel rank; none on the others.
    fn gather_parameter(
        &self,
        optimizer: &ShardedOptimizer<S>,
        entry: &GradientEntry,
    ) -> Result<Option<Vec<u8>>, LearnerError> {
        let range = optimizer.owned_range(entry.number);
        let piece = optimizer.piece_data(entry.number, range.clone())?;
        // What each rank has whole is that of one of them.
        let is_first = range.start == 0 && !range.is_empty();
        let whole = piece.whole_tensors.into_iter().filter(|_| is_first);
        let mine: Vec<(&str, TensorData)> = (piece.tensors.into_iter())
            .chain(whole)
            .chain(piece.main.map(|main| (MAIN, main)))
            .collect();
        let mine = pack(mine.iter().map(|(name, data)| (*name, data)));
        let group = self.context.data_group().labelled("optimizer state for a checkpoint");
        let Some(gathered) = gather_bytes(mine, usize::MAX, &group)? else {
            return Ok(None);
        };
        // The elements of each tensor, in rank order, which is theirs.
        let mut joined: Vec<(String, DType, Vec<u8>)> = Vec::new();
        for (name, data) in gathered.iter().filter_map(|bytes| unpack(bytes)).flatten() {
            match joined.iter_mut().find(|(known, ..)| *known == name) {
                Some((.., bytes)) => bytes.extend(data.as_bytes()),
                None => joined.push((name, data.dtype(), data.as_bytes().to_vec())),
            }
        }
        let updates = (UPDATES.to_owned(), TensorData::new(vec![piece.steps as i64], [1]));
        let tensors = joined.into_iter().map(|(name, dtype, bytes)| {
            let length = bytes.len() / dtype.size();
            (name, TensorData::from_bytes_vec(bytes, [length], dtype))
        });
        let tensors: Vec<_> = tensors.chain([updates]).collect();
        Ok(Some(pack(tensors.iter().map(|(name, data)| (name.as_str(), data)))))
    }
}

/// Makes the number of each trained parameter its gradient.
struct Numbers<'a> {
    entries: &'a [GradientEntry],
    dtype: Option<DType>,
    gradients: GradientsParams,
}

impl ModuleVisitor for Numbers<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(entry) = self.entries.iter().find(|entry| entry.id == param.id) {
            let value = param.val();
            let dtype = self.dtype.unwrap_or(value.dtype());
            let number = Tensor::<D>::full([1; D], entry.number as f64, (&value.device().inner(), dtype));
            self.gradients.register(param.id, number);
        }
    }
}

impl<M: LearnerModel, S: StoredOptimizer> ShardedUpdate<M> for LearnerState<S> {
    fn bind(
        &self,
        wrapper: &DistributedDataParallel<M>,
        learner: &mut Learner<M>,
        is_resumed: bool,
    ) -> Result<(), LearnerError> {
        let mut optimizer = ShardedOptimizer::new(wrapper, self.given.clone())?;
        let records = self.records(wrapper, learner)?;
        if is_resumed {
            for (entry, record) in wrapper.trained().iter().zip(&records) {
                let record = record.0.lock().take().unwrap_or_default();
                restore(&mut optimizer, entry, &record, wrapper)?;
            }
            optimizer.settle()?;
        }
        *self.bound.lock() = Some((optimizer, records));
        Ok(())
    }

    fn step(
        &self,
        learning_rate: &ModuleLearningRate,
        wrapper: &mut DistributedDataParallel<M>,
        gradients: ReducedGradients,
    ) -> Result<(), LearnerError> {
        let base = learning_rate.base();
        let differs = |entry: &&GradientEntry| learning_rate.lr_from_param(entry.id, Some(&entry.name)) != base;
        if let Some(entry) = wrapper.trained().iter().find(differs) {
            let name = entry.name.clone();
            return Err(LearnerError::LearningRates { name });
        }
        let mut bound = self.bound.lock();
        let (optimizer, _) = bound.as_mut().ok_or(LearnerError::OutsideLaunch)?;
        optimizer.step(base, wrapper, gradients)?;
        Ok(wrapper.wait_for_parameters()?)
    }

    fn gather_record(&self, wrapper: &DistributedDataParallel<M>) -> Result<(), LearnerError> {
        let bound = self.bound.lock();
        let (optimizer, records) = bound.as_ref().ok_or(LearnerError::OutsideLaunch)?;
        for entry in wrapper.trained() {
            *records[entry.number].0.lock() = self.gather_parameter(optimizer, entry)?;
        }
        Ok(())
    }
}

/// Puts a loaded state into the optimizer.
fn restore<M: Module, S: StoredOptimizer>(
    optimizer: &mut ShardedOptimizer<S>,
    entry: &GradientEntry,
    record: &[u8],
    wrapper: &DistributedDataParallel<M>,
) -> Result<(), LearnerError> {
    let main_dtype = match wrapper.dtype() {
        DType::F64 => DType::F64,
        _ => DType::F32,
    };
    let device = wrapper.inner_device();
    let fail = |what: String| Err(LearnerError::Record { what });
    let Some(mut tensors) = unpack(record) else {
        return fail(format!("has no state of {}", entry.name));
    };
    let updates = tensors.iter().position(|(name, _)| name == UPDATES);
    let updates = updates.and_then(|at| tensors.swap_remove(at).1.iter::<i64>().next());
    let Some(updates) = updates.and_then(|updates| u64::try_from(updates).ok()) else {
        return fail(format!("has no number of updates of {}", entry.name));
    };
    let length: usize = entry.shape.iter().product();
    let kept = optimizer.optimizer_of(entry.number).clone();
    let layout = kept.layout(entry);
    let range = optimizer.owned_range(entry.number);
    optimizer.replace_state(entry.number, updates, None)?;
    if range.is_empty() {
        return Ok(());
    }
    let mut state = Vec::new();
    for (name, data) in tensors {
        let known = layout.iter().find(|known| known.name == name);
        let whole = known.and_then(|known| known.whole);
        let (stored, expected) = (data.num_elements(), whole.unwrap_or(length));
        if stored != expected {
            return fail(format!(
                "has {stored} elements of {name} for {}, not {expected}",
                entry.name
            ));
        }
        let values = Tensor::<1>::from_data(data, (&device, main_dtype));
        let values = match whole {
            Some(_) => values,
            None => values.slice([range.clone()]),
        };
        match known {
            Some(known) => state.push((known.name, values)),
            None if name == MAIN && optimizer.has_main(entry.number) => {
                optimizer.replace_main(entry.number, values)?;
            }
            None => return fail(format!("has {name} of {}, which this optimizer has not", entry.name)),
        }
    }
    if updates > 0 {
        let Some(state) = kept.state(updates, state) else {
            let names: Vec<&str> = layout.iter().map(|tensor| tensor.name).collect();
            return fail(format!("lacks one of {names:?} for {}", entry.name));
        };
        optimizer.replace_state(entry.number, updates, Some(state))?;
    }
    Ok(())
}
