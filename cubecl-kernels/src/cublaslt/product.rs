//! [`QueuedProduct`]: a product on its way to the device, on the thread of CubeCL's server.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::LazyLock;

use burn::tensor::DType;
use cubecl::server::BufferBinding;
use cubecl_common::device_handle::DeviceHandle;
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use cudarc::driver;
use parking_lot::Mutex;

use super::plan::{Addresses, Choice, Kind, Plan, PlanKind, workspace};
use crate::cuda::{CallBuffers, Server, queue};

/// The kinds of products that are kept; a model has some dozens.
const MOST_PLANS: usize = 1024;

thread_local! {
    /// Library of a server's thread. A server has one thread, and a thread one device.
    static LIBRARY: RefCell<Option<Library>> = const { RefCell::new(None) };
}

/// The library on a device.
pub(super) struct Library {
    handle: sys::cublasLtHandle_t,
    /// Memory for the products of a stream, which run one after another.
    workspaces: HashMap<driver::sys::CUstream, u64>,
    plans: HashMap<PlanKind, Plan>,
}

pub(super) struct QueuedProduct {
    pub kind: PlanKind,
    /// `a`, `b` and the output, which is row-major.
    pub buffers: [BufferBinding; 3],
    pub bias: Option<BufferBinding>,
    /// True if the product is added to what the output holds.
    pub is_added: bool,
}

/// Returns whether the library has a kernel for a kind of products. Waits for the server at the first one, and reports
/// if it has none.
pub(super) fn has_kernel(kind: PlanKind, server: &DeviceHandle<Server>) -> bool {
    static KNOWN: LazyLock<Mutex<HashMap<PlanKind, bool>>> = LazyLock::new(Mutex::default);
    let known = || KNOWN.lock();
    if let Some(&has_kernel) = known().get(&kind) {
        return has_kernel;
    }
    let found = server.submit_blocking(move |_| with_library(|library| Ok(library.plan(kind).map(drop))));
    let refusal = match found {
        Ok(Ok(Err(error))) => Some(error),
        // Another error comes again when a product is queued, and is reported then.
        _ => None,
    };
    if let Some(error) = &refusal {
        eprintln!(
            "cuBLASLt has no kernel for {} ({error}): burn's product runs instead",
            kind.kind
        );
    }
    let mut known = known();
    if known.len() >= MOST_PLANS {
        known.clear();
    }
    known.insert(kind, refusal.is_none());
    refusal.is_none()
}

impl QueuedProduct {
    /// Queues it after what this thread has launched.
    pub fn queue(self, server: &DeviceHandle<Server>) {
        let Self {
            kind,
            buffers: [a, b, output],
            bias,
            is_added,
        } = self;
        let buffers = CallBuffers {
            read: [a, b].into_iter().chain(bias).collect(),
            written: vec![output],
        };
        queue::<Library>(server, buffers, move |stream, addresses| {
            let addresses = match *addresses {
                [a, b, bias, output] => Addresses {
                    a,
                    b,
                    output,
                    bias: Some(bias),
                },
                [a, b, output] => Addresses {
                    a,
                    b,
                    output,
                    bias: None,
                },
                _ => unreachable!("an address for each buffer"),
            };
            let run = with_library(|library| library.run(kind, addresses, is_added, stream));
            run.map_err(|error| format!("cuBLASLt fails at the product {}: {error}", kind.kind))
        });
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([rows, depth, columns], name) = (self.shape, |dtype: DType| format!("{dtype:?}").to_lowercase());
        let [of_factors, of_output] = self.dtypes.map(name);
        if self.batch.count > 1 {
            write!(formatter, "{} times ", self.batch.count)?;
        }
        write!(
            formatter,
            "[{rows}, {depth}] · [{depth}, {columns}] of {of_factors} to {of_output}"
        )
    }
}

/// Does something with the library of this thread, a server's, which is opened first.
pub(super) fn with_library<T>(act: impl FnOnce(&mut Library) -> Result<T, String>) -> Result<T, String> {
    LIBRARY.with_borrow_mut(|library| match library {
        Some(library) => act(library),
        None => act(library.insert(Library::new()?)),
    })
}

impl Library {
    fn new() -> Result<Self, String> {
        Ok(Self {
            handle: result::create_handle().map_err(|error| format!("cublasLtCreate: {error}"))?,
            workspaces: HashMap::new(),
            plans: HashMap::new(),
        })
    }

    /// Returns the plan of a kind, made at its first product.
    fn plan(&mut self, kind: PlanKind) -> Result<&Plan, CublasError> {
        if self.plans.len() >= MOST_PLANS {
            self.plans.clear();
        }
        match self.plans.entry(kind) {
            Entry::Occupied(plan) => Ok(plan.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(Plan::new(self.handle, &kind, Choice::default())?)),
        }
    }

    /// Returns a stream's workspace, made at its first product and never given back.
    fn workspace(&mut self, stream: driver::sys::CUstream) -> Result<u64, String> {
        Ok(match self.workspaces.entry(stream) {
            Entry::Occupied(workspace) => *workspace.get(),
            Entry::Vacant(place) => {
                // SAFETY: on the server's thread its context is current.
                *place.insert(unsafe { workspace() }?)
            }
        })
    }

    /// Runs a product on a stream of the device.
    fn run(
        &mut self,
        kind: PlanKind,
        addresses: Addresses,
        is_added: bool,
        stream: driver::sys::CUstream,
    ) -> Result<(), String> {
        let (handle, workspace) = (self.handle, self.workspace(stream)?);
        let Addresses { a, b, output, .. } = addresses;
        let alignments = kind.alignments;
        let are_aligned = std::iter::zip([a, b, output], alignments).all(|(at, to)| at.is_multiple_of(to.into()));
        if !are_aligned {
            return Err(format!("its buffers are not aligned to {alignments:?} bytes"));
        }
        let plan = self
            .plan(kind)
            .map_err(|error| format!("it has no kernel for it: {error}"))?;
        // SAFETY: the addresses are of CubeCL's buffers, which it gives out again only to what is queued on the stream
        // after this; the handle and the stream are of this thread's context.
        let launched = unsafe { plan.launch(handle, addresses, is_added, workspace, stream.cast()) };
        launched.map_err(|error| error.to_string())
    }
}
