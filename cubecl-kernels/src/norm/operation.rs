//! The norms' passes as operations: alone, or with the sum of a residual stream before them.

use burn::tensor::Tensor;
#[cfg(feature = "cubecl")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;
#[cfg(feature = "cubecl")]
use cubecl::client::Client;

#[cfg(feature = "cubecl")]
use super::launch;
use super::{
    Backward, BackwardInto, Forward, NormKind, NormParameters, RowGradients, Saved, Statistics, flex, reference,
};
use crate::accumulate::vectors::add_each;
use crate::operation::parts::{Names, Part, PartRule, of_rows};
use crate::operation::{Of, Operation, Spec, apply};
use crate::precision::compute_type;
use crate::random::RowDropout;
use crate::sums::GradientSums;
#[cfg(feature = "cubecl")]
use crate::sums::are_written;

impl Forward {
    pub fn of(parameters: &NormParameters, dropout: Option<RowDropout>) -> Self {
        Self {
            kind: parameters.kind,
            epsilon: parameters.epsilon,
            dropout,
        }
    }
}

impl Operation for Forward {
    type Inputs = (
        Tensor<2>,
        Option<Tensor<1>>,
        Option<Tensor<2>>,
        Tensor<1>,
        Option<Tensor<1>>,
    );
    type Outputs = (Option<Tensor<2>>, Tensor<2>, Statistics);

    const NAME: &'static str = "norm";

    fn outputs(&self, (input, _, residual, ..): Of<Self::Inputs, Spec>) -> Of<Self::Outputs, Spec> {
        let (shape, dtype) = &input;
        let each: Spec = ([shape[0]].into(), compute_type(*dtype));
        let mean = (self.kind == NormKind::Layer).then(|| each.clone());
        (residual, input, (mean, each))
    }

    fn part_rule(&self, (_, bias, residual, _, norm_bias): Of<Self::Inputs, Spec>) -> Option<PartRule> {
        let residual = residual.map(|_| "r.");
        let inputs = ("r.", bias.map(|_| "."), residual, ".", norm_bias.map(|_| "."));
        let mean = (self.kind == NormKind::Layer).then_some("r");
        Names::of::<Self>(inputs, (residual, "r.", (mean, "r"))).rule()
    }

    fn run_part(&self, inputs: Self::Inputs, part: &dyn Part) -> Self::Outputs {
        let own = Self {
            dropout: of_rows(&self.dropout, part),
            ..*self
        };
        apply(&own, inputs)
    }

    fn reference(&self, inputs: Self::Inputs) -> Self::Outputs {
        reference::forward(self, inputs)
    }

    fn flex(&self, inputs: Of<Self::Inputs, FlexTensor>) -> Of<Self::Outputs, FlexTensor> {
        flex::forward(self, inputs)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, inputs: Of<Self::Inputs, CubeTensor>) -> Of<Self::Outputs, CubeTensor> {
        launch::forward(self, inputs)
    }
}

impl Backward {
    /// Returns the number of vectors.
    pub fn vectors(&self) -> usize {
        1 + usize::from(self.has_bias) + usize::from(self.has_addend_bias)
    }

    fn rows<T: Clone>(&self, of_output: T) -> (T, Option<T>) {
        let addend = self.dropout.as_ref().map(|_| of_output.clone());
        (of_output, addend)
    }
}

impl Operation for Backward {
    type Inputs = (Saved, Option<Tensor<2>>, Tensor<2>);
    type Outputs = (RowGradients, Vec<Tensor<1>>);

    const NAME: &'static str = "norm_backward";

    fn outputs(&self, ((_, weight, _), _, of_output): Of<Self::Inputs, Spec>) -> Of<Self::Outputs, Spec> {
        (self.rows(of_output), vec![weight; self.vectors()])
    }

    fn part_rule(&self, ((_, _, (mean, _)), of_hidden, _): Of<Self::Inputs, Spec>) -> Option<PartRule> {
        let of_hidden = of_hidden.map(|_| "r.");
        let inputs = (("r.", ".", (mean.map(|_| "r"), "r")), of_hidden, "r.");
        let names = Names::of::<Self>(inputs, (self.rows("r."), vec!["."; self.vectors()]));
        // Of the vectors each rank has the terms of its rows.
        match of_hidden {
            None => names.linear_in_last().rule(),
            Some(_) => names.summed().rule(),
        }
    }

    fn run_part(&self, inputs: Self::Inputs, part: &dyn Part) -> Self::Outputs {
        let own = Self {
            dropout: of_rows(&self.dropout, part),
            ..*self
        };
        apply(&own, inputs)
    }

    fn reference(&self, inputs: Self::Inputs) -> Self::Outputs {
        reference::backward(self, inputs)
    }

    fn flex(&self, inputs: Of<Self::Inputs, FlexTensor>) -> Of<Self::Outputs, FlexTensor> {
        flex::backward(self, inputs)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, inputs: Of<Self::Inputs, CubeTensor>) -> Of<Self::Outputs, CubeTensor> {
        let dtype = inputs.2.dtype;
        let (rows, partials) = launch::backward(self, inputs);
        (rows, partials.sum(dtype))
    }
}

impl Operation for BackwardInto {
    type Inputs = (<Backward as Operation>::Inputs, GradientSums);
    type Outputs = (RowGradients, GradientSums);

    const NAME: &'static str = "norm_backward_into";

    fn outputs(&self, ((_, _, of_output), sums): Of<Self::Inputs, Spec>) -> Of<Self::Outputs, Spec> {
        (self.rule.rows(of_output), sums)
    }

    fn reference(&self, (inputs, sums): Self::Inputs) -> Self::Outputs {
        let (rows, vectors) = apply(&self.rule, inputs);
        (rows, add_each(sums, &self.places, vectors))
    }

    #[cfg(feature = "cubecl")]
    fn is_taken(&self, _client: &Client, (_, sums): Of<Self::Inputs, Spec>) -> bool {
        are_written(&sums)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (inputs, sums): Of<Self::Inputs, CubeTensor>) -> Of<Self::Outputs, CubeTensor> {
        let (rows, partials) = launch::backward(&self.rule, inputs);
        (rows, partials.add_to(sums, &self.places))
    }
}
