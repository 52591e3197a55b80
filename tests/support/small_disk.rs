//! A file system with little room, where root may mount one.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A file system of some MiB; unmounted when it is dropped.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    pub fn mount(mib: usize) -> Result<Self, String> {
        let folder = TempDir::new().map_err(|error| error.to_string())?;
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={mib}m"))
            .arg("none")
            .arg(folder.path()))?;
        Ok(Self(folder))
    }

    /// Gives it another size.
    pub fn resize(&self, mib: usize) -> Result<(), String> {
        let mut command = Command::new("mount");
        run(command.arg("-o").arg(format!("remount,size={mib}m")).arg(self.path()))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} stays mounted", self.path().display());
        }
    }
}
