//! Forms in which an optimizer updates buckets: element by element, as matrices, with factored moments.

pub(super) mod element_wise;
pub(super) mod factored_form;
pub(super) mod matrix_form;
