//! Stands in for CubeCL's LLVM where the feature `cuda-cpp` selects NVRTC: it has the types that `cubecl-cuda` names,
//! and compiles nothing.
#![allow(missing_docs, reason = "as in the crate that it stands for")]

use cubecl_core::ir::nvidia::SmArch;
use cubecl_core::prelude::KernelDefinition;
use cubecl_runtime::compiler::{CompilationError, Compiler};
use cubecl_runtime::kernel::BufferIOAttr;

pub mod nvptx {
    pub mod ptx_version {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct PtxVersion(u32);
        impl PtxVersion {
            pub fn for_driver(_driver: i32) -> Option<Self> {
                None
            }
        }
        impl core::fmt::Display for PtxVersion {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "ptx{}", self.0)
            }
        }
    }
}
pub mod shared {
    pub mod lowered_features {

        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum GpuTarget {
            Nvptx,
        }
        pub fn restrict_features(_props: &mut cubecl_core::ir::DeviceProperties, _target: GpuTarget) {}
    }
}
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LlvmTarget {
    #[default]
    Cpu,
    Nvptx,
    AmdGpu,
}
#[derive(Clone, Debug, Default)]
pub struct PlironCompiler {
    pub target: LlvmTarget,
}
#[derive(Clone, Debug, Default)]
pub struct PlironOptions {
    pub cpu_buffer_alignment: Option<u32>,
    pub arch: Option<()>,
    pub sm_arch: Option<SmArch>,
    pub ptx_version: Option<nvptx::ptx_version::PtxVersion>,
    pub grid_constants: bool,
    pub keep_object: bool,
}
#[derive(Clone, Debug)]
pub struct NvptxModule {
    pub ptx: Vec<core::ffi::c_char>,
    pub entrypoint: String,
    pub ir: String,
    pub shared_memory_size: usize,
    pub io: Vec<BufferIOAttr>,
}
#[derive(Clone)]
pub enum PlironArtifact {
    NvptxCode(NvptxModule),
    Absent,
}
impl core::fmt::Display for PlironArtifact {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("absent")
    }
}
impl Compiler for PlironCompiler {
    type Representation = PlironArtifact;
    type CompilationOptions = PlironOptions;
    fn compile(&mut self, _: KernelDefinition, _: &PlironOptions) -> Result<PlironArtifact, CompilationError> {
        panic!("this build has no LLVM: enable cubecl's feature cuda-cpp")
    }
    fn extension(&self) -> &'static str {
        "ll"
    }
    fn lang_tag(&self) -> &'static str {
        "llvm"
    }
}
