//! `Tolerance`: how far a sharded run may be from the one-rank run.

use burn_backend::DType;

/// The largest differences that rounding explains.
///
/// Sharding changes the order of additions and nothing else, so what is left is rounding, amplified by the depth of
/// the model and by twenty optimizer steps. A difference beyond these is a bug.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Relative difference of a step's loss.
    pub loss: f64,
    /// Relative difference of a step's global gradient norm.
    pub gradient_norm: f64,
    /// Norm of a gradient's difference over the norm of the gradient: see [`Judge`](super::Judge) for the floor.
    pub gradient: f64,
    /// Norm of a parameter's difference over the norm of the parameter, likewise.
    pub parameter: f64,
}

impl Tolerance {
    /// Returns the tolerance for an element type.
    ///
    /// f64 has an epsilon of 2e-16: the loss is a mean of some hundred roundings, a gradient passes some thousand.
    /// f32 has 6e-8, and Adam divides small gradients by their own size, which lets their rounding grow in later
    /// steps.
    ///
    /// # Panics
    /// When the type is neither f64 nor f32.
    pub fn of(dtype: DType) -> Self {
        match dtype {
            DType::F64 => Self {
                loss: 1e-12,
                gradient_norm: 1e-10,
                gradient: 1e-10,
                parameter: 1e-10,
            },
            DType::F32 => Self {
                loss: 2e-6,
                gradient_norm: 1e-4,
                gradient: 1e-3,
                parameter: 1e-4,
            },
            other => panic!("there is no parity tolerance for {other:?}"),
        }
    }
}
