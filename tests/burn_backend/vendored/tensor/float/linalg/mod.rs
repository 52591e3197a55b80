use super::*;

pub(crate) mod cosine_similarity;
pub(crate) mod det;
pub(crate) mod diag;
pub(crate) mod lu;
pub(crate) mod matvec;
pub(crate) mod outer;
pub(crate) mod trace;
pub(crate) mod vector_norm;
