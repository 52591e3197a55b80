//! cuBLASLt: what `libcublasLt.so` exports, as far as products of matrices need it.
//!
//! A caller describes a product ([`operation`], [`layout`]), asks for an algorithm ([`algorithm`]), and puts the
//! product into a stream ([`matmul`]). Both check what is described ([`problem`]), and the stream computes it
//! ([`product`]).

mod algorithm;
mod descriptor;
mod element;
mod error;
mod handle;
mod layout;
mod matmul;
mod matrix;
mod operation;
mod preference;
mod problem;
mod product;
