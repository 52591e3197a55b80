//! `AnyOptimizer`: one of this crate's optimizers, chosen when a program runs, so that groups of parameters may have
//! different ones.

use burn::optim::{LearningRate, Optimizer, RecordState, StateSink, StateSource, join_path};
use burn::tensor::{Device, Tensor};

use super::{
    Adafactor, AdafactorState, Adam, AdamW, AdamWState, ElementWise, Lion, LionState, Muon, MuonState, Sgd, SgdState,
    StateTensor, StoredOptimizer, TensorLayout,
};
use crate::data_parallel::{BucketForm, ElementWiseOptimizer, FactoredForm, GradientEntry, MatrixForm};

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
#[derive(Clone)]
pub enum AnyOptimizerState<const D: usize> {
    /// The state of AdamW and of Adam.
    AdamW(AdamWState<D>),
    /// The state of gradient descent.
    Sgd(SgdState<D>),
    /// The state of Lion.
    Lion(LionState<D>),
    /// The state of Muon.
    Muon(MuonState<D>),
    /// The state of Adafactor.
    Adafactor(AdafactorState<D>),
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

        impl<const D: usize> RecordState for AnyOptimizerState<D> {
            fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
                match self {
                    $(Self::$kept(state) => state.state_flatten(&join_path(prefix, stringify!($kept)), out),)*
                }
            }

            fn state_unflatten(prefix: &str, source: &mut StateSource, device: &Device) -> Option<Self> {
                $(
                    let path = join_path(prefix, stringify!($kept));
                    if source.has_under(&path) {
                        return RecordState::state_unflatten(&path, source, device).map(Self::$kept);
                    }
                )*
                None
            }
        }

        impl Optimizer for AnyOptimizer {
            type State<const D: usize> = AnyOptimizerState<D>;

            fn step<const D: usize>(
                &self,
                learning_rate: LearningRate,
                tensor: Tensor<D>,
                gradient: Tensor<D>,
                state: Option<Self::State<D>>,
            ) -> (Tensor<D>, Option<Self::State<D>>) {
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

            fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
                match state {
                    $(AnyOptimizerState::$kept(state) => {
                        AnyOptimizerState::$kept(<$kept as Optimizer>::to_device(state, device))
                    })*
                }
            }
        }

        impl StoredOptimizer for AnyOptimizer {
            fn tensor_names(&self) -> &'static [&'static str] {
                of_choice!(&self.choice, optimizer => StoredOptimizer::tensor_names(optimizer))
            }

            fn tensors(state: &Self::State<1>) -> Vec<StateTensor> {
                match state {
                    $(AnyOptimizerState::$kept(state) => $kept::tensors(state),)*
                }
            }

            fn whole_tensors(state: &Self::State<1>) -> Vec<StateTensor> {
                match state {
                    $(AnyOptimizerState::$kept(state) => $kept::whole_tensors(state),)*
                }
            }

            fn layout(&self, entry: &GradientEntry) -> Vec<TensorLayout> {
                of_choice!(&self.choice, optimizer => StoredOptimizer::layout(optimizer, entry))
            }

            fn state(&self, updates: u64, tensors: Vec<StateTensor>) -> Option<Self::State<1>> {
                match &self.choice {
                    $(Choice::$optimizer(optimizer) => {
                        optimizer.state(updates, tensors).map(AnyOptimizerState::$state)
                    })*
                }
            }

            fn advice(&self, stored: &[&str]) -> Option<&'static str> {
                of_choice!(&self.choice, optimizer => StoredOptimizer::advice(optimizer, stored))
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
    pub fn init(self) -> ElementWiseOptimizer<Self> {
        ElementWiseOptimizer::from(self)
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

impl ElementWise for AnyOptimizer {
    fn bucket_form(&self) -> Option<BucketForm<Self>> {
        let Choice::AdamW(optimizer) = &self.choice else {
            return None;
        };
        <AdamW as ElementWise>::bucket_form(optimizer)?;
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

    fn matrix_form(&self) -> Option<MatrixForm<Self>> {
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

    fn factored_form(&self) -> Option<FactoredForm<Self>> {
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
