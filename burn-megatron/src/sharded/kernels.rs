//! Fused operations on placed tensors: the inner backend's kernels on each rank's part, by the rules that they have.
//!
//! An operation that has none runs its reference, by the rules of burn's operations.

use std::marker::PhantomData;
use std::ops::Range;

use burn::backend::{BackendTensor, DispatchKindConversion, DispatchTensor};
use burn::tensor::Device;
use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_ir::HandleKind;
use cubecl_kernels::operation::parts::{Join, Names, Part, PartCall, PartRule, Ranks};

use super::any_tensor::AnyTensor;
use super::apply::{Inputs, Placed, apply};
use super::kind::Float;
use super::mesh::Mesh;
use super::placement::{Placements, Reduction};
use super::rules::Rule;
use super::rules::matmul::{Linear, LinearTransposed, LinearWeightGradient};
use super::rules::module::Named;
use super::rules::pointwise::Each;
use super::slot::{or_panic, placing_of};
use super::{Sharded, ShardedTensor};
use crate::collectives::CollectiveBackend;

/// The devices of [`device`](super::device()).
pub(super) struct Devices;

impl Ranks for Devices {
    fn have(&self, device: &Device) -> bool {
        placing_of(device).is_ok()
    }

    fn run(&self, call: PartCall<'_>) -> Vec<DispatchTensor> {
        let first = call.inputs.first().expect("an operation has inputs");
        or_panic(placing_of(&Device::new(first.device()))).run_on_parts(call)
    }
}

/// Runs an operation on this rank's parts of tensors, and returns its parts of the results.
#[track_caller]
pub(super) fn run_on_parts<B: CollectiveBackend>(
    name: &'static str,
    rule: PartRule,
    inputs: Vec<HandleKind<Sharded<B>>>,
    run: impl FnOnce(Vec<DispatchTensor>, &dyn Part) -> Vec<DispatchTensor>,
) -> Vec<ShardedTensor<B, Float>>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    let shapes: Vec<Vec<usize>> = inputs.tensors().iter().map(|tensor| tensor.operand().shape).collect();
    let results: Vec<Option<ShardedTensor<B, Float>>> = apply(
        name,
        inputs,
        || of_operation(rule),
        |locals, placed| {
            let locals = locals.into_iter().map(DispatchTensor::from_backend);
            let part = OwnPart::<B> {
                placed,
                shapes: &shapes,
                _backend: PhantomData,
            };
            let outputs = run(locals.collect(), &part).into_iter();
            outputs.map(|output| Some(inner::<B>(output))).collect()
        },
    );
    results.into_iter().flatten().collect()
}

/// The rule as placements have it.
fn of_operation(rule: PartRule) -> Box<dyn Rule> {
    match rule {
        PartRule::Named(names) => Box::new(named(names)),
        PartRule::Each(results) => Box::new(Each { results }),
        PartRule::Linear => Box::new(Linear),
        PartRule::LinearTransposed => Box::new(LinearTransposed),
        PartRule::LinearWeightGradient => Box::new(LinearWeightGradient),
    }
}

fn named(names: Names) -> Named {
    const OPERANDS: [usize; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    let Names {
        inputs,
        outputs,
        linear,
        is_summed,
        joined,
    } = names;
    let linear = linear.map_or(&[][..], |operand| &OPERANDS[operand..=operand]);
    let named = Named::of(inputs, outputs).linear(linear).joined(joined.as_bytes());
    if is_summed { named.summed() } else { named }
}

/// A part of a float tensor as burn has it.
pub(super) fn outer<B: CollectiveBackend>(part: FloatTensor<B>) -> DispatchTensor
where
    DispatchTensor: DispatchKindConversion<B>,
{
    DispatchTensor::from_backend(BackendTensor::<B>::Float(part))
}

/// A part of a float tensor as the backend has it.
pub(super) fn inner<B: CollectiveBackend>(part: DispatchTensor) -> FloatTensor<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    let part: Result<BackendTensor<B>, _> = DispatchTensor::try_into_backend(part);
    match part {
        Ok(part) => part.float(),
        Err(error) => unreachable!("a part is of the backend inside: {error}"),
    }
}

/// This rank's part of an operation's inputs.
struct OwnPart<'a, B> {
    placed: &'a Placed,
    /// The logical shapes of the inputs.
    shapes: &'a [Vec<usize>],
    _backend: PhantomData<fn() -> B>,
}

impl<B: CollectiveBackend> Part for OwnPart<'_, B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    fn range(&self, input: usize, dimension: usize) -> Range<usize> {
        let length = self.shapes[input][dimension];
        self.placed.operand_range(input, dimension, length)
    }

    fn is_all(&self, input: usize, dimension: usize) -> bool {
        self.placed.has_all(input, dimension)
    }

    #[track_caller]
    fn join(&self, output: DispatchTensor, by: Join, over: (usize, usize), lead: usize) -> DispatchTensor {
        let reduction = match by {
            Join::Sum => Reduction::Sum,
            Join::Max => Reduction::Max,
        };
        outer::<B>(self.placed.joined::<B>(inner::<B>(output), reduction, over, lead))
    }
}

/// A tensor of any kind as an operand.
impl<B: CollectiveBackend> Inputs<B> for HandleKind<Sharded<B>> {
    type Locals = BackendTensor<B>;

    fn tensors(&self) -> Vec<&dyn AnyTensor> {
        match self {
            Self::Float(tensor) => vec![tensor],
            Self::Int(tensor) => vec![tensor],
            Self::Bool(tensor) => vec![tensor],
            Self::Quantized(_) => is_quantized(),
        }
    }

    #[track_caller]
    fn place(self, mesh: &Mesh, needs: &mut std::slice::Iter<'_, Placements>) -> BackendTensor<B> {
        match self {
            Self::Float(tensor) => BackendTensor::Float(tensor.place(mesh, needs)),
            Self::Int(tensor) => BackendTensor::Int(tensor.place(mesh, needs)),
            Self::Bool(tensor) => BackendTensor::Bool(tensor.place(mesh, needs)),
            Self::Quantized(_) => is_quantized(),
        }
    }

    fn wholes(self) -> BackendTensor<B> {
        match self {
            Self::Float(tensor) => BackendTensor::Float(tensor.wholes()),
            Self::Int(tensor) => BackendTensor::Int(tensor.wholes()),
            Self::Bool(tensor) => BackendTensor::Bool(tensor.wholes()),
            Self::Quantized(_) => is_quantized(),
        }
    }
}

fn is_quantized() -> ! {
    unreachable!("a mesh's tensors are not quantized: QTensorOps refuses")
}
