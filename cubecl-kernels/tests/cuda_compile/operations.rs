//! The operations whose kernels are compiled, and what is common to calling them.
//!
//! Sizes are those of GPT's presets, from d_model 768 to 25600, and heads of 16 to 256 elements. Kernels depend on the
//! type, on how a row is laid over units, on an attention's head size and on which optional inputs there are; the
//! numbers of samples, tokens, heads and key heads are arguments, and appear where a case of their own could take
//! another path.

use std::sync::Arc;

use anyhow::Result;
use burn::tensor::{DType, Device, Tensor};
use cubecl_kernels::random::{RowDropout, RowPlace};

use crate::{attention, others, rows};

pub const SAMPLES: usize = 8;
pub const TOKENS: usize = 1024;
pub const ROWS: usize = SAMPLES * TOKENS;
/// Rows of 2048 numbers, of which 32 bits do not count all.
pub const MANY_ROWS: usize = (1 << 21) + TOKENS;

pub type Run = Arc<dyn Fn(&Setting) -> Result<()> + Send + Sync>;

/// An operation at a size, forward and backward.
#[derive(Clone)]
pub struct Operation {
    /// Its name, the part before a comma that of its function.
    pub name: &'static str,
    /// The size, for people.
    pub shape: String,
    /// The type of its inputs.
    pub dtype: DType,
    /// The kernels that it launches, where there is a choice of several paths; in order.
    pub kernels: Option<&'static [&'static str]>,
    /// Whether only a release compiles it, for it differs little from others.
    #[allow(dead_code, reason = "the program that prints costs has no use for it")]
    pub is_for_a_release: bool,
    pub run: Run,
}

/// Where an operation is called.
pub struct Setting {
    /// A device that differentiates.
    pub device: Device,
    /// The type of the inputs.
    pub dtype: DType,
}

impl Setting {
    /// Returns a leaf; nothing reads its values.
    pub fn leaf<const D: usize>(&self, shape: [usize; D]) -> Tensor<D> {
        Tensor::empty(shape, (&self.device, self.dtype)).require_grad()
    }

    /// Returns the device without autodiff.
    pub fn plain_device(&self) -> Device {
        self.device.clone().inner()
    }

    /// Returns a tensor of that device.
    pub fn plain<const D: usize>(&self, shape: [usize; D], dtype: DType) -> Tensor<D> {
        Tensor::empty(shape, (&self.plain_device(), dtype))
    }
}

/// The list as it grows, in one type.
pub struct List {
    /// The type of what is added.
    pub dtype: DType,
    /// Whether what is added is only for a release.
    pub is_for_a_release: bool,
    operations: Vec<Operation>,
}

impl List {
    /// Adds an operation that has kernels for its sizes whatever they are.
    pub fn add(
        &mut self,
        name: &'static str,
        shape: String,
        run: impl Fn(&Setting) -> Result<()> + Send + Sync + 'static,
    ) {
        self.operations.push(Operation {
            name,
            shape,
            dtype: self.dtype,
            kernels: None,
            is_for_a_release: self.is_for_a_release || self.dtype != DType::BF16,
            run: Arc::new(run),
        });
    }

    /// Adds an operation that must launch exactly these kernels.
    pub fn add_with_kernels(
        &mut self,
        name: &'static str,
        shape: String,
        kernels: &'static [&'static str],
        run: impl Fn(&Setting) -> Result<()> + Send + Sync + 'static,
    ) {
        self.add(name, shape, run);
        let last = self.operations.last_mut().expect("just added");
        last.kernels = Some(kernels);
    }
}

pub fn tokens_dropout(rows: usize) -> RowDropout {
    let place = |row: usize| RowPlace {
        position: (row % TOKENS) as u32,
        sample: (row / TOKENS) as u32,
    };
    RowDropout {
        key: [1, 2],
        iteration: 3,
        first_head: 0,
        probability: 0.1,
        places: (0..rows).map(place).collect(),
    }
}

/// Returns every operation at every size in every type of a GPT's training.
pub fn all() -> Vec<Operation> {
    let operations = [DType::BF16, DType::F16, DType::F32].into_iter().flat_map(|dtype| {
        let mut list = List {
            dtype,
            is_for_a_release: false,
            operations: Vec::new(),
        };
        attention::list(&mut list);
        rows::list(&mut list);
        others::list(&mut list);
        list.operations
    });
    operations.collect()
}
