//! Rotary position embedding in one pass with the split of a query-key-value projection.
//!
//! A rotation by an angle that grows with the position makes the product of a query and a key depend on how far apart
//! they are. Queries and keys are rotated on the way from the projection's order, group by group, to that of attention:
//! each element is read and written once. The backward pass is the opposite rotation on the way back.

mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
mod launch;
mod reference;
pub mod tables;

use burn::tensor::{DType, Int, Tensor};
#[cfg(feature = "cubecl")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;
use serde::{Deserialize, Serialize};

use crate::error::{Check, KernelError};
use crate::operation::parts::{Names, PartRule};
use crate::operation::{Of, Operation, Spec, apply};
use crate::precision::compute_type;
use crate::tape::{inner, record};

/// The two elements of a head that are rotated together. Pair `i` of `rotated / 2` has the angle of column `i` of the
/// tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RotaryLayout {
    /// Element `i` and `i + rotated / 2`: GPT-NeoX, and Llama as Hugging Face stores it.
    #[default]
    Halves,
    /// Elements `2i` and `2i + 1`: the paper, and Llama as Meta stores it.
    Interleaved,
}

/// The angles of a rotation.
///
/// The tables are f32 where the input has 16 bits or is f32, and f64 where it is f64.
#[derive(Clone, Debug)]
pub struct RotaryAngles {
    /// The cosines, `[positions, rotated / 2]`.
    pub cosine: Tensor<2>,
    /// The sines, of the same shape.
    pub sine: Tensor<2>,
    /// The row of the tables for each token, `[tokens]`.
    pub positions: Tensor<1, Int>,
    /// The elements that are rotated together.
    pub layout: RotaryLayout,
}

impl RotaryAngles {
    fn of(([cosine, sine], positions): Tables, layout: RotaryLayout) -> Self {
        Self {
            cosine,
            sine,
            positions,
            layout,
        }
    }

    /// The number of a head's elements that are rotated, its first ones.
    pub fn rotated(&self) -> usize {
        2 * self.cosine.dims()[1]
    }

    fn check(&self, check: Check, dtype: DType, [tokens, d_head]: [usize; 2]) -> Result<(), KernelError> {
        let tables: &'static [DType] = match compute_type(dtype) {
            DType::F64 => &[DType::F64],
            _ => &[DType::F32],
        };
        check.one_of("the cosine", self.cosine.dtype(), tables)?;
        check.one_of("the sine", self.sine.dtype(), tables)?;
        let shape @ [rows, _] = self.cosine.dims();
        check.shape("the sine", &self.sine.dims(), &shape)?;
        check.shape("the positions", &self.positions.dims(), &[tokens])?;
        let rotated = self.rotated();
        check.value("the rotated elements", rotated as f64, rotated <= d_head, || {
            format!("at most {d_head}, as a head has")
        })?;
        check.value("the tables' rows", rows as f64, rows > 0 || tokens == 0, || {
            format!("at least 1, for {tokens} tokens")
        })
    }
}

/// Heads of a query-key-value projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotaryHeads {
    /// The groups, each with one key head and one value head.
    pub groups: usize,
    /// The query heads of a group.
    pub queries: usize,
}

impl RotaryHeads {
    /// The heads of a projection's dimensions.
    ///
    /// # Panics
    /// When a group has no key and value.
    pub fn of([_, groups, heads, _]: [usize; 4]) -> Self {
        assert!(heads >= 2, "a group has a key and a value, got {heads} heads");
        Self {
            groups,
            queries: heads - 2,
        }
    }

    /// All heads.
    pub fn total(&self) -> usize {
        self.groups * (self.queries + 2)
    }

    /// The heads that are rotated, the first ones once they are split: queries and keys.
    pub fn turning(&self) -> usize {
        self.groups * (self.queries + 1)
    }

    /// The place in the projection, among all heads, of a head of the split order.
    pub fn packed(&self, split: usize) -> usize {
        let queries = self.groups * self.queries;
        let (group, in_group) = match split.checked_sub(queries) {
            None => (split / self.queries, split % self.queries),
            Some(rest) => (rest % self.groups, self.queries + rest / self.groups),
        };
        group * (self.queries + 2) + in_group
    }
}

/// Direction in which heads go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    /// Split and rotated.
    Forward,
    /// Rotated back and packed.
    Backward,
}

/// Splits a query-key-value projection, and rotates its queries and keys by the angles of their tokens' positions.
///
/// For a pair `(x1, x2)` of one of the first `rotated` elements each of a query or key head:
/// `y1 = x1 cos − x2 sin`, `y2 = x2 cos + x1 sin`, in f32 (f64 for f64), rounded once. All other elements are copied;
/// without angles all are. The tables have no gradient.
///
/// # Shapes
/// - `input`: `[tokens, groups, queries + 2, d_head]`: of each group its query heads, one key head, one value head
/// - output: `[tokens, groups * (queries + 2), d_head]`: all query heads, all key heads, all value heads, each in the
///   order of the groups
///
/// # Errors
/// When a group has fewer than three heads, `rotated` is more than `d_head`, the tables or the positions have other
/// shapes, the tables have another type than the operation computes in, or the type is not computed with.
///
/// # Panics
/// On the CPU when a position has no row in the tables: on `Flex` with the position. Kernels read no other memory
/// then, and write zeros for the rotated elements of such a token.
///
/// # Reference
/// Su et al. 2021, arXiv:2104.09864, section 3.4.2.
pub fn rotary(input: Tensor<4>, angles: Option<RotaryAngles>) -> Result<Tensor<3>, KernelError> {
    let check = Check("rotary");
    let (dtype, [tokens, _, heads, d_head]) = (input.dtype(), input.dims());
    check.float("the input", dtype, &input.device())?;
    check.value("the heads of a group", heads as f64, heads >= 3, || {
        "at least 3: queries, a key, a value".to_owned()
    })?;
    if let Some(angles) = &angles {
        angles.check(check, dtype, [tokens, d_head])?;
    }
    let angles = angles.filter(|angles| angles.rotated() > 0);
    let layout = angles.as_ref().map_or_else(Default::default, |angles| angles.layout);
    let tables: Option<Tables> = angles.map(|angles| ([angles.cosine, angles.sine], angles.positions));
    let tables = inner(&tables);
    let output = apply(&Forward(layout), (inner(&input), tables.clone()));
    let heads = RotaryHeads::of(input.dims());
    Ok(record(input, output, move |gradient, _| {
        Some(apply(&Backward { heads, layout }, (gradient, tables)))
    }))
}

/// Cosine and sine, and positions.
type Tables = ([Tensor<2>; 2], Tensor<1, Int>);

/// The names of their dimensions, for ranks that have parts of the tokens.
fn names(_tables: Of<Tables, Spec>) -> Of<Tables, &'static str> {
    ([".."; 2], "t")
}

/// The angles of a rotation on a backend.
struct Angles<T> {
    cosine: T,
    sine: T,
    positions: T,
    layout: RotaryLayout,
}

impl<T> Angles<T> {
    fn of(([cosine, sine], positions): ([T; 2], T), layout: RotaryLayout) -> Self {
        Self {
            cosine,
            sine,
            positions,
            layout,
        }
    }
}

/// A projection to its heads, split and rotated.
#[derive(Clone, Copy, Debug)]
struct Forward(RotaryLayout);

impl Operation for Forward {
    type Inputs = (Tensor<4>, Option<Tables>);
    type Outputs = Tensor<3>;

    const NAME: &'static str = "rotary";

    fn outputs(&self, ((shape, dtype), _): Of<Self::Inputs, Spec>) -> Spec {
        let shape @ [tokens, _, _, d_head] = shape.dims();
        ([tokens, RotaryHeads::of(shape).total(), d_head].into(), dtype)
    }

    /// Groups are whole: heads that are cut by groups would be at several places of the output.
    fn part_rule(&self, (_, tables): Of<Self::Inputs, Spec>) -> Option<PartRule> {
        Names::of::<Self>(("t...", tables.map(names)), "t..")
            .linear_in_first()
            .rule()
    }

    fn reference(&self, (input, tables): Self::Inputs) -> Tensor<3> {
        reference::forward(input, tables.map(|tables| RotaryAngles::of(tables, self.0)))
    }

    fn flex(&self, (input, tables): Of<Self::Inputs, FlexTensor>) -> FlexTensor {
        flex::forward(input, tables.map(|tables| Angles::of(tables, self.0)))
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (input, tables): Of<Self::Inputs, CubeTensor>) -> CubeTensor {
        launch::forward(input, tables.map(|tables| Angles::of(tables, self.0)))
    }
}

/// The heads' gradient to that of the projection.
#[derive(Clone, Copy, Debug)]
struct Backward {
    heads: RotaryHeads,
    layout: RotaryLayout,
}

impl Operation for Backward {
    type Inputs = (Tensor<3>, Option<Tables>);
    type Outputs = Tensor<4>;

    const NAME: &'static str = "rotary_backward";

    fn outputs(&self, ((shape, dtype), _): Of<Self::Inputs, Spec>) -> Spec {
        let [tokens, _, d_head] = shape.dims();
        (
            [tokens, self.heads.groups, self.heads.queries + 2, d_head].into(),
            dtype,
        )
    }

    fn part_rule(&self, (_, tables): Of<Self::Inputs, Spec>) -> Option<PartRule> {
        Names::of::<Self>(("t..", tables.map(names)), "t...")
            .linear_in_first()
            .rule()
    }

    fn reference(&self, (gradient, tables): Self::Inputs) -> Tensor<4> {
        let angles = tables.map(|tables| RotaryAngles::of(tables, self.layout));
        reference::backward(gradient, self.heads, angles)
    }

    fn flex(&self, (gradient, tables): Of<Self::Inputs, FlexTensor>) -> FlexTensor {
        let angles = tables.map(|tables| Angles::of(tables, self.layout));
        flex::backward(gradient, self.heads, angles)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (gradient, tables): Of<Self::Inputs, CubeTensor>) -> CubeTensor {
        let angles = tables.map(|tables| Angles::of(tables, self.layout));
        launch::backward(gradient, self.heads, angles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_heads_are_found_in_their_groups() {
        let heads = RotaryHeads { groups: 2, queries: 3 };
        assert_eq!((heads.total(), heads.turning()), (10, 8));
        // q q q k v, twice.
        let places: Vec<usize> = (0..10).map(|head| heads.packed(head)).collect();
        assert_eq!(places, [0, 1, 2, 5, 6, 7, 3, 8, 4, 9]);
    }
}
