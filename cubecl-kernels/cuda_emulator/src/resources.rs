//! [`Resources`]: what a compiled kernel takes of a GPU.

use serde::{Deserialize, Serialize};

/// What a compiled kernel takes of the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Registers per thread.
    pub registers: u32,
    /// Shared memory per block in bytes, static and dynamic.
    pub shared_memory: usize,
    /// Bytes per thread that do not fit the registers, stored and loaded.
    pub spilled: u32,
    /// Bytes per thread that do, and that `ptxas` spills all the same so that more blocks run at once.
    pub traded: u32,
    /// Bytes per thread of local memory, spilled or not, without what is traded.
    pub stack_frame: u32,
    /// Instructions of the matrix units (`mma` and `wmma`) in the PTX.
    pub matrix_instructions: usize,
}
