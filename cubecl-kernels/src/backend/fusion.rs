//! The operations behind burn's fusion.

use burn_fusion::{Fusion, FusionBackend};

use super::KernelBackend;

impl<B: FusionBackend + KernelBackend> KernelBackend for Fusion<B> {}
