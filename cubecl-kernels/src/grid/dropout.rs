//! The dropout of [`RowDropout`](crate::random::RowDropout) on the device: the same elements fall, bit for bit.

use burn_cubecl::{CubeRuntime, tensor::CubeTensor};
use cubecl::prelude::*;
use cubecl::server::Handle;

use crate::random::{BLOCK_BITS, RowDropout};

/// The numbers of a site in a step; see [`RowDropout`].
#[derive(CubeType, CubeLaunch)]
pub(crate) struct DropoutSite {
    key_0: u32,
    key_1: u32,
    iteration: u32,
    /// The first head, where the counter has it.
    head: u32,
    threshold: u32,
    scale: f32,
}

/// Returns what kernels are given of a dropout: its numbers, and the buffer of the rows' places.
pub(crate) fn site<R: CubeRuntime>(
    dropout: Option<&RowDropout>,
    beside: &CubeTensor<R>,
) -> (DropoutSiteLaunch<R>, Handle, usize) {
    let Some(dropout) = dropout else {
        // Something must be bound; it is not read.
        let nothing = beside.client.empty(size_of::<u32>());
        return (DropoutSiteLaunch::new(0, 0, 0, 0, 0, 0.0), nothing, 1);
    };
    let places = dropout.places.iter().flat_map(|place| [place.position, place.sample]);
    let places: Vec<u32> = places.collect();
    let handle = beside.client.create_from_slice(bytemuck::cast_slice(&places));
    let numbers = DropoutSiteLaunch::new(
        dropout.key[0],
        dropout.key[1],
        dropout.iteration,
        dropout.first_head << BLOCK_BITS,
        dropout.threshold(),
        dropout.scale() as f32,
    );
    (numbers, handle, places.len())
}

/// What the elements from `column` on of a row are multiplied by: the scale, or 0 where they fall. `column` is a
/// multiple of the vector's size; there are no heads.
#[cube]
pub(crate) fn factors<N: Size>(site: &DropoutSite, places: &Array<u32>, row: usize, column: usize) -> Vector<f32, N> {
    let (position, sample) = (places[2 * row], places[2 * row + 1]);
    let mut factors = Vector::<f32, N>::new(f32::new(0.0));
    let size = N::value();
    let block = (column / 4) as u32;
    if comptime!(size >= 4) {
        #[unroll]
        for part in 0..comptime!(size / 4) {
            let words = philox(site, block + comptime!(part as u32), position, sample);
            #[unroll]
            for lane in 0..4usize {
                let is_kept = words[lane] >= site.threshold;
                factors[comptime!(part * 4 + lane)] = select(is_kept, site.scale, f32::new(0.0));
            }
        }
    } else {
        let words = philox(site, block, position, sample);
        let first = column % 4;
        #[unroll]
        for lane in 0..size {
            let mut word = words[0];
            #[unroll]
            for other in 1..4usize {
                word = select(first + lane == other, words[other], word);
            }
            factors[lane] = select(word >= site.threshold, site.scale, f32::new(0.0));
        }
    }
    factors
}

/// As [`philox4x32_10`](crate::random::philox::philox4x32_10).
#[cube]
fn philox(site: &DropoutSite, block: u32, position: u32, sample: u32) -> Vector<u32, Const<4>> {
    let (mut a, mut b, mut c, mut d) = (block | site.head, position, sample, site.iteration);
    #[unroll]
    for round in 0..10u32 {
        let key_0 = site.key_0 + comptime!(0x9E37_79B9u32.wrapping_mul(round));
        let key_1 = site.key_1 + comptime!(0xBB67_AE85u32.wrapping_mul(round));
        let (high_0, low_0) = (a.mul_hi(0xD251_1F53u32), a * 0xD251_1F53u32);
        let (high_1, low_1) = (c.mul_hi(0xCD9E_8D57u32), c * 0xCD9E_8D57u32);
        a = high_1 ^ b ^ key_0;
        c = high_0 ^ d ^ key_1;
        b = low_1;
        d = low_0;
    }
    let mut words = Vector::<u32, Const<4>>::new(a);
    words[1] = b;
    words[2] = c;
    words[3] = d;
    words
}
