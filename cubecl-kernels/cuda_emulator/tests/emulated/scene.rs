//! `Scene`: a claim that is tried in processes of its own, each with its devices, its jitter and a limit of time.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cuda_emulator::{Host, Toolkit, journal};
use cudarc::nccl::{result::get_uniqueid, sys::ncclUniqueId};
use libtest_mimic::{Failed, Trial};

const SCENE: &str = "CUDA_EMULATOR_TEST_SCENE";
const RANK: &str = "CUDA_EMULATOR_TEST_RANK";
const IDS: &str = "CUDA_EMULATOR_TEST_IDS";
/// How long a scene may take, in seconds. A cold cache of kernels is a part of it.
const SECONDS: u64 = 120;

/// What a process of a scene is.
pub struct Role {
    pub rank: usize,
    pub ranks: usize,
    /// For two communicators.
    pub ids: [ncclUniqueId; 2],
}

pub struct Scene {
    name: &'static str,
    play: fn(&Role) -> Result<()>,
    ranks: usize,
    devices: usize,
    visible: Option<&'static str>,
    gpus: &'static str,
    jitter: u64,
    is_in_progress: bool,
    /// How long a load or an allocation waits, in seconds: less than the scene, so that it can say why.
    wait_limit: u64,
    /// Memory of each device in MiB, where calls are counted and nothing is computed.
    recording: Option<usize>,
    keeps_journal: bool,
    needs_toolkit: bool,
    dies: Option<usize>,
}

impl Scene {
    pub fn new(name: &'static str, play: fn(&Role) -> Result<()>) -> Self {
        Self {
            name,
            play,
            ranks: 1,
            devices: 1,
            visible: None,
            gpus: "",
            jitter: 0,
            is_in_progress: false,
            wait_limit: SECONDS / 2,
            recording: None,
            keeps_journal: false,
            needs_toolkit: false,
            dies: None,
        }
    }

    /// Sets the number of processes, and of devices.
    pub fn ranks(mut self, ranks: usize) -> Self {
        (self.ranks, self.devices) = (ranks, ranks);
        self
    }

    pub fn devices(mut self, devices: usize) -> Self {
        self.devices = devices;
        self
    }

    /// The GPUs that the first devices are.
    pub fn gpus(mut self, names: &'static str) -> Self {
        self.gpus = names;
        self
    }

    /// Only these devices, in this order.
    pub fn visible(mut self, devices: &'static str) -> Self {
        self.visible = Some(devices);
        self
    }

    /// Delays each operation of a stream by up to `microseconds`.
    pub fn jitter(mut self, microseconds: u64) -> Self {
        self.jitter = microseconds;
        self
    }

    /// Calls of communicators that do not block return before they are done.
    pub fn in_progress(mut self) -> Self {
        self.is_in_progress = true;
        self
    }

    /// Loads and allocations wait for the device no longer than this.
    pub fn wait_limit(mut self, seconds: u64) -> Self {
        self.wait_limit = seconds;
        self
    }

    /// Calls are counted and nothing is computed, on devices with `megabytes` MiB of memory.
    pub fn recording(mut self, megabytes: usize) -> Self {
        self.recording = Some(megabytes);
        self
    }

    /// Sources and launches are kept.
    pub fn keeps_journal(mut self) -> Self {
        self.keeps_journal = true;
        self
    }

    /// Needs the real NVRTC and `ptxas`.
    pub fn needs_toolkit(mut self) -> Self {
        self.needs_toolkit = true;
        self
    }

    /// This rank is expected to fail.
    pub fn dies(mut self, rank: usize) -> Self {
        self.dies = Some(rank);
        self
    }

    pub fn trial(self) -> Trial {
        let is_ignored = !has_host_compiler() || (self.needs_toolkit && !has_toolkit());
        let failed = |error: anyhow::Error| Failed::from(format!("{error:#}"));
        Trial::test(self.name, move || self.try_it().map_err(failed)).with_ignored_flag(is_ignored)
    }

    fn try_it(&self) -> Result<()> {
        let id = || get_uniqueid().map_err(|_| anyhow::anyhow!("no unique id"));
        let hex = |id: ncclUniqueId| id.internal.map(|byte| format!("{:02x}", byte as u8)).concat();
        let ids = [hex(id()?), hex(id()?)].join(",");
        let mut processes = Processes(Vec::new());
        let kept = self.keeps_journal.then(tempfile::tempdir).transpose()?;
        for rank in 0..self.ranks {
            let output = tempfile::tempfile()?;
            let mut command = Command::new(std::env::current_exe()?);
            command.env(SCENE, self.name).env(RANK, rank.to_string()).env(IDS, &ids);
            command.env("CUDA_EMULATOR_DEVICES", self.devices.to_string());
            command.env("CUDA_EMULATOR_GPUS", self.gpus);
            command.env("CUDA_EMULATOR_JITTER_US", self.jitter.to_string());
            command.env("CUDA_EMULATOR_IN_PROGRESS", u8::from(self.is_in_progress).to_string());
            command.env("CUDA_EMULATOR_WAIT_LIMIT_S", self.wait_limit.to_string());
            command.env_remove(cuda_emulator::recording::VARIABLE);
            if let Some(folder) = &kept {
                command.env(journal::VARIABLE, folder.path());
            }
            if let Some(megabytes) = self.recording {
                command.env(cuda_emulator::recording::VARIABLE, "1");
                command.env("CUDA_EMULATOR_MEMORY_MB", megabytes.to_string());
            }
            match self.visible {
                Some(devices) => command.env("CUDA_VISIBLE_DEVICES", devices),
                None => command.env_remove("CUDA_VISIBLE_DEVICES"),
            };
            command
                .stdin(Stdio::null())
                .stdout(output.try_clone()?)
                .stderr(output.try_clone()?);
            processes.0.push((command.spawn()?, output));
        }
        let end = Instant::now() + Duration::from_secs(SECONDS);
        for rank in 0..self.ranks {
            let status = loop {
                if let Some(status) = processes.0[rank].0.try_wait()? {
                    break status;
                }
                if Instant::now() > end {
                    bail!("rank {rank} takes more than {SECONDS} s\n{}", processes.outputs());
                }
                std::thread::sleep(Duration::from_millis(5));
            };
            let should_fail = self.dies == Some(rank);
            ensure!(
                status.success() != should_fail,
                "rank {rank}: {status}\n{}",
                processes.outputs()
            );
        }
        Ok(())
    }
}

/// Processes, which end with this.
struct Processes(Vec<(Child, File)>);

impl Processes {
    fn outputs(&mut self) -> String {
        let mut all = String::new();
        for (rank, (_, output)) in self.0.iter_mut().enumerate() {
            let mut bytes = Vec::new();
            let _ = output.rewind().and_then(|()| output.read_to_end(&mut bytes));
            all += &format!("rank {rank} said:\n{}\n", String::from_utf8_lossy(&bytes));
        }
        all
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (process, _) in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Plays this process's part, if it has one.
pub fn play(scenes: &[Scene]) -> Option<ExitCode> {
    let name = std::env::var(SCENE).ok()?;
    Some(match part(scenes, &name) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:?}");
            ExitCode::FAILURE
        }
    })
}

fn part(scenes: &[Scene], name: &str) -> Result<()> {
    let scene = scenes
        .iter()
        .find(|scene| scene.name == name)
        .context("no such scene")?;
    let rank = std::env::var(RANK)?.parse()?;
    let ids = std::env::var(IDS)?;
    let (first, second) = ids.split_once(',').context("two ids")?;
    let role = Role {
        rank,
        ranks: scene.ranks,
        ids: [unique_id(first)?, unique_id(second)?],
    };
    (scene.play)(&role)
}

fn unique_id(hex: &str) -> Result<ncclUniqueId> {
    let mut id = ncclUniqueId { internal: [0; 128] };
    for (index, byte) in id.internal.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * index..2 * index + 2).context("a short id")?, 16)? as _;
    }
    Ok(id)
}

/// Whether kernels can run here; says so once where they cannot.
fn has_host_compiler() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    let look = || {
        Host::find()
            .inspect_err(|error| eprintln!("trials are ignored: {error}"))
            .is_ok()
    };
    *HAS.get_or_init(look)
}

/// Whether the real compilers are here; says so once where they are not.
fn has_toolkit() -> bool {
    Toolkit::find()
        .inspect_err(|error| eprintln!("trials are ignored: {error}"))
        .is_ok()
}
