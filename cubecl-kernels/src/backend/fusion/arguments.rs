//! Arguments of operations: tensors of the stream, alone or in structs, each of which becomes the same on the inner
//! backend when the operation runs.

use burn::tensor::{Bool, Int, Tensor};
use burn_fusion::{Fusion, FusionBackend};

use super::inputs::{Inputs, Lazy};
use crate::accumulate::{GradientSums, VectorSums};
use crate::adamw::AdamWBuffers;
use crate::cross_entropy::Statistics;
use crate::flash_attention::{AttentionBackward, AttentionForward, BackwardBias};
use crate::norm::{Addends, NormParameters, NormStatistics};
use crate::paged_attention::{PagedCache, PagedOptions};
use crate::rotary::RotaryAngles;
use crate::tape::{float, primitive};

/// Takes an argument from the inputs of an operation that runs.
pub(super) type Take<B, T> = Box<dyn Fn(&mut Inputs<'_, B>) -> T + Send + Sync>;

/// An argument of an operation.
pub(super) trait Argument<B: FusionBackend> {
    /// The argument on the inner backend.
    type Inner: 'static;

    /// Adds its tensors to an operation's inputs. They are given up, so that the operation may write over those that
    /// nothing else holds.
    fn give(self, inputs: &mut Vec<Lazy<B>>) -> Take<B, Self::Inner>;
}

impl<B: FusionBackend, const D: usize> Argument<B> for Tensor<Fusion<B>, D> {
    type Inner = Tensor<B, D>;

    fn give(self, inputs: &mut Vec<Lazy<B>>) -> Take<B, Self::Inner> {
        inputs.push(primitive(self));
        Box::new(|inputs| {
            let (handles, description) = inputs.next();
            float(handles.get_float_tensor::<B>(description))
        })
    }
}

impl<B: FusionBackend, const D: usize> Argument<B> for Tensor<Fusion<B>, D, Int> {
    type Inner = Tensor<B, D, Int>;

    fn give(self, inputs: &mut Vec<Lazy<B>>) -> Take<B, Self::Inner> {
        inputs.push(self.into_primitive());
        Box::new(|inputs| {
            let (handles, description) = inputs.next();
            Tensor::from_primitive(handles.get_int_tensor::<B>(description))
        })
    }
}

impl<B: FusionBackend, const D: usize> Argument<B> for Tensor<Fusion<B>, D, Bool> {
    type Inner = Tensor<B, D, Bool>;

    fn give(self, inputs: &mut Vec<Lazy<B>>) -> Take<B, Self::Inner> {
        inputs.push(self.into_primitive());
        Box::new(|inputs| {
            let (handles, description) = inputs.next();
            Tensor::from_primitive(handles.get_bool_tensor::<B>(description))
        })
    }
}

impl<B: FusionBackend, A: Argument<B>> Argument<B> for Option<A> {
    type Inner = Option<A::Inner>;

    fn give(self, inputs: &mut Vec<Lazy<B>>) -> Take<B, Self::Inner> {
        let take = self.map(|argument| argument.give(inputs));
        Box::new(move |inputs| take.as_ref().map(|take| take(inputs)))
    }
}

impl<B: FusionBackend, A: Argument<B>, const N: usize> Argument<B> for [A; N] {
    type Inner = [A::Inner; N];

    fn give(self, inputs: &mut Vec<Lazy<B>>) -> Take<B, Self::Inner> {
        let takes = self.map(|argument| argument.give(inputs));
        Box::new(move |inputs| takes.each_ref().map(|take| take(inputs)))
    }
}

impl<B: FusionBackend, A: Argument<B>> Argument<B> for Vec<A> {
    type Inner = Vec<A::Inner>;

    fn give(self, inputs: &mut Vec<Lazy<B>>) -> Take<B, Self::Inner> {
        let takes: Vec<_> = self.into_iter().map(|argument| argument.give(inputs)).collect();
        Box::new(move |inputs| takes.iter().map(|take| take(inputs)).collect())
    }
}

/// Implements [`Argument`] for tuples of these.
macro_rules! tuples {
    ($(($($argument:ident),+))+) => {$(
        #[allow(non_snake_case, reason = "an argument is named as its type")]
        impl<B: FusionBackend, $($argument: Argument<B>),+> Argument<B> for ($($argument,)+) {
            type Inner = ($($argument::Inner,)+);

            fn give(self, inputs: &mut Vec<Lazy<B>>) -> Take<B, Self::Inner> {
                let ($($argument,)+) = self;
                $(let $argument = $argument.give(inputs);)+
                Box::new(move |inputs| ($($argument(inputs),)+))
            }
        }
    )+};
}

tuples! { (A1, A2) (A1, A2, A3) (A1, A2, A3, A4) (A1, A2, A3, A4, A5) }

/// Implements [`Argument`] for structs: of each the fields that are arguments, and after a semicolon the others, which
/// are copied.
macro_rules! structs {
    ($($name:ident { $($argument:ident),+ $(; $($other:ident),+)? })+) => {$(
        impl<B: FusionBackend> Argument<B> for $name<Fusion<B>> {
            type Inner = $name<B>;

            fn give(self, inputs: &mut Vec<Lazy<B>>) -> Take<B, Self::Inner> {
                $(let $argument = self.$argument.give(inputs);)+
                $($(let $other = self.$other;)+)?
                Box::new(move |inputs| $name {
                    $($argument: $argument(inputs),)+
                    $($($other: $other.clone(),)+)?
                })
            }
        }
    )+};
}

structs! {
    AdamWBuffers { parameter, moment_1, moment_2 }
    Addends { input, bias, residual; dropout }
    AttentionBackward { forward, gradient, bias }
    AttentionForward { output, log_sum_exp }
    BackwardBias { table; is_wanted }
    GradientSums { sums, non_finite }
    NormParameters { weight, bias; kind, epsilon }
    NormStatistics { mean, reciprocal }
    PagedCache { keys, values, block_table, lengths }
    PagedOptions { slopes; scale, window }
    RotaryAngles { cosine, sine, positions; layout }
    Statistics { maximum, sum, target }
    VectorSums { sums; places }
}
