//! Kernels that NVRTC has compiled, kept from one start of a program to the next.
//!
//! CubeCL keeps them in a database that processes may share, by a kernel's name and settings and by the architecture,
//! not by its source or by the version of NVRTC. Therefore each program and version has one of its own, on each host: a
//! home may be on a disk of the network.
//!
//! Where one cannot be opened, read or written, CubeCL compiles the kernels.

use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::SystemTime;

use burn_megatron_comm::launch::{host_identity, host_name};
use cubecl::config::cache::CacheConfig;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl::cuda::install::cuda_path;
use cubecl::hash::StableHasher;

use super::libraries::nvrtc_version;

/// The folder of compiled kernels, or `off`; `burn-megatron/kernels` in the user's cache unless set.
const VARIABLE: &str = "BURN_MEGATRON_KERNEL_CACHE";
/// Databases of other programs and versions that are kept: those used last.
const KEPT: usize = 7;

/// Lets CubeCL keep and find the kernels that it compiles, unless a `cubecl.toml` says that it does. Called before
/// CubeCL uses a GPU; later calls do nothing.
pub(super) fn enable() {
    static ENABLED: Once = Once::new();
    ENABLED.call_once(|| {
        let Some(root) = root() else { return };
        let known = CubeClRuntimeConfig::storage().lock().clone();
        let config = known.map_or_else(
            || CubeClRuntimeConfig::from_current_dir().override_from_env(),
            |config| (*config).clone(),
        );
        if config.compilation.cache {
            return;
        }
        match prepared(&root) {
            Ok(name) => give_to_cubecl(config, root, name),
            Err(error) => tracing::warn!(
                "compiled kernels are not kept from one start to the next: {error}; {VARIABLE} names another folder \
                 than {}, or is off",
                root.display()
            ),
        }
    });
}

fn give_to_cubecl(mut config: CubeClRuntimeConfig, root: PathBuf, name: String) {
    config.compilation.cache = true;
    config.environment.name = name;
    config.environment.path = CacheConfig::Directory(root);
    config.on_loaded();
    *CubeClRuntimeConfig::storage().lock() = Some(Arc::new(config));
}

/// Returns the folder of this host's databases.
fn root() -> Option<PathBuf> {
    let cache = match std::env::var_os(VARIABLE) {
        Some(choice) if choice == "off" => return None,
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => user_cache()?.join("burn-megatron").join("kernels"),
    };
    Some(cache.join(host_name(&host_identity())))
}

fn user_cache() -> Option<PathBuf> {
    let of = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")))
}

/// Makes the folder, removes what has not been used for longest, and returns the name of this program's database.
fn prepared(root: &Path) -> io::Result<String> {
    fs::create_dir_all(root)?;
    let program = hash(File::open("/proc/self/exe")?)?;
    let nvrtc = nvrtc_version().map_err(io::Error::other)?;
    let name = format!("{program:032x}-nvrtc_{nvrtc}");
    remove_old(root, &name)?;
    Ok(name)
}

/// Returns a hash of a program, which has the kernels' sources in it, and of where the headers are that they include.
///
/// Kernels in a shared library that a program loads are not of its file: such a program turns the cache off when it
/// changes.
fn hash(mut program: impl Read) -> io::Result<u128> {
    let mut hasher = StableHasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match program.read(&mut buffer)? {
            0 => break,
            read => hasher.write(&buffer[..read]),
        }
    }
    let headers = cuda_path().unwrap_or_default();
    hasher.write(headers.as_os_str().as_encoded_bytes());
    Ok(hasher.finalize())
}

/// Removes the databases, with the files of their logs, that were written before [`KEPT`] others. A process that has
/// one open continues to use it.
fn remove_old(root: &Path, name: &str) -> io::Result<()> {
    let mut others: Vec<(SystemTime, String)> = Vec::new();
    let files = fs::read_dir(root)?.collect::<io::Result<Vec<_>>>()?;
    for file in &files {
        let file_name = file.file_name().to_string_lossy().into_owned();
        if let Some(other) = file_name.strip_suffix(".db").filter(|other| *other != name) {
            others.push((file.metadata()?.modified()?, other.to_owned()));
        }
    }
    others.sort();
    let old = others.len().saturating_sub(KEPT);
    for (_, old) in &others[..old] {
        let is_of_it = |file: &&fs::DirEntry| file.file_name().to_string_lossy().starts_with(&format!("{old}.db"));
        for file in files.iter().filter(is_of_it) {
            match fs::remove_file(file.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn another_program_has_another_hash() {
        let long = vec![7; (1 << 20) + 3];
        let mut other = long.clone();
        *other.last_mut().expect("it is long") = 8;
        let [first, again, other] = [&long, &long, &other].map(|program| hash(&program[..]).expect("it is read"));
        assert_eq!(first, again);
        assert_ne!(first, other);
    }

    #[test]
    fn databases_used_last_are_kept() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for age in 0..10 {
            for end in ["db", "db-wal"] {
                let file = File::create(folder.path().join(format!("program{age}.{end}"))).expect("it is writable");
                let written = SystemTime::now() - Duration::from_secs(100 * age);
                file.set_modified(written).expect("it is ours");
            }
        }
        remove_old(folder.path(), "program9").expect("they are ours");
        let entries = fs::read_dir(folder.path()).expect("it is there");
        let mut left: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
        left.sort();
        let kept = [0, 1, 2, 3, 4, 5, 6, 9].into_iter();
        let expected: Vec<_> = kept
            .flat_map(|age| ["db", "db-wal"].map(|end| format!("program{age}.{end}")))
            .collect();
        assert_eq!(left, expected);
    }
}
