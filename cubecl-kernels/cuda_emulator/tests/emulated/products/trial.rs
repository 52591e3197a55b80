//! [`Trial`]: a product whose result the host knows, and how it is tried.

use anyhow::{Result, ensure};
use cudarc::cublaslt::sys::cublasLtHandle_t as Handle;
use cudarc::driver::sys;
use half::{bf16, f16};

use super::described::{Call, Described, Number, Types};
use crate::gpu::{Address, allocate, download, free, upload};

/// The bytes of workspace that the scenes give.
pub const WORKSPACE: usize = 2 << 20;

/// A product of `[m, k]` and `[k, n]`, and how it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// m, n and k.
    pub shape: [usize; 3],
    pub is_transposed: [bool; 2],
    /// The elements between one column and the next.
    pub gap: usize,
    pub alpha: f64,
    pub beta: f64,
    pub is_in_place: bool,
    pub has_bias: bool,
}

pub const TRIAL: Trial = Trial {
    shape: [5, 7, 13],
    is_transposed: [false, false],
    gap: 0,
    alpha: 1.0,
    beta: 0.0,
    is_in_place: false,
    has_bias: false,
};

impl Trial {
    /// The rows and columns of A, B, C and D as they are stored.
    pub fn stored(&self) -> [(usize, usize); 4] {
        let [m, n, k] = self.shape;
        let turned = |is_transposed: bool, rows: usize, columns: usize| {
            if is_transposed {
                (columns, rows)
            } else {
                (rows, columns)
            }
        };
        let [is_a, is_b] = self.is_transposed;
        [turned(is_a, m, k), turned(is_b, k, n), (m, n), (m, n)]
    }

    /// Op(A) and op(B) are the same, however they are stored.
    pub fn operands(&self) -> [Vec<f64>; 2] {
        let [a, b, ..] = self.stored();
        let [is_a, is_b] = self.is_transposed;
        [
            filled(a, self.gap, |row, column| {
                if is_a {
                    number(1, column, row)
                } else {
                    number(1, row, column)
                }
            }),
            filled(b, self.gap, |row, column| {
                if is_b {
                    number(2, column, row)
                } else {
                    number(2, row, column)
                }
            }),
        ]
    }

    /// An element of D, computed in `f64`.
    pub fn element(&self, row: usize, column: usize) -> f64 {
        let [_, _, k] = self.shape;
        let sum: f64 = (0..k).map(|at| number(1, row, at) * number(2, at, column)).sum();
        let mut value = self.alpha * sum;
        if self.beta != 0.0 {
            value += self.beta * number(3, row, column);
        }
        if self.has_bias {
            value += number(4, row, 0);
        }
        value
    }
}

/// Numbers that all types hold, and whose products add up in `f32` without rounding: only the last rounding is left.
pub fn number(seed: usize, row: usize, column: usize) -> f64 {
    let mixed = (row * 7 + column * 5 + row * column * 3 + seed * 4) % 11;
    mixed as f64 / 8.0 - 0.625
}

/// Returns a matrix column by column, with NaN in the gaps between the columns.
pub fn filled((rows, columns): (usize, usize), gap: usize, element: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    let mut values = Vec::new();
    for column in 0..columns {
        values.extend((0..rows).map(|row| element(row, column)));
        values.extend(std::iter::repeat_n(f64::NAN, gap));
    }
    values
}

pub fn put<T: Number>(values: &[f64], stream: sys::CUstream) -> Result<Address> {
    let values: Vec<T> = values.iter().map(|&value| T::of(value)).collect();
    Ok(upload(&values, stream)?)
}

/// Tells where a matrix on the device differs from that of the host, rounded to its type.
pub fn compare<T: Number>(expected: &[f64], address: Address, stream: sys::CUstream) -> Result<()> {
    let found = download::<T>(address, expected.len(), stream)?;
    for (at, (found, &expected)) in std::iter::zip(found, expected).enumerate() {
        let (found, expected) = (found.value(), T::of(expected).value());
        let is_same = found == expected || (found.is_nan() && expected.is_nan());
        ensure!(is_same, "element {at} is {found}, not {expected}");
    }
    Ok(())
}

/// Uploads the operands, computes the product with a workspace, and compares what comes out.
fn check<I: Number, O: Number>(handle: Handle, trial: &Trial, stream: sys::CUstream) -> Result<()> {
    let [a, b] = trial.operands();
    let (a, b) = (put::<I>(&a, stream)?, put::<I>(&b, stream)?);
    let [.., output] = trial.stored();
    let c = filled(output, trial.gap, |row, column| {
        if trial.beta == 0.0 {
            f64::NAN
        } else {
            number(3, row, column)
        }
    });
    let c = put::<O>(&c, stream)?;
    let d = if trial.is_in_place {
        c
    } else {
        put::<O>(&filled(output, trial.gap, |_, _| f64::NAN), stream)?
    };
    let described = Described::new(Types::of::<I, O>(), trial)?;
    if trial.has_bias {
        let values: Vec<f64> = (0..trial.shape[0]).map(|row| number(4, row, 0)).collect();
        described.set_bias(put::<O>(&values, stream)?)?;
    }
    let choice = described.choose(handle, WORKSPACE as u64)?;
    ensure!(choice.workspaceSize == 1 << 20, "{choice:?}");
    let call = Call {
        algorithm: Some(choice.algo),
        workspace: allocate(WORKSPACE, stream)?,
        workspace_bytes: WORKSPACE,
        ..Call::new(trial, [a, b, c, d], stream)
    };
    described.multiply(handle, &call)?;
    let expected = filled(output, trial.gap, |row, column| trial.element(row, column));
    compare::<O>(&expected, d, stream)?;
    if !trial.is_in_place && trial.beta != 0.0 {
        let same = filled(output, trial.gap, |row, column| number(3, row, column));
        compare::<O>(&same, c, stream)?;
    }
    free(call.workspace, stream)?;
    described.destroy()?;
    Ok(())
}

pub fn check_types(handle: Handle, trial: &Trial, stream: sys::CUstream) -> Result<()> {
    let failed = |error: anyhow::Error| error.context(format!("{trial:?}"));
    check::<f16, f16>(handle, trial, stream).map_err(|error| failed(error.context("f16")))?;
    check::<f16, f32>(handle, trial, stream).map_err(|error| failed(error.context("f16 to f32")))?;
    check::<bf16, bf16>(handle, trial, stream).map_err(|error| failed(error.context("bf16")))?;
    check::<bf16, f32>(handle, trial, stream).map_err(|error| failed(error.context("bf16 to f32")))?;
    check::<f32, f32>(handle, trial, stream).map_err(|error| failed(error.context("f32")))?;
    if trial.has_bias {
        // Not in f64.
        Ok(())
    } else {
        check::<f64, f64>(handle, trial, stream).map_err(|error| failed(error.context("f64")))
    }
}
