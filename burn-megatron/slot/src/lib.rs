//! An open slot in burn's dispatch: runs any backend that has a [`BackendIr`](burn_ir::BackendIr), chosen when the
//! program runs.
//!
//! burn 0.22 has a closed list of backends. One of them is the deprecated crate `burn-ndarray`, which `burn-dispatch`
//! knows by two names only: [`NdArray`] and [`NdArrayDevice`]. A program that takes this package in its place, by a
//! line of `[patch.crates-io]`, has a backend that describes each operation ([`BackendRouter`]) and hands the
//! description to the [`Executor`] of the device, in this process and on the calling thread. burn's own interpreter,
//! [`TensorInterpreter`], is one for every `BackendIr`.
//!
//! ```
//! use burn_flex::{Flex, FlexDevice};
//! use burn_ndarray::NdArrayDevice;
//!
//! let _device = NdArrayDevice::serve::<Flex>(FlexDevice); // a device of burn's for `burn::tensor::Device::new`
//! ```

mod client;
mod device;
mod executor;
mod tensors;

pub use burn_router::{BackendRouter, CustomOpRegistry, RouterClient, RouterTensor, TensorInterpreter};
pub use client::{Slot, SlotClient};
pub use device::NdArrayDevice;
pub use executor::{Executor, Read};
pub use tensors::{put, take};

/// The backend by the name that burn's dispatch asks for.
pub type NdArray = BackendRouter<Slot>;

/// Marker of this package. Code that needs the slot names it, so that a missing patch is one clear error: burn's own
/// `burn-ndarray` has no `OPEN_SLOT`.
pub const OPEN_SLOT: &str = env!("CARGO_PKG_VERSION");
