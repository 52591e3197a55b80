//! A copy of the workspace's sources to plant faults in, and programs that run for a bounded time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use planted_faults::Test;

/// Little is recompiled for a fault, and it need not be fast. In a file, so that it holds for programs that a trial
/// builds too; with [`INCREMENTAL`].
const SETTINGS: &str = "[profile.dev.package.cubecl-kernels]\nopt-level = 1\n";
/// The variable and its value.
pub const INCREMENTAL: (&str, &str) = ("CARGO_INCREMENTAL", "1");
/// The variable that makes programs of the kernels run all trials, as `.ci/full` does, and its value.
pub const ALL: (&str, &str) = ("BURN_MEGATRON_ALL_TESTS", "1");

/// A test that was built.
#[derive(Debug)]
pub struct Program {
    executable: PathBuf,
    /// The folder of its package.
    package: PathBuf,
}

pub type Programs = BTreeMap<Test, Program>;

/// The copy; removed when dropped.
pub struct Copied {
    root: PathBuf,
    folder: PathBuf,
    target: PathBuf,
}

impl Copied {
    /// Copies what git knows of the workspace at `root`, and what is new and not ignored.
    ///
    /// Always to the same folder: cargo then builds the same packages again instead of new ones. Those of the registry
    /// are the workspace's own.
    pub fn of(root: &Path) -> Result<Self> {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let folder = target.join("planted_faults");
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        let copy = Self {
            root: root.to_owned(),
            folder,
            target,
        };
        let mut list = Command::new("git");
        list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root);
        let listed = list.output().context("git ls-files")?;
        ensure!(
            listed.status.success(),
            "git ls-files: {}",
            String::from_utf8_lossy(&listed.stderr)
        );
        let names = String::from_utf8(listed.stdout).context("git ls-files")?;
        for name in names.split_terminator('\0') {
            // One that is deleted and not yet committed is still listed.
            if root.join(name).is_file() {
                copy.restore(&root.join(name))?;
            }
        }
        let settings = copy.folder.join(".cargo");
        std::fs::create_dir_all(&settings)?;
        std::fs::write(settings.join("config.toml"), SETTINGS)?;
        Ok(copy)
    }

    /// Where a file of the workspace is in the copy.
    pub fn path(&self, original: &Path) -> Result<PathBuf> {
        Ok(self.folder.join(original.strip_prefix(&self.root)?))
    }

    /// Makes a file of the copy the workspace's.
    pub fn restore(&self, original: &Path) -> Result<()> {
        let path = self.path(original)?;
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        // Read and written, so that it is newer than what was built of a fault in it.
        let bytes = std::fs::read(original).with_context(|| original.display().to_string())?;
        std::fs::write(&path, bytes).with_context(|| path.display().to_string())
    }

    pub fn build(&self, tests: &BTreeSet<Test>, limit: Duration) -> Result<Programs> {
        let mut command = cargo();
        command
            .env("CARGO_TARGET_DIR", &self.target)
            .env(INCREMENTAL.0, INCREMENTAL.1)
            .current_dir(&self.folder);
        build(command, tests, limit)
    }
}

pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Builds tests by a `cargo` that knows where; returns their programs.
pub fn build(mut cargo: Command, tests: &BTreeSet<Test>, limit: Duration) -> Result<Programs> {
    // The whole workspace, so that features are those of its other builds.
    cargo
        .args([
            "test",
            "--workspace",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ])
        .args(tests.iter().flat_map(|test| ["--test", test.program()]));
    let (is_built, output) = run(cargo, limit)?;
    ensure!(is_built, "the tests do not compile:\n{output}");
    let messages = output.lines().filter_map(|line| serde_json::from_str(line).ok());
    let messages: Vec<serde_json::Value> = messages.collect();
    let program_of = |test: Test| {
        let message = messages
            .iter()
            .find(|message| message["target"]["name"] == test.program() && message["executable"].is_string());
        let message = message.with_context(|| format!("cargo names no program of {}:\n{output}", test.program()))?;
        let path = |field: &str| PathBuf::from(message[field].as_str().unwrap_or_default());
        let package = path("manifest_path")
            .parent()
            .context("a manifest is in a folder")?
            .to_owned();
        let executable = path("executable");
        Ok((test, Program { executable, package }))
    };
    tests.iter().map(|&test| program_of(test)).collect()
}

impl Program {
    /// The program's command, as cargo runs it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command
            .current_dir(&self.package)
            .env("CARGO_MANIFEST_DIR", &self.package);
        command
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("{}: {error}", self.folder.display());
        }
    }
}

/// Runs a program to its end: whether it succeeded, and what it said. One that takes longer than the limit is ended.
pub fn run(mut command: Command, limit: Duration) -> Result<(bool, String)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("{command:?}"))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let outputs = [
        std::thread::spawn(move || read(stdout)),
        std::thread::spawn(move || read(stderr)),
    ];
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if started.elapsed() > limit {
            // With the compilers that it started, which hold its output open.
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let mut text = String::new();
    for output in outputs {
        text += &output.join().unwrap_or_default();
    }
    match status {
        Some(status) => Ok((status.success(), text)),
        None => bail!("{command:?} took longer than {limit:?}:\n{text}"),
    }
}

fn read(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    // What was read before a failure is of use too.
    from.map(|mut from| from.read_to_end(&mut bytes).ok());
    String::from_utf8_lossy(&bytes).into_owned()
}
