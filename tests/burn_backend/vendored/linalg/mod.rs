pub use super::*;

mod cosine_similarity;
mod det;
mod diag;
mod lu;
mod matvec;
mod outer;
mod qr;
mod svd;
mod trace;
mod vector_norm;
