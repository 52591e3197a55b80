//! `Kernels`: whether a model runs the fused operations of this crate, or burn's own in their place.

/// Which operations a model is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// Those of this crate.
    #[default]
    Fused,
    /// burn's, one after the other, each differentiated by burn: to compare with, and to find a fault by.
    Plain,
}
