use super::*;

pub(crate) mod affine_grid;
pub(crate) mod meshgrid;
