//! [`PlacedDataParallel`]: a placed model in [`DistributedDataParallel`], this rank's parts in its buckets.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use burn::module::AutodiffModule;
use burn::optim::LearningRate;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, Tensor, TensorPrimitive};
use parking_lot::Mutex;

use super::binding::{Binder, Emptier, ToLocal};
use super::buffers::{BufferTensors, BufferWriter};
use super::error::PlacedError;
use super::local_parameters::{Known, LocalParameters, take_local};
use super::model_axes::ModelAxes;
use super::training_backend::PlacedTrainingBackend;
use crate::collectives::{CollectiveBackend, catch_collective_error};
use crate::context::ParallelContext;
use crate::data_parallel::{
    DataParallelConfig, DataParallelError, DistributedDataParallel, ModuleOptimizer, ReducedGradients, StepPart,
    refuse_several,
};
use crate::parameters::settle_running_states;
use crate::sharded::given;
use crate::sharded::kind::Float;
use crate::sharded::mesh::Mesh;
use crate::sharded::movement::gather_ahead::{GatherOrder, Parameter, Pass, gathering_ahead};
use crate::sharded::movement::redistribute::{forget_gathered, gather, redistribute};
use crate::sharded::traffic::{Phase, in_phase, set_operation};
use crate::sharded::{Sharded, ShardedTensor};

/// The wrapped parts of a placed model of backend `A`.
pub type LocalDataParallel<A> = DistributedDataParallel<
    <A as PlacedTrainingBackend>::LocalTraining,
    LocalParameters<<A as PlacedTrainingBackend>::LocalTraining>,
>;

/// A model that [`parallelize`](crate::sharded::parallelize) has placed, whose gradients are accumulated and averaged
/// by [`DistributedDataParallel`].
///
/// The model's operations run on placed tensors; what is stored are this rank's parts of its parameters, as a module of
/// the backend inside. So all that works on a wrapped module works here: buckets that are reduced during the backward
/// pass, main gradients in f32, loss scaling, the norm of the whole model,
/// [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer) and checkpoints that any layout loads. The model's batch
/// norms need nothing more: their statistics are those of all samples.
///
/// # Examples
/// ```
/// use burn::backend::Autodiff;
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::AdamWConfig;
/// use burn::tensor::Tensor;
/// use burn_flex::{Flex, FlexDevice};
/// use burn_megatron::prelude::*;
/// use burn_megatron::sharded::{AxisRole, Mesh, PlacedDataParallel, Plan, Sharded, distribute, parallelize};
///
/// type B = Autodiff<Sharded<Flex>>;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = ParallelContext::single(1);
/// let mesh = Mesh::of(&context)?;
/// let layer: Linear<B> = LinearConfig::new(3, 2).init(&FlexDevice);
/// let placed = parallelize(layer, &Plan::new(), &mesh)?;
/// let config = DataParallelConfig::new().with_sharding(ShardingStrategy::Optim);
/// let mut model = PlacedDataParallel::<B, _>::new(placed, &mesh, &context, config)?;
/// let mut optimizer = ShardedOptimizer::new(model.local(), AdamWConfig::new().init())?;
///
/// let input = distribute(Tensor::<B, 2>::ones([4, 3], &FlexDevice), &mesh, AxisRole::Data, 0);
/// let loss = model.backward(StepPart::Last, |layer| layer.forward(input).mean())?;
/// let gradients = model.gradients()?;
/// model.step(1e-3, &mut optimizer, gradients)?;
/// # Ok(())
/// # }
/// ```
pub struct PlacedDataParallel<A: PlacedTrainingBackend, M> {
    /// Its trained parameters have no values of their own.
    model: M,
    known: Known,
    mesh: Mesh,
    anchors: Vec<FloatTensor<A>>,
    local: LocalDataParallel<A>,
    /// Whether parameters are cut over ranks that see other samples, and gathered when they are used.
    is_fully_sharded: bool,
    /// True if what ranks are given is compared, at the mesh's interval.
    compares_inputs: bool,
    gather_order: GatherOrder,
    /// The numbers of the tensors that were last taken into it of what is not trained.
    buffers_taken: Vec<u64>,
}

impl<A: PlacedTrainingBackend, M: AutodiffModule<A>> PlacedDataParallel<A, M> {
    /// Wraps a placed model. The mesh is that of the context, or, for a model that is fully sharded over the
    /// data-parallel ranks, that of the context before [`fully_sharded`](ParallelContext::fully_sharded); hybrid
    /// sharding takes a context whose tensor-parallel size counts all ranks of a replica. Of the configuration
    /// `broadcast_buffers` has no effect: every rank has the running statistics of all samples; and what ranks are
    /// given is compared at the mesh's interval, [`Mesh::with_check_inputs_interval`], if `check_inputs_interval` is
    /// not 0.
    ///
    /// # Communication
    /// That of [`DistributedDataParallel::new`].
    ///
    /// # Errors
    /// When the mesh is another, a parameter is cut over ranks that are replicas in the context, or as
    /// [`DistributedDataParallel::new`].
    pub fn new(
        model: M,
        mesh: &Mesh,
        context: &ParallelContext,
        config: DataParallelConfig,
    ) -> Result<Self, PlacedError> {
        let axes = ModelAxes::of(mesh, context)?;
        // Every rank has the statistics of all samples.
        let config = config.with_broadcast_buffers(false);
        let (parts, known) = take_local::<A, A::LocalTraining, M>(&model, mesh, axes, context)?;
        let device = model.devices().first().cloned().unwrap_or_default();
        let model = model.map(&mut Emptier { known: &known });
        let anchors = A::anchors(known.places.len(), &device);
        let compares_inputs = config.check_inputs_interval > 0;
        Ok(Self {
            compares_inputs,
            model,
            known,
            mesh: mesh.clone(),
            anchors,
            local: DistributedDataParallel::new(parts, context, config)?,
            is_fully_sharded: axes.cuts_samples,
            gather_order: GatherOrder::default(),
            buffers_taken: Vec::new(),
        })
    }

    /// This rank's parts, wrapped: what a [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer) is made for, and
    /// what [`snapshot`](crate::training::snapshot) saves after a step.
    pub fn local(&self) -> &LocalDataParallel<A> {
        &self.local
    }

    /// As [`local`](Self::local), for [`restore`](crate::training::restore). The model takes what is not trained from
    /// it when the borrow ends: borrowed between a pass and its step, it loses what the pass has left in running
    /// statistics.
    pub fn local_mut(&mut self) -> LocalMut<'_, A, M> {
        LocalMut(self)
    }

    /// The model with its parameters as they are now: for evaluation, and for burn's recorders.
    pub fn model(&self) -> M {
        self.bound(None, None)
    }

    /// Runs one micro-batch forward and backward, and returns its loss, which every rank then has.
    ///
    /// `forward` gets the model, good for this pass only, and returns the loss of the whole micro-batch, of which each
    /// data-parallel rank has its samples, divided by the number of micro-batches.
    ///
    /// # Communication
    /// What `forward` and its backward pass do; sums over tensor-parallel ranks of gradients of matrices; a
    /// reduce-scatter of the gradient of each parameter that is fully sharded; on the last micro-batch the start of one
    /// all-reduce or reduce-scatter per bucket over the data-parallel group, each as soon as it is full.
    ///
    /// # Errors
    /// When a collective fails: the step is lost. When the loss has several elements, or ranks were given different
    /// batches or have different losses. When the gradients of the step before have not been taken.
    ///
    /// # Panics
    /// When `forward` does.
    pub fn backward<const D: usize>(
        &mut self,
        part: StepPart,
        forward: impl FnOnce(M) -> Tensor<A, D>,
    ) -> Result<Tensor<Sharded<A::Local>, D>, DataParallelError> {
        self.local.begin()?;
        let sink = Arc::new(ToLocal {
            mesh: self.mesh.clone(),
            places: self.known.gradient_places.clone(),
            sink: self.local.sink(),
            last: Mutex::default(),
        });
        let ahead = self.is_fully_sharded.then(|| (Pass::new(), self.gathered_parameters()));
        let bound = self.bound(Some(sink.clone()), ahead.as_ref().map(|&(this, _)| this));
        let mut order = std::mem::take(&mut self.gather_order);
        // The buckets are averaged, and a placed gradient is the sum of its terms.
        let ranks = self.local.context().data_group().size() as f64;
        let compares_inputs = self.compares_inputs && part == StepPart::Last;
        let pass = || {
            let loss = forward(bound);
            refuse_several(&loss.dims())?;
            set_operation("loss");
            let value = gather(A::float(loss.clone().into_primitive().tensor()));
            if compares_inputs {
                given::compare::<A::Local>(Some(&value), &self.mesh)?;
            }
            self.local.set_step_part(part);
            in_phase(Phase::Backward, || (loss * ranks).backward());
            sink.finish();
            forget_gathered();
            Ok::<_, DataParallelError>(value)
        };
        let run = || match ahead {
            Some((this, parameters)) => gathering_ahead(this, &self.mesh, parameters, &mut order, pass),
            None => pass(),
        };
        let value = catch_collective_error(run)??;
        self.gather_order = order;
        self.local.close_pass(part)?;
        Ok(whole(value))
    }

    /// Waits for the reductions and returns the step's gradients: see [`DistributedDataParallel::gradients`].
    ///
    /// # Communication
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub fn gradients(&mut self) -> Result<ReducedGradients<A::Local>, DataParallelError> {
        self.local.gradients()
    }

    /// Updates the parameters by one of burn's element-wise optimizers, or a
    /// [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer).
    ///
    /// # Communication
    /// That of the optimizer's step. None for running statistics: every rank has them.
    ///
    /// # Errors
    /// As the optimizer's step.
    pub fn step<O: ModuleOptimizer<A::LocalTraining, LocalParameters<A::LocalTraining>>>(
        &mut self,
        learning_rate: LearningRate,
        optimizer: &mut O,
        gradients: ReducedGradients<A::Local>,
    ) -> Result<(), O::Error> {
        optimizer.step_module(learning_rate, &mut self.local, gradients)?;
        Ok(self.take_buffers()?)
    }

    /// Takes what is not trained as the last pass has left it, so that it is saved.
    fn take_buffers(&mut self) -> Result<(), DataParallelError> {
        if self.known.buffer_places.is_empty() {
            return Ok(());
        }
        // Of the model without values: no parameter is waited for.
        settle_running_states::<A, M>(&self.model);
        let mut tensors = BufferTensors::<A> {
            known: &self.known,
            tensors: Vec::new(),
        };
        self.model.visit(&mut tensors);
        let ids: Vec<u64> = tensors.tensors.iter().map(ShardedTensor::id).collect();
        // Frozen parameters stay the tensors that they are.
        if ids == self.buffers_taken {
            return Ok(());
        }
        let tensors = tensors.tensors.into_iter().zip(&self.known.buffer_places);
        let values: Vec<_> = catch_collective_error(|| {
            let locals = tensors.map(|(tensor, places)| redistribute(tensor, &self.mesh, places));
            locals.map(A::LocalTraining::from_inner).collect()
        })?;
        self.buffers_taken = ids;
        self.local.update(|parts| parts.with_buffers(values))
    }

    /// Gives the model what is not trained, as it was restored.
    fn give_buffers(&mut self) {
        settle_running_states::<A, M>(&self.model);
        let mut writer = BufferWriter::<A> {
            mesh: &self.mesh,
            buffers: self.local.module_in_flight().buffers(),
            known: &self.known,
            number: 0,
        };
        self.model = self.model.clone().map(&mut writer);
    }

    /// This rank's parts of the parameters, as [`gathering_ahead`] takes them.
    fn gathered_parameters(&self) -> Vec<Parameter<A::Local>> {
        let parts = self.local.module_in_flight().trained().iter().enumerate();
        let parameters = parts.map(|(number, part)| {
            let part = part.clone();
            Parameter {
                shape: Shape::from(self.known.shapes[number].clone()),
                places: self.known.kept_places[number],
                part: Box::new(move || A::LocalTraining::inner(part.value())),
            }
        });
        parameters.collect()
    }

    /// The model whose parameters are this rank's parts, and whose gradients go to `sink`.
    fn bound(&self, sink: Option<Arc<ToLocal<A::Local>>>, pass: Option<Pass>) -> M {
        let mut binder = Binder::<A> {
            known: &self.known,
            mesh: &self.mesh,
            anchors: &self.anchors,
            parts: self.local.module_in_flight().trained(),
            sink,
            pass,
        };
        self.model.clone().map(&mut binder)
    }
}

fn whole<B: CollectiveBackend, const D: usize>(local: FloatTensor<B>) -> Tensor<Sharded<B>, D> {
    Tensor::from_primitive(TensorPrimitive::Float(ShardedTensor::<B, Float>::whole(local)))
}

/// A borrow of the wrapped parts of a model, which takes what is not trained from them in the end.
pub struct LocalMut<'a, A: PlacedTrainingBackend, M: AutodiffModule<A>>(&'a mut PlacedDataParallel<A, M>);

impl<A: PlacedTrainingBackend, M: AutodiffModule<A>> Deref for LocalMut<'_, A, M> {
    type Target = LocalDataParallel<A>;

    fn deref(&self) -> &Self::Target {
        &self.0.local
    }
}

impl<A: PlacedTrainingBackend, M: AutodiffModule<A>> DerefMut for LocalMut<'_, A, M> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0.local
    }
}

impl<A: PlacedTrainingBackend, M: AutodiffModule<A>> Drop for LocalMut<'_, A, M> {
    fn drop(&mut self) {
        self.0.give_buffers();
    }
}
