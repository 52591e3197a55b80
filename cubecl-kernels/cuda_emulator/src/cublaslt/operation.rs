//! `Operation`: what is done with matrices, as the caller says; [`Problem`](super::problem::Problem) checks it.

use std::ffi::c_void;

use super::descriptor::{Descriptors, take};
use super::error::{Error, Outcome};
use crate::driver::device;
use crate::exported::{Out, exported};

/// The numbers of `cublasLtMatmulDescAttributes_t`.
const COMPUTE_TYPE: u32 = 0;
const SCALE_TYPE: u32 = 1;
const POINTER_MODE: u32 = 2;
const TRANSPOSITION_A: u32 = 3;
const TRANSPOSITION_B: u32 = 4;
const TRANSPOSITION_C: u32 = 5;
const EPILOGUE: u32 = 7;
const BIAS_POINTER: u32 = 8;
const MULTIPROCESSORS: u32 = 15;
const BIAS_TYPE: u32 = 26;
/// Of `cublasLtEpilogue_t`: nothing.
const DEFAULT: u32 = 1;

pub static OPERATIONS: Descriptors<Operation> = Descriptors::new(9, "descriptor of a product");

#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Of `cublasComputeType_t`.
    pub compute_type: u32,
    /// Of `cudaDataType_t`.
    pub scale_type: u32,
    /// Of `cublasLtPointerMode_t`: zero is the host's.
    pub pointer_mode: i32,
    /// Of `cublasOperation_t`.
    pub transposition_a: i32,
    pub transposition_b: i32,
    pub transposition_c: i32,
    /// Of `cublasLtEpilogue_t`.
    pub epilogue: u32,
    /// The address of the bias.
    pub bias: usize,
    /// Of `cudaDataType_t`; below zero it is that of D.
    pub bias_type: i32,
}

exported! {
    fn cublasLtMatmulDescCreate(operation: Out<*mut c_void>, compute_type: u32, scale_type: u32) {
        let created = Operation {
            compute_type,
            scale_type,
            pointer_mode: 0,
            transposition_a: 0,
            transposition_b: 0,
            transposition_c: 0,
            epilogue: DEFAULT,
            bias: 0,
            bias_type: -1,
        };
        OPERATIONS.create(operation, created)
    }

    fn cublasLtMatmulDescSetAttribute(operation: *mut c_void, attribute: u32, value: *const c_void, bytes: usize) {
        // SAFETY: the caller's value has `bytes` bytes, and every attribute is a number or an address.
        OPERATIONS.change(operation, |operation| unsafe {
            match attribute {
                COMPUTE_TYPE => operation.compute_type = take(value, bytes)?,
                SCALE_TYPE => operation.scale_type = take(value, bytes)?,
                POINTER_MODE => operation.pointer_mode = take(value, bytes)?,
                TRANSPOSITION_A => operation.transposition_a = take(value, bytes)?,
                TRANSPOSITION_B => operation.transposition_b = take(value, bytes)?,
                TRANSPOSITION_C => operation.transposition_c = take(value, bytes)?,
                EPILOGUE => operation.epilogue = take(value, bytes)?,
                BIAS_POINTER => operation.bias = take(value, bytes)?,
                BIAS_TYPE => operation.bias_type = take(value, bytes)?,
                // It chooses between algorithms: there is one.
                MULTIPROCESSORS => {
                    let asked: i32 = take(value, bytes)?;
                    let most = device::set().map_or(0, |device| device.multiprocessors.count);
                    if !(0..=most as i32).contains(&asked) {
                        return Err(Error::invalid(format!("{asked} multiprocessors")));
                    }
                }
                _ => return Err(OPERATIONS.unsupported(attribute)),
            }
            Ok(())
        })
    }

    fn cublasLtMatmulDescDestroy(operation: *mut c_void) {
        OPERATIONS.destroy(operation)
    }
}
