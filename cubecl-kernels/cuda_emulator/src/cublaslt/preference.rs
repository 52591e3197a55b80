//! `Preference`: what an algorithm may need.

use std::ffi::c_void;

use super::descriptor::{Descriptors, take};
use super::error::Outcome;
use crate::exported::{Out, exported};

/// The numbers of `cublasLtMatmulPreferenceAttributes_t`.
const SEARCH_MODE: u32 = 0;
const MAX_WORKSPACE: u32 = 1;
const REDUCTION_SCHEMES: u32 = 3;
const ALIGNMENT_A: u32 = 5;
const ALIGNMENT_D: u32 = 8;
const MAX_WAVES: u32 = 9;
/// The bit of parts in the type of the sums.
const COMPUTE_TYPE: u32 = 2;
const IMPLEMENTATIONS: u32 = 12;

pub static PREFERENCES: Descriptors<Preference> = Descriptors::new(10, "preference");

#[derive(Clone, Copy, Debug)]
pub struct Preference {
    /// In bytes.
    pub max_workspace: u64,
    /// Of the addresses of A, B, C and D, in bytes.
    pub alignments: [u32; 4],
    /// How parts of sums may be added up: bits of `cublasLtReductionScheme_t`.
    pub reduction_schemes: u32,
}

impl Preference {
    /// What is there before attributes are set.
    const USUAL: Self = Self {
        max_workspace: 0,
        alignments: [256; 4],
        reduction_schemes: 7,
    };
    /// Without a workspace, for all addresses.
    pub const ANYWHERE: Self = Self {
        max_workspace: 0,
        alignments: [1; 4],
        reduction_schemes: COMPUTE_TYPE,
    };

    /// Whether parts of sums may be rounded to the result's type before they are added up.
    pub fn rounds_parts(&self) -> bool {
        self.reduction_schemes & !COMPUTE_TYPE != 0
    }
}

exported! {
    fn cublasLtMatmulPreferenceCreate(preference: Out<*mut c_void>) {
        PREFERENCES.create(preference, Preference::USUAL)
    }

    fn cublasLtMatmulPreferenceSetAttribute(
        preference: *mut c_void,
        attribute: u32,
        value: *const c_void,
        bytes: usize,
    ) {
        // SAFETY: the caller's value has `bytes` bytes, and every attribute is a number.
        PREFERENCES.change(preference, |preference| unsafe {
            match attribute {
                MAX_WORKSPACE => preference.max_workspace = take(value, bytes)?,
                ALIGNMENT_A..=ALIGNMENT_D => {
                    preference.alignments[(attribute - ALIGNMENT_A) as usize] = take(value, bytes)?;
                }
                // They choose between algorithms: there is one.
                REDUCTION_SCHEMES => preference.reduction_schemes = take(value, bytes)?,
                SEARCH_MODE => take::<u32>(value, bytes).map(drop)?,
                MAX_WAVES => take::<f32>(value, bytes).map(drop)?,
                IMPLEMENTATIONS => take::<u64>(value, bytes).map(drop)?,
                _ => return Err(PREFERENCES.unsupported(attribute)),
            }
            Ok(())
        })
    }

    fn cublasLtMatmulPreferenceDestroy(preference: *mut c_void) {
        PREFERENCES.destroy(preference)
    }
}
