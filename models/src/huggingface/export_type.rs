//! [`ExportType`]: the type of an export's numbers.

use burn::tensor::DType;
use safetensors::Dtype;

use super::import::file_type;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExportType {
    /// 32 bits: what a checkpoint has, unless it was trained in f64.
    #[default]
    F32,
    /// 16 bits with the range of f32.
    Bf16,
    /// 16 bits up to 65504.
    F16,
}

impl ExportType {
    pub(super) fn burn(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }

    pub(super) fn safetensors(self) -> Dtype {
        file_type(self.burn()).expect("files have each of the types")
    }

    pub(super) fn pytorch(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
        }
    }
}
