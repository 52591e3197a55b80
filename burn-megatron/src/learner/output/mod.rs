//! `GatherOutput`: outputs of a step, joined over the data-parallel ranks, so that metrics see the global batch.

mod gatherer;

use burn::tensor::kind::Basic;
use burn::tensor::{Device, Tensor, TensorData};
use burn::train::{ClassificationOutput, MultiLabelClassificationOutput, RegressionOutput, SequenceOutput};

pub(super) use gatherer::OutputGatherer;

/// A part of a step's output on one rank.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputPart {
    /// Has a row for each sample: those of all ranks are joined along dimension 0, in the order of the ranks.
    Rows(TensorData),
    /// A mean over the samples, such as a loss: the mean over ranks, weighted by their samples.
    Mean(TensorData),
}

impl OutputPart {
    /// Returns the part that a loss is: a mean, or a row for each sample if there are several.
    pub fn loss(loss: &Tensor<1>) -> Self {
        match loss.dims()[0] {
            1 => Self::Mean(loss.to_data()),
            _ => Self::Rows(loss.to_data()),
        }
    }

    fn data(&self) -> &TensorData {
        match self {
            Self::Rows(data) | Self::Mean(data) => data,
        }
    }
}

/// An output whose parts can be joined over ranks. burn-train's own outputs are; a type of your own lists its tensors:
///
/// ```
/// use burn::tensor::{Tensor, TensorData};
/// use burn_megatron::learner::{GatherOutput, OutputPart};
///
/// struct Scored {
///     loss: Tensor<1>,
///     scores: Tensor<2>,
/// }
///
/// impl GatherOutput for Scored {
///     fn parts(&self) -> Vec<OutputPart> {
///         vec![OutputPart::loss(&self.loss), OutputPart::Rows(self.scores.to_data())]
///     }
///
///     fn with_parts(self, parts: Vec<TensorData>) -> Self {
///         let [loss, scores] = parts.try_into().expect("the two that `parts` returned");
///         let device = self.loss.device();
///         Self {
///             loss: Tensor::from_data(loss, &device),
///             scores: Tensor::from_data(scores, &device),
///         }
///     }
/// }
/// ```
pub trait GatherOutput: Sized {
    /// Returns the parts, in a fixed order.
    fn parts(&self) -> Vec<OutputPart>;

    /// Returns the output of all ranks, given the joined parts in the order of [`parts`](Self::parts).
    fn with_parts(self, parts: Vec<TensorData>) -> Self;
}

impl GatherOutput for () {
    fn parts(&self) -> Vec<OutputPart> {
        Vec::new()
    }

    fn with_parts(self, _parts: Vec<TensorData>) -> Self {}
}

/// Returns the parts as an array of the `N` that `parts` returned.
fn exactly<const N: usize>(parts: Vec<TensorData>) -> [TensorData; N] {
    parts.try_into().expect("the number that `parts` returned")
}

/// Implements [`GatherOutput`] for outputs of a loss, predictions and targets.
macro_rules! gather_loss_output_targets {
    ($($output:ident),*) => {$(
        impl GatherOutput for $output {
            fn parts(&self) -> Vec<OutputPart> {
                vec![
                    OutputPart::loss(&self.loss),
                    OutputPart::Rows(self.output.to_data()),
                    OutputPart::Rows(self.targets.to_data()),
                ]
            }

            fn with_parts(self, parts: Vec<TensorData>) -> Self {
                let [loss, output, targets] = exactly(parts);
                let device = self.loss.device();
                Self {
                    loss: from_part(loss, &device),
                    output: from_part(output, &device),
                    targets: from_part(targets, &device),
                }
            }
        }
    )*};
}

gather_loss_output_targets!(ClassificationOutput, MultiLabelClassificationOutput, RegressionOutput);

impl GatherOutput for SequenceOutput {
    fn parts(&self) -> Vec<OutputPart> {
        let mut parts = vec![
            OutputPart::loss(&self.loss),
            OutputPart::Rows(self.logits.to_data()),
            OutputPart::Rows(self.targets.to_data()),
        ];
        parts.extend(
            self.predictions
                .as_ref()
                .map(|tokens| OutputPart::Rows(tokens.to_data())),
        );
        parts
    }

    fn with_parts(self, mut parts: Vec<TensorData>) -> Self {
        let device = self.loss.device();
        let predictions = self
            .predictions
            .and_then(|_| parts.pop())
            .map(|tokens| from_part(tokens, &device));
        let [loss, logits, targets] = exactly(parts);
        Self {
            loss: from_part(loss, &device),
            logits: from_part(logits, &device),
            predictions,
            targets: from_part(targets, &device),
        }
    }
}

/// Returns a tensor of the part's own element type.
fn from_part<const D: usize, K>(part: TensorData, device: &Device) -> Tensor<D, K>
where
    K: Basic,
{
    let dtype = part.dtype();
    Tensor::from_data(part, (device, dtype))
}
