//! Updates of a wrapped module by burn's optimizers, each parameter where it is.

use burn::grad_clipping::GradientClipping;
use burn::module::Module;
use burn::optim::{LearningRate, ModuleOptimizer, OptimizerRecord};
use burn::tensor::Tensor;

use super::wrapper::{DistributedDataParallel, StepPart};
use crate::collectives::ReduceOp;
use crate::data_parallel::bucket_forms::element_wise::ElementWise;
use crate::data_parallel::error::DataParallelError;
use crate::data_parallel::gradients::reduced::ReducedGradients;
use crate::parameters::{read_host, tensor_from_host};

/// An optimizer that updates a wrapped module: burn's [`ModuleOptimizer`], which needs whole parameters, an
/// [`ElementWiseOptimizer`], or a [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer).
pub trait ModuleStep<M: Module> {
    /// What can go wrong in an update.
    type Error: From<DataParallelError>;

    /// Updates the module with a step's gradients.
    ///
    /// # Errors
    /// As the optimizer's own step.
    fn step_module(
        &mut self,
        learning_rate: LearningRate,
        module: &mut DistributedDataParallel<M>,
        gradients: ReducedGradients,
    ) -> Result<(), Self::Error>;
}

impl<M: Module> ModuleStep<M> for ModuleOptimizer {
    type Error = DataParallelError;

    fn step_module(
        &mut self,
        learning_rate: LearningRate,
        module: &mut DistributedDataParallel<M>,
        gradients: ReducedGradients,
    ) -> Result<(), DataParallelError> {
        module.step_whole_parameters(learning_rate, self, gradients)
    }
}

impl<M: Module, O: ElementWise> ModuleStep<M> for ElementWiseOptimizer<O> {
    type Error = DataParallelError;

    fn step_module(
        &mut self,
        learning_rate: LearningRate,
        module: &mut DistributedDataParallel<M>,
        gradients: ReducedGradients,
    ) -> Result<(), DataParallelError> {
        module.step(learning_rate, self, gradients)
    }
}

/// A burn optimizer for a module, all of one type that is known: made of what the `build` of its configuration returns.
///
/// burn's own [`ModuleOptimizer`] does not tell which optimizers it is made of, so it is given whole parameters only.
#[derive(Clone)]
pub struct ElementWiseOptimizer<O> {
    optimizer: O,
    grad_clipping: Option<GradientClipping>,
    /// Has the states; does not clip.
    states: ModuleOptimizer,
}

impl<O: ElementWise> From<O> for ElementWiseOptimizer<O> {
    fn from(optimizer: O) -> Self {
        Self {
            states: ModuleOptimizer::from(optimizer.clone()),
            optimizer,
            grad_clipping: None,
        }
    }
}

impl<O: ElementWise> ElementWiseOptimizer<O> {
    /// Clips gradients before each step, as on one rank: `Norm` by the norm of each whole parameter.
    pub fn with_grad_clipping(mut self, clipping: GradientClipping) -> Self {
        self.grad_clipping = Some(clipping);
        self
    }

    /// The optimizer of each parameter.
    pub fn optimizer(&self) -> &O {
        &self.optimizer
    }

    /// The clipping, if gradients are clipped.
    pub fn grad_clipping(&self) -> Option<&GradientClipping> {
        self.grad_clipping.as_ref()
    }

    /// Returns the state of every parameter that has one.
    pub fn to_record(&self) -> OptimizerRecord {
        self.states.to_record()
    }

    /// Replaces the states by a record's.
    pub fn load_record(mut self, record: OptimizerRecord) -> Self {
        self.states = self.states.load_record(record);
        self
    }
}

impl<M: Module> DistributedDataParallel<M> {
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
    pub fn train_step<O: ModuleStep<M>>(
        &mut self,
        learning_rate: LearningRate,
        optimizer: &mut O,
        forward: impl FnOnce(M) -> Tensor<1>,
    ) -> Result<Tensor<1>, O::Error> {
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
    pub fn mean_loss(&self, loss: Tensor<1>) -> Result<Tensor<1>, DataParallelError> {
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

    /// Updates the module by one of burn's optimizers that may be given parts of parameters.
    ///
    /// The optimizer's gradient clipping is done as on one rank, by [`clip_each`]: `Norm` by the norm of each whole
    /// parameter, also of those that are cut over tensor-parallel ranks. Other optimizers, such as burn's `Muon`, and
    /// burn's [`ModuleOptimizer`] go to [`step_whole_parameters`](Self::step_whole_parameters).
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
    pub fn step<O: ElementWise>(
        &mut self,
        learning_rate: LearningRate,
        optimizer: &mut ElementWiseOptimizer<O>,
        mut gradients: ReducedGradients,
    ) -> Result<(), DataParallelError> {
        refuse_sharded::<O>(&gradients)?;
        if optimizer.optimizer.matrix_form().is_some() {
            self.refuse_parts::<O>(&gradients)?;
            refuse_vectors::<O>(&gradients)?;
        }
        if optimizer.optimizer.factored_form().is_some() {
            self.refuse_parts::<O>(&gradients)?;
        }
        if let Some(clipping) = &optimizer.grad_clipping {
            gradients.clip_each(clipping, self.context())?;
        }
        self.step_each(learning_rate, &mut optimizer.states, gradients)
    }

    /// Updates the module by any burn optimizer, one that needs whole parameters included, where each rank has them.
    ///
    /// Each rank's optimizer sees whole parameters and their whole gradients, as on one rank, and clips by itself if it
    /// does. Its groups of parameters are those of the module's paths.
    ///
    /// # Errors
    /// When a trained parameter is cut over tensor-parallel ranks, or gradients are sharded; as
    /// [`update`](Self::update).
    pub fn step_whole_parameters(
        &mut self,
        learning_rate: LearningRate,
        optimizer: &mut ModuleOptimizer,
        gradients: ReducedGradients,
    ) -> Result<(), DataParallelError> {
        refuse_sharded::<ModuleOptimizer>(&gradients)?;
        self.refuse_parts::<ModuleOptimizer>(&gradients)?;
        self.step_each(learning_rate, optimizer, gradients)
    }

    /// Fails if a parameter is cut over tensor-parallel ranks.
    fn refuse_parts<O>(&self, gradients: &ReducedGradients) -> Result<(), DataParallelError> {
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
        optimizer: &mut ModuleOptimizer,
        gradients: ReducedGradients,
    ) -> Result<(), DataParallelError> {
        self.wait_for_parameters()?;
        let params = gradients.into_params(self.module());
        self.count_step(learning_rate);
        self.replace_module(|module| optimizer.step(learning_rate, module, params))
    }
}

fn refuse_sharded<O>(gradients: &ReducedGradients) -> Result<(), DataParallelError> {
    if !gradients.is_sharded() {
        Ok(())
    } else {
        Err(DataParallelError::ShardedGradients {
            optimizer: short_name::<O>(),
        })
    }
}

fn refuse_vectors<O>(gradients: &ReducedGradients) -> Result<(), DataParallelError> {
    match gradients.entries().iter().find(|entry| entry.dimensions() != 2) {
        None => Ok(()),
        Some(entry) => Err(DataParallelError::NoMatrix {
            optimizer: short_name::<O>(),
            name: entry.name.clone(),
            shape: entry.shape.clone(),
        }),
    }
}

/// The name of a type without the modules that types are in: `Option<Muon>`.
fn short_name<T>() -> String {
    let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let parts = std::any::type_name::<T>().split_inclusive(|c| !is_of_path(c));
    parts.map(|part| part.rsplit("::").next().unwrap_or(part)).collect()
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::{AdamConfig, Muon, MuonConfig};
    use burn::tensor::Device;

    use super::*;
    use crate::context::ParallelContext;
    use crate::data_parallel::{DataParallelConfig, ShardingStrategy};

    fn wrapped(sharding: ShardingStrategy) -> (DistributedDataParallel<Linear>, ReducedGradients) {
        let layer = LinearConfig::new(3, 2)
            .with_bias(false)
            .init(&Device::flex().autodiff());
        let config = DataParallelConfig::new().with_sharding(sharding);
        let mut wrapped = DistributedDataParallel::new(layer, &ParallelContext::single(1), config).expect("one rank");
        let input = Tensor::<2>::ones([4, 3], &Device::flex().autodiff());
        wrapped
            .backward(StepPart::Last, |layer| layer.forward(input).sum())
            .expect("one rank");
        let gradients = wrapped.gradients().expect("one rank");
        (wrapped, gradients)
    }

    #[test]
    fn an_optimizer_that_clips_keeps_its_state_and_its_clipping() {
        let (mut wrapped, gradients) = wrapped(ShardingStrategy::NoShard);
        let adam = ElementWiseOptimizer::from(AdamConfig::new().build());
        let mut optimizer = adam.with_grad_clipping(GradientClipping::Norm(0.5));
        wrapped.step(0.1, &mut optimizer, gradients).expect("one rank");
        assert!(!optimizer.to_record().is_empty());
        assert!(optimizer.grad_clipping().is_some());
    }

    #[test]
    fn sharded_gradients_are_refused_with_the_optimizers_name() {
        let (mut module, gradients) = wrapped(ShardingStrategy::Optim);
        let error = module.step(
            0.1,
            &mut ElementWiseOptimizer::from(AdamConfig::new().build()),
            gradients,
        );
        let error = error.expect_err("it needs all").to_string();
        assert!(error.starts_with("optimizer Adam takes whole gradients"), "{error}");

        let (mut module, gradients) = wrapped(ShardingStrategy::Optim);
        let mut muon = MuonConfig::new().init();
        let error = module.step_whole_parameters(0.1, &mut muon, gradients);
        let error = error.expect_err("it needs all").to_string();
        let start = "optimizer ModuleOptimizer takes whole";
        assert!(error.starts_with(start), "{error}");
    }

    #[test]
    fn muon_is_refused_where_there_are_vectors() {
        let layer = LinearConfig::new(3, 2).init(&Device::flex().autodiff());
        let context = ParallelContext::single(1);
        let mut module = DistributedDataParallel::new(layer, &context, DataParallelConfig::new());
        let module = module.as_mut().expect("one rank");
        let input = Tensor::<2>::ones([4, 3], &Device::flex().autodiff());
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
        let input = Tensor::<2>::ones([2, 3], &Device::flex().autodiff());
        let several = |layer: Linear| layer.forward(input).flatten(0, 1);
        let error = module.train_step(0.1, &mut AdamConfig::new().init(), several);
        let error = error.expect_err("there are four").to_string();
        assert!(
            error.starts_with("the loss has shape [4], expected one element"),
            "{error}"
        );
    }

    #[test]
    fn names_of_types_are_without_their_modules() {
        assert_eq!(short_name::<Option<Vec<Muon>>>(), "Option<Vec<Muon>>");
        assert_eq!(short_name::<[(u8, String); 2]>(), "[(u8, String); 2]");
    }
}
