//! CUDA kernels without a GPU: a CubeCL runtime whose launches are those of `cubecl-cuda` up to the CUDA C++ source.
//!
//! Every kernel goes through the compiler, the options and the device properties that `cubecl-cuda` would use on the
//! same GPU, so its source is the one a GPU would run. What then happens with the source is the device's [`Mode`]:
//! - [`Mode::Compile`]: NVRTC and `ptxas` compile it for the architecture, nothing runs, and [`launched`] tells what
//!   came out: registers, shared memory, spills, matrix instructions.
//! - [`Mode::Run`]: a C++ compiler of the host compiles it with a header of ours in place of CUDA's, and it runs on the
//!   CPU, every thread of a block as a fiber.
//!
//! The tests of `cubecl-kernels` call this, and `cuda_emulator` its [`Host`]; it is part of nothing that a user builds.

mod architecture;
mod cache;
mod canonical;
mod device;
pub mod host;
mod leave;
mod properties;
mod report;
mod runtime;
mod server;
mod source;
mod storage;
pub mod toolkit;

pub use architecture::Architecture;
pub use device::{CudaSourceDevice, EQUAL_DEVICES, Mode};
pub use host::Host;
pub use leave::leave;
pub use report::{KernelReport, Resources, launched};
pub use runtime::CudaSource;
pub use toolkit::Toolkit;
