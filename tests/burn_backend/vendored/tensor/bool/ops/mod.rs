pub use super::*; // re-export test types

mod all;
mod any;
mod argwhere_nonzero;
mod cast;
mod cat;
mod comparison;
mod create_like;
mod expand;
mod flip;
mod full;
mod gather_scatter;
mod init;
mod logical;
mod mask;
mod mask_select;
mod movedim;
mod permute;
mod repeat;
mod repeat_dim;
mod reshape;
mod select;
mod stack;
mod take;
mod transpose;
mod tri_mask;
mod unfold;
