//! `KernelError`: what an operation says of inputs that it does not support, before anything is launched.

use std::borrow::Cow;

use burn::tensor::DType;
use burn::tensor::backend::{Backend, DTypeUsage};

use crate::precision::is_half;

/// Inputs that an operation does not support.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum KernelError {
    /// A shape does not fit the other inputs.
    #[error("{operation}: {what} must have the shape {expected:?}, got {actual:?}")]
    Shape {
        /// The operation.
        operation: &'static str,
        /// Which input.
        what: Cow<'static, str>,
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
        what: Cow<'static, str>,
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
        what: Cow<'static, str>,
        /// Its type.
        actual: DType,
        /// The types that there are.
        valid: &'static [DType],
    },
    /// The device does not compute with an element type.
    #[error("{operation}: {what} is {actual:?}, which {device} does not take")]
    Device {
        /// The operation.
        operation: &'static str,
        /// Which input.
        what: Cow<'static, str>,
        /// Its type.
        actual: DType,
        /// The device.
        device: String,
    },
    /// A number is outside the operation's range.
    #[error("{operation}: {what} must be {valid}, got {actual}")]
    Value {
        /// The operation.
        operation: &'static str,
        /// Which number.
        what: Cow<'static, str>,
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
    pub fn shape(
        self,
        what: impl Into<Cow<'static, str>>,
        actual: &[usize],
        expected: &[usize],
    ) -> Result<(), KernelError> {
        if actual == expected {
            Ok(())
        } else {
            Err(KernelError::Shape {
                operation: self.0,
                what: what.into(),
                actual: actual.to_vec(),
                expected: expected.to_vec(),
            })
        }
    }

    /// Checks that a type is one of those that are valid.
    pub fn one_of(
        self,
        what: impl Into<Cow<'static, str>>,
        actual: DType,
        valid: &'static [DType],
    ) -> Result<(), KernelError> {
        if valid.contains(&actual) {
            Ok(())
        } else {
            Err(KernelError::Type {
                operation: self.0,
                what: what.into(),
                actual,
                valid,
            })
        }
    }

    /// Checks that a type is among [`FLOATS`], and one that the device takes.
    pub fn float<B: Backend>(
        self,
        what: impl Into<Cow<'static, str>>,
        actual: DType,
        device: &B::Device,
    ) -> Result<(), KernelError> {
        let what = what.into();
        self.one_of(what.clone(), actual, FLOATS)?;
        // Numbers of 16 bits are read and written, and computed with in f32.
        let needed = if is_half(actual) {
            DTypeUsage::Storage.into()
        } else {
            DTypeUsage::general()
        };
        if B::dtype_usage(device, actual).is_superset(needed) {
            Ok(())
        } else {
            Err(KernelError::Device {
                operation: self.0,
                what,
                actual,
                device: format!("{device:?}"),
            })
        }
    }

    /// Checks that an input has the type of the others.
    pub fn same_type(
        self,
        what: impl Into<Cow<'static, str>>,
        actual: DType,
        expected: DType,
    ) -> Result<(), KernelError> {
        if actual == expected {
            Ok(())
        } else {
            Err(KernelError::MixedTypes {
                operation: self.0,
                what: what.into(),
                actual,
                expected,
            })
        }
    }

    /// Checks a number.
    pub fn value(
        self,
        what: impl Into<Cow<'static, str>>,
        actual: f64,
        is_valid: bool,
        valid: impl FnOnce() -> String,
    ) -> Result<(), KernelError> {
        if is_valid {
            Ok(())
        } else {
            Err(KernelError::Value {
                operation: self.0,
                what: what.into(),
                actual,
                valid: valid(),
            })
        }
    }
}
