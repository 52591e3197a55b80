//! `KernelError`: what an operation says of inputs that it does not support, before anything is launched.

use std::borrow::Cow;

use burn::backend::{Backend, DTypeUsage, Dispatch};
use burn::tensor::{DType, Device};

use crate::precision::is_half;

/// Inputs that an operation does not support.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum KernelError {
    #[error("{operation}: {what} must have the shape {expected:?}, got {actual:?}")]
    Shape {
        operation: &'static str,
        what: Cow<'static, str>,
        actual: Vec<usize>,
        expected: Vec<usize>,
    },
    #[error("{operation}: {what} must be {expected:?}, as the other inputs are, got {actual:?}")]
    MixedTypes {
        operation: &'static str,
        what: Cow<'static, str>,
        actual: DType,
        expected: DType,
    },
    #[error("{operation}: {what} must be one of {valid:?}, got {actual:?}")]
    Type {
        operation: &'static str,
        what: Cow<'static, str>,
        actual: DType,
        valid: &'static [DType],
    },
    #[error("{operation}: {what} is {actual:?}, which {device} does not take")]
    Device {
        operation: &'static str,
        what: Cow<'static, str>,
        actual: DType,
        device: String,
    },
    #[error("{operation}: {what} must be {valid}, got {actual}")]
    Value {
        operation: &'static str,
        what: Cow<'static, str>,
        actual: f64,
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
    pub fn float(self, what: impl Into<Cow<'static, str>>, actual: DType, device: &Device) -> Result<(), KernelError> {
        let what = what.into();
        self.one_of(what.clone(), actual, FLOATS)?;
        // Numbers of 16 bits are read and written, and computed with in f32.
        let needed = if is_half(actual) {
            DTypeUsage::Storage.into()
        } else {
            DTypeUsage::general()
        };
        if Dispatch::dtype_usage(device.as_dispatch(), actual).is_superset(needed) {
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
