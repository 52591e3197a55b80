//! [`Kernels`]: compiled kernels, as a file that is whole or not there, and as CubeCL's own files.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::fs::{self, File};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use cubecl::cache::{Cache, CacheOption};
use cubecl::compilation_cache::CompilationCache;
use cubecl::hash::{StableHash, StableHasher};
use serde::{Deserialize, Serialize};

/// The name of the file.
const FILE: &str = "kernels";
/// Its name while it is written, by the one process that holds the folder's lock.
const DRAFT: &str = "kernels.new";
/// Kernels that would make it longer are compiled at every start.
pub(super) const MAX_BYTES: usize = 256 << 20;
/// Where CubeCL's list of contents says that its one file of kernels is.
const CHUNK: &str = "chunk0.cbor";

/// Compiled kernels, by CubeCL's keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Kernels(BTreeMap<StableHash, Kernel>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kernel {
    entrypoint_name: String,
    shared_mem_bytes: usize,
    ptx: String,
}

/// A kernel as CubeCL 0.10 writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CubeclKernel {
    entrypoint_name: String,
    shared_mem_bytes: usize,
    /// With its terminating zero.
    ptx: Vec<c_char>,
}

/// Which kernels CubeCL keeps by this type is fixed by its CUDA runtime.
fn options(folder: &Path) -> CacheOption {
    CacheOption::default().name("cuda").root(folder)
}

fn open(folder: &Path) -> CompilationCache<StableHash, CubeclKernel> {
    CompilationCache::new("ptx", options(folder))
}

impl Kernels {
    /// Reads a folder's file: no kernels if there is none, or one that is not as it was written.
    pub fn read(folder: &Path) -> Self {
        let path = folder.join(FILE);
        match Self::try_read(&path) {
            Ok(kernels) => kernels,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(path = %path.display(), %error, "compiled kernels cannot be read");
                }
                Self::default()
            }
        }
    }

    fn try_read(path: &Path) -> io::Result<Self> {
        let bytes = fs::read(path)?;
        let damaged = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut rest = &bytes[..];
        let mut first = String::new();
        rest.read_line(&mut first)?;
        if first.trim_end() != checksum(rest) {
            return Err(damaged("the checksum is another one".to_owned()));
        }
        let mut kernels = Self::default();
        for line in rest.lines() {
            let (key, kernel) = serde_json::from_str::<(String, Kernel)>(&line?)?;
            let key = StableHash::from_str_radix(&key, 16).map_err(|error| damaged(error.to_string()))?;
            kernels.0.insert(key, kernel);
        }
        Ok(kernels)
    }

    /// Writes a folder's file, by one rename.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let mut body = Vec::new();
        for (key, kernel) in &self.0 {
            serde_json::to_writer(&mut body, &(format!("{key:x}"), kernel))?;
            body.push(b'\n');
        }
        let draft = folder.join(DRAFT);
        let mut file = File::create(&draft)?;
        let written = writeln!(file, "{}", checksum(&body))
            .and_then(|()| file.write_all(&body))
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&draft, folder.join(FILE)));
        if written.is_err() {
            // The disk may be full because of it.
            let _ = fs::remove_file(&draft);
        }
        written
    }

    /// Adds those of CubeCL's files in a folder that no process uses. Returns whether there were new ones.
    pub fn add_from_cubecl(&mut self, folder: &Path) -> io::Result<bool> {
        // Its process may have been killed with them; CubeCL would wait for half a minute.
        remove_locks(folder)?;
        let mut keys = Vec::new();
        Cache::<StableHash, String>::new(PathBuf::from("ptx").join("toc"), options(folder)).for_each(|key, chunk| {
            if chunk == CHUNK {
                keys.push(*key);
            }
        });
        let cache = open(folder);
        let before = self.0.len();
        let mut bytes: usize = self.0.values().map(|kernel| kernel.ptx.len()).sum();
        for key in keys {
            if !self.0.contains_key(&key)
                && let Some(kernel) = cache.get(&key).and_then(Kernel::of)
                && bytes + kernel.ptx.len() <= MAX_BYTES
            {
                bytes += kernel.ptx.len();
                self.0.insert(key, kernel);
            }
        }
        Ok(self.0.len() > before)
    }

    /// Makes CubeCL's files of them in an empty folder.
    pub fn give_to_cubecl(&self, folder: &Path) {
        let mut cache = open(folder);
        for (key, kernel) in &self.0 {
            if let Err(error) = cache.insert(*key, kernel.for_cubecl()) {
                tracing::warn!("a compiled kernel is not taken over: {error:?}");
            }
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl Kernel {
    /// Returns a kernel of CubeCL's, unless its text is damaged: it would end the run when it is loaded.
    fn of(kernel: &CubeclKernel) -> Option<Self> {
        let text: Vec<u8> = kernel.ptx.iter().map(|letter| letter.to_ne_bytes()[0]).collect();
        let ptx = std::ffi::CString::from_vec_with_nul(text).ok()?.into_string().ok()?;
        let is_whole = !kernel.entrypoint_name.is_empty() && ptx.contains(&kernel.entrypoint_name);
        is_whole.then(|| Self {
            entrypoint_name: kernel.entrypoint_name.clone(),
            shared_mem_bytes: kernel.shared_mem_bytes,
            ptx,
        })
    }

    fn for_cubecl(&self) -> CubeclKernel {
        let text = self.ptx.bytes().chain([0]);
        CubeclKernel {
            entrypoint_name: self.entrypoint_name.clone(),
            shared_mem_bytes: self.shared_mem_bytes,
            ptx: text.map(|byte| c_char::from_ne_bytes([byte])).collect(),
        }
    }
}

fn checksum(bytes: &[u8]) -> String {
    format!("{:032x}", StableHasher::hash_one(&bytes))
}

/// Removes CubeCL's locks below a folder.
fn remove_locks(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_locks(&path)?;
        } else if path.extension().is_some_and(|kind| kind == "lock") {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str) -> Kernel {
        Kernel {
            entrypoint_name: name.to_owned(),
            shared_mem_bytes: 48,
            ptx: format!(".visible .entry {name}()\n{{ \"a\\b\" }}\n"),
        }
    }

    fn some() -> Kernels {
        Kernels([(7, kernel("seven")), (StableHash::MAX, kernel("last"))].into())
    }

    #[test]
    fn kernels_go_through_cubecls_files_and_through_ours() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        fs::create_dir(&ours).expect("the folder is writable");
        fs::create_dir(&theirs).expect("the folder is writable");
        some().give_to_cubecl(&theirs);
        // Left by a process that was killed.
        fs::write(theirs.join("toc.json.log.lock"), "{}").expect("the folder is writable");
        let mut found = Kernels::default();
        assert!(found.add_from_cubecl(&theirs).expect("they are read"));
        assert_eq!(found, some());
        assert!(!found.add_from_cubecl(&theirs).expect("they are read"), "none is new");
        found.write(&ours).expect("the folder is writable");
        assert_eq!(Kernels::read(&ours), some());
        assert!(Kernels::read(&theirs).0.is_empty(), "there is none");
    }

    #[test]
    fn a_file_that_is_cut_or_changed_holds_no_kernels() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        some().write(folder.path()).expect("the folder is writable");
        let path = folder.path().join(FILE);
        let whole = fs::read(&path).expect("it was written");
        for length in [0, 10, whole.len() - 1] {
            fs::write(&path, &whole[..length]).expect("the folder is writable");
            assert_eq!(Kernels::read(folder.path()), Kernels::default(), "{length} bytes");
        }
        let mut changed = whole.clone();
        changed[whole.len() / 2] ^= 1;
        fs::write(&path, changed).expect("the folder is writable");
        assert_eq!(Kernels::read(folder.path()), Kernels::default());
    }

    #[test]
    fn what_is_damaged_of_cubecls_files_is_left_out() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        some().give_to_cubecl(folder.path());
        let mut found = Vec::new();
        find(folder.path(), &mut found);
        let chunk = found.iter().find(|path| path.ends_with(CHUNK)).expect("CubeCL's file");
        let whole = fs::read(chunk).expect("it is there");
        // The first kernel is whole in it.
        fs::write(chunk, &whole[..whole.len() - 5]).expect("the folder is writable");
        let mut kernels = Kernels::default();
        kernels.add_from_cubecl(folder.path()).expect("they are read");
        assert_eq!(kernels, Kernels([(7, kernel("seven"))].into()));
        // As after a crash of the machine: the length is there, the contents are not.
        fs::write(chunk, vec![0; whole.len()]).expect("the folder is writable");
        let mut kernels = Kernels::default();
        assert!(!kernels.add_from_cubecl(folder.path()).expect("they are read"));
    }

    #[test]
    fn a_text_with_zeros_in_it_is_no_kernel() {
        let mut damaged = kernel("one").for_cubecl();
        assert_eq!(Kernel::of(&damaged), Some(kernel("one")));
        damaged.ptx[20] = 0;
        assert_eq!(Kernel::of(&damaged), None);
    }

    fn find(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                find(&path, found);
            } else {
                found.push(path);
            }
        }
    }
}
