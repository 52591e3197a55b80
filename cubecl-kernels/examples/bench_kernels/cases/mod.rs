//! What is measured: every operation at every size, forward and backward, by the passes that autodiff runs.
//!
//! Bytes are those that must be moved: each input read once, each output written once, whatever a kernel does. With `n`
//! the elements of an activation, `e` the bytes of its type, `r` the rows and `c` the columns; what belongs to rows or
//! columns alone (weights, statistics) counts too, and is little.
//!
//! | operation | forward | backward |
//! |---|---|---|
//! | `layer_norm`, `rms_norm` | `2 n e`: input, output | `3 n e`: input, gradient, gradient of the input |
//! | `add_norm`, with bias and dropout | `4 n e`: two addends, sum, norm | `5 n e`: sum, two gradients, two gradients of addends |
//! | `bias_dropout_add` | `3 n e`: two addends, sum | `2 n e`: gradient, one of the dropped addend |
//! | `bias_gelu` | `2 n e` | `3 n e`: input, gradient, gradient of the input |
//! | `swiglu`, `n` of the output | `3 n e` | `5 n e`: two halves, gradient, gradients of the halves |
//! | `softmax` | `2 n e`; causal `1.5 n e`: half the scores, all weights | `3 n e`; causal `2 n e` |
//! | `cross_entropy` | `n e`: the logits | `2 n e`: logits, their gradient |
//! | `adamw`, `n` parameters | `(24 + e) n`: parameter, moments, gradient; with a copy in 16 bits `(24 + 2 e) n` | |
//! | `l2_norm` | `n e` | |
//!
//! Attention's operations are `4 b h s² d` forward and `10 b h s² d` backward, of which causal attention needs half;
//! those of a linear layer `2 r c₁ c₂` and `4 r c₁ c₂`.

mod attention;
mod flat;
mod rows;

use anyhow::Result;
use burn::tensor::{DType, Distribution, Int, Tensor};
use cubecl_kernels::KernelError;
use cubecl_kernels::operation::Tensors;
use cubecl_kernels::random::{RowDropout, RowPlace};
use serde_json::{Value, json};

use super::passes::Passes;
use super::sizes::Sizes;
use super::timing::{Clock, Timing};

/// The probability of dropout where there is one.
pub const DROPOUT: f64 = 0.1;

/// Makes the inputs of a case, and times it.
type Time = Box<dyn Fn(&Setting) -> Result<Timing>>;

/// What a call must do.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Bytes that it must read and write.
    Bytes(usize),
    /// Floating-point operations: all of them, and those whose results are needed.
    Operations {
        /// Not halved for causality.
        all: f64,
        /// Halved for causality.
        needed: f64,
    },
}

/// A pass of an operation at a size.
pub struct Case {
    pub operation: &'static str,
    /// `forward`, `backward` or `step`.
    pub pass: &'static str,
    /// The size, for people.
    pub size: String,
    /// The size, for PyTorch.
    pub numbers: Value,
    pub work: Work,
    pub time: Time,
}

impl Case {
    /// Operation, pass and size.
    pub fn title(&self) -> String {
        format!("{} {} of {}", self.operation, self.pass, self.size)
    }

    /// What PyTorch is asked for.
    pub fn request(&self) -> Value {
        let mut request = self.numbers.clone();
        request["operation"] = json!(self.operation);
        request["pass"] = json!(self.pass);
        request
    }
}

/// Where cases run.
pub struct Setting {
    pub clock: Clock,
    /// The type of inputs and outputs.
    pub dtype: DType,
}

impl Setting {
    /// Times a call.
    fn time<T: Tensors>(&self, mut call: impl FnMut() -> Result<T, KernelError>) -> Result<Timing> {
        self.clock.time(|| {
            let mut outputs = Vec::new();
            T::map(call()?.into_dispatch(), &mut |output| outputs.push(output));
            Ok(outputs)
        })
    }

    /// Times a backward pass, which `add` adds.
    fn time_backward(&self, add: impl Fn(&mut Passes) -> Result<(), KernelError>) -> Result<Timing> {
        let prepare = |calls| {
            let mut passes = Passes::new(&self.clock.device);
            for _ in 0..calls {
                add(&mut passes)?;
            }
            Ok(passes)
        };
        self.clock.time_prepared(prepare, |passes| Ok(passes.run()))
    }

    /// Returns numbers of N(0, 1) in the setting's type.
    fn random<const D: usize>(&self, shape: [usize; D]) -> Tensor<D> {
        self.random_of(shape, self.dtype)
    }

    /// Returns numbers of N(0, 1) in a type, contiguous as what layers hand on: on CUDA burn's own tensors have padding
    /// after rows that are no multiple of 512 bytes.
    fn random_of<const D: usize>(&self, shape: [usize; D], dtype: DType) -> Tensor<D> {
        let count: usize = shape.iter().product();
        Tensor::<1>::random([count], Distribution::Normal(0.0, 1.0), (&self.clock.device, dtype)).reshape(shape)
    }

    /// Returns a number below `end` for each row.
    fn targets(&self, rows: usize, end: usize) -> Tensor<1, Int> {
        Tensor::random([rows], Distribution::Uniform(0.0, end as f64), &self.clock.device)
    }
}

/// Returns all cases, for numbers of a type.
pub fn all(sizes: &Sizes, dtype: DType) -> Vec<Case> {
    let bytes = dtype.size();
    let mut cases = Vec::new();
    for &width in &sizes.widths {
        cases.extend(rows::norms(sizes.tokens, width, bytes));
        cases.extend(rows::elements(sizes.tokens, width, bytes));
    }
    for &shape in &sizes.scores {
        cases.extend(attention::softmax(shape, bytes));
    }
    cases.extend(flat::loss(sizes.tokens, sizes.vocabulary, bytes));
    cases.extend(flat::optimizer(sizes.parameters, dtype));
    for &shape in &sizes.attention {
        cases.extend(attention::attention(shape));
    }
    for &width in &sizes.linear_widths {
        cases.extend(attention::linear(sizes.tokens, width));
    }
    cases
}

/// The dropout of all rows of an activation, in samples of `seq` tokens.
fn dropout(rows: usize, seq: usize) -> RowDropout {
    let place = |row: usize| RowPlace {
        position: (row % seq) as u32,
        sample: (row / seq) as u32,
    };
    RowDropout {
        key: [1, 2],
        iteration: 3,
        first_head: 0,
        probability: DROPOUT,
        places: (0..rows).map(place).collect(),
    }
}
