//! [`Products`]: matmuls as layers describe theirs, on streams and in memory of the caller's, to measure the kernels
//! that the library recommends.

use burn::tensor::DType;
use cudarc::cublaslt::{result, sys};
use cudarc::driver::result::free_sync;
use cudarc::driver::sys::CUstream;

use super::factor::Factor;
use super::plan::{Addresses, Batch, Kind, Plan, PlanKind, workspace};

pub use super::plan::Choice;

/// Alignment of the matrices, in bytes.
const ALIGNMENT: u32 = 256;

/// A product `[rows, depth] · [depth, columns]` of contiguous matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Types of the factors, and of the output.
    pub dtypes: [DType; 2],
    /// `[rows, depth, columns]`
    pub shape: [usize; 3],
    /// `true` for a factor that is stored transposed.
    pub is_transposed: [bool; 2],
    /// Adds the product to what the output holds.
    pub is_added: bool,
}

impl Product {
    /// Elements of the factors and of the output.
    pub fn elements(&self) -> [usize; 3] {
        let [rows, depth, columns] = self.shape;
        [rows * depth, depth * columns, rows * columns]
    }

    /// Bytes of the factors and of the output.
    pub fn bytes(&self) -> [usize; 3] {
        let [of_factors, of_output] = self.dtypes.map(|dtype| dtype.size());
        let [a, b, output] = self.elements();
        [a * of_factors, b * of_factors, output * of_output]
    }

    fn kind(&self) -> Option<PlanKind> {
        let [rows, depth, columns] = self.shape;
        let of = |[rows, columns]: [usize; 2], is_transposed: bool| {
            let strides = if is_transposed { [1, rows] } else { [columns, 1] };
            Factor::of([rows, columns], strides)
        };
        let [is_a_transposed, is_b_transposed] = self.is_transposed;
        let kind = Kind {
            dtypes: self.dtypes,
            factors: [
                of([rows, depth], is_a_transposed)?,
                of([depth, columns], is_b_transposed)?,
            ],
            shape: self.shape,
            has_bias: false,
            batch: Batch::ONE,
        };
        Some(PlanKind {
            kind,
            alignments: [ALIGNMENT; 3],
        })
    }
}

/// The library on a device.
pub struct Products {
    handle: sys::cublasLtHandle_t,
    workspace: u64,
}

/// A kernel for a product.
pub struct Planned {
    plan: Plan,
    is_added: bool,
}

impl Products {
    /// Opens the library on the thread's current context.
    ///
    /// # Errors
    /// When there is no such library, or it refuses the device.
    ///
    /// # Safety
    /// The thread has a current context, which stays current on it until this is dropped.
    pub unsafe fn new() -> Result<Self, String> {
        super::version().map_err(|error| error.to_string())?;
        let handle = result::create_handle().map_err(|error| format!("cublasLtCreate: {error}"))?;
        // SAFETY: the caller's context is current.
        let workspace = unsafe { workspace() }?;
        Ok(Self { handle, workspace })
    }

    /// Returns a kernel for a product; `None` if the library recommends none, or fewer than the choice asks for.
    ///
    /// # Errors
    /// When the library refuses for another reason.
    pub fn plan(&self, product: &Product, choice: Choice) -> Result<Option<Planned>, String> {
        let Some(kind) = product.kind() else {
            return Ok(None);
        };
        match Plan::new(self.handle, &kind, choice) {
            Ok(plan) => Ok(Some(Planned {
                plan,
                is_added: product.is_added,
            })),
            Err(error) if error.0 == sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED => Ok(None),
            Err(error) => Err(format!("{product:?} with {choice:?}: {error}")),
        }
    }

    /// Queues a product of the matrices at these addresses: the factors and the output.
    ///
    /// # Errors
    /// When the library refuses.
    ///
    /// # Safety
    /// The context of [`new`](Self::new) is current. The addresses are of device memory of the product's
    /// [`bytes`](Product::bytes), aligned to 256 bytes, and stay until the stream is done with them. No product that
    /// was queued to another stream still runs: they share a workspace.
    pub unsafe fn launch(&self, planned: &Planned, [a, b, output]: [u64; 3], stream: CUstream) -> Result<(), String> {
        let addresses = Addresses {
            a,
            b,
            output,
            bias: None,
        };
        // SAFETY: the caller's.
        let launched = unsafe {
            let Planned { plan, is_added } = planned;
            plan.launch(self.handle, addresses, *is_added, self.workspace, stream.cast())
        };
        launched.map_err(|error| error.to_string())
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        // SAFETY: both were made by `new`, whose context is current and waits for what runs.
        unsafe {
            let _ = free_sync(self.workspace);
            let _ = result::destroy_handle(self.handle);
        }
    }
}
