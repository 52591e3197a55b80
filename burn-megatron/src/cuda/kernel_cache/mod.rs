//! Kernels that NVRTC has compiled, kept from one start of a program to the next.
//!
//! CubeCL keeps them in a folder, if it is given one. It finds them by a kernel's name and settings, not by its source,
//! and for whichever GPU and version of NVRTC, and its files are for one process. Therefore there is a folder for each
//! program, architecture and version ([`key`]), in which every process has files of its own ([`folder`]): what it adds
//! is taken over by the next start, and then written under its name at once ([`stored`]).
//!
//! Whatever goes wrong at the start, the kernels are compiled. A disk that fills up later ends the run: CubeCL panics
//! where it cannot write a kernel that it has compiled.

mod folder;
mod key;
mod stored;

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Once, OnceLock};

use burn_megatron_comm::launch::{host_identity, host_name};
use cubecl::config::cache::CacheConfig;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

/// The folder of compiled kernels, or `off`; `burn-megatron/kernels` in the user's cache unless set.
const VARIABLE: &str = "BURN_MEGATRON_KERNEL_CACHE";

/// Lets CubeCL keep and find the kernels that it compiles for a GPU, unless a `cubecl.toml` says where. Called before
/// CubeCL uses the GPU; later calls do nothing.
pub(super) fn enable(ordinal: usize) {
    static ENABLED: Once = Once::new();
    ENABLED.call_once(|| {
        let Some(root) = root().filter(|_| !is_configured()) else {
            return;
        };
        let opened = key::of(ordinal).and_then(|key| folder::open(&root, &key));
        match opened {
            Ok(opened) => {
                tracing::debug!(folder = %opened.path.display(), kernels = opened.kernels, "compiled kernels");
                give_to_cubecl(opened.path);
                keep_locked(opened.lock);
            }
            Err(error) => tracing::warn!(
                "compiled kernels are not kept from one start to the next: {error}; {VARIABLE} names another folder \
                 than {}, or is off",
                root.display()
            ),
        }
    });
}

/// Returns where all programs' kernels are, apart for each host: a home may be shared by many.
fn root() -> Option<PathBuf> {
    let host = host_identity();
    let cache = match std::env::var_os(VARIABLE) {
        Some(choice) if choice == "off" => return None,
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => user_cache()?.join("burn-megatron").join("kernels"),
    };
    Some(cache.join(host_name(&host)))
}

fn user_cache() -> Option<PathBuf> {
    let of = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")))
}

/// Whether the user's configuration of CubeCL says where to keep kernels.
fn is_configured() -> bool {
    config().compilation.cache.is_some()
}

fn config() -> CubeClRuntimeConfig {
    let known = CubeClRuntimeConfig::storage().lock().clone();
    known.map_or_else(
        || CubeClRuntimeConfig::from_current_dir().override_from_env(),
        |config| (*config).clone(),
    )
}

fn give_to_cubecl(folder: PathBuf) {
    let mut config = config();
    config.compilation.cache = Some(CacheConfig::File(folder));
    *CubeClRuntimeConfig::storage().lock() = Some(Arc::new(config));
}

/// Holds a lock until the process ends, however it does.
fn keep_locked(lock: File) {
    static LOCK: OnceLock<File> = OnceLock::new();
    let _ = LOCK.set(lock);
}
