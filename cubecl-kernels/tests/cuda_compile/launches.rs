//! Calls operations on a device that records, and compiles what they launch.

use std::sync::Arc;

use anyhow::{Context, anyhow, ensure};
use burn::tensor::{DType, Device};
use cubecl::logging::{LaunchObservation, LaunchObserver};
use cuda_emulator::journal::{Journal, Launch};
use cuda_emulator::toolkit::ToolkitError;
use cuda_emulator::{Architecture, Resources, Toolkit};
use parking_lot::Mutex;

use crate::emulated::devices;
use crate::operations::{Operation, Setting};

/// A kernel that was launched, in one of its specialisations, compiled.
#[derive(Clone, Debug)]
pub struct KernelReport {
    /// The path of the kernel's type, with its type parameters: `cubecl_kernels::norm::kernel::…`.
    pub path: &'static str,
    /// The kernel's function and types.
    pub name: String,
    /// Threads per block.
    pub units: u32,
    /// Blocks of the launch.
    pub grid: [u32; 3],
    /// The GPU that it is compiled for.
    pub architecture: Architecture,
    /// The CUDA C++ source.
    pub source: String,
    /// What it takes of the GPU.
    pub resources: Resources,
}

impl KernelReport {
    /// Compiles what was launched, if it was not compiled before.
    fn new(launched: Launched, architecture: Architecture) -> anyhow::Result<Self> {
        let Launched { path, launch, source } = launched;
        let resources = toolkit()?.compile(&source, architecture, launch.shared_memory)?;
        // A hash of the compile-time arguments is the last part.
        let name = launch.kernel.rsplit_once('_').map_or(&*launch.kernel, |(name, _)| name);
        Ok(Self {
            path,
            name: name.to_owned(),
            units: launch.block.iter().product(),
            grid: launch.grid,
            architecture,
            source,
            resources,
        })
    }

    /// Returns what `cuobjdump -sass` prints of the kernel.
    pub fn listing(&self) -> anyhow::Result<String> {
        Ok(toolkit()?.listing(&self.source, self.architecture)?)
    }
}

fn toolkit() -> anyhow::Result<&'static Toolkit> {
    Toolkit::find().map_err(|error: &ToolkitError| anyhow!("{error}"))
}

/// Returns the kernels that an operation launches for an architecture, burn's among them, in order.
pub fn launches(operation: &Operation, architecture: Architecture) -> anyhow::Result<Vec<KernelReport>> {
    launches_of(operation.dtype, architecture, |setting| (operation.run)(setting))
}

/// Returns the kernels that a call launches.
pub fn launches_of(
    dtype: DType,
    architecture: Architecture,
    run: impl Fn(&Setting) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<KernelReport>> {
    let device = devices(architecture).next().context("no device of the architecture")?;
    let launched = launched_on(device, architecture, dtype, run)?;
    launched
        .into_iter()
        .map(|launched| KernelReport::new(launched, architecture))
        .collect()
}

/// A launch, before anything is compiled.
pub struct Launched {
    /// The path of the kernel's type.
    pub path: &'static str,
    pub launch: Launch,
    pub source: String,
}

/// The types of kernels in the order of their launches.
#[derive(Default)]
struct Paths(Mutex<Vec<&'static str>>);

impl LaunchObserver for Paths {
    fn launched(&self, kernel: &'static str) {
        self.0.lock().push(kernel);
    }
}

/// Returns what a call launches on a device of an architecture, in order.
pub fn launched_on(
    device: usize,
    architecture: Architecture,
    dtype: DType,
    run: impl Fn(&Setting) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Launched>> {
    // Held to the end: launches of several calls would be mixed.
    static JOURNAL: Mutex<Option<Journal>> = Mutex::new(None);
    let mut journal = JOURNAL.lock();
    let journal = match &mut *journal {
        Some(journal) => journal,
        nothing => nothing.insert(Journal::open()?),
    };
    // Of a call that failed.
    journal.launches()?;
    let device = Device::cuda(device).autodiff();
    let paths = Arc::new(Paths::default());
    let observation = LaunchObservation::new(paths.clone());
    let setting = Setting { device, dtype };
    run(&setting)?;
    setting.device.sync()?;
    drop(observation);
    let (paths, launches) = (std::mem::take(&mut *paths.0.lock()), journal.launches()?);
    ensure!(
        paths.len() == launches.len(),
        "{} kernels were launched, and {} came to the driver",
        paths.len(),
        launches.len()
    );
    let pairs = std::iter::zip(paths, launches).map(|(path, launch)| {
        let name = function(path);
        ensure!(
            launch.kernel.starts_with(name),
            "{path} is {} to the driver",
            launch.kernel
        );
        let source = journal.source(&launch.kernel, architecture.target())?;
        Ok(Launched { path, launch, source })
    });
    pairs.collect()
}

/// Whether a kernel is of this crate.
pub fn is_ours(kernel: &KernelReport) -> bool {
    kernel.path.starts_with("cubecl_kernels::")
}

/// Returns the function of a kernel's type: CubeCL makes a module of its name, and in it the type.
pub fn function(path: &str) -> &str {
    let path = path.split('<').next().unwrap_or_default();
    path.rsplit("::").nth(1).unwrap_or_default()
}
