//! How long a call takes on the device: the median of samples, each of many calls and one wait for all of them.
//!
//! Launching a kernel costs the host some microseconds, as long as a small kernel runs. On a device that runs in
//! parallel with the host, the calls of a sample are therefore queued after copies that keep it busy meanwhile, and the
//! time of these is subtracted; if queueing took longer than the copies, the sample is reported as bound by launches.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use burn::backend::{BackendTensor, DispatchTensor, DispatchTensorKind};
use burn::tensor::Device;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::future::block_on;
use cubecl::server::Handle;
use cubecl_kernels::cube::launch::client_of;

use super::copying::{Buffers, copy};

/// Calls of a sample at most.
const CALLS: usize = 200;
/// Copies that keep the device busy before a sample.
const BUSY_COPIES: usize = 12;

#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The median, of one call.
    pub seconds: f64,
    /// Whether launching took longer than running, so that this is the host's time.
    pub is_launch_bound: bool,
}

/// Times calls on a device.
pub struct Clock {
    pub device: Device,
    /// Where launches go.
    pub client: Client,
    samples: usize,
    sample: Duration,
    busy: Option<Busy>,
}

/// Copies, and how long the host waits for them.
struct Busy {
    buffers: Buffers,
    seconds: f64,
}

impl Clock {
    /// Makes a clock of `samples` samples of about `sample` each. If the device runs in parallel with the host, copies
    /// of `busy_bytes` keep it busy.
    pub fn new(device: Device, samples: usize, sample: Duration, busy_bytes: Option<usize>) -> anyhow::Result<Self> {
        let mut clock = Self {
            client: client_of(&device).context("the device is not CubeCL's")?,
            device,
            samples,
            sample,
            busy: None,
        };
        if let Some(bytes) = busy_bytes {
            let buffers = Buffers::random(&clock.client, bytes);
            copy(&clock.client, &buffers);
            clock.check(buffers.to.clone())?;
            let mut seconds = Vec::new();
            for _ in 0..samples.max(5) {
                clock.wait()?;
                let start = Instant::now();
                keep_busy(&clock.client, &buffers);
                clock.wait()?;
                seconds.push(start.elapsed().as_secs_f64());
            }
            clock.busy = Some(Busy {
                buffers,
                seconds: median(&mut seconds),
            });
        }
        Ok(clock)
    }

    /// Waits for everything that was launched, by burn's stream of operations too.
    fn wait(&self) -> anyhow::Result<()> {
        self.device.sync().map_err(failed)
    }

    /// Waits for what calls have computed, and says what failed of it.
    fn check(&self, results: impl Results) -> anyhow::Result<()> {
        block_on(self.client.sync_buffers(&results.buffers())).map_err(failed)
    }

    /// Gives memory back that no tensor needs any more.
    pub fn clean(&self) -> anyhow::Result<()> {
        // Tensors are dropped in the stream.
        self.wait()?;
        self.device.memory_cleanup();
        Ok(())
    }

    /// Times a call.
    pub fn time<R: Results>(&self, mut call: impl FnMut() -> anyhow::Result<R>) -> anyhow::Result<Timing> {
        self.time_prepared(Ok, |calls| {
            for _ in 1..calls {
                drop(call()?);
            }
            call()
        })
    }

    /// Times one of the calls that `run` makes, without what prepares a number of them.
    pub fn time_prepared<P, R: Results>(
        &self,
        prepare: impl Fn(usize) -> anyhow::Result<P>,
        mut run: impl FnMut(P) -> anyhow::Result<R>,
    ) -> anyhow::Result<Timing> {
        // Compiles; the second call is the first of its speed.
        for _ in 0..2 {
            self.check(run(prepare(1)?)?)?;
        }
        let prepared = prepare(1)?;
        self.wait()?;
        let start = Instant::now();
        let results = run(prepared)?;
        self.wait()?;
        let calls = (self.sample.as_secs_f64() / start.elapsed().as_secs_f64()).ceil();
        let calls = (calls as usize).clamp(1, CALLS);
        self.check(results)?;
        let (mut seconds, mut launch_bound) = (Vec::new(), 0);
        for _ in 0..self.samples {
            let prepared = prepare(calls)?;
            self.wait()?;
            let start = Instant::now();
            if let Some(busy) = &self.busy {
                keep_busy(&self.client, &busy.buffers);
            }
            let results = run(prepared)?;
            // Threads of burn and CubeCL launch the kernels.
            self.device.flush().map_err(failed)?;
            let queued = start.elapsed().as_secs_f64();
            self.wait()?;
            let busy = self.busy.as_ref().map_or(0.0, |busy| busy.seconds);
            let taken = start.elapsed().as_secs_f64();
            self.check(results)?;
            launch_bound += usize::from(busy > 0.0 && queued > busy && queued > 0.9 * taken);
            seconds.push((taken - busy).max(0.0) / calls as f64);
        }
        Ok(Timing {
            seconds: median(&mut seconds),
            is_launch_bound: 2 * launch_bound > self.samples,
        })
    }
}

fn failed(error: impl std::fmt::Debug) -> anyhow::Error {
    let error = format!("{error:?}");
    // A kernel's source, of thousands of lines, comes after what the compiler says of it.
    let said = error.split("[Source]").next().unwrap_or_default();
    anyhow::anyhow!("the device failed: {}", said.trim_end())
}

/// What calls have computed.
pub trait Results {
    /// Returns its memory, which has a mark if what was to write it has failed.
    fn buffers(self) -> Vec<Handle>;
}

impl Results for Handle {
    fn buffers(self) -> Vec<Handle> {
        vec![self]
    }
}

impl Results for Vec<DispatchTensor> {
    fn buffers(self) -> Vec<Handle> {
        self.into_iter().map(|tensor| computed(tensor).handle).collect()
    }
}

/// Returns a tensor of burn's stream of operations, which has come so far, as it is in memory.
pub fn computed(tensor: DispatchTensor) -> CubeTensor {
    match tensor.kind {
        DispatchTensorKind::Cube(BackendTensor::Float(tensor)) => {
            let client = tensor.client.clone();
            client.resolve_tensor_float::<CubeBackend>(tensor)
        }
        other => panic!("{other:?} is not of CubeCL"),
    }
}

fn keep_busy(client: &Client, buffers: &Buffers) {
    for _ in 0..BUSY_COPIES {
        copy(client, buffers);
    }
}

/// The middle value, the upper one of two.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
