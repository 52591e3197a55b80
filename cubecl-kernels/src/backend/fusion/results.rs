//! What operations return: shapes and types of tensors, alone or in structs, arrays and tuples.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor};
use burn_fusion::{Fusion, FusionBackend};

use super::inputs::Lazy;
use crate::accumulate::GradientSums;
use crate::adamw::AdamWBuffers;
use crate::bias_gelu::BiasGeluGradients;
use crate::cross_entropy::Statistics;
use crate::flash_attention::{AttentionBackward, AttentionForward};
use crate::norm::{AddRule, AddendGradients, NormAdded, NormGradients, NormKind, NormParameters, NormStatistics};
use crate::precision::compute_type;
use crate::tape::{float, primitive};

/// Shapes and types of what an operation returns.
pub(super) trait Results<B: FusionBackend> {
    /// The tensors of the inner backend.
    type Inner;
    /// The tensors of the stream.
    type Lazy;

    /// Adds the shapes and types of the tensors.
    fn name(&self, outputs: &mut Vec<(Vec<usize>, DType)>);

    /// Adds the tensors of the inner backend.
    fn give(inner: Self::Inner, outputs: &mut Vec<FloatTensor<B>>);

    /// Takes the tensors of the stream.
    fn take(&self, outputs: &mut std::vec::IntoIter<Lazy<B>>) -> Self::Lazy;
}

/// A tensor of this shape and type.
#[derive(Clone, Copy)]
pub(super) struct Output<const D: usize>(pub [usize; D], pub DType);

impl<const D: usize> Output<D> {
    /// A tensor of another one's shape and type.
    pub(super) fn like<B: FusionBackend>(other: &Tensor<Fusion<B>, D>) -> Self {
        Self(other.dims(), other.dtype())
    }
}

impl<B: FusionBackend, const D: usize> Results<B> for Output<D> {
    type Inner = Tensor<B, D>;
    type Lazy = Tensor<Fusion<B>, D>;

    fn name(&self, outputs: &mut Vec<(Vec<usize>, DType)>) {
        outputs.push((self.0.to_vec(), self.1));
    }

    fn give(inner: Self::Inner, outputs: &mut Vec<FloatTensor<B>>) {
        outputs.push(primitive(inner));
    }

    fn take(&self, outputs: &mut std::vec::IntoIter<Lazy<B>>) -> Self::Lazy {
        float(outputs.next().expect("no more outputs than were named"))
    }
}

impl<B: FusionBackend, R: Results<B>> Results<B> for Option<R> {
    type Inner = Option<R::Inner>;
    type Lazy = Option<R::Lazy>;

    fn name(&self, outputs: &mut Vec<(Vec<usize>, DType)>) {
        self.iter().for_each(|result| result.name(outputs));
    }

    fn give(inner: Self::Inner, outputs: &mut Vec<FloatTensor<B>>) {
        inner.into_iter().for_each(|inner| R::give(inner, outputs));
    }

    fn take(&self, outputs: &mut std::vec::IntoIter<Lazy<B>>) -> Self::Lazy {
        self.as_ref().map(|result| result.take(outputs))
    }
}

impl<B: FusionBackend, R: Results<B>, const N: usize> Results<B> for [R; N] {
    type Inner = [R::Inner; N];
    type Lazy = [R::Lazy; N];

    fn name(&self, outputs: &mut Vec<(Vec<usize>, DType)>) {
        self.iter().for_each(|result| result.name(outputs));
    }

    fn give(inner: Self::Inner, outputs: &mut Vec<FloatTensor<B>>) {
        inner.into_iter().for_each(|inner| R::give(inner, outputs));
    }

    fn take(&self, outputs: &mut std::vec::IntoIter<Lazy<B>>) -> Self::Lazy {
        self.each_ref().map(|result| result.take(outputs))
    }
}

impl<B: FusionBackend, R: Results<B>, S: Results<B>> Results<B> for (R, S) {
    type Inner = (R::Inner, S::Inner);
    type Lazy = (R::Lazy, S::Lazy);

    fn name(&self, outputs: &mut Vec<(Vec<usize>, DType)>) {
        self.0.name(outputs);
        self.1.name(outputs);
    }

    fn give((first, second): Self::Inner, outputs: &mut Vec<FloatTensor<B>>) {
        R::give(first, outputs);
        S::give(second, outputs);
    }

    fn take(&self, outputs: &mut std::vec::IntoIter<Lazy<B>>) -> Self::Lazy {
        (self.0.take(outputs), self.1.take(outputs))
    }
}

/// Makes structs of the shapes and types of another struct's tensors, and implements [`Results`] for them.
macro_rules! structs {
    ($($shapes:ident of $name:ident { $($field:ident: $result:ty),+ })+) => {$(
        #[derive(Clone, Copy)]
        pub(super) struct $shapes {
            $(pub $field: $result,)+
        }

        impl<B: FusionBackend> Results<B> for $shapes {
            type Inner = $name<B>;
            type Lazy = $name<Fusion<B>>;

            fn name(&self, outputs: &mut Vec<(Vec<usize>, DType)>) {
                $(Results::<B>::name(&self.$field, outputs);)+
            }

            fn give(inner: Self::Inner, outputs: &mut Vec<FloatTensor<B>>) {
                $(<$result as Results<B>>::give(inner.$field, outputs);)+
            }

            fn take(&self, outputs: &mut std::vec::IntoIter<Lazy<B>>) -> Self::Lazy {
                $name { $($field: self.$field.take(outputs),)+ }
            }
        }
    )+};
}

structs! {
    AdamWShapes of AdamWBuffers { parameter: Output<1>, moment_1: Output<1>, moment_2: Output<1> }
    AddendShapes of AddendGradients { input: Output<2>, bias: Option<Output<1>>, residual: Output<2> }
    BiasGeluShapes of BiasGeluGradients { input: Output<2>, bias: Output<1> }
    ForwardShapes of AttentionForward { output: Output<4>, log_sum_exp: Output<3> }
    NormAddedShapes of NormAdded { input: Output<2>, addend: Option<Output<2>>, sums: SumsShapes }
    NormShapes of NormGradients { input: Output<2>, weight: Output<1>, bias: Option<Output<1>> }
    NormStatisticsShapes of NormStatistics { mean: Option<Output<1>>, reciprocal: Output<1> }
    StatisticsShapes of Statistics { maximum: Output<1>, sum: Output<1>, target: Output<1> }
    SumsShapes of GradientSums { sums: Output<1>, non_finite: Output<1> }
}

impl AdamWShapes {
    pub(super) fn like<B: FusionBackend>(buffers: &AdamWBuffers<Fusion<B>>) -> Self {
        Self {
            parameter: Output::like(&buffers.parameter),
            moment_1: Output::like(&buffers.moment_1),
            moment_2: Output::like(&buffers.moment_2),
        }
    }
}

impl AddendShapes {
    pub(super) fn of(rows: Output<2>, rule: &AddRule) -> Self {
        let Output([_, columns], dtype) = rows;
        Self {
            input: rows,
            bias: rule.has_bias.then_some(Output([columns], dtype)),
            residual: rows,
        }
    }
}

impl ForwardShapes {
    /// Of an output, and a number for each of these queries.
    pub(super) fn of(output: Output<4>, queries: [usize; 3]) -> Self {
        Self {
            output,
            log_sum_exp: Output(queries, compute_type(output.1)),
        }
    }
}

impl NormShapes {
    pub(super) fn of<B: FusionBackend>(rows: Output<2>, parameters: &NormParameters<Fusion<B>>) -> Self {
        Self {
            input: rows,
            weight: Output::like(&parameters.weight),
            bias: parameters.bias.as_ref().map(Output::like),
        }
    }
}

impl NormStatisticsShapes {
    pub(super) fn of(kind: NormKind, Output([rows, _], dtype): Output<2>) -> Self {
        let each = Output([rows], compute_type(dtype));
        Self {
            mean: (kind == NormKind::Layer).then_some(each),
            reciprocal: each,
        }
    }
}

impl SumsShapes {
    pub(super) fn like<B: FusionBackend>(sums: &GradientSums<Fusion<B>>) -> Self {
        Self {
            sums: Output::like(&sums.sums),
            non_finite: Output::like(&sums.non_finite),
        }
    }
}

/// The gradient of an attention's bias, where it is wanted.
pub(super) fn bias_gradient<B: FusionBackend>(pass: &AttentionBackward<Fusion<B>>) -> Option<Output<2>> {
    let wanted = pass.bias.as_ref().filter(|bias| bias.is_wanted);
    wanted.map(|bias| Output::like(&bias.table))
}
