//! `Binding`: a module's trained parameters as they stand, each with its number, its slot and its layout.
//!
//! Made when a module is wrapped, and again when an update has changed which parameters there are.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{DType, Device, Tensor};
use cubecl_kernels::linear::retained::WeightSource;

use crate::autodiff::anchors;
use crate::collectives::ReduceOp;
use crate::context::ParallelContext;
use crate::data_parallel::buckets::bucket::{BucketClass, BucketLayout};
use crate::data_parallel::buckets::bucket_parameter::BucketParameter;
use crate::data_parallel::buckets::gradient_entry::GradientEntry;
use crate::data_parallel::buckets::reducer::{Reducer, Reduction};
use crate::data_parallel::error::DataParallelError;
use crate::data_parallel::gradients::finalisation::Finalisation;
use crate::data_parallel::sharding_strategy::ShardingStrategy;
use crate::data_parallel::shards::parameter_shards::{ParameterShards, ShardedWeight};
use crate::parameters::{Declaration, Distribution, Factoring, ParameterEntry, Placement, RegistryError, device_of};

/// The trained parameters of a module, bound to buckets.
pub(in crate::data_parallel) struct Binding {
    /// Every float parameter and buffer of the module, as it was listed.
    pub(in crate::data_parallel) parameters: Vec<ParameterEntry>,
    /// The trained ones, in the module's order.
    pub(in crate::data_parallel) entries: Arc<[GradientEntry]>,
    /// The number of each among them.
    pub(in crate::data_parallel) numbers: HashMap<ParamId, usize>,
    pub(in crate::data_parallel) anchors: Vec<Tensor<1>>,
    pub(in crate::data_parallel) layout: BucketLayout,
    pub(in crate::data_parallel) reducer: Arc<Reducer>,
    /// Those of the parameters, where each rank keeps its own only; made when the values are known.
    pub(in crate::data_parallel) shards: Option<Arc<ParameterShards>>,
    pub(in crate::data_parallel) finalisation: Finalisation,
    pub(in crate::data_parallel) dtype: DType,
    pub(in crate::data_parallel) device: Device,
}

/// How buckets are made and reduced.
#[derive(Clone, Copy, Debug)]
pub(in crate::data_parallel) struct BindingOptions {
    /// Elements of a bucket, about.
    pub(in crate::data_parallel) bucket_size: usize,
    pub(in crate::data_parallel) sharding: ShardingStrategy,
    /// `true` if full buckets are reduced during the backward pass.
    pub(in crate::data_parallel) overlaps: bool,
    /// `true` if a bucket of sharded parameters is gathered while the one before it is in use.
    pub(in crate::data_parallel) gathers_ahead: bool,
}

/// How many there are, not which: that is the module's to print.
impl fmt::Debug for Binding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Binding")
            .field("parameters", &self.parameters.len())
            .field("trained", &self.entries.len())
            .field("dtype", &self.dtype)
            .field("reducer", &self.reducer)
            .finish()
    }
}

impl Binding {
    /// Binds parameters to empty buckets: those of `former` if they have the same
    /// places, otherwise new ones, which all ranks of the data-parallel group make together. Their modules have been
    /// compared: the buckets would show a difference as lengths.
    pub(in crate::data_parallel) fn new(
        parameters: Vec<ParameterEntry>,
        options: BindingOptions,
        context: &ParallelContext,
        device: &Device,
        former: Option<&Arc<Reducer>>,
    ) -> Result<Self, DataParallelError> {
        let trained: Vec<&ParameterEntry> = parameters.iter().filter(|p| p.requires_grad).collect();
        let dtype = one_dtype(&trained)?;
        let declarations = trained
            .iter()
            .map(|parameter| declaration_of(parameter, context))
            .collect::<Result<Vec<_>, _>>()?;
        let sized = trained
            .iter()
            .zip(&declarations)
            .map(|(parameter, declaration)| BucketParameter {
                path: parameter.path.clone(),
                name: declaration.name.clone(),
                len: parameter.len(),
                class: BucketClass::of(declaration),
                factored_len: Factoring::of(&parameter.shape, &declaration.placement).map(|factoring| factoring.len()),
            });
        let sized: Vec<BucketParameter> = sized.collect();
        let num_shards = context.shard_group().size();
        let layout = BucketLayout::of_parameters(&sized, options.bucket_size, num_shards, options.sharding);
        let mut numbers = HashMap::new();
        let mut entries = Vec::with_capacity(trained.len());
        for (number, (parameter, declaration)) in trained.iter().zip(declarations).enumerate() {
            if let Some(first) = numbers.insert(parameter.id, number) {
                return Err(DataParallelError::SharedParameter {
                    first: trained[first].path.clone(),
                    second: parameter.path.clone(),
                });
            }
            entries.push(GradientEntry {
                number,
                id: parameter.id,
                name: declaration.name,
                shape: parameter.shape.clone(),
                placement: declaration.placement,
                distribution: declaration.distribution,
                is_tied: declaration.is_tied,
                slot: layout.slots()[number],
            });
        }
        let finalisation = Finalisation::new(context);
        let inner_device = device.clone().inner();
        let reducer = match former.filter(|reducer| reducer.is_for(&layout, dtype, device)) {
            Some(reducer) => {
                reducer.forget_step()?;
                reducer.clone()
            }
            None => {
                let reduction = Reduction {
                    group: context.shard_group().clone(),
                    data_group: context.data_group().clone(),
                    op: ReduceOp::Mean,
                    sharding: options.sharding,
                    overlaps: options.overlaps,
                };
                Arc::new(Reducer::new(layout.clone(), dtype, &inner_device, reduction)?)
            }
        };
        Ok(Self {
            anchors: anchors(entries.len(), &device.clone().autodiff()),
            layout,
            shards: None,
            reducer,
            finalisation,
            entries: entries.into(),
            numbers,
            dtype,
            parameters,
            device: device.clone(),
        })
    }

    /// Returns where a graph gets a parameter for its backward pass, where parameters are sharded and it is a matrix.
    pub(in crate::data_parallel) fn weight_source(&self, number: usize) -> Option<Arc<dyn WeightSource>> {
        let shards = self.shards.clone()?;
        let dims = <[usize; 2]>::try_from(self.entries[number].shape.as_slice()).ok()?;
        Some(Arc::new(ShardedWeight { shards, number, dims }))
    }

    /// Returns whether a module with these parameters on this device is bound as it stands.
    pub(in crate::data_parallel) fn fits(&self, parameters: &[ParameterEntry], device: &Device) -> bool {
        self.parameters == parameters && self.device == *device
    }

    /// Returns whether a module on this device has the parameters that are bound, but for their identifiers.
    pub(in crate::data_parallel) fn resembles(&self, parameters: &[ParameterEntry], device: &Device) -> bool {
        let is_like = |(bound, other): (&ParameterEntry, &ParameterEntry)| {
            ParameterEntry {
                id: other.id,
                ..bound.clone()
            } == *other
        };
        let count = self.parameters.len();
        self.device == *device && count == parameters.len() && self.parameters.iter().zip(parameters).all(is_like)
    }
}

/// Returns the one device of the trained ones of a module's parameters; that of the first parameter if none is trained.
pub(in crate::data_parallel) fn one_device<M: Module>(
    module: &M,
    parameters: &[ParameterEntry],
) -> Result<Device, DataParallelError> {
    struct Devices(Vec<Device>);
    impl ModuleVisitor for Devices {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(param.lazy_device());
        }
    }
    let mut devices = Devices(Vec::with_capacity(parameters.len()));
    module.visit(&mut devices);
    let all = parameters.iter().zip(devices.0);
    let mut trained = all.filter(|(parameter, _)| parameter.requires_grad);
    let Some((first, first_device)) = trained.next() else {
        return Ok(device_of(module));
    };
    match trained.find(|(_, device)| *device != first_device) {
        None => Ok(first_device),
        Some((other, other_device)) => Err(DataParallelError::MixedDevices {
            first: first.path.clone(),
            first_device: format!("{first_device:?}"),
            other: other.path.clone(),
            other_device: format!("{other_device:?}"),
        }),
    }
}

/// The one element type of the trained parameters.
fn one_dtype(trained: &[&ParameterEntry]) -> Result<DType, DataParallelError> {
    let Some(first) = trained.first() else {
        return Ok(DType::F32);
    };
    match trained.iter().find(|p| p.dtype != first.dtype) {
        None => Ok(first.dtype),
        Some(other) => Err(DataParallelError::MixedTypes {
            first: first.path.clone(),
            first_dtype: first.dtype,
            other: other.path.clone(),
            other_dtype: other.dtype,
        }),
    }
}

/// What a parameter has declared. Without tensor-parallel ranks nothing need be declared: every parameter is whole.
fn declaration_of(parameter: &ParameterEntry, context: &ParallelContext) -> Result<Declaration, RegistryError> {
    match context.registry().declaration(parameter.id) {
        Some(declaration) if declaration.placement.local_len() == parameter.len() => Ok(declaration),
        Some(declaration) => Err(RegistryError::ShapeChanged {
            name: declaration.name,
            declared: declaration.placement.local_len(),
            actual: parameter.len(),
        }),
        None if context.tensor_group().size() > 1 => Err(RegistryError::Undeclared {
            path: parameter.path.clone(),
        }),
        None => Ok(Declaration {
            name: parameter.path.clone(),
            placement: Placement::whole(parameter.shape.clone()),
            distribution: Distribution::Replicated,
            is_tied: false,
            is_reused: false,
        }),
    }
}
