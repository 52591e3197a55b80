//! A wrapped module and its optimizer as arrays of a checkpoint, and back, in any layout.
//!
//! Of each trained parameter a checkpoint has `model.NAME`, in the type of the main parameters; `optimizer.TENSOR.NAME`
//! for each tensor of its optimizer's state, of its shape or, where each rank has it whole, of one dimension; and
//! `optimizer.updates.NAME`, how often it was updated. Of a parameter that is not trained it has `model.NAME`.

use std::collections::BTreeSet;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{FloatDType, Tensor, TensorData};

use crate::checkpoint::{ArrayPart, Checkpoint, CheckpointError};
use crate::collectives::{CollectiveError, ReduceOp};
use crate::context::ParallelContext;
use crate::data_parallel::{DataParallelError, DistributedDataParallel, GradientEntry, main_type};
use crate::optimizer::{OptimizerError, ShardedOptimizer, StoredOptimizer, TensorLayout};
use crate::parameters::{Distribution, ParameterEntry, Placement, settle_running_states};

/// Begins the names of the arrays that hold parameters.
pub const MODEL: &str = "model.";
const OPTIMIZER: &str = "optimizer.";
const UPDATES: &str = "updates";
/// Advice for an optimizer's state that is of another optimizer.
const OTHER_OPTIMIZER: &str = "it was written with another optimizer; train with that one";

/// A checkpoint that does not fit.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum RestoreError {
    /// It cannot be read, or an array is missing or of another shape.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A collective failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// The ranks have read different parameters.
    #[error(transparent)]
    DataParallel(#[from] DataParallelError),
    /// The optimizer is offloaded, and its file cannot be written.
    #[error(transparent)]
    Optimizer(Box<OptimizerError>),
    #[error(
        "{path} has {stored} parameters, the model has {expected}: it is the checkpoint of another model (the first \
         that this rank does not have is {example})"
    )]
    OtherModel {
        path: String,
        stored: usize,
        expected: usize,
        /// One that this rank does not hold.
        example: String,
    },
    #[error(
        "{path} has no state of the optimizer for parameter {name}: load the parameters alone (`with_optimizer` false, \
         --finetune)"
    )]
    NoOptimizer { path: String, name: String },
    /// It was written by another optimizer, or by the same one with a setting that changes what it keeps.
    #[error(
        "{path} has {stored} of the optimizer for parameter {name}, and this optimizer keeps {expected}: {advice}, or \
         load the parameters alone (`with_optimizer` false, --finetune)"
    )]
    OtherOptimizer {
        path: String,
        name: String,
        /// Names of the tensors that are stored of the parameter.
        stored: String,
        expected: String,
        advice: &'static str,
    },
}

impl From<OptimizerError> for RestoreError {
    fn from(error: OptimizerError) -> Self {
        Self::Optimizer(Box::new(error))
    }
}

/// Returns this rank's part of a checkpoint.
///
/// Every element is in the part of one rank: of what tensor ranks all hold the first has it, of a tied parameter the
/// first stage, and what data-parallel ranks all hold they share out, as a sharded optimizer does.
///
/// # Errors
/// When the optimizer is offloaded, and its file cannot be read.
pub fn snapshot<M, O>(
    module: &DistributedDataParallel<M>,
    optimizer: &ShardedOptimizer<O>,
    context: &ParallelContext,
) -> Result<Vec<ArrayPart>, OptimizerError>
where
    M: Module,
    O: StoredOptimizer,
{
    let mut parts = untrained_parts(module, context);
    let mut owned = module.owned_values();
    let stored_here = module.trained().iter().filter(|entry| is_stored_here(entry, context));
    for entry in stored_here {
        let value = owned.take(entry.number)?;
        let stored = module.stored_piece(entry);
        let part = |name: String, data: TensorData| ArrayPart {
            name,
            placement: entry.placement.clone(),
            range: stored.clone(),
            dtype: data.dtype(),
            data: data.into_bytes(),
        };
        let Some(value) = value.filter(|_| !stored.is_empty()) else {
            continue;
        };
        let piece = optimizer.piece_data(entry.number, stored.clone())?;
        let first = module.owned(entry).start;
        let of_module = || value.slice(stored.start - first..stored.end - first).into_data();
        let main = piece.main.unwrap_or_else(of_module);
        parts.push(part(format!("{MODEL}{}", entry.name), main));
        for (tensor, data) in piece.tensors {
            parts.push(part(state_name(tensor, entry), data));
        }
        if stored.start == 0 && has_first_element(&entry.placement) {
            let updates = TensorData::new(vec![piece.steps as f64], [1]);
            let whole = [(UPDATES, updates)].into_iter().chain(piece.whole_tensors);
            parts.extend(whole.map(|(name, data)| {
                let placement = Placement::whole([data.num_elements()]);
                ArrayPart::whole(state_name(name, entry), placement, data.dtype(), data.into_bytes())
            }));
        }
    }
    Ok(parts)
}

/// Replaces the values of a wrapped module with those of a checkpoint, and the state of its optimizer too, unless only
/// the parameters are wanted: then the optimizer starts from scratch.
///
/// # Communication
/// One all-reduce of one number over the world, and that of
/// [`check_replicas`](crate::data_parallel::check_replicas).
///
/// # Errors
/// When an array is missing or of another shape, the checkpoint has more parameters than the model, it has been
/// altered, or cannot be read; when the optimizer is offloaded, and its file cannot be written. What has been replaced
/// until then stays: the module is to be given up.
pub fn restore<M, O>(
    checkpoint: &Checkpoint,
    module: &mut DistributedDataParallel<M>,
    optimizer: &mut ShardedOptimizer<O>,
    context: &ParallelContext,
    with_optimizer: bool,
) -> Result<(), RestoreError>
where
    M: Module,
    O: StoredOptimizer,
{
    module.wait_for_parameters()?;
    check_model(checkpoint, module, context)?;
    restore_untrained(checkpoint, module, context)?;
    module.restart_buffers();
    let entries = module.trained().to_vec();
    let (dtype, device) = (module.dtype(), module.inner_device());
    let main_dtype = main_type(dtype);
    let read = |name: &str, placement: &Placement, range: std::ops::Range<usize>| {
        let length = range.len();
        let stored = checkpoint.read(name, placement, range)?;
        let data = TensorData::from_bytes(stored.bytes, [length], stored.dtype).convert_dtype(main_dtype);
        Ok::<_, CheckpointError>(Tensor::<1>::from_data(data, (&device, main_dtype)))
    };
    let kinds = state_kinds(checkpoint);
    let mut restore_piece = |entry: &GradientEntry| {
        let whole = read(
            &format!("{MODEL}{}", entry.name),
            &entry.placement,
            0..entry.placement.local_len(),
        )?;
        let kept = optimizer.optimizer_of(entry.number).clone();
        let range = optimizer.owned_range(entry.number);
        if optimizer.has_main(entry.number) {
            optimizer.replace_main(entry.number, whole.clone().slice([range.clone()]))?;
        }
        let value = whole.cast(FloatDType::from(dtype));
        optimizer.replace_state(entry.number, 0, None)?;
        if !with_optimizer {
            return Ok(value);
        }
        let path = || checkpoint.path().display().to_string();
        let updates = state_name(UPDATES, entry);
        if checkpoint.array(&updates).is_none() {
            let name = entry.name.clone();
            return Err(RestoreError::NoOptimizer { path: path(), name });
        }
        let stored = checkpoint.read(&updates, &Placement::whole([1]), 0..1)?;
        let count = TensorData::from_bytes(stored.bytes, [1], stored.dtype)
            .iter::<f64>()
            .next();
        let steps = count.unwrap_or_default() as u64;
        optimizer.replace_state(entry.number, steps, None)?;
        if steps == 0 {
            return Ok(value);
        }
        let layout = kept.layout(entry);
        let names: Vec<&str> = layout.iter().map(|tensor| tensor.name).collect();
        let stored: Vec<&str> = (kinds.iter().map(String::as_str))
            .filter(|tensor| checkpoint.array(&state_name(tensor, entry)).is_some())
            .collect();
        let other_optimizer = || RestoreError::OtherOptimizer {
            path: path(),
            name: entry.name.clone(),
            stored: listed(&stored),
            expected: listed(&names),
            advice: kept.advice(&stored).unwrap_or(OTHER_OPTIMIZER),
        };
        if stored.iter().any(|tensor| !names.contains(tensor)) {
            return Err(other_optimizer());
        }
        if range.is_empty() {
            return Ok(value);
        }
        let mut tensors = Vec::new();
        for TensorLayout { name, whole } in layout.iter().filter(|tensor| stored.contains(&tensor.name)) {
            let array = state_name(name, entry);
            let tensor = match whole {
                Some(length) => read(&array, &Placement::whole([*length]), 0..*length)?,
                None => read(&array, &entry.placement, range.clone())?,
            };
            tensors.push((*name, tensor));
        }
        let state = kept.state(steps, tensors).ok_or_else(other_optimizer)?;
        optimizer.replace_state(entry.number, steps, Some(state))?;
        Ok(value)
    };
    let mut failure = None;
    let replaced = module.replace(|number| {
        if failure.is_some() {
            return None;
        }
        restore_piece(&entries[number])
            .map_err(|error| failure = Some(error))
            .ok()
    });
    match failure {
        Some(error) => Err(error),
        None => {
            replaced.map_err(OptimizerError::from)?;
            optimizer.settle()?;
            Ok(module.check_replicas()?)
        }
    }
}

/// The tensors of an optimizer's state that the checkpoint has of some parameter, in alphabetical order.
fn state_kinds(checkpoint: &Checkpoint) -> BTreeSet<String> {
    let kind = |name: &str| {
        let (kind, _) = name.strip_prefix(OPTIMIZER)?.split_once('.')?;
        (kind != UPDATES).then(|| kind.to_owned())
    };
    let arrays = checkpoint.arrays().iter();
    arrays.filter_map(|array| kind(&array.name)).collect()
}

/// Names of tensors, for a message.
fn listed(names: &[&str]) -> String {
    match names {
        [] => "nothing".to_owned(),
        names => names.join(", "),
    }
}

fn state_name(tensor: &str, entry: &GradientEntry) -> String {
    format!("{OPTIMIZER}{tensor}.{}", entry.name)
}

/// Returns whether this rank stores a parameter that others hold, too; data-parallel ranks share it out.
fn is_stored_here(entry: &GradientEntry, context: &ParallelContext) -> bool {
    let is_first_holder = entry.distribution.is_first_holder(context.tensor_group().rank());
    is_first_holder && (!entry.is_tied || context.coordinates().pipeline == 0)
}

/// Returns whether a part begins with the first element of the parameter: of all that are stored, one does.
fn has_first_element(placement: &Placement) -> bool {
    placement.offset().iter().all(|&offset| offset == 0)
}

/// A parameter that is not trained: its name in the checkpoint, and its placement.
struct Untrained {
    array: String,
    placement: Placement,
    is_stored_here: bool,
}

/// Returns them by number in the module's order; none for those that are trained.
fn untrained(parameters: &[ParameterEntry], context: &ParallelContext) -> Vec<Option<Untrained>> {
    let is_first = context.coordinates().data == 0;
    parameters
        .iter()
        .cloned()
        .map(|parameter| {
            let declared = context.registry().declaration(parameter.id);
            let distribution = declared.as_ref().map_or(Distribution::Replicated, |d| d.distribution);
            let copy = declared.as_ref().is_some_and(|d| d.is_tied) && context.coordinates().pipeline > 0;
            let (name, placement) = match declared {
                Some(declaration) => (declaration.name, declaration.placement),
                None => (parameter.path, Placement::whole(parameter.shape)),
            };
            (!parameter.requires_grad).then(|| Untrained {
                array: format!("{MODEL}{name}"),
                placement,
                is_stored_here: is_first && !copy && distribution.is_first_holder(context.tensor_group().rank()),
            })
        })
        .collect()
}

fn untrained_parts<M: Module>(module: &DistributedDataParallel<M>, context: &ParallelContext) -> Vec<ArrayPart> {
    struct Collector {
        untrained: std::vec::IntoIter<Option<Untrained>>,
        parts: Vec<ArrayPart>,
    }
    impl ModuleVisitor for Collector {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let next = self.untrained.next().flatten();
            if let Some(untrained) = next.filter(|untrained| untrained.is_stored_here) {
                let data = param.val().into_data();
                let part = ArrayPart::whole(untrained.array, untrained.placement, data.dtype(), data.into_bytes());
                self.parts.push(part);
            }
        }
    }
    let untrained = untrained(module.parameters(), context);
    // Which may gather parameters.
    if untrained.iter().all(Option::is_none) {
        return Vec::new();
    }
    let mut collector = Collector {
        untrained: untrained.into_iter(),
        parts: Vec::new(),
    };
    settle_running_states(module.module());
    module.module().visit(&mut collector);
    collector.parts
}

fn restore_untrained<M: Module>(
    checkpoint: &Checkpoint,
    module: &mut DistributedDataParallel<M>,
    context: &ParallelContext,
) -> Result<(), RestoreError> {
    struct Restorer<'a> {
        checkpoint: &'a Checkpoint,
        untrained: std::vec::IntoIter<Option<Untrained>>,
        error: Option<CheckpointError>,
    }
    impl ModuleMapper for Restorer<'_> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let Some(untrained) = self.untrained.next().flatten() else {
                return param;
            };
            let length = untrained.placement.local_len();
            match self.checkpoint.read(&untrained.array, &untrained.placement, 0..length) {
                Err(error) => {
                    self.error.get_or_insert(error);
                    param
                }
                Ok(stored) => {
                    let (id, tensor, mapper) = param.consume();
                    let (shape, dtype, device) = (tensor.shape(), tensor.dtype(), tensor.device());
                    let data = TensorData::from_bytes(stored.bytes, shape, stored.dtype).convert_dtype(dtype);
                    Param::from_mapped_value(id, Tensor::from_data(data, (&device, dtype)), mapper)
                }
            }
        }
    }
    let untrained = untrained(module.parameters(), context);
    if untrained.iter().all(Option::is_none) {
        return Ok(());
    }
    settle_running_states(module.module());
    let mut restorer = Restorer {
        checkpoint,
        untrained: untrained.into_iter(),
        error: None,
    };
    module.update(|module| module.map(&mut restorer))?;
    restorer.error.map_or(Ok(()), |error| Err(error.into()))
}

/// Checks that the checkpoint has no parameter that the model lacks, over all ranks.
fn check_model<M: Module>(
    checkpoint: &Checkpoint,
    module: &DistributedDataParallel<M>,
    context: &ParallelContext,
) -> Result<(), RestoreError> {
    let untrained = untrained(module.parameters(), context);
    // A rank may hold several parts of one.
    let mut names: BTreeSet<String> = untrained
        .iter()
        .flatten()
        .map(|untrained| untrained.array.clone())
        .collect();
    // Counted by the first data-parallel and tensor rank of each stage; tied copies once.
    let is_first_stage = context.coordinates().pipeline == 0;
    let trained = module.trained().iter();
    let copies = trained.clone().filter(|entry| entry.is_tied && !is_first_stage).count();
    names.extend(trained.map(|entry| format!("{MODEL}{}", entry.name)));
    let counts_here = context.coordinates().data == 0 && context.tensor_group().rank() == 0;
    let mut expected = [if counts_here { (names.len() - copies) as i64 } else { 0 }];
    context.world_group().all_reduce(&mut expected, ReduceOp::Sum)?;
    check_number(checkpoint, expected[0] as usize, |name| names.contains(name))
}

/// Checks that the checkpoint has no parameter that the model lacks, of which this rank has some.
pub(super) fn check_number(
    checkpoint: &Checkpoint,
    expected: usize,
    is_here: impl Fn(&str) -> bool,
) -> Result<(), RestoreError> {
    let stored = || checkpoint.arrays().iter().filter(|array| array.name.starts_with(MODEL));
    let count = stored().count();
    if count <= expected {
        // One that is missing is found when it is read.
        return Ok(());
    }
    let example = stored().find(|array| !is_here(&array.name));
    Err(RestoreError::OtherModel {
        path: checkpoint.path().display().to_string(),
        stored: count,
        expected,
        example: example.map_or_else(|| "on another stage".to_owned(), |array| array.name.clone()),
    })
}

#[cfg(test)]
mod tests {
    use burn::nn::Linear;
    use burn::tensor::Device;

    use super::*;
    use crate::checkpoint::{CheckpointConfig, CheckpointWriter, json};
    use crate::data_parallel::{DataParallelConfig, ElementWiseOptimizer, ShardingStrategy, StepPart};
    use crate::optimizer::{AdafactorConfig, AdamWConfig, AnyOptimizer, SgdConfig};

    type Layers = DistributedDataParallel<Vec<Linear>>;

    /// Two layers in 16 bits, of which the second is not trained.
    fn layers(first: f64) -> Layers {
        let device = Device::flex().autodiff();
        let values = |count: usize| {
            let values: Vec<f64> = (0..count).map(|index| first + (index * 5 % 7) as f64 / 8.0).collect();
            Tensor::<1>::from_floats(&values[..], &device).cast(FloatDType::BF16)
        };
        let layer = || Linear {
            weight: Param::from_tensor(values(12).reshape([3, 4])),
            bias: Some(Param::from_tensor(values(4))),
        };
        let frozen = Linear {
            weight: Param::from_tensor(values(8).reshape([4, 2])),
            bias: None,
        };
        let config = DataParallelConfig::new().with_sharding(ShardingStrategy::Optim);
        let layers = vec![layer(), frozen.no_grad()];
        DistributedDataParallel::new(layers, &ParallelContext::single(1), config).expect("one rank")
    }

    fn optimizer(module: &Layers, optimizer: &AnyOptimizer) -> ShardedOptimizer<AnyOptimizer> {
        ShardedOptimizer::new(module, ElementWiseOptimizer::from(optimizer.clone())).expect("it is new")
    }

    fn step(module: &mut Layers, optimizer: &mut ShardedOptimizer<AnyOptimizer>, number: usize) {
        let input = Tensor::<2>::full([2, 3], 0.25 + number as f64, &Device::flex().autodiff());
        let input = input.cast(FloatDType::BF16);
        let forward = |layers: Vec<Linear>| layers[1].forward(layers[0].forward(input).sin()).sum();
        module.backward(StepPart::Last, forward).expect("one rank");
        let gradients = module.gradients().expect("one rank");
        optimizer.step(0.1, module, gradients).expect("one rank");
    }

    fn values(module: &Layers) -> Vec<TensorData> {
        let frozen = module.module()[1].weight.val().into_data();
        let trained = module.values().into_iter().map(Tensor::into_data);
        trained.chain([frozen]).collect()
    }

    #[test]
    fn training_continues_with_the_same_bits_from_a_checkpoint() {
        let context = ParallelContext::single(1);
        for kind in [
            AnyOptimizer::from(AdamWConfig::new().build()),
            AnyOptimizer::from(AdafactorConfig::new().build()),
        ] {
            let mut module = layers(0.5);
            let mut trained = optimizer(&module, &kind);
            for number in 0..2 {
                step(&mut module, &mut trained, number);
            }
            let folder = tempfile::tempdir().expect("a folder");
            let group = context.world_group().clone();
            let mut writer = CheckpointWriter::new(group, folder.path(), CheckpointConfig::new()).expect("it is free");
            let parts = snapshot(&module, &trained, &context).expect("nothing is offloaded");
            writer.save(2, parts, json!({})).expect("there is room");
            let checkpoint = Checkpoint::latest(folder.path()).expect("it was written");
            let checkpoint = checkpoint.expect("it was written");

            let mut other = layers(-2.0);
            let mut restored = optimizer(&other, &kind);
            restore(&checkpoint, &mut other, &mut restored, &context, true).expect("it is the same model");
            assert_eq!(values(&module), values(&other));
            for number in 2..4 {
                step(&mut module, &mut trained, number);
                step(&mut other, &mut restored, number);
                assert_eq!(values(&module), values(&other), "{kind:?}, step {number}");
            }

            let mut sgd = optimizer(&other, &AnyOptimizer::from(SgdConfig::new().build()));
            let refused = restore(&checkpoint, &mut other, &mut sgd, &context, true);
            assert!(
                matches!(refused, Err(RestoreError::OtherOptimizer { .. })),
                "{refused:?}"
            );
            restore(&checkpoint, &mut other, &mut sgd, &context, false).expect("the parameters are the same");
        }
    }
}
