//! `StoredOptimizer`: an optimizer whose state a checkpoint can keep, element by element, for any layout.

use burn::optim::{Adam, AdamState, AdaptiveMomentumState};
use burn::tensor::{Tensor, backend::Backend};
use cubecl_kernels::KernelBackend;

use super::{AdamW, AdamWState, ElementWise, Sgd, SgdState};

/// A tensor of an optimizer's state, `[elements of the piece]`, by its name.
pub type StateTensor<B> = (&'static str, Tensor<B, 1>);

/// An optimizer whose state is a number of updates, and tensors with an element for each element of the parameter.
pub trait StoredOptimizer<B: Backend>: ElementWise<B> {
    /// Returns the names of all tensors that a state of this optimizer may have.
    fn tensor_names(&self) -> &'static [&'static str];

    /// Returns the tensors of a state.
    fn tensors(state: &Self::State<1>) -> Vec<StateTensor<B>>;

    /// Returns the state after `updates` updates, at least one; `None` if the tensors are not those of a state of this
    /// optimizer.
    fn state(&self, updates: u64, tensors: Vec<StateTensor<B>>) -> Option<Self::State<1>>;

    /// Returns which setting is to change for a state of the tensors `stored`, which this optimizer cannot take; `None`
    /// if it is that of another optimizer.
    fn advice(&self, stored: &[&str]) -> Option<&'static str> {
        let _ = stored;
        None
    }
}

/// The means of gradients and of their squares, as every Adam calls them.
const ADAM: &[&str] = &["moment_1", "moment_2", "max_moment_2"];

impl<B: KernelBackend> StoredOptimizer<B> for AdamW {
    fn tensor_names(&self) -> &'static [&'static str] {
        &["moment_1", "moment_2"]
    }

    fn tensors(state: &AdamWState<B, 1>) -> Vec<StateTensor<B>> {
        vec![
            ("moment_1", state.moment_1.clone()),
            ("moment_2", state.moment_2.clone()),
        ]
    }

    fn state(&self, updates: u64, mut tensors: Vec<StateTensor<B>>) -> Option<AdamWState<B, 1>> {
        Some(AdamWState {
            time: updates as usize,
            moment_1: take(&mut tensors, "moment_1")?,
            moment_2: take(&mut tensors, "moment_2")?,
        })
    }
}

impl<B: Backend> StoredOptimizer<B> for Sgd {
    fn tensor_names(&self) -> &'static [&'static str] {
        if self.has_momentum() { &["momentum"] } else { &[] }
    }

    fn tensors(state: &SgdState<B, 1>) -> Vec<StateTensor<B>> {
        let momentum = state.momentum.iter();
        momentum.map(|momentum| ("momentum", momentum.clone())).collect()
    }

    fn state(&self, _updates: u64, mut tensors: Vec<StateTensor<B>>) -> Option<SgdState<B, 1>> {
        let momentum = take(&mut tensors, "momentum");
        (momentum.is_some() == self.has_momentum()).then_some(SgdState { momentum })
    }

    fn advice(&self, stored: &[&str]) -> Option<&'static str> {
        match (stored, self.has_momentum()) {
            (["momentum"], false) => Some(
                "it was written with a momentum, which is 0 now; train with that momentum (`SgdConfig::momentum`, \
                 --sgd-momentum)",
            ),
            ([], true) => Some(
                "it was written without momentum, which is not 0 now; train with momentum 0 (`SgdConfig::momentum`, \
                 --sgd-momentum 0)",
            ),
            _ => None,
        }
    }
}

impl<B: Backend> StoredOptimizer<B> for Adam {
    fn tensor_names(&self) -> &'static [&'static str] {
        ADAM
    }

    fn tensors(state: &AdamState<B, 1>) -> Vec<StateTensor<B>> {
        momentum_tensors(&state.momentum)
    }

    fn state(&self, updates: u64, tensors: Vec<StateTensor<B>>) -> Option<AdamState<B, 1>> {
        momentum(updates, tensors).map(AdamState::new)
    }
}

impl<B: Backend> StoredOptimizer<B> for burn::optim::AdamW {
    fn tensor_names(&self) -> &'static [&'static str] {
        ADAM
    }

    fn tensors(state: &burn::optim::AdamWState<B, 1>) -> Vec<StateTensor<B>> {
        momentum_tensors(&state.momentum)
    }

    fn state(&self, updates: u64, tensors: Vec<StateTensor<B>>) -> Option<burn::optim::AdamWState<B, 1>> {
        momentum(updates, tensors).map(burn::optim::AdamWState::new)
    }
}

fn momentum_tensors<B: Backend>(momentum: &AdaptiveMomentumState<B, 1>) -> Vec<StateTensor<B>> {
    let mut tensors = vec![
        ("moment_1", momentum.moment_1.clone()),
        ("moment_2", momentum.moment_2.clone()),
    ];
    tensors.extend(momentum.max_moment_2.clone().map(|tensor| ("max_moment_2", tensor)));
    tensors
}

fn momentum<B: Backend>(updates: u64, mut tensors: Vec<StateTensor<B>>) -> Option<AdaptiveMomentumState<B, 1>> {
    Some(AdaptiveMomentumState {
        time: updates as usize,
        moment_1: take(&mut tensors, "moment_1")?,
        moment_2: take(&mut tensors, "moment_2")?,
        max_moment_2: take(&mut tensors, "max_moment_2"),
    })
}

fn take<B: Backend>(tensors: &mut Vec<StateTensor<B>>, name: &str) -> Option<Tensor<B, 1>> {
    let found = tensors.iter().position(|(found, _)| *found == name)?;
    Some(tensors.swap_remove(found).1)
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;

    use super::*;
    use crate::optimizer::SgdConfig;

    #[test]
    fn sgd_names_its_momentum_where_only_that_has_changed() {
        let advice = |momentum, stored: &[&str]| {
            let sgd = SgdConfig::new().with_momentum(momentum).build();
            StoredOptimizer::<Flex>::advice(&sgd, stored)
        };
        assert!(advice(0.0, &["momentum"]).unwrap().contains("with a momentum"));
        assert!(advice(0.9, &[]).unwrap().contains("train with momentum 0 "));
        for momentum in [0.0, 0.9] {
            assert_eq!(advice(momentum, &["moment_1", "moment_2"]), None);
        }
    }
}
