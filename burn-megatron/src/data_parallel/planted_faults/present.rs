//! The faults, and what each of them changes.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use burn::tensor::{Shape, Tensor, TensorMetadata, backend::Backend, ops::FloatTensor};
use cubecl_kernels::tape::{float, primitive};
use parking_lot::Mutex;

use crate::autodiff::GradientSink;
use crate::collectives::ReduceOp;
use crate::context::ParallelContext;
use crate::data_parallel::buckets::gradient_entry::GradientEntry;
use crate::data_parallel::gradients::finalisation::Finalisation;
use crate::random::{StepCoordinates, TokenMap};

/// What names the fault, as `Debug` writes it.
const VARIABLE: &str = "BURN_MEGATRON_PLANTED_FAULT";

/// A fault, each of which breaks parity with the one-rank run in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A row-parallel layer adds its bias on every tensor rank, before the sum.
    BiasAddedPerRank,
    /// Keys and values change places in a shard.
    KeyAndValueSwapped,
    /// Of the two uses of a tied embedding, only the lookup reaches the gradient. In one graph they are summed by burn,
    /// so it takes a model whose embedding and head are segments.
    NoTiedSum,
    /// One rank, by its number, finds an infinite gradient in every backward pass.
    InfiniteGradient(usize),
    /// Gradients are summed, not averaged, over the data-parallel ranks.
    DataParallelSumForMean,
    /// Gradients of norms and row biases stay partial under sequence parallelism.
    SequenceParallelSumMissing,
    /// Each rank keeps its own term of the gradient of keys and values that the query heads of several ranks share.
    SharedHeadSumMissing,
    /// The gradients of a tied embedding's copies on the first and on the last stage are not summed.
    NoTiedStageSum,
    /// The global norm counts both copies of a tied embedding.
    TiedCopyCountedTwice,
    /// Norms count parameters that every tensor rank holds once per rank.
    ReplicaCountedTwice,
    /// A parameter is clipped by the norm of what this rank holds of it.
    ClippedByShard,
    /// All data-parallel ranks drop what the first one drops.
    SharedDropoutMask,
}

impl Fault {
    const WITHOUT_RANK: [Self; 11] = [
        Self::BiasAddedPerRank,
        Self::KeyAndValueSwapped,
        Self::NoTiedSum,
        Self::DataParallelSumForMean,
        Self::SequenceParallelSumMissing,
        Self::SharedHeadSumMissing,
        Self::NoTiedStageSum,
        Self::TiedCopyCountedTwice,
        Self::ReplicaCountedTwice,
        Self::ClippedByShard,
        Self::SharedDropoutMask,
    ];

    fn named(name: &str) -> Option<Self> {
        let rank = name.strip_prefix("InfiniteGradient(");
        if let Some(rank) = rank.and_then(|rest| rest.strip_suffix(')')) {
            return rank.parse().ok().map(Self::InfiniteGradient);
        }
        let mut all = Self::WITHOUT_RANK.into_iter();
        all.find(|fault| format!("{fault:?}") == name)
    }
}

/// The fault of this process.
fn planted() -> Option<Fault> {
    static PLANTED: OnceLock<Option<Fault>> = OnceLock::new();
    *PLANTED.get_or_init(|| {
        let name = std::env::var(VARIABLE).ok()?;
        let fault = Fault::named(&name);
        Some(fault.unwrap_or_else(|| panic!("{VARIABLE}: no fault is called {name:?}")))
    })
}

/// Returns a hooked parameter as the pass uses it.
pub(crate) fn parameter<B: Backend, const D: usize>(
    tensor: Tensor<B, D>,
    entries: &[GradientEntry],
    number: usize,
) -> Tensor<B, D> {
    match planted() {
        // What the sum over the ranks adds, each rank's bias with the gradient that the one should have.
        Some(Fault::BiasAddedPerRank) => match num_terms(entries, number) {
            1 => tensor,
            terms => tensor.clone() + tensor.detach().mul_scalar((terms - 1) as f64),
        },
        Some(Fault::KeyAndValueSwapped) if is_later_shard_of_three(&entries[number]) => {
            let width = tensor.dims()[D - 1] / 3;
            let parts = [0, 2, 1].map(|part| tensor.clone().narrow(D - 1, part * width, width));
            Tensor::cat(parts.to_vec(), D - 1)
        }
        _ => tensor,
    }
}

/// How many ranks' products a row-parallel layer sums, if the parameter is its bias: every rank holds it, and a part of
/// the weight. 1 for any other.
fn num_terms(entries: &[GradientEntry], number: usize) -> usize {
    let bias = &entries[number];
    let layer = bias.name.strip_suffix("bias");
    let Some(layer) = layer.filter(|_| !bias.distribution.is_cut()) else {
        return 1;
    };
    let weight = format!("{layer}weight");
    let weight = entries.iter().find(|entry| entry.name == weight);
    weight.map_or(1, |weight| {
        weight.placement.logical_len() / weight.placement.local_len()
    })
}

/// Whether it is queries, keys and values, and not those of the first rank.
fn is_later_shard_of_three(entry: &GradientEntry) -> bool {
    entry.placement.num_fused() == 3 && entry.placement.offset().iter().any(|&offset| offset > 0)
}

/// Returns what takes the gradients of the backward passes.
pub(crate) fn sink<B: Backend>(
    sink: Arc<dyn GradientSink<B>>,
    entries: &[GradientEntry],
    context: &ParallelContext,
) -> Arc<dyn GradientSink<B>> {
    match planted() {
        Some(Fault::InfiniteGradient(rank)) if rank == context.rank() => Arc::new(Infinite { sink }),
        // The one rank that a layout is compared with is right.
        Some(Fault::NoTiedSum) if context.world_group().size() > 1 => Arc::new(WithoutHead {
            sink,
            is_tied: entries.iter().map(|entry| entry.is_tied).collect(),
            of_head: Mutex::default(),
        }),
        _ => sink,
    }
}

/// Makes every gradient infinite. Takes no products: those are added up elsewhere.
#[derive(Debug)]
struct Infinite<B: Backend> {
    sink: Arc<dyn GradientSink<B>>,
}

impl<B: Backend> GradientSink<B> for Infinite<B> {
    fn receive(&self, index: usize, gradient: FloatTensor<B>) {
        let length = gradient.shape().num_elements();
        let gradient = float::<B, 1>(B::float_reshape(gradient, Shape::new([length])));
        self.sink.receive(index, primitive(gradient.full_like(f32::INFINITY)));
    }
}

/// Loses every second gradient of a tied parameter: in each pass that of the head comes first, then that of the lookup.
#[derive(Debug)]
struct WithoutHead<B: Backend> {
    sink: Arc<dyn GradientSink<B>>,
    is_tied: Vec<bool>,
    /// The parameters whose gradient of the head has come in the pass at hand.
    of_head: Mutex<HashSet<usize>>,
}

impl<B: Backend> GradientSink<B> for WithoutHead<B> {
    fn receive(&self, index: usize, gradient: FloatTensor<B>) {
        if self.is_tied[index] {
            let mut of_head = self.of_head.lock();
            if of_head.insert(index) {
                return;
            }
            of_head.remove(&index);
        }
        self.sink.receive(index, gradient);
    }
}

/// Returns what is done with a step's gradients.
pub(crate) fn finalisation(right: Finalisation) -> Finalisation {
    match planted() {
        Some(Fault::DataParallelSumForMean) => Finalisation {
            average: ReduceOp::Sum,
            ..right
        },
        Some(Fault::SequenceParallelSumMissing) => Finalisation {
            sums_partial: false,
            ..right
        },
        Some(Fault::SharedHeadSumMissing) => Finalisation {
            sums_shared: false,
            ..right
        },
        Some(Fault::NoTiedStageSum) => Finalisation {
            sums_copies: false,
            ..right
        },
        Some(Fault::TiedCopyCountedTwice) => Finalisation {
            counts_copies: true,
            ..right
        },
        Some(Fault::ReplicaCountedTwice) => Finalisation { counts_as: 0, ..right },
        Some(Fault::ClippedByShard) => Finalisation {
            has_parts_elsewhere: false,
            counts_as: 0,
            ..right
        },
        _ => right,
    }
}

/// Changes where a micro-batch's tokens are for dropout.
pub(crate) fn change_samples(step: &mut StepCoordinates, context: &ParallelContext) {
    if planted() != Some(Fault::SharedDropoutMask) {
        return;
    }
    let places = step.tokens.places();
    let firsts = places.iter().filter(|place| place.position == 0);
    let mut samples: Vec<u64> = firsts.map(|place| place.sample).collect();
    let seq_length = places.len() / samples.len();
    let shift = (context.coordinates().data * samples.len()) as u64;
    samples.iter_mut().for_each(|sample| *sample -= shift);
    step.tokens = TokenMap::of_samples(&samples, seq_length);
}
