//! Where the backward pass finds its inputs, and where the gradients go.

use cubecl::prelude::*;

use super::super::super::device::HeadsAt;

/// Where the heads are of queries, keys, values and the output's gradient, and of the gradients of the first three.
#[derive(CubeType, CubeLaunch)]
#[allow(missing_docs)]
pub struct Places {
    pub query: HeadsAt,
    pub key: HeadsAt,
    pub value: HeadsAt,
    pub gradient: HeadsAt,
    pub of_query: HeadsAt,
    pub of_key: HeadsAt,
    pub of_value: HeadsAt,
}
