//! `ShardedLearnerOptimizer`: a `ShardedOptimizer` as the optimizer of a burn-train learner.

use std::sync::Arc;

use burn::module::AutodiffModule;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer, SimpleOptimizer};
use burn::record::Record;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, FloatDType, Tensor, TensorData};
use parking_lot::{Mutex, MutexGuard};

use super::error::{LearnerError, unwrap_or_unwind};
use super::packing::{pack, unpack};
use crate::autodiff::TrainingBackend;
use crate::context::{ParallelContext, gather_bytes};
use crate::data_parallel::{DistributedDataParallel, GradientEntry, ReducedGradients};
use crate::optimizer::{ShardedOptimizer, StoredOptimizer};

/// The main values of a 16-bit parameter among the tensors of its record.
const MAIN: &str = "main";

/// The optimizer that [`ParallelLearner::shard`](super::ParallelLearner::shard) returns, for `Learner::new`: each
/// data-parallel rank holds its share of the state.
///
/// burn-train's checkpoint of it holds the whole state, and resumes on any number of ranks; the record of an optimizer
/// that is not sharded is another, and does not load.
///
/// It works inside [`ParallelLearner::launch`](super::ParallelLearner::launch) only, of the `ParallelLearner` that
/// returned it; in burn-train's own `launch` its first step panics.
pub struct ShardedLearnerOptimizer<B, M, S>
where
    B: TrainingBackend,
    M: AutodiffModule<B>,
    S: SimpleOptimizer<B::InnerBackend>,
{
    shared: Arc<Mutex<Shared<B, M, S>>>,
}

/// What clones of the optimizer and the training loop share.
struct Shared<B, M, S>
where
    B: TrainingBackend,
    M: AutodiffModule<B>,
    S: SimpleOptimizer<B::InnerBackend>,
{
    context: ParallelContext,
    given: OptimizerAdaptor<S, M, B>,
    /// Whether `launch` is running, which returns the error that a step unwinds with.
    is_launched: bool,
    /// `None` before the model is wrapped.
    optimizer: Option<ShardedOptimizer<B::InnerBackend, S>>,
    step: Step<B, M>,
    /// Loaded, for when the model is wrapped.
    loaded: Option<ShardedRecord<B>>,
    /// Gathered, for the first rank to save.
    gathered: Option<ShardedRecord<B>>,
}

/// A wrapped module, and the gradients of the step that it is due.
type DueStep<B, M> = (
    DistributedDataParallel<B, M>,
    ReducedGradients<<B as AutodiffBackend>::InnerBackend>,
);

/// The wrapped module and its gradients on their way through burn-train's learner, which passes neither.
enum Step<B: TrainingBackend, M> {
    None,
    /// Boxed, as they are large.
    Due(Box<DueStep<B, M>>),
    Done(Box<DistributedDataParallel<B, M>>),
}

/// The training loop's side of a sharded optimizer.
pub(super) trait ShardedUpdate<B: TrainingBackend, M> {
    /// Says whether `launch` is running: it returns the errors that the optimizer unwinds with, and outside it panics.
    fn set_launched(&self, is_launched: bool);

    /// Makes the optimizer of a wrapped module, with the state that was loaded, if any was.
    fn bind(&self, wrapper: &DistributedDataParallel<B, M>) -> Result<(), LearnerError>;

    /// Gives the module and its gradients to the optimizer's next step.
    fn hand_over(&self, wrapper: DistributedDataParallel<B, M>, gradients: ReducedGradients<B::InnerBackend>);

    /// Returns the module after that step.
    fn take_back(&self) -> Result<DistributedDataParallel<B, M>, LearnerError>;

    /// Gathers the state on the first data-parallel rank, for it to save.
    fn gather_record(&self, wrapper: &DistributedDataParallel<B, M>) -> Result<(), LearnerError>;
}

impl<B, M, S> ShardedLearnerOptimizer<B, M, S>
where
    B: TrainingBackend,
    M: AutodiffModule<B> + 'static,
    S: StoredOptimizer<B::InnerBackend> + 'static,
{
    pub(super) fn new(given: OptimizerAdaptor<S, M, B>, context: &ParallelContext) -> Self {
        let shared = Shared {
            context: context.clone(),
            given,
            is_launched: false,
            optimizer: None,
            step: Step::None,
            loaded: None,
            gathered: None,
        };
        Self {
            shared: Arc::new(Mutex::new(shared)),
        }
    }

    /// The training loop's side.
    pub(super) fn update(&self) -> Arc<dyn ShardedUpdate<B, M>> {
        self.shared.clone()
    }
}

impl<B, M, S> ShardedLearnerOptimizer<B, M, S>
where
    B: TrainingBackend,
    M: AutodiffModule<B>,
    S: SimpleOptimizer<B::InnerBackend>,
{
    /// Locks what is shared with the `launch` that is running.
    ///
    /// # Panics
    /// When none is running: the panic hook is not called for what the optimizer unwinds with, so nothing would report
    /// it.
    fn in_launch(&self) -> MutexGuard<'_, Shared<B, M, S>> {
        let shared = self.shared.lock();
        if !shared.is_launched {
            drop(shared);
            panic!("{}", LearnerError::OutsideLaunch);
        }
        shared
    }
}

impl<B, M, S> Clone for ShardedLearnerOptimizer<B, M, S>
where
    B: TrainingBackend,
    M: AutodiffModule<B>,
    S: SimpleOptimizer<B::InnerBackend>,
{
    /// Returns the same optimizer.
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<B, M, S> Optimizer<M, B> for ShardedLearnerOptimizer<B, M, S>
where
    B: TrainingBackend,
    M: AutodiffModule<B>,
    S: StoredOptimizer<B::InnerBackend> + 'static,
{
    type Record = ShardedRecord<B>;

    /// Updates the module with the gradients of the training loop; `gradients` is empty.
    ///
    /// # Panics
    /// Outside of [`ParallelLearner::launch`](super::ParallelLearner::launch).
    fn step(&mut self, learning_rate: LearningRate, module: M, gradients: GradientsParams) -> M {
        let mut shared = self.in_launch();
        unwrap_or_unwind(match gradients.len() {
            0 => shared.step(learning_rate, module),
            count => Err(LearnerError::ForeignGradients { count }),
        })
    }

    fn step_multi(&mut self, _learning_rate: LearningRate, _module: M, _gradients: MultiGradientsParams) -> M {
        drop(self.in_launch());
        unwrap_or_unwind(Err(LearnerError::OutsideLaunch))
    }

    fn to_record(&self) -> ShardedRecord<B> {
        let gathered = self.in_launch().gathered.take();
        unwrap_or_unwind(gathered.ok_or(LearnerError::OutsideLaunch))
    }

    fn load_record(self, record: ShardedRecord<B>) -> Self {
        self.shared.lock().loaded = Some(record);
        self
    }
}

/// The state of a [`ShardedLearnerOptimizer`], whole.
#[derive(Record)]
pub struct ShardedRecord<B: Backend> {
    parameters: Vec<ParameterRecord<B>>,
}

/// The state of one parameter.
#[derive(Record)]
pub struct ParameterRecord<B: Backend> {
    name: String,
    updates: u64,
    tensors: Vec<StateRecord<B>>,
}

/// A tensor of it, `[elements of the parameter]`.
#[derive(Record)]
pub struct StateRecord<B: Backend> {
    name: String,
    values: Tensor<B, 1>,
}

impl<B, M, S> Shared<B, M, S>
where
    B: TrainingBackend,
    M: AutodiffModule<B>,
    S: StoredOptimizer<B::InnerBackend> + 'static,
{
    fn step(&mut self, learning_rate: LearningRate, module: M) -> Result<M, LearnerError> {
        let (Step::Due(due), Some(optimizer)) = (std::mem::replace(&mut self.step, Step::None), &mut self.optimizer)
        else {
            return Err(LearnerError::OutsideLaunch);
        };
        let (mut wrapper, gradients) = *due;
        // What the model's own `optimize` may have changed.
        wrapper.update(|_| module)?;
        optimizer.step(learning_rate, &mut wrapper, gradients)?;
        wrapper.wait_for_parameters()?;
        let module = wrapper.module().clone();
        self.step = Step::Done(Box::new(wrapper));
        Ok(module)
    }

    /// Returns the state of a parameter on the first data-parallel rank; none on the others.
    fn gather_parameter(
        &self,
        entry: &GradientEntry,
        device: &B::Device,
    ) -> Result<Option<ParameterRecord<B>>, LearnerError> {
        let optimizer = self.optimizer.as_ref().ok_or(LearnerError::OutsideLaunch)?;
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
                None => joined.push((name, data.dtype, data.as_bytes().to_vec())),
            }
        }
        let tensors = joined.into_iter().map(|(name, dtype, bytes)| {
            let length = bytes.len() / dtype.size();
            let data = TensorData::from_bytes_vec(bytes, [length], dtype);
            let values = Tensor::from_data(data, (device, dtype));
            StateRecord { name, values }
        });
        Ok(Some(ParameterRecord {
            name: entry.name.clone(),
            updates: piece.steps,
            tensors: tensors.collect(),
        }))
    }

    /// Puts a loaded state into the optimizer.
    fn restore(
        &mut self,
        record: ShardedRecord<B>,
        wrapper: &DistributedDataParallel<B, M>,
    ) -> Result<(), LearnerError> {
        let optimizer = self.optimizer.as_mut().ok_or(LearnerError::OutsideLaunch)?;
        let fail = |what: String| Err(LearnerError::Record { what });
        let (stored, expected) = (record.parameters.len(), wrapper.trained().len());
        if stored != expected {
            return fail(format!("has {stored} parameters and the model {expected}"));
        }
        let main_dtype = match wrapper.dtype() {
            DType::F64 => FloatDType::F64,
            _ => FloatDType::F32,
        };
        let mut parameters = record.parameters;
        for entry in wrapper.trained() {
            let Some(found) = parameters.iter().position(|parameter| parameter.name == entry.name) else {
                return fail(format!("has no parameter {}", entry.name));
            };
            let ParameterRecord { updates, tensors, .. } = parameters.swap_remove(found);
            let length: usize = entry.shape.iter().product();
            let kept = optimizer.optimizer_of(entry.number).clone();
            let layout = kept.layout(entry);
            let range = optimizer.owned_range(entry.number);
            optimizer.replace_state(entry.number, updates, None)?;
            if range.is_empty() {
                continue;
            }
            let mut state = Vec::new();
            for StateRecord { name, values } in tensors {
                let known = layout.iter().find(|known| known.name == name);
                let whole = known.and_then(|known| known.whole);
                let (stored, expected) = (values.dims()[0], whole.unwrap_or(length));
                if stored != expected {
                    return fail(format!(
                        "has {stored} elements of {name} for {}, not {expected}",
                        entry.name
                    ));
                }
                let values = values.inner().cast(main_dtype);
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
        }
        Ok(optimizer.settle()?)
    }
}

impl<B, M, S> ShardedUpdate<B, M> for Mutex<Shared<B, M, S>>
where
    B: TrainingBackend,
    M: AutodiffModule<B>,
    S: StoredOptimizer<B::InnerBackend> + 'static,
{
    fn set_launched(&self, is_launched: bool) {
        self.lock().is_launched = is_launched;
    }

    fn bind(&self, wrapper: &DistributedDataParallel<B, M>) -> Result<(), LearnerError> {
        let mut shared = self.lock();
        shared.optimizer = Some(ShardedOptimizer::new(wrapper, shared.given.clone())?);
        match shared.loaded.take() {
            Some(record) => shared.restore(record, wrapper),
            None => Ok(()),
        }
    }

    fn hand_over(&self, wrapper: DistributedDataParallel<B, M>, gradients: ReducedGradients<B::InnerBackend>) {
        self.lock().step = Step::Due(Box::new((wrapper, gradients)));
    }

    fn take_back(&self) -> Result<DistributedDataParallel<B, M>, LearnerError> {
        match std::mem::replace(&mut self.lock().step, Step::None) {
            Step::Done(wrapper) => Ok(*wrapper),
            Step::Due(_) | Step::None => Err(LearnerError::OptimizerNotUsed),
        }
    }

    fn gather_record(&self, wrapper: &DistributedDataParallel<B, M>) -> Result<(), LearnerError> {
        wrapper.wait_for_parameters()?;
        let mut shared = self.lock();
        let device = wrapper.module().devices().first().cloned().unwrap_or_default();
        let parameters = wrapper
            .trained()
            .iter()
            .map(|entry| shared.gather_parameter(entry, &device))
            .collect::<Result<Vec<_>, _>>()?;
        let parameters = parameters.into_iter().collect::<Option<Vec<_>>>();
        shared.gathered = parameters.map(|parameters| ShardedRecord { parameters });
        Ok(())
    }
}
