//! How fast the device copies: the rate that operations which only move bytes are held against.

use std::collections::BTreeMap;

use cubecl::client::Client;
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::timing::Clock;

const UNITS: u32 = 256;

/// Writes what it reads.
#[cube(launch_unchecked)]
fn copy_vectors<N: Size>(input: &[Vector<f32, N>], output: &mut [Vector<f32, N>], vectors: usize) {
    if ABSOLUTE_POS < vectors {
        output[ABSOLUTE_POS] = input[ABSOLUTE_POS];
    }
}

/// Two buffers of the same size.
pub struct Buffers {
    from: Handle,
    pub to: Handle,
    floats: usize,
}

impl Buffers {
    /// Makes buffers of about `bytes` bytes; what is copied is random.
    pub fn random(client: &Client, bytes: usize) -> Self {
        let floats = (bytes / size_of::<f32>()).next_multiple_of(64);
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let numbers: Vec<f32> = (0..floats)
            .map(|_| {
                // xorshift64, by which no two neighbours are alike.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 40) as f32 / (1u32 << 24) as f32 - 0.5
            })
            .collect();
        Self {
            from: client.create_from_slice(bytemuck::cast_slice(&numbers)),
            to: client.empty(floats * size_of::<f32>()),
            floats,
        }
    }

    /// Bytes that a copy reads and writes.
    fn moved(&self) -> usize {
        2 * self.floats * size_of::<f32>()
    }
}

pub fn copy(client: &Client, buffers: &Buffers) {
    let mut sizes = client.io_optimized_vector_sizes(size_of::<f32>());
    let vector_size = sizes.find(|size| buffers.floats.is_multiple_of(*size)).unwrap_or(1);
    let vectors = buffers.floats / vector_size;
    let dim = CubeDim::new_1d(UNITS);
    let count = cubecl::calculate_cube_count_elemwise(client, vectors, dim);
    // SAFETY: both buffers have `floats` numbers, and the kernel bounds its index by their vectors.
    unsafe {
        let [from, to] =
            [&buffers.from, &buffers.to].map(|handle| BufferArg::from_raw_parts(handle.clone(), buffers.floats));
        copy_vectors::launch_unchecked(client, count, dim, vector_size, from, to, vectors);
    }
}

/// Copies of each size, measured once.
pub struct Copying<'a> {
    clock: &'a Clock,
    rates: BTreeMap<usize, f64>,
    largest: Option<String>,
}

impl<'a> Copying<'a> {
    /// Nothing is measured yet.
    pub fn new(clock: &'a Clock) -> Self {
        Self {
            clock,
            rates: BTreeMap::new(),
            largest: None,
        }
    }

    /// Returns the rate of a copy that reads and writes `bytes` bytes in all: the faster of a kernel's and, on CUDA,
    /// the driver's.
    pub fn bytes_per_second(&mut self, bytes: usize) -> anyhow::Result<f64> {
        // Sizes within some percent share a measurement.
        let size = 1usize << bytes.max(2).ilog2();
        let size = [size, size / 4 * 5, size / 2 * 3, size / 4 * 7]
            .into_iter()
            .min_by_key(|size| size.abs_diff(bytes))
            .unwrap_or(size);
        if let Some(rate) = self.rates.get(&size) {
            return Ok(*rate);
        }
        let buffers = Buffers::random(&self.clock.client, size / 2);
        let moved = buffers.moved() as f64;
        let by_kernel = self.clock.time(|| {
            copy(&self.clock.client, &buffers);
            Ok(buffers.to.clone())
        })?;
        let by_kernel = moved / by_kernel.seconds;
        let by_driver = driver_rate(&self.clock.client, buffers.moved() / 2)?;
        let rate = by_driver.into_iter().fold(by_kernel, f64::max);
        if self.rates.keys().all(|other| *other < size) {
            self.largest = Some(format!(
                "copies of {:.0} MB read and written: {:.0} GB/s by a kernel{}",
                moved / 1e6,
                by_kernel / 1e9,
                by_driver.map_or(String::new(), |rate| format!(
                    ", {:.0} GB/s from device to device",
                    rate / 1e9
                ))
            ));
        }
        self.rates.insert(size, rate);
        Ok(rate)
    }

    /// The largest copy that was measured, for people.
    pub fn line(&self) -> String {
        self.largest
            .clone()
            .unwrap_or_else(|| "no copy was measured".to_owned())
    }
}

/// The rate of the driver's own copy, where there is one.
fn driver_rate(client: &Client, bytes: usize) -> anyhow::Result<Option<f64>> {
    let is_there = client.name() == "cuda";
    is_there.then(|| super::cuda_copy::bytes_per_second(bytes)).transpose()
}
