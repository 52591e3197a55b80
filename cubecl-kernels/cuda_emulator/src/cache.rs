//! The user's cache, where what was compiled stays for the next run, under the hash of everything that it was made of.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

/// Returns the project's folder in the user's cache, which may not exist.
pub fn folder() -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("burn-megatron")
}

/// Returns a name for what is made of a value: 16 hexadecimal digits.
pub fn name_of(value: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Writes a file, whole or not at all, and the folders above it.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)?;
    let file = tempfile::NamedTempFile::new_in(folder)?;
    std::fs::write(file.path(), content)?;
    file.persist(path)?;
    Ok(())
}
