//! [`QueuedProduct`]: a product on its way to the device, on the thread of CubeCL's server.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::LazyLock;

use cubecl::server::Binding;
use cubecl_common::device_handle::DeviceHandle;
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use cudarc::driver;
use parking_lot::Mutex;

use super::plan::{Addresses, Choice, Plan, PlanKind, WORKSPACE_BYTES};
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
    FAILED.lock().clone()
}

/// The library on a device.
struct Library {
    handle: sys::cublasLtHandle_t,
    /// What CubeCL computes on.
    stream: driver::sys::CUstream,
    /// Of all products: they run one after another.
    workspace: u64,
    plans: HashMap<PlanKind, Plan>,
}

pub(super) struct QueuedProduct {
    pub kind: PlanKind,
    /// `a`, `b` and the output, which is row-major.
    pub buffers: [Binding; 3],
    pub bias: Option<Binding>,
    /// Whether the product is added to what the output holds.
    pub is_added: bool,
}

/// Whether the library has a kernel for a product. Waits for the server at the first one of its kind, and tells where
/// it has none.
pub(super) fn has_kernel(product: &QueuedProduct, server: &DeviceHandle<Server>) -> bool {
    static KNOWN: LazyLock<Mutex<HashMap<PlanKind, bool>>> = LazyLock::new(Mutex::default);
    let known = || KNOWN.lock();
    if let Some(&has_kernel) = known().get(&product.kind) {
        return has_kernel;
    }
    let (what, kind) = (product.describe(), product.kind);
    let found = server.submit_blocking(move |server| {
        prepare(server)?;
        with_library(|library| Ok(library.plan(kind).map(drop)))
    });
    let refusal = match found {
        Ok(Ok(Ok(()))) => None,
        Ok(Ok(Err(error))) => Some(error.to_string()),
        // It comes again when the product is queued, which then says so.
        Ok(Err(_)) | Err(_) => None,
    };
    if let Some(error) = &refusal {
        eprintln!("cuBLASLt has no kernel for {what} ({error}): burn's product runs instead");
    }
    let mut known = known();
    if known.len() >= MOST_PLANS {
        known.clear();
    }
    known.insert(kind, refusal.is_none());
    refusal.is_none()
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

impl QueuedProduct {
    /// Queues it after what was launched before; must run on the server's thread.
    pub fn run(self, server: &mut Server) {
        let (what, mut output) = (self.describe(), None);
        let done = prepare(server).and_then(|()| self.queue(server, &mut output));
        if let Err(error) = done {
            let why = format!("cuBLASLt fails at the product {what}: {error}");
            eprintln!("{why}");
            if let Some((address, bytes)) = output {
                spoil(address, bytes);
            }
            FAILED.lock().get_or_insert(why);
        }
    }

    fn describe(&self) -> String {
        let kind = &self.kind.kind;
        let ([rows, depth, columns], [of_factors, of_output]) = (kind.shape, kind.dtypes.map(super::name));
        let times = match kind.batch.count {
            1 => String::new(),
            count => format!("{count} times "),
        };
        format!("{times}[{rows}, {depth}] · [{depth}, {columns}] of {of_factors} to {of_output}")
    }

    /// Leaves in `place` where the output is, once that is known, and its length in bytes.
    fn queue(self, server: &mut Server, place: &mut Option<(u64, usize)>) -> Result<(), String> {
        let PlanKind { kind, alignments } = self.kind;
        let ([rows, _, columns], batch) = (kind.shape, kind.batch);
        let addresses = Addresses::of(server, self.buffers, self.bias)?;
        // Of a batch, with what is between its outputs.
        let elements = rows * columns + (batch.count - 1) * batch.strides[1];
        *place = Some((addresses.output, elements * kind.dtypes[1].size()));
        let Addresses { a, b, output, .. } = addresses;
        let are_aligned = std::iter::zip([a, b, output], alignments).all(|(at, to)| at.is_multiple_of(to.into()));
        if !are_aligned {
            return Err(format!("its buffers are not aligned to {alignments:?} bytes"));
        }
        with_library(|library| library.run(self.kind, addresses, self.is_added))
    }
}

impl Addresses {
    /// Called on the server's thread.
    fn of(server: &mut Server, [a, b, output]: [Binding; 3], bias: Option<Binding>) -> Result<Self, String> {
        Ok(Self {
            a: address(server, a)?,
            b: address(server, b)?,
            output: address(server, output)?,
            bias: bias.map(|bias| address(server, bias)).transpose()?,
        })
    }
}

/// Does something with the library of this thread.
fn with_library<T>(act: impl FnOnce(&mut Library) -> Result<T, String>) -> Result<T, String> {
    LIBRARY.with_borrow_mut(|library| act(library.as_mut().ok_or("it was not prepared")?))
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

    /// The plan of a kind, made at its first product.
    fn plan(&mut self, kind: PlanKind) -> Result<&Plan, CublasError> {
        if self.plans.len() >= MOST_PLANS {
            self.plans.clear();
        }
        match self.plans.entry(kind) {
            Entry::Occupied(plan) => Ok(plan.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(Plan::new(self.handle, &kind, Choice::default())?)),
        }
    }

    fn run(&mut self, kind: PlanKind, addresses: Addresses, is_added: bool) -> Result<(), String> {
        let (handle, workspace, stream) = (self.handle, self.workspace, self.stream);
        let plan = self
            .plan(kind)
            .map_err(|error| format!("it has no kernel for it: {error}"))?;
        // SAFETY: the addresses are of CubeCL's buffers, which it gives out again only to what is queued on the stream
        // after this; the handle and the stream are of this thread's context.
        let launched = unsafe { plan.launch(handle, addresses, is_added, workspace, stream.cast()) };
        launched.map_err(|error| error.to_string())
    }
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
