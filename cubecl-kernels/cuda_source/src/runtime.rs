//! `CudaSource`: the runtime as CubeCL and burn see it.

use cubecl_common::device::{Device, DeviceId};
use cubecl_core::Runtime;
use cubecl_core::client::ComputeClient;
use cubecl_core::ir::{ContiguousElements, MatrixLayout, MmaProperties, TargetProperties};
use cubecl_core::zspace::striding::has_pitched_row_major_strides;
use cubecl_core::zspace::{Shape, Strides};
use cubecl_cpp::cuda::CudaDialect;
use cubecl_cpp::cuda::mma::{CudaWmmaCompiler, contiguous_elements_cuda};
use cubecl_cpp::shared::CppCompiler;

use crate::CudaSourceDevice;
use crate::server::CudaSourceServer;

#[derive(Clone, Debug)]
pub struct CudaSource;

/// What `cubecl_cuda::CudaCompiler` names.
pub type CudaCompiler = CppCompiler<CudaDialect<CudaWmmaCompiler>>;

impl Runtime for CudaSource {
    type Compiler = CudaCompiler;
    type Server = CudaSourceServer;
    type Device = CudaSourceDevice;

    fn client(device: &CudaSourceDevice) -> ComputeClient<Self> {
        ComputeClient::load(device)
    }

    fn name(_client: &ComputeClient<Self>) -> &'static str {
        // Kernels that ask for the runtime's name must take CUDA's path.
        "cuda"
    }

    fn require_array_lengths() -> bool {
        true
    }

    fn max_cube_count() -> (u32, u32, u32) {
        (i32::MAX as u32, u16::MAX as u32, u16::MAX as u32)
    }

    fn can_read_tensor(shape: &Shape, strides: &Strides) -> bool {
        has_pitched_row_major_strides(shape, strides)
    }

    fn target_properties() -> TargetProperties {
        TargetProperties {
            mma: MmaProperties {
                register_size_bits: 32,
                const_plane_size: 32,
                register_layout_a: MatrixLayout::RowMajor,
                register_layout_b: MatrixLayout::ColMajor,
                register_layout_acc: MatrixLayout::RowMajor,
                register_duplication_a: 1,
                register_duplication_b: 1,
                register_duplication_acc: 1,
                contiguous_elements: ContiguousElements::new(contiguous_elements_cuda),
            },
        }
    }

    fn enumerate_devices(_type_id: u16, _info: &()) -> Vec<DeviceId> {
        CudaSourceDevice::all().map(|device| device.to_id()).collect()
    }
}
