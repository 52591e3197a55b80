//! `StoredOptimizer`: an optimizer whose state a checkpoint can keep, element by element, for any layout.

use burn::optim::{AdamState, AdaptiveMomentumState};
use burn::tensor::Tensor;

use super::{
    Adafactor, AdafactorState, Adam, AdamW, AdamWState, ElementWise, FactoredMoment, Lion, LionState, Muon, MuonState,
    SecondMoment, Sgd, SgdState,
};
use crate::data_parallel::GradientEntry;
use crate::parameters::Factoring;

/// A tensor of an optimizer's state, `[elements of the piece]`, by its name.
pub type StateTensor = (&'static str, Tensor<1>);

/// A tensor that the state of a parameter may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorLayout {
    /// Name of the tensor.
    pub name: &'static str,
    /// The number of its elements where each rank has the whole of it; `None` where it has an element for each of the
    /// parameter's.
    pub whole: Option<usize>,
}

impl TensorLayout {
    /// Returns that of a tensor with an element for each of the parameter's.
    pub fn of_elements(name: &'static str) -> Self {
        Self { name, whole: None }
    }
}

/// An optimizer whose state is a number of updates, and tensors: with an element for each element of the parameter, or
/// small ones, which each rank that holds elements of the parameter has whole.
pub trait StoredOptimizer: ElementWise {
    /// Returns the names of all tensors that a state of this optimizer may have.
    fn tensor_names(&self) -> &'static [&'static str];

    /// Returns those that the state of this parameter may have.
    fn layout(&self, entry: &GradientEntry) -> Vec<TensorLayout> {
        let _ = entry;
        let names = self.tensor_names().iter();
        names.map(|name| TensorLayout::of_elements(name)).collect()
    }

    /// Returns the tensors of a state with an element for each of the parameter's.
    fn tensors(state: &Self::State<1>) -> Vec<StateTensor>;

    /// Returns those that each rank has whole.
    fn whole_tensors(state: &Self::State<1>) -> Vec<StateTensor> {
        let _ = state;
        Vec::new()
    }

    /// Returns the state after `updates` updates, at least one; `None` if the tensors are not those of a state of this
    /// optimizer.
    fn state(&self, updates: u64, tensors: Vec<StateTensor>) -> Option<Self::State<1>>;

    /// Returns which setting is to change for a state of the tensors `stored`, which this optimizer cannot take; `None`
    /// if it is that of another optimizer.
    fn advice(&self, stored: &[&str]) -> Option<&'static str> {
        let _ = stored;
        None
    }
}

/// The means of gradients and of their squares, as every Adam calls them.
const ADAM: &[&str] = &["moment_1", "moment_2", "max_moment_2"];

impl StoredOptimizer for AdamW {
    fn tensor_names(&self) -> &'static [&'static str] {
        &["moment_1", "moment_2"]
    }

    fn tensors(state: &AdamWState<1>) -> Vec<StateTensor> {
        vec![
            ("moment_1", state.moment_1.clone()),
            ("moment_2", state.moment_2.clone()),
        ]
    }

    fn state(&self, updates: u64, mut tensors: Vec<StateTensor>) -> Option<AdamWState<1>> {
        adamw_state(updates, &mut tensors)
    }
}

impl StoredOptimizer for Adam {
    fn tensor_names(&self) -> &'static [&'static str] {
        &["moment_1", "moment_2"]
    }

    fn tensors(state: &AdamWState<1>) -> Vec<StateTensor> {
        AdamW::tensors(state)
    }

    fn state(&self, updates: u64, mut tensors: Vec<StateTensor>) -> Option<AdamWState<1>> {
        adamw_state(updates, &mut tensors)
    }
}

impl StoredOptimizer for Lion {
    fn tensor_names(&self) -> &'static [&'static str] {
        &["moment_1"]
    }

    fn tensors(state: &LionState<1>) -> Vec<StateTensor> {
        vec![("moment_1", state.moment_1.clone())]
    }

    fn state(&self, _updates: u64, mut tensors: Vec<StateTensor>) -> Option<LionState<1>> {
        let moment_1 = take(&mut tensors, "moment_1")?;
        Some(LionState { moment_1 })
    }
}

impl StoredOptimizer for Muon {
    fn tensor_names(&self) -> &'static [&'static str] {
        &["gradient_mean"]
    }

    fn tensors(state: &MuonState<1>) -> Vec<StateTensor> {
        vec![("gradient_mean", state.gradient_mean.clone())]
    }

    fn state(&self, _updates: u64, mut tensors: Vec<StateTensor>) -> Option<MuonState<1>> {
        let gradient_mean = take(&mut tensors, "gradient_mean")?;
        Some(MuonState { gradient_mean })
    }
}

impl StoredOptimizer for Adafactor {
    fn tensor_names(&self) -> &'static [&'static str] {
        &["row_variance", "column_variance", "variance"]
    }

    fn layout(&self, entry: &GradientEntry) -> Vec<TensorLayout> {
        let Some(factoring) = Factoring::of(&entry.shape, &entry.placement) else {
            return vec![TensorLayout::of_elements("variance")];
        };
        let sizes = factoring.logical();
        let whole = [
            ("row_variance", sizes.num_rows()),
            ("column_variance", sizes.num_columns()),
        ];
        let layout = whole.map(|(name, length)| TensorLayout {
            name,
            whole: Some(length),
        });
        layout.to_vec()
    }

    fn tensors(state: &AdafactorState<1>) -> Vec<StateTensor> {
        match &state.moment {
            SecondMoment::Elements(variance) => vec![("variance", variance.clone())],
            SecondMoment::Factored(_) => Vec::new(),
        }
    }

    fn whole_tensors(state: &AdafactorState<1>) -> Vec<StateTensor> {
        match &state.moment {
            SecondMoment::Elements(_) => Vec::new(),
            SecondMoment::Factored(FactoredMoment { rows, columns }) => {
                vec![("row_variance", rows.clone()), ("column_variance", columns.clone())]
            }
        }
    }

    fn state(&self, updates: u64, mut tensors: Vec<StateTensor>) -> Option<AdafactorState<1>> {
        let moment = match take(&mut tensors, "variance") {
            Some(variance) => SecondMoment::Elements(variance),
            None => SecondMoment::Factored(FactoredMoment {
                rows: take(&mut tensors, "row_variance")?,
                columns: take(&mut tensors, "column_variance")?,
            }),
        };
        let time = updates as usize;
        Some(AdafactorState { time, moment })
    }
}

impl StoredOptimizer for Sgd {
    fn tensor_names(&self) -> &'static [&'static str] {
        if self.has_momentum() { &["momentum"] } else { &[] }
    }

    fn tensors(state: &SgdState<1>) -> Vec<StateTensor> {
        let momentum = state.momentum.iter();
        momentum.map(|momentum| ("momentum", momentum.clone())).collect()
    }

    fn state(&self, _updates: u64, mut tensors: Vec<StateTensor>) -> Option<SgdState<1>> {
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

impl StoredOptimizer for burn::optim::Adam {
    fn tensor_names(&self) -> &'static [&'static str] {
        ADAM
    }

    fn tensors(state: &AdamState<1>) -> Vec<StateTensor> {
        momentum_tensors(&state.momentum)
    }

    fn state(&self, updates: u64, tensors: Vec<StateTensor>) -> Option<AdamState<1>> {
        momentum(updates, tensors).map(AdamState::new)
    }
}

impl StoredOptimizer for burn::optim::AdamW {
    fn tensor_names(&self) -> &'static [&'static str] {
        ADAM
    }

    fn tensors(state: &burn::optim::AdamWState<1>) -> Vec<StateTensor> {
        momentum_tensors(&state.momentum)
    }

    fn state(&self, updates: u64, tensors: Vec<StateTensor>) -> Option<burn::optim::AdamWState<1>> {
        momentum(updates, tensors).map(burn::optim::AdamWState::new)
    }
}

fn adamw_state(updates: u64, tensors: &mut Vec<StateTensor>) -> Option<AdamWState<1>> {
    Some(AdamWState {
        time: updates as usize,
        moment_1: take(tensors, "moment_1")?,
        moment_2: take(tensors, "moment_2")?,
    })
}

fn momentum_tensors(momentum: &AdaptiveMomentumState<1>) -> Vec<StateTensor> {
    let mut tensors = vec![
        ("moment_1", momentum.moment_1.clone()),
        ("moment_2", momentum.moment_2.clone()),
    ];
    tensors.extend(momentum.max_moment_2.clone().map(|tensor| ("max_moment_2", tensor)));
    tensors
}

fn momentum(updates: u64, mut tensors: Vec<StateTensor>) -> Option<AdaptiveMomentumState<1>> {
    Some(AdaptiveMomentumState {
        time: updates as usize,
        moment_1: take(&mut tensors, "moment_1")?,
        moment_2: take(&mut tensors, "moment_2")?,
        max_moment_2: take(&mut tensors, "max_moment_2"),
    })
}

fn take(tensors: &mut Vec<StateTensor>, name: &str) -> Option<Tensor<1>> {
    let found = tensors.iter().position(|(found, _)| *found == name)?;
    Some(tensors.swap_remove(found).1)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::optimizer::SgdConfig;

    #[test]
    fn sgd_names_its_momentum_where_only_that_has_changed() {
        let advice = |momentum, stored: &[&str]| {
            let sgd = SgdConfig::new().with_momentum(momentum).build();
            StoredOptimizer::advice(&sgd, stored)
        };
        assert!(advice(0.0, &["momentum"]).unwrap().contains("with a momentum"));
        assert!(advice(0.9, &[]).unwrap().contains("train with momentum 0 "));
        for momentum in [0.0, 0.9] {
            assert_eq!(advice(momentum, &["moment_1", "moment_2"]), None);
        }
    }
}
