//! [`Described`]: a matmul as described to cuBLASLt; [`Call`]: the arguments of its call.

use std::ffi::c_void;
use std::ptr::null_mut;

use anyhow::Result;
use cudarc::cublaslt::result::{self as lt, CublasError};
use cudarc::cublaslt::sys::{
    cublasComputeType_t as Compute, cublasLtEpilogue_t as Epilogue, cublasLtHandle_t as Handle,
    cublasLtMatmulAlgo_t as Algorithm, cublasLtMatmulDesc_t as Operation,
    cublasLtMatmulDescAttributes_t as OperationAttribute, cublasLtMatmulHeuristicResult_t as Choice,
    cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute, cublasLtMatrixLayout_t as Layout,
    cublasLtMatrixLayoutAttribute_t as LayoutAttribute, cublasStatus_t as Status, cudaDataType as DataType,
};
use cudarc::driver::sys;
use half::{bf16, f16};

use super::trial::Trial;
use crate::gpu::Address;

/// The elements of a matrix on the host.
pub trait Number: Copy + Default + 'static {
    const TYPE: DataType;
    /// Rounds a number that `f32` holds, or that is an `f64`.
    fn of(value: f64) -> Self;
    fn value(self) -> f64;
}

impl Number for f16 {
    const TYPE: DataType = DataType::CUDA_R_16F;

    fn of(value: f64) -> Self {
        Self::from_f32(value as f32)
    }

    fn value(self) -> f64 {
        self.to_f64()
    }
}

impl Number for bf16 {
    const TYPE: DataType = DataType::CUDA_R_16BF;

    fn of(value: f64) -> Self {
        Self::from_f32(value as f32)
    }

    fn value(self) -> f64 {
        self.to_f64()
    }
}

impl Number for f32 {
    const TYPE: DataType = DataType::CUDA_R_32F;

    fn of(value: f64) -> Self {
        value as Self
    }

    fn value(self) -> f64 {
        self.into()
    }
}

impl Number for f64 {
    const TYPE: DataType = DataType::CUDA_R_64F;

    fn of(value: f64) -> Self {
        value
    }

    fn value(self) -> f64 {
        self
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Types {
    pub operands: DataType,
    pub output: DataType,
    pub compute: Compute,
    pub scale: DataType,
}

impl Types {
    pub fn of<I: Number, O: Number>() -> Self {
        let is_double = I::TYPE == DataType::CUDA_R_64F;
        Self {
            operands: I::TYPE,
            output: O::TYPE,
            compute: if is_double {
                Compute::CUBLAS_COMPUTE_64F
            } else {
                Compute::CUBLAS_COMPUTE_32F
            },
            scale: if is_double {
                DataType::CUDA_R_64F
            } else {
                DataType::CUDA_R_32F
            },
        }
    }
}

/// A matmul as described to cuBLASLt.
pub struct Described {
    pub operation: Operation,
    /// Of A, B, C and D.
    pub layouts: [Layout; 4],
    pub types: Types,
}

impl Described {
    pub fn new(types: Types, trial: &Trial) -> Result<Self> {
        let operation = lt::create_matmul_desc(types.compute, types.scale)?;
        let mut layouts = [null_mut(); 4];
        let datatypes = [types.operands, types.operands, types.output, types.output];
        for (at, (rows, columns)) in trial.stored().into_iter().enumerate() {
            let leading_dimension = (rows + trial.gap) as i64;
            layouts[at] = lt::create_matrix_layout(datatypes[at], rows as u64, columns as u64, leading_dimension)?;
        }
        let described = Self {
            operation,
            layouts,
            types,
        };
        let [is_a, is_b] = trial.is_transposed;
        described.set(OperationAttribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(is_a))?;
        described.set(OperationAttribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(is_b))?;
        Ok(described)
    }

    pub fn set<T>(&self, attribute: OperationAttribute, value: T) -> Result<(), CublasError> {
        let value: *const T = &raw const value;
        // SAFETY: the descriptor is there, and so is the value.
        unsafe { lt::set_matmul_desc_attribute(self.operation, attribute, value.cast(), size_of::<T>()) }
    }

    pub fn set_layout<T>(&self, layout: usize, attribute: LayoutAttribute, value: T) -> Result<(), CublasError> {
        let value: *const T = &raw const value;
        // SAFETY: as above.
        unsafe { lt::set_matrix_layout_attribute(self.layouts[layout], attribute, value.cast(), size_of::<T>()) }
    }

    pub fn set_bias(&self, address: Address) -> Result<()> {
        let epilogue = Epilogue::CUBLASLT_EPILOGUE_BIAS;
        self.set(OperationAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue)?;
        self.set(OperationAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, address)?;
        Ok(())
    }

    /// Chooses an algorithm that uses at most `max_workspace` bytes of workspace.
    pub fn choose(&self, handle: Handle, max_workspace: u64) -> Result<Choice, CublasError> {
        let [a, b, c, d] = self.layouts;
        let preference = lt::create_matmul_pref()?;
        let attribute = PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let value: *const u64 = &raw const max_workspace;
        let schemes = PreferenceAttribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK;
        let in_compute_type = 2u32;
        let scheme: *const u32 = &raw const in_compute_type;
        // SAFETY: all handles are there, or are what is tried.
        unsafe {
            lt::set_matmul_pref_attribute(preference, attribute, value.cast(), size_of::<u64>())?;
            lt::set_matmul_pref_attribute(preference, schemes, scheme.cast(), size_of::<u32>())?;
            let choice = lt::get_matmul_algo_heuristic(handle, self.operation, a, b, c, d, preference);
            lt::destroy_matmul_pref(preference)?;
            choice
        }
    }

    /// Puts the product into a stream.
    pub fn multiply(&self, handle: Handle, call: &Call) -> Result<(), CublasError> {
        let single = [call.alpha, call.beta].map(|scalar| scalar as f32);
        let double = [call.alpha, call.beta];
        let is_double = self.types.scale == DataType::CUDA_R_64F;
        let scalars: [*const c_void; 2] = if is_double {
            [(&raw const double[0]).cast(), (&raw const double[1]).cast()]
        } else {
            [(&raw const single[0]).cast(), (&raw const single[1]).cast()]
        };
        let [a, b, c, d] = self.layouts;
        let [a_address, b_address, c_address, d_address] = call.matrices;
        let algorithm: *const Algorithm = call.algorithm.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: what the emulator can not check is right.
        unsafe {
            lt::matmul(
                handle,
                self.operation,
                scalars[0],
                scalars[1],
                a_address as *const c_void,
                a,
                b_address as *const c_void,
                b,
                c_address as *const c_void,
                c,
                d_address as *mut c_void,
                d,
                algorithm,
                call.workspace as *mut c_void,
                call.workspace_bytes,
                call.stream.cast(),
            )
        }
    }

    pub fn destroy(self) -> Result<(), CublasError> {
        // SAFETY: they are no longer used.
        unsafe {
            for layout in self.layouts {
                lt::destroy_matrix_layout(layout)?;
            }
            lt::destroy_matmul_desc(self.operation)
        }
    }
}

#[derive(Clone, Copy)]
pub struct Call {
    pub alpha: f64,
    pub beta: f64,
    /// The addresses of A, B, C and D.
    pub matrices: [Address; 4],
    pub algorithm: Option<Algorithm>,
    pub workspace: Address,
    pub workspace_bytes: usize,
    pub stream: sys::CUstream,
}

impl Call {
    /// Without an algorithm that was chosen, and so without a workspace.
    pub fn new(trial: &Trial, matrices: [Address; 4], stream: sys::CUstream) -> Self {
        Self {
            alpha: trial.alpha,
            beta: trial.beta,
            matrices,
            algorithm: None,
            workspace: 0,
            workspace_bytes: 0,
            stream,
        }
    }
}

pub fn status<T>(outcome: Result<T, CublasError>) -> Status {
    outcome.err().map_or(Status::CUBLAS_STATUS_SUCCESS, |error| error.0)
}
