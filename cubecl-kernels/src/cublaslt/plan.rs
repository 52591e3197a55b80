//! [`Plan`]: a matmul as described to cuBLASLt, with the kernel that it chooses, kept for all matmuls of the kind.

use std::ffi::c_void;

use burn::tensor::DType;
use cubecl::server::BufferBinding;
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use cudarc::driver::result::malloc_sync;
use cudarc::driver::sys::CUresult;

use super::factor::Factor;

/// Memory of the device that plans may use: what NVIDIA recommends for Hopper, and more than for Ampere.
const WORKSPACE_BYTES: usize = 32 << 20;

/// Returns new memory for a product's workspace.
///
/// # Errors
/// When there is none, in the words of CubeCL if the device's is full.
///
/// # Safety
/// The thread has a current context.
pub(super) unsafe fn workspace() -> Result<u64, String> {
    // SAFETY: the caller's.
    unsafe { malloc_sync(WORKSPACE_BYTES) }.map_err(|error| match error.0 {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => format!("out of device memory allocating {WORKSPACE_BYTES} bytes"),
        _ => format!("no workspace of {WORKSPACE_BYTES} bytes: {error:?}"),
    })
}

const UNSUPPORTED: CublasError = CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED);

/// Kind of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    /// Types of the factors, and of the output.
    pub dtypes: [DType; 2],
    /// Layouts of `a` and `b`.
    pub factors: [Factor; 2],
    /// `[rows, depth, columns]` of `[rows, depth] · [depth, columns]`
    pub shape: [usize; 3],
    pub has_bias: bool,
    pub batch: Batch,
}

/// Products of one call, each of other rows of `a`, for other rows of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Batch {
    pub count: usize,
    /// Numbers from the rows of one to those of the next: of `a`, and of the output.
    pub strides: [usize; 2],
}

impl Batch {
    /// A product that is computed once.
    pub const ONE: Self = Self {
        count: 1,
        strides: [0; 2],
    };
}

/// Kind of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PlanKind {
    pub kind: Kind,
    /// Bytes that `a`, `b` and the output are aligned to.
    pub alignments: [u32; 3],
}

impl PlanKind {
    /// Returns the plan's kind of a product whose `a`, `b` and output are in these buffers. CubeCL aligns the beginning
    /// of its memory further than it matters here.
    pub fn of(kind: Kind, buffers: &[BufferBinding; 3]) -> Self {
        let [of_a, of_output] = kind.batch.strides;
        let [of_factors, of_sums] = kind.dtypes.map(|dtype| dtype.size());
        // Where every product of a batch begins.
        let strides = [of_a * of_factors, 0, of_output * of_sums];
        let begins = |which: usize| buffers[which].offset_start.unwrap_or(0) | strides[which] as u64;
        Self {
            kind,
            alignments: std::array::from_fn(|which| 1 << begins(which).trailing_zeros().min(8)),
        }
    }
}

/// Addresses of a product's matrices on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub a: u64,
    pub b: u64,
    pub output: u64,
    pub bias: Option<u64>,
}

/// A described product.
pub(super) struct Plan {
    description: sys::cublasLtMatmulDesc_t,
    /// Layouts of the library's first factor, its second, and its output.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

/// Returns the library's name of a type; none for those that are not multiplied there, f64 among them, which CubeCL
/// does not have on CUDA.
pub(super) fn data_type(dtype: DType) -> Option<sys::cudaDataType> {
    match dtype {
        DType::F32 => Some(sys::cudaDataType::CUDA_R_32F),
        DType::F16 => Some(sys::cudaDataType::CUDA_R_16F),
        DType::BF16 => Some(sys::cudaDataType::CUDA_R_16BF),
        _ => None,
    }
}

/// Choice among the kernels that the library recommends for a product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Place in the order of its recommendations: it takes the kernel at 0 to be the fastest.
    pub recommendation: usize,
    /// Multiprocessors that it chooses for; all of them if `None`.
    pub multiprocessors: Option<u32>,
}

impl Plan {
    /// Describes a product, and lets the library choose a kernel.
    ///
    /// # Errors
    /// When the library refuses: `CUBLAS_STATUS_NOT_SUPPORTED` if it recommends too few kernels.
    pub fn new(
        handle: sys::cublasLtHandle_t,
        PlanKind { kind, alignments }: &PlanKind,
        choice: Choice,
    ) -> Result<Self, CublasError> {
        let data = data_type(kind.dtypes[0]).ok_or(UNSUPPORTED)?;
        let data_of_output = data_type(kind.dtypes[1]).ok_or(UNSUPPORTED)?;
        let (compute, scale) = (
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            sys::cudaDataType::CUDA_R_32F,
        );
        let mut plan = Self {
            description: result::create_matmul_desc(compute, scale)?,
            layouts: [std::ptr::null_mut(); 3],
            algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
        };
        // The library computes the transposed product.
        let [a, b] = kind.factors;
        let [rows, _, columns] = kind.shape;
        let layouts = [
            (data, b.rows, b.columns, b.leading),
            (data, a.rows, a.columns, a.leading),
            (data_of_output, columns, rows, columns),
        ];
        for (layout, (data, rows, columns, leading)) in plan.layouts.iter_mut().zip(layouts) {
            *layout = result::create_matrix_layout(data, rows as u64, columns as u64, leading as i64)?;
        }
        plan.repeat(kind.batch)?;
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        plan.describe(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(b.is_transposed))?;
        plan.describe(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(a.is_transposed))?;
        if kind.has_bias {
            let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
            plan.describe(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue)?;
        }
        if let Some(multiprocessors) = choice.multiprocessors {
            plan.describe(Attribute::CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, multiprocessors as i32)?;
        }
        plan.algorithm = plan.choose(handle, *alignments, choice.recommendation)?;
        Ok(plan)
    }

    /// Queues the product, which is added to what the output holds or written there.
    ///
    /// # Errors
    /// What the library refuses.
    ///
    /// # Safety
    /// The addresses are of device memory, of the layouts' sizes, and the workspace of [`WORKSPACE_BYTES`]; all stay
    /// until the stream is done with them. Handle and stream are of the current context.
    pub unsafe fn launch(
        &self,
        handle: sys::cublasLtHandle_t,
        addresses: Addresses,
        is_added: bool,
        workspace: u64,
        stream: sys::cudaStream_t,
    ) -> Result<(), CublasError> {
        if let Some(bias) = addresses.bias {
            let attribute = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
            self.describe(attribute, bias)?;
        }
        let Addresses { a, b, output, .. } = addresses;
        // Of the product, and of what the output holds: where that is 0, it is not read.
        let scales = [1f32, if is_added { 1.0 } else { 0.0 }];
        let [alpha, beta] = [0, 1].map(|which| (&raw const scales[which]).cast::<c_void>());
        let [first, second, product] = self.layouts;
        // SAFETY: the caller's; scalars are on the host, in the type of the description.
        unsafe {
            result::matmul(
                handle,
                self.description,
                alpha,
                beta,
                b as *const c_void,
                first,
                a as *const c_void,
                second,
                output as *const c_void,
                product,
                output as *mut c_void,
                product,
                &raw const self.algorithm,
                workspace as *mut c_void,
                WORKSPACE_BYTES,
                stream,
            )
        }
    }

    fn describe<V>(&self, attribute: sys::cublasLtMatmulDescAttributes_t, value: V) -> Result<(), CublasError> {
        let value = &raw const value;
        // SAFETY: the description is open; the library copies the value, whose size is that of the attribute.
        unsafe { result::set_matmul_desc_attribute(self.description, attribute, value.cast(), size_of::<V>()) }
    }

    /// Describes a batch: the library's second factor and its output come from and go to other rows each time, its
    /// first factor, and a bias, are the same.
    fn repeat(&self, batch: Batch) -> Result<(), CublasError> {
        if batch == Batch::ONE {
            return Ok(());
        }
        use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
        let [of_a, of_output] = batch.strides;
        for (layout, stride) in self.layouts.into_iter().zip([0, of_a, of_output]) {
            set_layout(
                layout,
                Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                batch.count as i32,
            )?;
            set_layout(
                layout,
                Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                stride as i64,
            )?;
        }
        Ok(())
    }

    fn choose(
        &self,
        handle: sys::cublasLtHandle_t,
        [a, b, output]: [u32; 3],
        recommendation: usize,
    ) -> Result<sys::cublasLtMatmulAlgo_t, CublasError> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let preference = Preference(result::create_matmul_pref()?);
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, WORKSPACE_BYTES)?;
        // Parts of a sum are added up as the sums are, not rounded to the output's type before.
        let schemes = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes)?;
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b)?;
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a)?;
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, output)?;
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, output)?;
        let [first, second, product] = self.layouts;
        let (desc, preference) = (self.description, preference.0);
        let mut found = Vec::<sys::cublasLtMatmulHeuristicResult_t>::with_capacity(recommendation + 1);
        let (asked, mut count) = (found.capacity() as i32, 0);
        // SAFETY: all of it is open; there is room for the results that are asked for, of which the library writes
        // `count`.
        unsafe {
            let results = found.as_mut_ptr();
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle,
                desc,
                first,
                second,
                product,
                product,
                preference,
                asked,
                results,
                &raw mut count,
            )
            .result()?;
            found.set_len(count.clamp(0, asked) as usize);
        }
        let chosen = found.get(recommendation).ok_or(UNSUPPORTED)?;
        chosen.state.result()?;
        Ok(chosen.algo)
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: each is open, or null where it was not made.
        unsafe {
            let _ = result::destroy_matmul_desc(self.description);
            for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}

fn set_layout<V>(
    layout: sys::cublasLtMatrixLayout_t,
    attribute: sys::cublasLtMatrixLayoutAttribute_t,
    value: V,
) -> Result<(), CublasError> {
    let value = &raw const value;
    // SAFETY: the layout is open; the library copies the value, whose size is that of the attribute.
    unsafe { result::set_matrix_layout_attribute(layout, attribute, value.cast(), size_of::<V>()) }
}

/// Kernels that the library is to look for.
struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn set<V>(&self, attribute: sys::cublasLtMatmulPreferenceAttributes_t, value: V) -> Result<(), CublasError> {
        let value = &raw const value;
        // SAFETY: it is open; the library copies the value, whose size is that of the attribute.
        unsafe { result::set_matmul_pref_attribute(self.0, attribute, value.cast(), size_of::<V>()) }
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: it is open.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}
