//! [`PlacedDataParallel`]: a placed model in [`DistributedDataParallel`], this rank's parts in its buckets.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use burn::module::Module;
use burn::optim::LearningRate;
use burn::tensor::{Shape, Tensor};
use parking_lot::Mutex;

use super::binding::{Binder, Emptier, ToLocal};
use super::buffers::{BufferTensors, BufferWriter};
use super::error::PlacedError;
use super::local_parameters::{Known, LocalParameters, take_local};
use super::model_axes::ModelAxes;
use crate::autodiff::anchors;
use crate::collectives::catch_collective_error;
use crate::context::ParallelContext;
use crate::data_parallel::{
    DataParallelConfig, DataParallelError, DistributedDataParallel, ModuleStep, ReducedGradients, StepPart,
    refuse_several,
};
use crate::parameters::{device_of, settle_running_states};
use crate::sharded::agreement::given;
use crate::sharded::mesh::Mesh;
use crate::sharded::movement::gather_ahead::{GatherOrder, Pass};
use crate::sharded::movement::redistribute::forget_gathered;
use crate::sharded::parallelize::whole;
use crate::sharded::slot::{KeptParameter, Placing, look, placing_of};
use crate::sharded::traffic::{Phase, in_phase};

/// The wrapped parts of a placed model.
pub type LocalDataParallel = DistributedDataParallel<LocalParameters>;

/// A model that [`parallelize`](crate::sharded::parallelize) has placed, whose gradients are accumulated and averaged
/// by [`DistributedDataParallel`].
///
/// The model's operations run on placed tensors; what is stored are this rank's parts of its parameters, as a module on
/// the device inside. So all that works on a wrapped module works here: buckets that are reduced during the backward
/// pass, main gradients in f32, loss scaling, the norm of the whole model,
/// [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer) and checkpoints that any layout loads. The model's batch
/// norms need nothing more: their statistics are those of all samples.
///
/// # Examples
/// ```
/// use burn::nn::LinearConfig;
/// use burn::optim::AdamWConfig;
/// use burn::tensor::Tensor;
/// use burn_flex::{Flex, FlexDevice};
/// use burn_megatron::data_parallel::ElementWiseOptimizer;
/// use burn_megatron::prelude::*;
/// use burn_megatron::sharded::{AxisRole, Mesh, PlacedDataParallel, Plan, device, distribute, parallelize};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = ParallelContext::single(1);
/// let mesh = Mesh::of(&context)?;
/// let device = device::<Flex>(FlexDevice).autodiff();
/// let placed = parallelize(LinearConfig::new(3, 2).init(&device), &Plan::new(), &mesh)?;
/// let config = DataParallelConfig::new().with_sharding(ShardingStrategy::Optim);
/// let mut model = PlacedDataParallel::new(placed, &mesh, &context, config)?;
/// let adam = ElementWiseOptimizer::from(AdamWConfig::new().build());
/// let mut optimizer = ShardedOptimizer::new(model.local(), adam)?;
///
/// let input = distribute(Tensor::<2>::ones([4, 3], &device), &mesh, AxisRole::Data, 0);
/// let loss = model.backward(StepPart::Last, |layer| layer.forward(input).mean())?;
/// let gradients = model.gradients()?;
/// model.step(1e-3, &mut optimizer, gradients)?;
/// # Ok(())
/// # }
/// ```
pub struct PlacedDataParallel<M> {
    /// Its trained parameters have no values of their own.
    model: M,
    known: Known,
    mesh: Mesh,
    placing: Arc<dyn Placing>,
    anchors: Vec<Tensor<1>>,
    local: LocalDataParallel,
    /// Whether parameters are cut over ranks that see other samples, and gathered when they are used.
    is_fully_sharded: bool,
    /// True if what ranks are given is compared, at the mesh's interval.
    compares_inputs: bool,
    gather_order: GatherOrder,
    /// The numbers of the tensors that were last taken into it of what is not trained.
    buffers_taken: Vec<u64>,
}

impl<M: Module> PlacedDataParallel<M> {
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
    /// When the mesh is another, a parameter is cut over ranks that are replicas in the context, the model is on
    /// another device than one of [`device`](crate::sharded::device()), or as [`DistributedDataParallel::new`].
    pub fn new(
        model: M,
        mesh: &Mesh,
        context: &ParallelContext,
        config: DataParallelConfig,
    ) -> Result<Self, PlacedError> {
        let axes = ModelAxes::of(mesh, context)?;
        // Every rank has the statistics of all samples.
        let config = config.with_broadcast_buffers(false);
        let (parts, known) = take_local(&model, mesh, axes, context)?;
        let device = device_of(&model);
        let model = model.map(&mut Emptier { known: &known });
        let anchors = anchors(known.places.len(), &device);
        let compares_inputs = config.check_inputs_interval > 0;
        Ok(Self {
            compares_inputs,
            model,
            known,
            mesh: mesh.clone(),
            placing: placing_of(&device)?,
            anchors,
            local: DistributedDataParallel::new(parts, context, config)?,
            is_fully_sharded: axes.cuts_samples,
            gather_order: GatherOrder::default(),
            buffers_taken: Vec::new(),
        })
    }

    /// This rank's parts, wrapped: what a [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer) is made for, and
    /// what [`snapshot`](crate::training::snapshot) saves after a step.
    pub fn local(&self) -> &LocalDataParallel {
        &self.local
    }

    /// Borrows this rank's parts, wrapped, for [`restore`](crate::training::restore). The model takes what is not
    /// trained from them when the borrow ends: borrowed between a pass and its step, it loses what the pass has left in
    /// running statistics.
    pub fn local_mut(&mut self) -> LocalMut<'_, M> {
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
        forward: impl FnOnce(M) -> Tensor<D>,
    ) -> Result<Tensor<D>, DataParallelError> {
        self.local.begin()?;
        let sink = Arc::new(ToLocal {
            mesh: self.mesh.clone(),
            places: self.known.gradient_places.clone(),
            sink: self.local.sink(),
            last: Mutex::default(),
        });
        let ahead = self.is_fully_sharded.then(Pass::new);
        let bound = self.bound(Some(sink.clone()), ahead);
        // The buckets are averaged, and a placed gradient is the sum of its terms.
        let ranks = self.local.context().data_group().size() as f64;
        let compares_inputs = self.compares_inputs && part == StepPart::Last;
        let pass = || {
            let loss = forward(bound);
            refuse_several(&loss.dims())?;
            let value = whole(loss.clone().inner());
            if compares_inputs {
                given::compare(Some(&*look(value.clone())), &self.mesh)?;
            }
            self.local.set_step_part(part);
            in_phase(Phase::Backward, || (loss * ranks).backward());
            sink.finish();
            forget_gathered();
            Ok::<_, DataParallelError>(value)
        };
        let mut order = std::mem::take(&mut self.gather_order);
        let value = catch_collective_error(|| match ahead {
            Some(this) => self.gathering_ahead(this, &mut order, pass),
            None => pass(),
        })??;
        self.gather_order = order;
        self.local.close_pass(part)?;
        Ok(value)
    }

    /// Waits for the reductions and returns the step's gradients: see [`DistributedDataParallel::gradients`].
    ///
    /// # Communication
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub fn gradients(&mut self) -> Result<ReducedGradients, DataParallelError> {
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
    pub fn step<O: ModuleStep<LocalParameters>>(
        &mut self,
        learning_rate: LearningRate,
        optimizer: &mut O,
        gradients: ReducedGradients,
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
        settle_running_states(&self.model);
        let mut tensors = BufferTensors {
            known: &self.known,
            tensors: Vec::new(),
        };
        self.model.visit(&mut tensors);
        let tensors = tensors.tensors;
        let ids: Vec<u64> = tensors
            .iter()
            .map(|tensor| self.placing.look(tensor.clone()).id())
            .collect();
        // Frozen parameters stay the tensors that they are.
        if ids == self.buffers_taken {
            return Ok(());
        }
        let tensors = tensors.into_iter().zip(&self.known.buffer_places);
        let parts = tensors.map(|(tensor, places)| self.placing.part(tensor, &self.mesh, places));
        let values = catch_collective_error(|| parts.collect())?;
        self.buffers_taken = ids;
        self.local.update(|parts| parts.with_buffers(values))
    }

    /// Gives the model what is not trained, as it was restored.
    fn give_buffers(&mut self) {
        settle_running_states(&self.model);
        let mut writer = BufferWriter {
            mesh: &self.mesh,
            placing: &*self.placing,
            buffers: self.local.module_in_flight().buffers(),
            known: &self.known,
            number: 0,
        };
        self.model = self.model.clone().map(&mut writer);
    }

    /// Runs a pass whose fully sharded parameters are gathered ahead in this order, and sets it to that of the pass.
    fn gathering_ahead<T>(&self, this: Pass, order: &mut GatherOrder, pass: impl FnOnce() -> T) -> T {
        let parts = self.local.module_in_flight().trained().iter().enumerate();
        let parameters = parts.map(|(number, part)| {
            let part = part.clone();
            KeptParameter {
                shape: Shape::from(self.known.shapes[number].clone()),
                places: self.known.kept_places[number],
                part: Box::new(move || part.value()),
            }
        });
        let (mut pass, mut result) = (Some(pass), None);
        let mut run = || result = pass.take().map(|pass| pass());
        let placing = &self.placing;
        placing.gathering_ahead(this, &self.mesh, parameters.collect(), order, &mut run);
        result.expect("the pass was run")
    }

    /// The model whose parameters are this rank's parts, and whose gradients go to `sink`.
    fn bound(&self, sink: Option<Arc<ToLocal>>, pass: Option<Pass>) -> M {
        let mut binder = Binder {
            known: &self.known,
            mesh: &self.mesh,
            placing: &self.placing,
            anchors: &self.anchors,
            parts: self.local.module_in_flight().trained(),
            sink,
            pass,
        };
        self.model.clone().map(&mut binder)
    }
}

/// A borrow of the wrapped parts of a model, which takes what is not trained from them in the end.
pub struct LocalMut<'a, M: Module>(&'a mut PlacedDataParallel<M>);

impl<M: Module> Deref for LocalMut<'_, M> {
    type Target = LocalDataParallel;

    fn deref(&self) -> &Self::Target {
        &self.0.local
    }
}

impl<M: Module> DerefMut for LocalMut<'_, M> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0.local
    }
}

impl<M: Module> Drop for LocalMut<'_, M> {
    fn drop(&mut self) {
        self.0.give_buffers();
    }
}
