//! Files that are there whole or not at all.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use tempfile::NamedTempFile;

/// Checks that a file can be written, and leaves no trace.
pub(super) fn check(path: &Path) -> anyhow::Result<()> {
    // The file is replaced by its new self: a device, a pipe or a folder must not be.
    if let Ok(there) = path.metadata() {
        ensure!(
            there.is_file(),
            "cannot write to {}: there is something that is no file",
            path.display()
        );
    }
    ensure!(
        path.file_name().is_some(),
        "cannot write to {:?}: it names no file",
        path.display().to_string()
    );
    temporary(path).map(drop)
}

/// Writes a file under a temporary name and gives it its own.
pub(super) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut file = temporary(path)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.flush())
        .and_then(|()| file.persist(path).map_err(|error| error.error))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

/// Creates a file next to `path`, as renaming works within a folder only. It is removed unless it is renamed.
fn temporary(path: &Path) -> anyhow::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    tempfile::Builder::new()
        // As any other new file: what the umask leaves of this.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .with_context(|| format!("cannot write to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timeline.svg");
        check(&path).unwrap();
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        for text in ["first", "second"] {
            check(&path).unwrap();
            write(&path, text).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing/timeline.svg");
        for path in [missing.as_path(), folder.path(), Path::new("/dev/null"), Path::new("")] {
            let error = format!("{:#}", check(path).unwrap_err());
            assert!(error.contains(&path.display().to_string()), "{error}");
        }
    }
}
