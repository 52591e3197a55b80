//! Updates of a wrapped module by burn's optimizers, each parameter where it is.

use burn::module::AutodiffModule;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{LearningRate, Optimizer};
use burn::tensor::Tensor;

use super::wrapper::{DistributedDataParallel, StepPart};
use crate::autodiff::TrainingBackend;
use crate::collectives::{CollectiveBackend, ReduceOp};
use crate::data_parallel::bucket_forms::element_wise::ElementWise;
use crate::data_parallel::error::DataParallelError;
use crate::data_parallel::gradients::reduced::ReducedGradients;
use crate::parameters::{read_host, tensor_from_host};

/// An optimizer that updates a wrapped module: burn's `OptimizerAdaptor`, or a
/// [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer).
pub trait ModuleOptimizer<B: TrainingBackend, M: AutodiffModule<B>> {
    /// What can go wrong in an update.
    type Error: From<DataParallelError>;

    /// Updates the module with a step's gradients.
    ///
    /// # Errors
    /// As the optimizer's own step.
    fn step_module(
        &mut self,
        learning_rate: LearningRate,
        module: &mut DistributedDataParallel<B, M>,
        gradients: ReducedGradients<B::InnerBackend>,
    ) -> Result<(), Self::Error>;
}

impl<B: TrainingBackend, M: AutodiffModule<B>, O: ElementWise<B::InnerBackend>> ModuleOptimizer<B, M>
    for OptimizerAdaptor<O, M, B>
{
    type Error = DataParallelError;

    fn step_module(
        &mut self,
        learning_rate: LearningRate,
        module: &mut DistributedDataParallel<B, M>,
        gradients: ReducedGradients<B::InnerBackend>,
    ) -> Result<(), DataParallelError> {
        module.step(learning_rate, self, gradients)
    }
}

impl<B: TrainingBackend, M: AutodiffModule<B>> DistributedDataParallel<B, M> {
    /// Makes a whole training step of one micro-batch, and returns its loss, averaged over the data-parallel group.
    ///
    /// It is [`backward`](Self::backward), [`gradients`](Self::gradients), the optimizer's step, and the average.
    ///
    /// # Shapes
    /// - output: `[1]`
    ///
    /// # Communication
    /// That of these, and one all-reduce of one number over the data-parallel group.
    ///
    /// # Errors
    /// As these.
    ///
    /// # Panics
    /// When `forward` does.
    pub fn train_step<O: ModuleOptimizer<B, M>>(
        &mut self,
        learning_rate: LearningRate,
        optimizer: &mut O,
        forward: impl FnOnce(M) -> Tensor<B, 1>,
    ) -> Result<Tensor<B::InnerBackend, 1>, O::Error> {
        let loss = self.backward(StepPart::Last, forward)?;
        let gradients = self.gradients()?;
        optimizer.step_module(learning_rate, self, gradients)?;
        Ok(self.mean_loss(loss)?)
    }

    /// Returns the mean over the data-parallel group of a loss that [`backward`](Self::backward) has returned, or of
    /// the sum of those of a step's micro-batches.
    ///
    /// # Communication
    /// One all-reduce of the loss's elements over the data-parallel group.
    ///
    /// # Errors
    /// When it fails.
    pub fn mean_loss(&self, loss: Tensor<B::InnerBackend, 1>) -> Result<Tensor<B::InnerBackend, 1>, DataParallelError> {
        let group = self.context().data_group();
        if group.size() == 1 {
            return Ok(loss);
        }
        let (device, dtype) = (loss.device(), loss.dtype());
        let mut values = read_host(loss);
        group.all_reduce(&mut values, ReduceOp::Mean)?;
        let count = values.len();
        Ok(tensor_from_host(values, [count], dtype, &device))
    }

    /// Updates the module by one of burn's optimizers, as the `init` of its configuration returns it.
    ///
    /// The optimizer's [gradient clipping](burn::grad_clipping) is done as on one rank, by [`clip_each`]: `Norm` by the
    /// norm of each whole parameter, also of those that are cut over tensor-parallel ranks. An optimizer that is not
    /// [`ElementWise`], such as burn's `Muon`, goes to [`step_whole_parameters`](Self::step_whole_parameters).
    ///
    /// # Communication
    /// If the optimizer clips, that of [`clip_each`]; otherwise none.
    ///
    /// # Errors
    /// When gradients are sharded, or the optimizer needs whole parameters and one is cut over tensor-parallel
    /// ranks: a [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer) takes those. When a collective fails, or as
    /// [`update`](Self::update).
    ///
    /// [`clip_each`]: ReducedGradients::clip_each
    pub fn step<O: ElementWise<B::InnerBackend>>(
        &mut self,
        learning_rate: LearningRate,
        optimizer: &mut OptimizerAdaptor<O, M, B>,
        mut gradients: ReducedGradients<B::InnerBackend>,
    ) -> Result<(), DataParallelError> {
        refuse_sharded::<_, O>(&gradients)?;
        if optimizer.optim().matrix_form().is_some() {
            self.refuse_parts::<O>(&gradients)?;
            refuse_vectors::<_, O>(&gradients)?;
        }
        if optimizer.optim().factored_form().is_some() {
            self.refuse_parts::<O>(&gradients)?;
        }
        let Some(clipping) = optimizer.grad_clipping().cloned() else {
            return self.step_each(learning_rate, optimizer, gradients);
        };
        gradients.clip_each(&clipping, self.context())?;
        // burn's own clipping would clip again, what this rank holds by the norm of that.
        let mut unclipped = take_without_clipping(optimizer);
        let result = self.step_each(learning_rate, &mut unclipped, gradients);
        *optimizer = unclipped.with_grad_clipping(clipping);
        result
    }

    /// Updates the module by any burn optimizer, one that needs whole parameters included, where each rank has them.
    ///
    /// Each rank's optimizer sees whole parameters and their whole gradients, as on one rank, and clips by itself if it
    /// does.
    ///
    /// # Errors
    /// When a trained parameter is cut over tensor-parallel ranks, or gradients are sharded; as
    /// [`update`](Self::update).
    pub fn step_whole_parameters<O: Optimizer<M, B>>(
        &mut self,
        learning_rate: LearningRate,
        optimizer: &mut O,
        gradients: ReducedGradients<B::InnerBackend>,
    ) -> Result<(), DataParallelError> {
        refuse_sharded::<_, O>(&gradients)?;
        self.refuse_parts::<O>(&gradients)?;
        self.step_each(learning_rate, optimizer, gradients)
    }

    /// Fails if a parameter is cut over tensor-parallel ranks.
    fn refuse_parts<O>(&self, gradients: &ReducedGradients<B::InnerBackend>) -> Result<(), DataParallelError> {
        let tensor = self.context().tensor_group().size();
        let mut entries = gradients.entries().iter();
        let cut = entries.find(|entry| tensor > 1 && entry.distribution.is_cut());
        match cut {
            None => Ok(()),
            Some(entry) => Err(DataParallelError::PartsOfParameters {
                optimizer: short_name::<O>(),
                name: entry.name.clone(),
                tensor,
            }),
        }
    }

    fn step_each(
        &mut self,
        learning_rate: LearningRate,
        optimizer: &mut impl Optimizer<M, B>,
        gradients: ReducedGradients<B::InnerBackend>,
    ) -> Result<(), DataParallelError> {
        self.wait_for_parameters()?;
        let params = gradients.into_params::<B, M>(self.module());
        self.count_step(learning_rate);
        self.replace_module(|module| optimizer.step(learning_rate, module, params))
    }
}

fn refuse_sharded<B: CollectiveBackend, O>(gradients: &ReducedGradients<B>) -> Result<(), DataParallelError> {
    if !gradients.is_sharded() {
        Ok(())
    } else {
        Err(DataParallelError::ShardedGradients {
            optimizer: short_name::<O>(),
        })
    }
}

fn refuse_vectors<B: CollectiveBackend, O>(gradients: &ReducedGradients<B>) -> Result<(), DataParallelError> {
    match gradients.entries().iter().find(|entry| entry.dimensions() != 2) {
        None => Ok(()),
        Some(entry) => Err(DataParallelError::NoMatrix {
            optimizer: short_name::<O>(),
            name: entry.name.clone(),
            shape: entry.shape.clone(),
        }),
    }
}

/// Moves an optimizer's state into one that does not clip; what is left has neither.
fn take_without_clipping<B, M, O>(optimizer: &mut OptimizerAdaptor<O, M, B>) -> OptimizerAdaptor<O, M, B>
where
    B: TrainingBackend,
    M: AutodiffModule<B>,
    O: ElementWise<B::InnerBackend>,
{
    let bare = || OptimizerAdaptor::from(optimizer.optim().clone());
    let (taken, left) = (bare(), bare());
    let state = optimizer.to_record();
    // Its tensors have one owner again, so that they are updated where they are.
    *optimizer = left;
    taken.load_record(state)
}

/// The name of a type without the modules that types are in: `OptimizerAdaptor<Muon<Flex>, …>`.
fn short_name<T>() -> String {
    let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let parts = std::any::type_name::<T>().split_inclusive(|c| !is_of_path(c));
    parts.map(|part| part.rsplit("::").next().unwrap_or(part)).collect()
}

#[cfg(test)]
mod tests {
    use burn::backend::Autodiff;
    use burn::grad_clipping::GradientClippingConfig;
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::{AdamConfig, Muon, MuonConfig};
    use burn::tensor::Tensor;
    use burn_flex::Flex;

    use super::*;
    use crate::context::ParallelContext;
    use crate::data_parallel::{DataParallelConfig, ShardingStrategy};

    type B = Autodiff<Flex>;

    fn wrapped(sharding: ShardingStrategy) -> (DistributedDataParallel<B, Linear<B>>, ReducedGradients<Flex>) {
        let layer = LinearConfig::new(3, 2).with_bias(false).init(&Default::default());
        let config = DataParallelConfig::new().with_sharding(sharding);
        let mut wrapped = DistributedDataParallel::new(layer, &ParallelContext::single(1), config).expect("one rank");
        let input = Tensor::<B, 2>::ones([4, 3], &Default::default());
        wrapped
            .backward(StepPart::Last, |layer| layer.forward(input).sum())
            .expect("one rank");
        let gradients = wrapped.gradients().expect("one rank");
        (wrapped, gradients)
    }

    #[test]
    fn an_optimizer_that_clips_keeps_its_state_and_its_clipping() {
        let (mut wrapped, gradients) = wrapped(ShardingStrategy::NoShard);
        let config = AdamConfig::new().with_grad_clipping(Some(GradientClippingConfig::Norm(0.5)));
        let mut optimizer = config.init();
        wrapped.step(0.1, &mut optimizer, gradients).expect("one rank");
        assert_eq!(optimizer.to_record().len(), 1);
        assert!(optimizer.has_gradient_clipping());
    }

    #[test]
    fn sharded_gradients_are_refused_with_the_optimizers_name() {
        let (mut module, gradients) = wrapped(ShardingStrategy::Optim);
        let error = module.step(0.1, &mut AdamConfig::new().init(), gradients);
        let error = error.expect_err("it needs all").to_string();
        assert!(error.starts_with("optimizer Adam takes whole gradients"), "{error}");

        let (mut module, gradients) = wrapped(ShardingStrategy::Optim);
        let mut muon = MuonConfig::new().init();
        let error = module.step_whole_parameters(0.1, &mut muon, gradients);
        let error = error.expect_err("it needs all").to_string();
        let start = "optimizer OptimizerAdaptor<Muon<Flex>, Linear<Autodiff<Flex>>, Autodiff<Flex>> takes whole";
        assert!(error.starts_with(start), "{error}");
    }

    #[test]
    fn muon_is_refused_where_there_are_vectors() {
        let layer = LinearConfig::new(3, 2).init(&Default::default());
        let context = ParallelContext::single(1);
        let mut module = DistributedDataParallel::<B, Linear<B>>::new(layer, &context, DataParallelConfig::new());
        let module = module.as_mut().expect("one rank");
        let input = Tensor::<B, 2>::ones([4, 3], &Default::default());
        let backward = module.backward(StepPart::Last, |layer| layer.forward(input).sum());
        backward.expect("one rank");
        let gradients = module.gradients().expect("one rank");
        let error = module.step(0.1, &mut crate::optimizer::MuonConfig::new().init(), gradients);
        let error = error.expect_err("there is a bias").to_string();
        assert!(
            error.starts_with("optimizer Muon updates whole matrices, and parameter bias of shape [2]"),
            "{error}"
        );
    }

    #[test]
    fn a_loss_of_several_elements_is_refused_with_its_shape() {
        let (mut module, gradients) = wrapped(ShardingStrategy::NoShard);
        drop(gradients);
        let input = Tensor::<B, 2>::ones([2, 3], &Default::default());
        let several = |layer: Linear<B>| layer.forward(input).flatten(0, 1);
        let error = module.train_step(0.1, &mut AdamConfig::new().init(), several);
        let error = error.expect_err("there are four").to_string();
        assert!(
            error.starts_with("the loss has shape [4], expected one element"),
            "{error}"
        );
    }

    #[test]
    fn names_of_types_are_without_their_modules() {
        assert_eq!(short_name::<Option<Vec<Muon<Flex>>>>(), "Option<Vec<Muon<Flex>>>");
        assert_eq!(short_name::<[(u8, String); 2]>(), "[(u8, String); 2]");
    }
}
