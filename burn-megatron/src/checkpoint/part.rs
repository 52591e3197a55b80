//! [`ArrayPart`] and [`ArrayData`]: what goes into a checkpoint and what comes out of it.

use std::ops::Range;

use burn::tensor::{Bytes, DType};
use safetensors::tensor::Dtype;

use super::region::Region;
use crate::parameters::Placement;

/// The longest name of an array, in bytes.
const MAX_NAME_BYTES: usize = 1024;

/// Elements of one array that a rank stores.
///
/// Over all ranks, the parts of an array must hold each of its elements exactly once: where several ranks hold the same
/// element, one of them stores it.
#[derive(Clone, Debug)]
pub struct ArrayPart {
    /// The array, by a name that is its own in the checkpoint and the same on every rank:
    /// `optimizer.moment_1.h.0.attn.c_attn.weight`.
    pub name: String,
    /// The box of the logical array that this rank's local array is. What reaches beyond the logical array is padding
    /// and is not stored.
    pub placement: Placement,
    /// The elements of the local array, row-major, padding included, that `data` holds.
    pub range: Range<usize>,
    /// The type of the elements: F64, F32, F16, BF16 or U8.
    pub dtype: DType,
    /// The elements of `range`, padding included.
    pub data: Bytes,
}

impl ArrayPart {
    /// Returns the part that is a rank's whole local array.
    pub fn whole(name: impl Into<String>, placement: Placement, dtype: DType, data: Bytes) -> Self {
        Self {
            name: name.into(),
            range: 0..placement.local_len(),
            placement,
            dtype,
            data,
        }
    }

    /// Returns the part without its elements.
    pub(super) fn spec(&self) -> PartSpec {
        PartSpec {
            name: self.name.clone(),
            placement: self.placement.clone(),
            range: self.range.clone(),
            dtype: self.dtype,
        }
    }
}

/// Elements of an array that were read.
#[derive(Clone, Debug)]
pub struct ArrayData {
    /// Their type, as they were stored.
    pub dtype: DType,
    /// The elements that were asked for, row-major; zeros where the local array is padding.
    pub bytes: Bytes,
}

/// The name, place and type of a part, without its elements.
#[derive(Clone, Debug)]
pub(super) struct PartSpec {
    pub name: String,
    pub placement: Placement,
    pub range: Range<usize>,
    pub dtype: DType,
}

impl PartSpec {
    /// Returns the elements that are stored, and their type.
    ///
    /// # Errors
    /// Says what the array must be and is not.
    pub fn check(&self) -> Result<(Region, Dtype), String> {
        let name = &self.name;
        let is_fit = !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.contains(char::is_control);
        if !is_fit || name == "__metadata__" {
            return Err(format!(
                "array name {name:?}: expected 1 to {MAX_NAME_BYTES} bytes without control characters, not __metadata__"
            ));
        }
        let dtype = stored_dtype(self.dtype).ok_or_else(|| {
            format!(
                "array {name:?} has type {:?}: expected F64, F32, F16, BF16 or U8",
                self.dtype
            )
        })?;
        let region =
            Region::new(&self.placement, self.range.clone()).map_err(|what| format!("array {name:?}: {what}"))?;
        Ok((region, dtype))
    }
}

/// Returns the type as safetensors calls it; none for types that no checkpoint has.
pub(super) fn stored_dtype(dtype: DType) -> Option<Dtype> {
    match dtype {
        DType::F64 => Some(Dtype::F64),
        DType::F32 => Some(Dtype::F32),
        DType::F16 => Some(Dtype::F16),
        DType::BF16 => Some(Dtype::BF16),
        DType::U8 => Some(Dtype::U8),
        _ => None,
    }
}

/// Returns the type as burn calls it; none for types that no checkpoint has.
pub(super) fn loaded_dtype(dtype: Dtype) -> Option<DType> {
    let all = [DType::F64, DType::F32, DType::F16, DType::BF16, DType::U8];
    all.into_iter().find(|&loaded| stored_dtype(loaded) == Some(dtype))
}

/// Returns `length` elements of zero, aligned as the type needs it.
pub(super) fn zeros(dtype: DType, length: usize) -> Bytes {
    match dtype.size() {
        8 => Bytes::from_elems(vec![0_u64; length]),
        4 => Bytes::from_elems(vec![0_u32; length]),
        2 => Bytes::from_elems(vec![0_u16; length]),
        1 => Bytes::from_elems(vec![0_u8; length]),
        size => unreachable!("no checkpoint has elements of {size} bytes"),
    }
}
