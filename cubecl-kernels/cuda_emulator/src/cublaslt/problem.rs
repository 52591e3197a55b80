//! `Problem`: a product whose types and shapes are checked, wherever its matrices are.

use std::ffi::c_void;

use super::element::{Element, R_32F, R_64F};
use super::error::{Error, Outcome};
use super::layout::{LAYOUTS, Layout};
use super::matrix::Matrix;
use super::operation::{OPERATIONS, Operation};

/// The numbers of `cublasComputeType_t` for sums in `f32` and in `f64`.
const COMPUTE_32F: u32 = 68;
const COMPUTE_64F: u32 = 70;
/// The numbers of `cublasLtEpilogue_t`.
const EPILOGUE_DEFAULT: u32 = 1;
const EPILOGUE_BIAS: u32 = 4;

/// D = alpha op(A) op(B) + beta C, where op(A) is `[rows, inner]` and op(B) `[inner, columns]`; a bias is added to each
/// column.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    pub a: Matrix,
    pub b: Matrix,
    pub c: Matrix,
    pub d: Matrix,
    pub rows: usize,
    pub columns: usize,
    pub inner: usize,
    pub is_a_transposed: bool,
    pub is_b_transposed: bool,
    /// The bias's type and address, if one is added. The address may still be null.
    pub bias: Option<(Element, usize)>,
}

impl Problem {
    /// Returns the product that descriptors tell of, with the layouts of A, B, C and D.
    ///
    /// # Errors
    ///
    /// Not supported: what cuBLASLt may do and the emulator does not. Invalid: unknown descriptors, and matrices that
    /// do not fit each other.
    pub fn of(operation: *mut c_void, layouts: [*mut c_void; 4]) -> Outcome<Self> {
        let operation = OPERATIONS.value(operation)?;
        let [a, b, c, d] = layouts.map(|layout| LAYOUTS.value(layout));
        Self::described(&operation, [a?, b?, c?, d?])
    }

    fn described(operation: &Operation, layouts: [Layout; 4]) -> Outcome<Self> {
        let [a, b, c, d] = layouts;
        let (a, b) = (Matrix::of("A", &a)?, Matrix::of("B", &b)?);
        let (c, d) = (Matrix::of("C", &c)?, Matrix::of("D", &d)?);
        let elements = [a, b, c, d].map(|matrix| matrix.element);
        if !are_supported(elements, operation) || operation.pointer_mode != 0 || operation.transposition_c != 0 {
            return Err(Error::unsupported(format!("{elements:?} in {operation:?}")));
        }
        let is_a_transposed = is_transposed(operation.transposition_a)?;
        let is_b_transposed = is_transposed(operation.transposition_b)?;
        let (rows, inner) = shape(&a, is_a_transposed);
        let (inner_of_b, columns) = shape(&b, is_b_transposed);
        let does_fit = |matrix: Matrix| (matrix.rows, matrix.columns) == (rows, columns);
        let is_batch = [a, b, c].iter().all(|matrix| matrix.batch_count == d.batch_count) && d.are_apart();
        if inner != inner_of_b || !does_fit(c) || !does_fit(d) || !is_batch {
            let text = format!("op(A) is {rows} x {inner}, op(B) {inner_of_b} x {columns}, C {c:?}, D {d:?}");
            return Err(Error::invalid(text));
        }
        Ok(Self {
            a,
            b,
            c,
            d,
            rows,
            columns,
            inner,
            is_a_transposed,
            is_b_transposed,
            bias: bias(operation, d.element)?,
        })
    }

    /// The type of the sums and of alpha and beta.
    pub fn wide(&self) -> Element {
        match self.a.element {
            Element::F64 => Element::F64,
            _ => Element::F32,
        }
    }

    /// A number that differs where cuBLASLt has other kernels.
    pub fn kind(&self) -> u64 {
        let bias = self.bias.map_or(u8::MAX, |(element, _)| element as u8);
        u64::from_le_bytes([
            self.a.element as u8,
            self.d.element as u8,
            self.is_a_transposed.into(),
            self.is_b_transposed.into(),
            bias,
            0,
            0,
            0,
        ])
    }
}

/// Whether matrices of these types can be multiplied so.
fn are_supported([a, b, c, d]: [Element; 4], operation: &Operation) -> bool {
    let types = (operation.compute_type, operation.scale_type);
    let is_output = match a {
        Element::F16 | Element::BF16 => types == (COMPUTE_32F, R_32F) && (d == a || d == Element::F32),
        Element::F32 => types == (COMPUTE_32F, R_32F) && d == a,
        Element::F64 => types == (COMPUTE_64F, R_64F) && d == a,
    };
    is_output && a == b && c == d
}

/// Reads a number of `cublasOperation_t`.
fn is_transposed(operation: i32) -> Outcome<bool> {
    match operation {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Error::unsupported(format!("the operation {operation} on a matrix"))),
    }
}

fn shape(matrix: &Matrix, is_transposed: bool) -> (usize, usize) {
    if is_transposed {
        (matrix.columns, matrix.rows)
    } else {
        (matrix.rows, matrix.columns)
    }
}

fn bias(operation: &Operation, output: Element) -> Outcome<Option<(Element, usize)>> {
    match operation.epilogue {
        EPILOGUE_DEFAULT => return Ok(None),
        EPILOGUE_BIAS if output != Element::F64 => (),
        other => return Err(Error::unsupported(format!("the epilogue {other} of {output:?}"))),
    }
    let element = match u32::try_from(operation.bias_type) {
        Ok(datatype) => Element::of(datatype),
        Err(_) => Some(output),
    };
    match element {
        Some(element) if element != Element::F64 => Ok(Some((element, operation.bias))),
        _ => Err(Error::unsupported(format!(
            "a bias of the type {}",
            operation.bias_type
        ))),
    }
}
