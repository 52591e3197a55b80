//! What the test binaries share: where the checkout is. The tests themselves are in `main.rs` and next to it.

use std::path::PathBuf;

/// The tests' folder in the checkout that they were started from.
///
/// Not the one that they were built in: checkouts may share a target folder, and cargo does not build again for that.
pub fn folder() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}
