//! [`Place`]: a folder that is there whole, on the disk, or not at all.

use std::fs::{self, File, Permissions};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::HuggingFaceError;

/// Data that is collected before it is written.
const BUFFER_BYTES: usize = 4 << 20;

/// Writes a new file, and waits until the disk has it.
pub(super) fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), HuggingFaceError>,
) -> Result<(), HuggingFaceError> {
    let refused = |error| HuggingFaceError::file("write", path)(error);
    let file = File::create_new(path).map_err(HuggingFaceError::file("create", path))?;
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, file);
    write(&mut writer)?;
    let file = writer.into_inner().map_err(|error| refused(error.into_error()))?;
    file.sync_all().map_err(refused)
}

/// Writes a new file of JSON.
pub(super) fn write_json(path: &Path, value: &Value) -> Result<(), HuggingFaceError> {
    write_bytes(path, format!("{value:#}\n").as_bytes())
}

/// Writes a new file of bytes.
pub(super) fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), HuggingFaceError> {
    write_file(path, |file| {
        let written = file.write_all(bytes);
        written.map_err(HuggingFaceError::file("write", path))
    })
}

/// Where an export goes.
pub(super) struct Place {
    output: PathBuf,
    /// The folder that it is in.
    parent: PathBuf,
    /// Begins the name of what is being written.
    prefix: String,
}

impl Place {
    /// # Errors
    /// Something is there already, or the folder that it is to be in cannot be made.
    pub fn find(output: &Path) -> Result<Self, HuggingFaceError> {
        let name = output.file_name();
        let name = name.ok_or_else(|| HuggingFaceError::broken(output, "expected a path that ends in a name"))?;
        let is_free = match fs::read_dir(output) {
            Ok(mut entries) => entries.next().is_none(),
            Err(_) => !output.exists(),
        };
        if !is_free {
            return Err(HuggingFaceError::OutputExists {
                path: output.to_owned(),
            });
        }
        let parent = match output.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        fs::create_dir_all(&parent).map_err(HuggingFaceError::file("make folder", &parent))?;
        Ok(Self {
            output: output.to_owned(),
            parent,
            prefix: format!(".{}.partial-", name.to_string_lossy()),
        })
    }

    /// Makes a hidden folder next to the output, which is removed when it is dropped.
    pub fn draft(&self) -> Result<tempfile::TempDir, HuggingFaceError> {
        let mut builder = tempfile::Builder::new();
        // As any folder that this process makes, not for this user alone.
        builder.prefix(&self.prefix).permissions(Permissions::from_mode(0o777));
        let draft = builder.tempdir_in(&self.parent);
        draft.map_err(HuggingFaceError::file("make a folder in", &self.parent))
    }

    /// Gives what has been written its name, when all of it is on the disk.
    pub fn commit(&self, draft: tempfile::TempDir) -> Result<(), HuggingFaceError> {
        sync_folder(draft.path())?;
        let renamed = fs::rename(draft.path(), &self.output);
        renamed.map_err(HuggingFaceError::file("rename the finished export to", &self.output))?;
        // There is nothing under its old name to remove.
        let _ = draft.keep();
        sync_folder(&self.parent)
    }
}

fn sync_folder(path: &Path) -> Result<(), HuggingFaceError> {
    let sync = || File::open(path)?.sync_all();
    sync().map_err(HuggingFaceError::file("sync folder", path))
}
