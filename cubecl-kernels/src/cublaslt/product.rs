//! [`Product`]: a product on its way to the device, on the thread of CubeCL's server.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use burn::tensor::DType;
use cubecl::server::Binding;
use cudarc::cublaslt::{result, sys};
use cudarc::driver;

use super::factor::Factor;
use super::plan::{Addresses, Kind, Plan, WORKSPACE_BYTES};
use crate::cuda::{Server, address, compute_stream};

/// The kinds of products that are kept; a model has some dozens.
const MOST_PLANS: usize = 1024;

thread_local! {
    /// What a server's thread has of the library. A server has one thread, and a thread one device.
    static LIBRARY: RefCell<Option<Library>> = const { RefCell::new(None) };
}

/// Why a product failed.
static FAILED: Mutex<Option<String>> = Mutex::new(None);

/// Why an earlier product failed, if one did.
pub(super) fn failure() -> Option<String> {
    FAILED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The library on a device.
struct Library {
    handle: sys::cublasLtHandle_t,
    /// What CubeCL computes on.
    stream: driver::sys::CUstream,
    /// Of all products: they run one after another.
    workspace: u64,
    plans: HashMap<Kind, Plan>,
}

/// A product.
pub(super) struct Product {
    /// Of the factors, and of the output.
    pub dtypes: [DType; 2],
    /// Of `a` and `b`.
    pub factors: [Factor; 2],
    /// `[rows, depth, columns]`
    pub shape: [usize; 3],
    /// `a`, `b` and the output, which lies row by row.
    pub buffers: [Binding; 3],
    pub bias: Option<Binding>,
    /// Whether the product is added to what the output holds.
    pub is_added: bool,
}

/// Prepares the library on the device of this server. Called on its thread.
pub(super) fn prepare(server: &mut Server) -> Result<(), String> {
    LIBRARY.with_borrow_mut(|library| {
        if library.is_none() {
            *library = Some(Library::new(server)?);
        }
        Ok(())
    })
}

impl Product {
    /// Queues it, behind what was launched before. Called on the server's thread.
    pub fn run(self, server: &mut Server) {
        let (what, mut output) = (self.describe(), None);
        let done = prepare(server).and_then(|()| self.queue(server, &mut output));
        if let Err(error) = done {
            let why = format!("cuBLASLt fails at the product {what}: {error}");
            eprintln!("{why}");
            if let Some((address, bytes)) = output {
                spoil(address, bytes);
            }
            FAILED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        }
    }

    fn describe(&self) -> String {
        let [rows, depth, columns] = self.shape;
        let dtype = super::name(self.dtypes[0]);
        format!("[{rows}, {depth}] · [{depth}, {columns}] of {dtype}")
    }

    /// Leaves in `place` where the output is, once that is known, and its length in bytes.
    fn queue(self, server: &mut Server, place: &mut Option<(u64, usize)>) -> Result<(), String> {
        let [rows, _, columns] = self.shape;
        let [a, b, output] = self.buffers;
        let output = address(server, output)?;
        *place = Some((output, rows * columns * self.dtypes[1].size()));
        let addresses = Addresses {
            a: address(server, a)?,
            b: address(server, b)?,
            output,
            bias: self.bias.map(|bias| address(server, bias)).transpose()?,
            is_added: self.is_added,
        };
        let kind = Kind {
            dtypes: self.dtypes,
            factors: self.factors,
            shape: self.shape,
            has_bias: addresses.bias.is_some(),
            alignments: [addresses.a, addresses.b, addresses.output].map(alignment),
        };
        LIBRARY.with_borrow_mut(|library| {
            let library = library.as_mut().expect("it was prepared");
            library.run(kind, addresses)
        })
    }
}

impl Library {
    fn new(server: &mut Server) -> Result<Self, String> {
        let stream = compute_stream(server)?;
        let handle = result::create_handle().map_err(|error| format!("cublasLtCreate: {error}"))?;
        // SAFETY: on the server's thread its context is current. The memory is never given back.
        let workspace = unsafe { driver::result::malloc_sync(WORKSPACE_BYTES) };
        Ok(Self {
            handle,
            stream,
            workspace: workspace.map_err(|error| format!("no workspace of {WORKSPACE_BYTES} bytes: {error:?}"))?,
            plans: HashMap::new(),
        })
    }

    fn run(&mut self, kind: Kind, addresses: Addresses) -> Result<(), String> {
        if self.plans.len() >= MOST_PLANS {
            self.plans.clear();
        }
        let plan = match self.plans.entry(kind) {
            std::collections::hash_map::Entry::Occupied(plan) => plan.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                let plan = Plan::new(self.handle, &kind);
                place.insert(plan.map_err(|error| format!("it has no kernel for it: {error}"))?)
            }
        };
        // SAFETY: the addresses are of CubeCL's buffers, which it gives out again only to what is queued on the stream behind this;
        // the handle and the stream are of this thread's context.
        let launched = unsafe { plan.launch(self.handle, addresses, self.workspace, self.stream.cast()) };
        launched.map_err(|error| error.to_string())
    }
}

/// To how many bytes an address is aligned, as far as it matters.
fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(8)
}

/// Fills an output that was not computed with what is not a number, so that nothing made of it looks whole.
fn spoil(address: u64, bytes: usize) {
    LIBRARY.with_borrow(|library| {
        if let Some(library) = library {
            // SAFETY: as of a product's output.
            let _ = unsafe { driver::result::memset_d8_async(address, 0xff, bytes, library.stream) };
        }
    });
}
