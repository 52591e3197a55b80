//! `TrainerOptimizer`: the optimizer of a [`Trainer`](super::Trainer), as the settings of the run choose it.

use burn::optim::{LearningRate, SimpleOptimizer};
use burn::record::Record;
use burn::tensor::{Tensor, backend::Backend, ops::Device};
use cubecl_kernels::{KernelBackend, Kernels};

use crate::data_parallel::BucketForm;
use crate::optimizer::{AdamW, AdamWState, ElementWise, Sgd, SgdConfig, SgdState, StateTensor, StoredOptimizer};
use crate::training::TrainingConfig;

/// One of the optimizers that a trainer may have.
#[derive(Clone, Debug)]
pub(super) enum TrainerOptimizer {
    AdamW(AdamW),
    Sgd(Sgd),
}

/// What it keeps of a parameter.
#[derive(Record, Clone)]
pub(super) enum TrainerOptimizerState<B: Backend, const D: usize> {
    AdamW(AdamWState<B, D>),
    Sgd(SgdState<B, D>),
}

impl TrainerOptimizer {
    /// Returns the optimizer of a group of parameters, with this weight decay.
    pub(super) fn new(config: &TrainingConfig, kernels: Kernels, weight_decay: f64) -> Self {
        match config.sgd_momentum {
            None => Self::AdamW(config.adamw(weight_decay).build().with_kernels(kernels)),
            Some(momentum) => Self::Sgd(SgdConfig { momentum, weight_decay }.build()),
        }
    }

    /// Returns the same optimizer with gradients multiplied by a number first.
    pub(super) fn with_gradient_scale(self, gradient_scale: f64) -> Self {
        match self {
            Self::AdamW(optimizer) => Self::AdamW(optimizer.with_gradient_scale(gradient_scale)),
            Self::Sgd(optimizer) => Self::Sgd(optimizer.with_gradient_scale(gradient_scale)),
        }
    }
}

/// The AdamW whose updates a [`BucketForm`] makes.
fn adamw(optimizer: &TrainerOptimizer) -> &AdamW {
    match optimizer {
        TrainerOptimizer::AdamW(optimizer) => optimizer,
        TrainerOptimizer::Sgd(_) => unreachable!("only AdamW has a bucket form"),
    }
}

impl<B: KernelBackend> ElementWise<B> for TrainerOptimizer {
    fn bucket_form(&self) -> Option<BucketForm<B, Self>> {
        let Self::AdamW(optimizer) = self else {
            return None;
        };
        <AdamW as ElementWise<B>>::bucket_form(optimizer)?;
        Some(BucketForm {
            step: |optimizer, learning_rate, time| adamw(optimizer).numbers(learning_rate, time),
            moments: |state| match state {
                TrainerOptimizerState::AdamW(state) => [state.moment_1, state.moment_2],
                TrainerOptimizerState::Sgd(_) => unreachable!("only AdamW has a bucket form"),
            },
            state: |updates, [moment_1, moment_2]| {
                TrainerOptimizerState::AdamW(AdamWState {
                    time: updates as usize,
                    moment_1,
                    moment_2,
                })
            },
        })
    }
}

impl<B: KernelBackend> SimpleOptimizer<B> for TrainerOptimizer {
    type State<const D: usize> = TrainerOptimizerState<B, D>;

    fn step<const D: usize>(
        &self,
        learning_rate: LearningRate,
        tensor: Tensor<B, D>,
        gradient: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        match self {
            Self::AdamW(optimizer) => {
                let state = state.map(|state| match state {
                    TrainerOptimizerState::AdamW(state) => state,
                    TrainerOptimizerState::Sgd(_) => unreachable!("a run has one optimizer"),
                });
                let (tensor, state) = optimizer.step(learning_rate, tensor, gradient, state);
                (tensor, state.map(TrainerOptimizerState::AdamW))
            }
            Self::Sgd(optimizer) => {
                let state = state.map(|state| match state {
                    TrainerOptimizerState::Sgd(state) => state,
                    TrainerOptimizerState::AdamW(_) => unreachable!("a run has one optimizer"),
                });
                let (tensor, state) = optimizer.step(learning_rate, tensor, gradient, state);
                (tensor, state.map(TrainerOptimizerState::Sgd))
            }
        }
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device<B>) -> Self::State<D> {
        match state {
            TrainerOptimizerState::AdamW(state) => {
                TrainerOptimizerState::AdamW(<AdamW as SimpleOptimizer<B>>::to_device(state, device))
            }
            TrainerOptimizerState::Sgd(state) => {
                TrainerOptimizerState::Sgd(<Sgd as SimpleOptimizer<B>>::to_device(state, device))
            }
        }
    }
}

impl<B: KernelBackend> StoredOptimizer<B> for TrainerOptimizer {
    fn tensor_names(&self) -> &'static [&'static str] {
        match self {
            Self::AdamW(optimizer) => StoredOptimizer::<B>::tensor_names(optimizer),
            Self::Sgd(optimizer) => StoredOptimizer::<B>::tensor_names(optimizer),
        }
    }

    fn tensors(state: &Self::State<1>) -> Vec<StateTensor<B>> {
        match state {
            TrainerOptimizerState::AdamW(state) => AdamW::tensors(state),
            TrainerOptimizerState::Sgd(state) => Sgd::tensors(state),
        }
    }

    fn state(&self, updates: u64, tensors: Vec<StateTensor<B>>) -> Option<Self::State<1>> {
        match self {
            Self::AdamW(optimizer) => optimizer.state(updates, tensors).map(TrainerOptimizerState::AdamW),
            Self::Sgd(optimizer) => optimizer.state(updates, tensors).map(TrainerOptimizerState::Sgd),
        }
    }

    fn advice(&self, stored: &[&str]) -> Option<&'static str> {
        match self {
            Self::AdamW(optimizer) => StoredOptimizer::<B>::advice(optimizer, stored),
            Self::Sgd(optimizer) => StoredOptimizer::<B>::advice(optimizer, stored),
        }
    }
}
