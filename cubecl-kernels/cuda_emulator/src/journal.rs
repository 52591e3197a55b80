//! The journal: sources of kernels that were compiled, and launches in order, in a folder that [`VARIABLE`] names.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::OnceLock;

use parking_lot::Mutex;

/// The variable with the folder, which exists.
pub const VARIABLE: &str = "CUDA_EMULATOR_JOURNAL";
/// The file of launches: a line for each, of the kernel, grid, block and shared memory.
const LAUNCHES: &str = "launches";

/// A launch of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    pub kernel: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared_memory: usize,
}

fn folder() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(PathBuf::from)
}

/// The name of a source's file: the same kernel for another GPU is another source.
fn file_of(kernel: &str, target: &str) -> String {
    format!("{kernel}.{target}.cu")
}

/// Adds the source of kernels that are compiled for a target.
pub(crate) fn add_source(kernels: &[&str], target: &str, source: &str) -> io::Result<()> {
    let Some(folder) = folder() else {
        return Ok(());
    };
    kernels
        .iter()
        .try_for_each(|kernel| std::fs::write(folder.join(file_of(kernel, target)), source))
}

/// Adds a launch.
pub(crate) fn add_launch(launch: impl FnOnce() -> Launch) -> io::Result<()> {
    static FILE: OnceLock<Option<Mutex<File>>> = OnceLock::new();
    let open = || {
        let path = folder()?.join(LAUNCHES);
        let file = File::options().create(true).append(true).open(&path);
        file.inspect_err(|error| eprintln!("cuda-emulator: {}: {error}", path.display()))
            .ok()
            .map(Mutex::new)
    };
    match FILE.get_or_init(open) {
        Some(file) => file.lock().write_all(launch().line().as_bytes()),
        None => Ok(()),
    }
}

impl Launch {
    fn line(&self) -> String {
        let Self {
            kernel,
            grid: [a, b, c],
            block: [x, y, z],
            shared_memory,
        } = self;
        format!("{kernel} {a} {b} {c} {x} {y} {z} {shared_memory}\n")
    }

    fn parse(line: &str) -> Option<Self> {
        let (kernel, numbers) = line.split_once(' ')?;
        let numbers = numbers.split(' ').map(|number| number.parse().ok());
        let numbers: Vec<u32> = numbers.collect::<Option<_>>()?;
        let [a, b, c, x, y, z, shared_memory] = numbers.try_into().ok()?;
        Some(Self {
            kernel: kernel.to_owned(),
            grid: [a, b, c],
            block: [x, y, z],
            shared_memory: shared_memory as usize,
        })
    }
}

/// A journal, read from its beginning.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    launches: File,
}

impl Journal {
    /// Opens the journal of this process.
    ///
    /// # Errors
    ///
    /// If it keeps none, or a file cannot be opened.
    pub fn open() -> io::Result<Self> {
        let folder = folder().ok_or_else(|| io::Error::other(format!("{VARIABLE} is not set")))?;
        let path = folder.join(LAUNCHES);
        File::options().create(true).append(true).open(&path)?;
        let launches = File::open(path)?;
        Ok(Self { folder, launches })
    }

    /// Returns the launches since this was last asked, in order.
    pub fn launches(&mut self) -> io::Result<Vec<Launch>> {
        let mut lines = String::new();
        self.launches.read_to_string(&mut lines)?;
        let odd = |line| io::Error::other(format!("the journal has the line {line:?}"));
        lines
            .lines()
            .map(|line| Launch::parse(line).ok_or_else(|| odd(line)))
            .collect()
    }

    /// Returns the source of a kernel, as it was last compiled for a target.
    pub fn source(&self, kernel: &str, target: &str) -> io::Result<String> {
        std::fs::read_to_string(self.folder.join(file_of(kernel, target)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_launches_are_read_again() {
        let launch = Launch {
            kernel: "add_f32".to_owned(),
            grid: [1, 2, 3],
            block: [4, 5, 6],
            shared_memory: 7,
        };
        assert_eq!(Launch::parse(launch.line().trim_end()), Some(launch));
        assert_eq!(Launch::parse("add_f32 1 2 3"), None);
    }
}
