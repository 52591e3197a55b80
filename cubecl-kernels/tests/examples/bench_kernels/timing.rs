//! How long a call takes on the device: the median of samples, each of many calls and one wait for all of them.
//!
//! Launching a kernel costs the host some microseconds, as long as a small kernel runs. On a device that runs in
//! parallel with the host, the calls of a sample are therefore queued after copies that keep it busy meanwhile, and the
//! time of these is subtracted; if queueing took longer than the copies, the sample is reported as bound by launches.

use std::time::{Duration, Instant};

use burn_cubecl::CubeRuntime;
use cubecl::client::ComputeClient;
use cubecl::future::block_on;

use super::copying::{Buffers, copy};

/// Calls of a sample at most.
const CALLS: usize = 200;
/// Bytes of the copies that keep the device busy, and how many there are before a sample.
const BUSY_BYTES: usize = 1 << 29;
const BUSY_COPIES: usize = 12;

#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The median, of one call.
    pub seconds: f64,
    /// Whether launching took longer than running, so that this is the host's time.
    pub is_launch_bound: bool,
}

/// Times calls on a device.
pub struct Clock<R: CubeRuntime> {
    /// Where launches go.
    pub client: ComputeClient<R>,
    samples: usize,
    sample: Duration,
    busy: Option<Busy<R>>,
}

/// Copies, and how long the host waits for them.
struct Busy<R: CubeRuntime> {
    buffers: Buffers<R>,
    seconds: f64,
}

impl<R: CubeRuntime> Clock<R> {
    /// Makes a clock of `samples` samples of about `sample` each; `is_parallel` if the device runs in parallel with the
    /// host.
    pub fn new(client: ComputeClient<R>, samples: usize, sample: Duration, is_parallel: bool) -> anyhow::Result<Self> {
        let mut clock = Self {
            client,
            samples,
            sample,
            busy: None,
        };
        if is_parallel {
            let buffers = Buffers::random(&clock.client, BUSY_BYTES);
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

    /// Waits for everything that was launched, and says what failed of it.
    pub fn wait(&self) -> anyhow::Result<()> {
        block_on(self.client.sync()).map_err(|error| anyhow::anyhow!("the device failed: {error:?}"))
    }

    pub fn time(&self, call: &mut dyn FnMut() -> anyhow::Result<()>) -> anyhow::Result<Timing> {
        // Compiles; the second call is the first of its speed.
        for _ in 0..2 {
            call()?;
            self.wait()?;
        }
        let start = Instant::now();
        call()?;
        self.wait()?;
        let calls = (self.sample.as_secs_f64() / start.elapsed().as_secs_f64()).ceil();
        let calls = (calls as usize).clamp(1, CALLS);
        let (mut seconds, mut launch_bound) = (Vec::new(), 0);
        for _ in 0..self.samples {
            let start = Instant::now();
            if let Some(busy) = &self.busy {
                keep_busy(&self.client, &busy.buffers);
            }
            for _ in 0..calls {
                call()?;
            }
            let queued = start.elapsed().as_secs_f64();
            self.wait()?;
            let busy = self.busy.as_ref().map_or(0.0, |busy| busy.seconds);
            let taken = start.elapsed().as_secs_f64();
            launch_bound += usize::from(busy > 0.0 && queued > busy && queued > 0.9 * taken);
            seconds.push((taken - busy).max(0.0) / calls as f64);
        }
        Ok(Timing {
            seconds: median(&mut seconds),
            is_launch_bound: 2 * launch_bound > self.samples,
        })
    }
}

fn keep_busy<R: CubeRuntime>(client: &ComputeClient<R>, buffers: &Buffers<R>) {
    for _ in 0..BUSY_COPIES {
        copy(client, buffers);
    }
}

/// The middle value, the upper one of two.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
