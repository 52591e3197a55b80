//! What a compiled CUDA kernel costs on a GPU, from its machine code, without a GPU.
//!
//! Data flows one way: the text that `cuobjdump -sass` prints ([`listing`]) becomes a control flow ([`flow`]), of which
//! the [`hot`] path is what a warp issues in an iteration of its main loop. From it come the use of the [`pipe`]s, for
//! kernels on matrix units the simulated share of time in which these are busy ([`matrix`], [`simulate`]), and for
//! kernels that memory bounds the cycles that they need over those that memory gives ([`memory`]). [`occupancy`] and
//! [`grid`] say how blocks fill the GPU, [`peer`] has FlashAttention-2's kernels, next to which [`attention`] puts
//! ours, and [`budget`] has what may not become worse. A [`row`] holds what is known of a kernel on a GPU.
//!
//! Nothing here is measured on a GPU: what the model assumes is written where it is used.

pub mod attention;
pub mod budget;
pub mod flow;
pub mod gpu;
pub mod grid;
pub mod hot;
pub mod instruction;
pub mod listing;
pub mod matrix;
pub mod memory;
pub mod occupancy;
pub mod peer;
pub mod pipe;
pub mod row;
pub mod simulate;
pub mod table;
