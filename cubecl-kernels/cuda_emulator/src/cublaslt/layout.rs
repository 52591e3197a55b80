//! `Layout`: a matrix's memory layout as the caller describes it; [`Matrix`](super::matrix::Matrix) checks it.

use std::ffi::c_void;

use super::descriptor::{Descriptors, take};
use super::error::Outcome;
use crate::exported::{Out, exported};

/// The numbers of `cublasLtMatrixLayoutAttribute_t`.
const TYPE: u32 = 0;
const ORDER: u32 = 1;
const ROWS: u32 = 2;
const COLUMNS: u32 = 3;
const LEADING_DIMENSION: u32 = 4;
const BATCH_COUNT: u32 = 5;
const BATCH_OFFSET: u32 = 6;

pub static LAYOUTS: Descriptors<Layout> = Descriptors::new(8, "layout of a matrix");

#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Of `cudaDataType_t`.
    pub datatype: u32,
    pub rows: u64,
    pub columns: u64,
    /// The elements from one column to the next.
    pub leading_dimension: i64,
    /// Of `cublasLtOrder_t`: zero is column after column.
    pub order: i32,
    pub batch_count: i32,
    /// The elements from one matrix of a batch to the next.
    pub batch_offset: i64,
}

exported! {
    fn cublasLtMatrixLayoutCreate(
        layout: Out<*mut c_void>,
        datatype: u32,
        rows: u64,
        columns: u64,
        leading_dimension: i64,
    ) {
        LAYOUTS.create(layout, Layout {
            datatype,
            rows,
            columns,
            leading_dimension,
            order: 0,
            batch_count: 1,
            batch_offset: 0,
        })
    }

    fn cublasLtMatrixLayoutSetAttribute(layout: *mut c_void, attribute: u32, value: *const c_void, bytes: usize) {
        // SAFETY: the caller's value has `bytes` bytes, and every attribute is a number.
        LAYOUTS.change(layout, |layout| unsafe {
            match attribute {
                TYPE => layout.datatype = take(value, bytes)?,
                ORDER => layout.order = take(value, bytes)?,
                ROWS => layout.rows = take(value, bytes)?,
                COLUMNS => layout.columns = take(value, bytes)?,
                LEADING_DIMENSION => layout.leading_dimension = take(value, bytes)?,
                BATCH_COUNT => layout.batch_count = take(value, bytes)?,
                BATCH_OFFSET => layout.batch_offset = take(value, bytes)?,
                _ => return Err(LAYOUTS.unsupported(attribute)),
            }
            Ok(())
        })
    }

    fn cublasLtMatrixLayoutDestroy(layout: *mut c_void) {
        LAYOUTS.destroy(layout)
    }
}
