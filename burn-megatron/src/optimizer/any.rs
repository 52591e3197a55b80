//! `AnyOptimizer`: one of this crate's optimizers, chosen when a program runs, so that groups of parameters may have
//! different ones.

use burn::module::AutodiffModule;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{LearningRate, SimpleOptimizer};
use burn::record::Record;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, ops::Device};
use cubecl_kernels::KernelBackend;

use super::{
    Adafactor, AdafactorState, Adam, AdamW, AdamWState, ElementWise, Lion, LionState, Muon, MuonState, Sgd, SgdState,
    StateTensor, StoredOptimizer, TensorLayout,
};
use crate::data_parallel::{BucketForm, FactoredForm, GradientEntry, MatrixForm};

/// One of this crate's optimizers.
///
/// All groups of a [`ShardedOptimizer`](super::ShardedOptimizer) are of one type: this one lets each have another
/// optimizer, and another multiple of the learning rate.
///
/// ```
/// use burn_megatron::optimizer::{AdamWConfig, AnyOptimizer, SgdConfig};
///
/// let embeddings = AnyOptimizer::from(SgdConfig::new().build());
/// let others = AnyOptimizer::from(AdamWConfig::new().build()).with_learning_rate_factor(0.1);
/// ```
#[derive(Clone, Debug)]
pub struct AnyOptimizer {
    choice: Choice,
    learning_rate_factor: f64,
}

#[derive(Clone, Debug)]
enum Choice {
    AdamW(AdamW),
    Adam(Adam),
    Sgd(Sgd),
    Lion(Lion),
    Muon(Muon),
    Adafactor(Adafactor),
}

/// The state that the optimizer keeps of a parameter.
#[derive(Record, Clone)]
pub enum AnyOptimizerState<B: Backend, const D: usize> {
    /// The state of AdamW and of Adam.
    AdamW(AdamWState<B, D>),
    /// The state of gradient descent.
    Sgd(SgdState<B, D>),
    /// The state of Lion.
    Lion(LionState<B, D>),
    /// The state of Muon.
    Muon(MuonState<B, D>),
    /// The state of Adafactor.
    Adafactor(AdafactorState<B, D>),
}

/// Evaluates `$body` with `$optimizer` as the optimizer that was chosen.
macro_rules! of_choice {
    ($choice:expr, $optimizer:ident => $body:expr) => {
        match $choice {
            Choice::AdamW($optimizer) => $body,
            Choice::Adam($optimizer) => $body,
            Choice::Sgd($optimizer) => $body,
            Choice::Lion($optimizer) => $body,
            Choice::Muon($optimizer) => $body,
            Choice::Adafactor($optimizer) => $body,
        }
    };
}

/// Names each optimizer and the state that it keeps, and those that every state is named after.
macro_rules! choices {
    ($($optimizer:ident: $state:ident),*; $($kept:ident),*) => {
        $(
            impl From<$optimizer> for AnyOptimizer {
                fn from(optimizer: $optimizer) -> Self {
                    Self { choice: Choice::$optimizer(optimizer), learning_rate_factor: 1.0 }
                }
            }
        )*

        impl<B: KernelBackend> SimpleOptimizer<B> for AnyOptimizer {
            type State<const D: usize> = AnyOptimizerState<B, D>;

            fn step<const D: usize>(
                &self,
                learning_rate: LearningRate,
                tensor: Tensor<B, D>,
                gradient: Tensor<B, D>,
                state: Option<Self::State<D>>,
            ) -> (Tensor<B, D>, Option<Self::State<D>>) {
                let learning_rate = self.rate(learning_rate);
                match &self.choice {
                    $(Choice::$optimizer(optimizer) => {
                        let state = state.map(|state| match state {
                            AnyOptimizerState::$state(state) => state,
                            _ => unreachable!("a parameter keeps its optimizer"),
                        });
                        let (tensor, state) = optimizer.step(learning_rate, tensor, gradient, state);
                        (tensor, state.map(AnyOptimizerState::$state))
                    })*
                }
            }

            fn to_device<const D: usize>(state: Self::State<D>, device: &Device<B>) -> Self::State<D> {
                match state {
                    $(AnyOptimizerState::$kept(state) => {
                        AnyOptimizerState::$kept(<$kept as SimpleOptimizer<B>>::to_device(state, device))
                    })*
                }
            }
        }

        impl<B: KernelBackend> StoredOptimizer<B> for AnyOptimizer {
            fn tensor_names(&self) -> &'static [&'static str] {
                of_choice!(&self.choice, optimizer => StoredOptimizer::<B>::tensor_names(optimizer))
            }

            fn tensors(state: &Self::State<1>) -> Vec<StateTensor<B>> {
                match state {
                    $(AnyOptimizerState::$kept(state) => $kept::tensors(state),)*
                }
            }

            fn whole_tensors(state: &Self::State<1>) -> Vec<StateTensor<B>> {
                match state {
                    $(AnyOptimizerState::$kept(state) => $kept::whole_tensors(state),)*
                }
            }

            fn layout(&self, entry: &GradientEntry) -> Vec<TensorLayout> {
                of_choice!(&self.choice, optimizer => StoredOptimizer::<B>::layout(optimizer, entry))
            }

            fn state(&self, updates: u64, tensors: Vec<StateTensor<B>>) -> Option<Self::State<1>> {
                match &self.choice {
                    $(Choice::$optimizer(optimizer) => {
                        optimizer.state(updates, tensors).map(AnyOptimizerState::$state)
                    })*
                }
            }

            fn advice(&self, stored: &[&str]) -> Option<&'static str> {
                of_choice!(&self.choice, optimizer => StoredOptimizer::<B>::advice(optimizer, stored))
            }
        }
    };
}

choices!(
    AdamW: AdamW, Adam: AdamW, Sgd: Sgd, Lion: Lion, Muon: Muon, Adafactor: Adafactor;
    AdamW, Sgd, Lion, Muon, Adafactor
);

impl AnyOptimizer {
    /// Returns an optimizer of a module's parameters.
    pub fn init<B, M>(self) -> OptimizerAdaptor<Self, M, B>
    where
        B: AutodiffBackend<InnerBackend: KernelBackend>,
        M: AutodiffModule<B>,
    {
        OptimizerAdaptor::from(self)
    }

    /// Returns the same optimizer with learning rates multiplied by a number first, 1 unless this says otherwise.
    pub fn with_learning_rate_factor(self, learning_rate_factor: f64) -> Self {
        Self {
            learning_rate_factor,
            ..self
        }
    }

    /// Returns the same optimizer with gradients multiplied by a number first, 1 unless this says otherwise: clipping
    /// without a pass of its own.
    pub fn with_gradient_scale(self, gradient_scale: f64) -> Self {
        let factor = self.learning_rate_factor;
        let scaled = of_choice!(self.choice, optimizer => Self::from(optimizer.with_gradient_scale(gradient_scale)));
        scaled.with_learning_rate_factor(factor)
    }

    /// A learning rate, multiplied.
    fn rate(&self, learning_rate: LearningRate) -> LearningRate {
        learning_rate * self.learning_rate_factor
    }
}

/// The Muon whose directions a [`MatrixForm`] makes.
fn muon(optimizer: &AnyOptimizer) -> &Muon {
    match &optimizer.choice {
        Choice::Muon(optimizer) => optimizer,
        _ => unreachable!("only Muon has a matrix form"),
    }
}

/// The Adafactor whose updates a [`FactoredForm`] makes.
fn adafactor(optimizer: &AnyOptimizer) -> &Adafactor {
    match &optimizer.choice {
        Choice::Adafactor(optimizer) => optimizer,
        _ => unreachable!("only Adafactor has a factored form"),
    }
}

/// The AdamW whose updates a [`BucketForm`] makes.
fn adamw(optimizer: &AnyOptimizer) -> &AdamW {
    match &optimizer.choice {
        Choice::AdamW(optimizer) => optimizer,
        _ => unreachable!("only AdamW has a bucket form"),
    }
}

impl<B: KernelBackend> ElementWise<B> for AnyOptimizer {
    fn bucket_form(&self) -> Option<BucketForm<B, Self>> {
        let Choice::AdamW(optimizer) = &self.choice else {
            return None;
        };
        <AdamW as ElementWise<B>>::bucket_form(optimizer)?;
        Some(BucketForm {
            step: |optimizer, learning_rate, time| adamw(optimizer).numbers(optimizer.rate(learning_rate), time),
            moments: |state| match state {
                AnyOptimizerState::AdamW(state) => [state.moment_1, state.moment_2],
                _ => unreachable!("only AdamW has a bucket form"),
            },
            state: |updates, [moment_1, moment_2]| {
                AnyOptimizerState::AdamW(AdamWState {
                    time: updates as usize,
                    moment_1,
                    moment_2,
                })
            },
        })
    }

    fn matrix_form(&self) -> Option<MatrixForm<B, Self>> {
        matches!(self.choice, Choice::Muon(_)).then_some(MatrixForm {
            momentum: |optimizer, gradient, state| {
                let state = state.map(|state| match state {
                    AnyOptimizerState::Muon(state) => state,
                    _ => unreachable!("a parameter keeps its optimizer"),
                });
                let (update, state) = muon(optimizer).momentum(gradient, state);
                (update, AnyOptimizerState::Muon(state))
            },
            direction: |optimizer, matrices| muon(optimizer).direction(matrices),
            factors: |optimizer, learning_rate| muon(optimizer).factors(optimizer.rate(learning_rate)),
        })
    }

    fn factored_form(&self) -> Option<FactoredForm<B, Self>> {
        matches!(self.choice, Choice::Adafactor(_)).then_some(FactoredForm {
            step: |optimizer, learning_rate, time| adafactor(optimizer).numbers(optimizer.rate(learning_rate), time),
            moment: |state| match state {
                AnyOptimizerState::Adafactor(state) => state.moment,
                _ => unreachable!("a parameter keeps its optimizer"),
            },
            state: |updates, moment| {
                AnyOptimizerState::Adafactor(AdafactorState {
                    time: updates as usize,
                    moment,
                })
            },
        })
    }
}
