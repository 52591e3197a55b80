//! Operations on tensors of which several ranks have parts: [`PartRule`] says how ranks run one, each on its part.

use std::ops::Range;
#[cfg(feature = "slot")]
use std::sync::OnceLock;

#[cfg(feature = "slot")]
use burn::backend::DispatchDevice;
use burn::backend::DispatchTensor;
use burn::tensor::{Device, Tensor};

#[cfg(feature = "slot")]
use super::spec;
use super::{Of, Operation, Tensors};
use crate::random::RowDropout;

/// Rule by which ranks run an operation, each on its part of the tensors.
#[derive(Clone, Debug)]
pub enum PartRule {
    /// Tensors by the names of their dimensions.
    Named(Names),
    /// Tensors of one shape to this many of it, element by element: all go where the first is.
    Each(usize),
    /// `input · weight + bias` for a weight of `[d_input, d_output]`.
    Linear,
    /// The same for a weight of `[d_output, d_input]`.
    LinearTransposed,
    /// `leftᵀ · right` of two tensors of the same rows.
    LinearWeightGradient,
}

/// Names of the dimensions of an operation's tensors: a string for each, with a letter for each dimension.
///
/// A dimension with a name can be cut: every input that has it is cut along it, the others are whole. An output that
/// has it is cut; one that lacks it is a sum over it, of which each rank has a term. Dimensions without a name, `.`,
/// are whole.
#[derive(Clone, Debug)]
pub struct Names {
    /// Those of the inputs that there are, in order.
    pub inputs: Vec<&'static str>,
    /// Those of the outputs.
    pub outputs: Vec<&'static str>,
    /// The input that outputs are linear in, if all others are whole.
    pub linear: Option<usize>,
    /// True if ranks may have terms of an output although it is linear in no input alone. An input's sum is made first:
    /// several outputs would need it, each by itself.
    pub is_summed: bool,
    /// Names that may be cut although an output lacks them: the operation [joins](Part::join) its outputs over them.
    pub joined: &'static str,
}

impl Names {
    /// Returns names of an operation's inputs and outputs.
    pub fn of<O: Operation>(inputs: Of<O::Inputs, &'static str>, outputs: Of<O::Outputs, &'static str>) -> Self {
        let (mut of_inputs, mut of_outputs) = (Vec::new(), Vec::new());
        O::Inputs::map(inputs, &mut |names| of_inputs.push(names));
        O::Outputs::map(outputs, &mut |names| of_outputs.push(names));
        Self {
            inputs: of_inputs,
            outputs: of_outputs,
            linear: None,
            is_summed: false,
            joined: "",
        }
    }

    /// Returns these names with outputs that are linear in the first input.
    pub fn linear_in_first(self) -> Self {
        Self {
            linear: Some(0),
            ..self
        }
    }

    /// Returns these names with outputs that are linear in the last input.
    pub fn linear_in_last(self) -> Self {
        let linear = self.inputs.len().checked_sub(1);
        Self { linear, ..self }
    }

    /// Returns these names with terms of outputs that lack a name that is cut.
    pub fn summed(self) -> Self {
        Self {
            is_summed: true,
            ..self
        }
    }

    /// Returns these names with those that the operation joins its outputs over.
    pub fn joined(self, joined: &'static str) -> Self {
        Self { joined, ..self }
    }

    /// Returns the rule of these.
    pub fn rule(self) -> Option<PartRule> {
        Some(PartRule::Named(self))
    }
}

/// A rank's part of an operation's inputs.
pub trait Part {
    /// The range of an input's dimension that the rank has.
    fn range(&self, input: usize, dimension: usize) -> Range<usize>;
    /// Returns true if that is all of it.
    fn is_all(&self, input: usize, dimension: usize) -> bool;
    /// Combines an output over the ranks that have other parts of an input's dimension. It has `lead` dimensions before
    /// those of the operation's first output.
    fn join(&self, output: DispatchTensor, by: Join, over: (usize, usize), lead: usize) -> DispatchTensor;
}

/// Combination of the outputs of several ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// Sums.
    Sum,
    /// Largest elements.
    Max,
}

/// Returns the dropout of the rows that a rank has of an operation's first input.
pub(crate) fn of_rows(dropout: &Option<RowDropout>, part: &dyn Part) -> Option<RowDropout> {
    dropout.as_ref().map(|dropout| of_range(dropout, part.range(0, 0)))
}

/// Returns the dropout of a range of the rows.
pub(crate) fn of_range(dropout: &RowDropout, rows: Range<usize>) -> RowDropout {
    RowDropout {
        places: dropout.places[rows].into(),
        ..dropout.clone()
    }
}

/// Returns an output [joined](Part::join) over the ranks.
pub(crate) fn joined<const D: usize>(
    part: &dyn Part,
    output: Tensor<D>,
    by: Join,
    over: (usize, usize),
    lead: usize,
) -> Tensor<D> {
    Tensor::from_dispatch(part.join(output.into_dispatch(), by, over, lead))
}

/// An operation on tensors of a device of [`Ranks`].
pub struct PartCall<'a> {
    /// The operation's name.
    pub name: &'static str,
    /// The rule.
    pub rule: PartRule,
    /// The tensors in.
    pub inputs: Vec<DispatchTensor>,
    /// Runs it on a rank's parts of them, on the device inside; returns its parts of those out, which are floats.
    pub run: RunPart<'a>,
}

/// Runs an operation on a rank's parts.
pub type RunPart<'a> = Box<dyn FnOnce(Vec<DispatchTensor>, &dyn Part) -> Vec<DispatchTensor> + 'a>;

/// Devices whose tensors are those of several ranks.
pub trait Ranks: Send + Sync {
    /// Returns whether a device is one of them.
    fn have(&self, device: &Device) -> bool;
    /// Runs an operation, each rank on its parts.
    fn run(&self, call: PartCall<'_>) -> Vec<DispatchTensor>;
}

#[cfg(feature = "slot")]
static RANKS: OnceLock<&'static dyn Ranks> = OnceLock::new();

/// Lets operations on these devices' tensors run on parts of them, from the first call on.
#[cfg(feature = "slot")]
pub fn serve(ranks: &'static dyn Ranks) {
    RANKS.get_or_init(|| ranks);
}

/// Returns what runs operations on a device's tensors, if they are those of several ranks.
#[cfg(feature = "slot")]
fn ranks_of(device: &Device) -> Option<&'static dyn Ranks> {
    let is_in_slot = matches!(device.as_dispatch(), DispatchDevice::NdArray(_));
    RANKS.get().copied().filter(|ranks| is_in_slot && ranks.have(device))
}

/// Returns true if a device's tensors are those of several ranks.
#[cfg(feature = "slot")]
pub(crate) fn is_of_ranks(device: &Device) -> bool {
    ranks_of(device).is_some()
}

/// Returns false: without the slot a device's tensors are those of one rank.
#[cfg(not(feature = "slot"))]
pub(crate) fn is_of_ranks(_device: &Device) -> bool {
    false
}

/// Runs an operation on ranks' parts, if its tensors are those of several ranks and it has a rule; else gives the
/// tensors back.
#[cfg(feature = "slot")]
pub(super) fn run<O: Operation>(
    operation: &O,
    inputs: Of<O::Inputs, DispatchTensor>,
    device: &Device,
) -> Result<Of<O::Outputs, DispatchTensor>, Of<O::Inputs, DispatchTensor>> {
    let specs = || O::Inputs::map(O::Inputs::by_ref(&inputs), &mut spec);
    let Some((ranks, rule)) = ranks_of(device).zip(operation.part_rule(specs())) else {
        return Err(inputs);
    };
    let outputs = operation.outputs(specs());
    let mut taken = Vec::new();
    let places = O::Inputs::map(inputs, &mut |tensor| taken.push(tensor));
    let call = PartCall {
        name: O::NAME,
        rule,
        inputs: taken,
        run: Box::new(|parts, part| {
            let mut parts = parts.into_iter();
            let inputs = O::Inputs::map(places, &mut |()| parts.next().expect("a part of each input"));
            let outputs = operation.run_part(O::Inputs::from_dispatch(inputs), part);
            let mut given = Vec::new();
            O::Outputs::map(outputs.into_dispatch(), &mut |tensor| given.push(tensor));
            given
        }),
    };
    let mut given = ranks.run(call).into_iter();
    Ok(O::Outputs::map(outputs, &mut |_| {
        given.next().expect("an output for each result")
    }))
}
