//! Attention on matrix units: CUDA from compute capability 8.0 on, numbers of 16 bits.
//!
//! Planes of 32 multiply tiles of 16 x 16 by 16 x 8 whose fragments they load with `ldmatrix` from shared memory, where
//! asynchronous copies bring one block while the one before is worked on. In the forward pass scores and weights never
//! leave the registers: the accumulator of the first product becomes the operand of the second. In the backward pass
//! planes exchange weights through shared memory. Launched by [`launch`](super::launch).
//!
//! # Reference
//! Dao 2023, arXiv:2307.08691, section 3; PTX ISA, `mma.m16n8k16` and `ldmatrix`.

pub(super) mod backward;
mod bias;
pub(super) mod forward;
pub(super) mod tile;
