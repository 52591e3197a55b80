//! `KernelError`: what an operation says of inputs that it does not support, before anything is launched.

use burn::tensor::DType;

/// Inputs that an operation does not support.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum KernelError {
    /// A shape does not fit the other inputs.
    #[error("{operation}: {what} must have the shape {expected:?}, got {actual:?}")]
    Shape {
        /// The operation.
        operation: &'static str,
        /// Which input.
        what: &'static str,
        /// Its shape.
        actual: Vec<usize>,
        /// The shape that it must have.
        expected: Vec<usize>,
    },
    /// An element type differs from that of the first input.
    #[error("{operation}: {what} must be {expected:?}, as the other inputs are, got {actual:?}")]
    MixedTypes {
        /// The operation.
        operation: &'static str,
        /// Which input.
        what: &'static str,
        /// Its type.
        actual: DType,
        /// The type that it must have.
        expected: DType,
    },
    /// An element type that is not computed with.
    #[error("{operation}: {what} must be one of {valid:?}, got {actual:?}")]
    Type {
        /// The operation.
        operation: &'static str,
        /// Which input.
        what: &'static str,
        /// Its type.
        actual: DType,
        /// The types that there are.
        valid: &'static [DType],
    },
    /// A number lies outside what the operation computes with.
    #[error("{operation}: {what} must be {valid}, got {actual}")]
    Value {
        /// The operation.
        operation: &'static str,
        /// Which number.
        what: &'static str,
        /// The number.
        actual: f64,
        /// What it may be.
        valid: String,
    },
}

/// The types that operations compute with.
pub(crate) const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::F64];

/// Checks of one operation's inputs, to be chained with `?`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Check(pub &'static str);

impl Check {
    /// Checks that an input has a shape.
    pub fn shape(self, what: &'static str, actual: &[usize], expected: &[usize]) -> Result<(), KernelError> {
        match actual == expected {
            true => Ok(()),
            false => Err(KernelError::Shape {
                operation: self.0,
                what,
                actual: actual.to_vec(),
                expected: expected.to_vec(),
            }),
        }
    }

    /// Checks that a type is among [`FLOATS`].
    pub fn float(self, what: &'static str, actual: DType) -> Result<(), KernelError> {
        match FLOATS.contains(&actual) {
            true => Ok(()),
            false => Err(KernelError::Type {
                operation: self.0,
                what,
                actual,
                valid: FLOATS,
            }),
        }
    }

    /// Checks that an input has the type of the others.
    pub fn same_type(self, what: &'static str, actual: DType, expected: DType) -> Result<(), KernelError> {
        match actual == expected {
            true => Ok(()),
            false => Err(KernelError::MixedTypes {
                operation: self.0,
                what,
                actual,
                expected,
            }),
        }
    }

    /// Checks a number.
    pub fn value(
        self,
        what: &'static str,
        actual: f64,
        is_valid: bool,
        valid: impl FnOnce() -> String,
    ) -> Result<(), KernelError> {
        match is_valid {
            true => Ok(()),
            false => Err(KernelError::Value {
                operation: self.0,
                what,
                actual,
                valid: valid(),
            }),
        }
    }
}
