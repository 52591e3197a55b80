//! What `cubecl-cuda` says of a GPU: the properties by which kernels choose their paths, and the compiler's options.
//!
//! To be kept equal to `cubecl-cuda`'s `runtime.rs` of the version in use: a property that is missing here makes
//! kernels take another path than on the GPU, and this path would go unchecked.

use cubecl_common::profile::TimingMethod;
use cubecl_core::ir::features::{AtomicUsage, Plane, Tma, TypeUsage};
use cubecl_core::ir::{
    BarrierLevel, DeviceProperties, ElemType, FloatKind, HardwareProperties, MemoryDeviceProperties, OpaqueType,
    SemanticType, StorageType, Type, VectorSize,
};
use cubecl_cpp::cuda::arch::CudaArchitecture;
use cubecl_cpp::cuda::mma::CudaWmmaCompiler;
use cubecl_cpp::shared::{
    CompilationOptions, CppSupportedFeatures, register_mma_features, register_scaled_mma_features,
    register_wmma_features,
};
use cubecl_cpp::{DialectWmmaCompiler, register_supported_types};

use crate::Architecture;

/// What rows of tensors and allocations are aligned to, in bytes.
pub const ALIGNMENT: u64 = 512;
/// The memory of the GPUs, in bytes.
const MEMORY: u64 = 80 << 30;

pub fn properties(architecture: Architecture) -> DeviceProperties {
    let arch = CudaArchitecture {
        version: architecture.version(),
    };
    let wmma = CudaWmmaCompiler::supported_wmma_combinations(&arch);
    let hardware = HardwareProperties {
        load_width: 128,
        plane_size_min: 32,
        plane_size_max: 32,
        max_bindings: 1024,
        max_shared_memory_size: architecture.max_shared_memory(),
        max_cube_count: (i32::MAX as u32, 65535, 65535),
        max_units_per_cube: 1024,
        max_cube_dim: (1024, 1024, 64),
        num_streaming_multiprocessors: Some(architecture.multiprocessors()),
        num_tensor_cores: Some(4),
        min_tensor_cores_dim: if wmma.is_empty() { None } else { Some(8) },
        num_cpu_cores: None,
        max_vector_size: VectorSize::MAX,
    };
    let memory = MemoryDeviceProperties {
        max_page_size: MEMORY / 4,
        alignment: ALIGNMENT,
    };
    let mut properties = DeviceProperties::new(Default::default(), memory, hardware, TimingMethod::System);
    register_supported_types(&mut properties);
    properties.register_type_usage(ElemType::Float(FloatKind::TF32), TypeUsage::Conversion);
    register_atomics(&mut properties, architecture);
    properties.register_semantic_type(SemanticType::Pipeline);
    for level in [BarrierLevel::Unit, BarrierLevel::Cube] {
        properties.register_type_usage(OpaqueType::Barrier(level), TypeUsage::Buffer);
    }
    for half in [FloatKind::F16, FloatKind::BF16] {
        let half: StorageType = ElemType::Float(half).into();
        properties.features.matmul.ldmatrix.insert(half);
        if architecture == Architecture::Sm90 {
            properties.features.matmul.stmatrix.insert(half);
        }
    }
    properties.features.copy_async = true;
    if architecture == Architecture::Sm90 {
        for eight_bits in [FloatKind::E4M3, FloatKind::E5M2] {
            properties.register_type_usage(ElemType::Float(eight_bits), TypeUsage::Conversion | TypeUsage::Buffer);
        }
        properties.features.tma.insert(Tma::Base);
        properties.register_semantic_type(SemanticType::TensorMap);
        properties.features.cube_cluster = true;
    }
    properties.features.memory_reinterpret = true;
    properties.features.alignment = true;
    for operations in [Plane::Sync, Plane::Ops, Plane::NonUniformControlFlow] {
        properties.features.plane.insert(operations);
    }
    register_wmma_features(wmma, &mut properties);
    register_mma_features(CudaWmmaCompiler::supported_mma_combinations(&arch), &mut properties);
    register_scaled_mma_features(
        CudaWmmaCompiler::supported_scaled_mma_combinations(&arch),
        &mut properties,
    );
    properties
}

fn register_atomics(properties: &mut DeviceProperties, architecture: Architecture) {
    let atomic = |kind| Type::new(StorageType::Atomic(ElemType::Float(kind)));
    let usage = AtomicUsage::Add | AtomicUsage::LoadStore;
    properties.register_atomic_type_usage(atomic(FloatKind::F64), usage);
    properties.register_atomic_type_usage(atomic(FloatKind::F16), usage);
    properties.register_atomic_type_usage(atomic(FloatKind::F16).with_vector_size(2), usage);
    if architecture == Architecture::Sm90 {
        properties.register_atomic_type_usage(atomic(FloatKind::F32).with_vector_size(2), usage);
        properties.register_atomic_type_usage(atomic(FloatKind::F32).with_vector_size(4), usage);
    }
}

/// Returns the compiler's options for a GPU.
pub fn options(architecture: Architecture) -> CompilationOptions {
    let is_hopper = architecture == Architecture::Sm90;
    CompilationOptions {
        warp_size: 32,
        supports_features: CppSupportedFeatures {
            grid_constants: true,
            clusters: is_hopper,
            fast_math: true,
            // `cubecl-cuda` asks for CUDA 12.8, which is older than any NVRTC that is installed for this.
            fast_tanh: true,
            elect_sync: is_hopper,
        },
    }
}
