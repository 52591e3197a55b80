//! Philox4x32-10 and dropout in kernels: the words and the decisions of [`random`](crate::random), bit for bit.

use std::sync::Arc;

use cubecl::client::Client;
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::tables::on_device;
use crate::random::{RowDropout, RowPlace};

/// Returns four random words for a counter under a key; see [`philox4x32_10`](crate::random::philox::philox4x32_10).
#[cube]
pub fn philox4x32_10(
    counter_0: u32,
    counter_1: u32,
    counter_2: u32,
    counter_3: u32,
    key_0: u32,
    key_1: u32,
) -> Vector<u32, Const<4>> {
    let mut word_0 = counter_0;
    let mut word_1 = counter_1;
    let mut word_2 = counter_2;
    let mut word_3 = counter_3;
    let mut step_0 = key_0;
    let mut step_1 = key_1;
    #[unroll]
    for _ in 0..10u32 {
        let high_0 = word_0.mul_hi(0xD251_1F53u32);
        let low_0 = word_0 * 0xD251_1F53u32;
        let high_1 = word_2.mul_hi(0xCD9E_8D57u32);
        let low_1 = word_2 * 0xCD9E_8D57u32;
        word_0 = high_1 ^ word_1 ^ step_0;
        word_1 = low_1;
        word_2 = high_0 ^ word_3 ^ step_1;
        word_3 = low_0;
        step_0 += 0x9E37_79B9u32;
        step_1 += 0xBB67_AE85u32;
    }
    let mut words = Vector::<u32, Const<4>>::empty();
    words.insert(0usize, word_0);
    words.insert(1usize, word_1);
    words.insert(2usize, word_2);
    words.insert(3usize, word_3);
    words
}

/// A site's dropout in a step, as kernels are given it.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Dropout {
    /// The key's words.
    pub key_0: u32,
    /// The key's second word.
    pub key_1: u32,
    /// The optimiser step.
    pub iteration: u32,
    /// An element falls where its word is below this.
    pub threshold: u32,
    /// Factor of kept elements.
    pub scale: f32,
    /// The number in the model of the first head.
    pub first_head: u32,
}

/// The dropout of a tensor's rows.
#[derive(CubeType, CubeLaunch)]
pub struct DroppedRows {
    /// The site's dropout.
    pub dropout: Dropout,
    /// The rows' places: position and sample of each.
    pub places: Box<[u32]>,
}

/// Place of a row in the global batch: the words of its counters.
#[derive(CubeType, Clone, Copy)]
pub struct DropoutRow {
    /// The position in the sample.
    pub position: u32,
    /// The sample's number.
    pub sample: u32,
    /// The number in the model of the head, where the counter's first word has it.
    pub head: u32,
}

/// Reads a row's place.
#[cube]
pub fn dropout_row(dropped: &DroppedRows, row: usize, head: u32) -> DropoutRow {
    DropoutRow {
        position: dropped.places[2 * row],
        sample: dropped.places[2 * row + 1],
        head: (dropped.dropout.first_head + head) << 20u32,
    }
}

/// Returns what the elements of a row from `column` on are multiplied by: the scale, or 0 where they fall. The column
/// is a multiple of the vector's size, which is a power of two.
#[cube]
pub fn dropout_factors<N: Size>(dropout: &Dropout, row: &DropoutRow, column: u32) -> Vector<f32, N> {
    let mut factors = Vector::<f32, N>::empty();
    let size = N::value();
    if comptime!(size >= 4) {
        #[unroll]
        for block in 0..comptime!(size / 4) {
            let words = dropout_words(dropout, row, column / 4 + block as u32);
            #[unroll]
            for element in 0..4usize {
                let is_kept = words.extract(element) >= dropout.threshold;
                factors.insert(block * 4 + element, select(is_kept, dropout.scale, 0.0f32));
            }
        }
    } else {
        let words = dropout_words(dropout, row, column / 4);
        #[unroll]
        for element in 0..size {
            // Selected one by one: vectors are in registers, which have no index.
            let place = column % 4 + element as u32;
            let mut word = words.extract(0usize);
            #[unroll]
            for candidate in 1..4usize {
                word = select(place == candidate as u32, words.extract(candidate), word);
            }
            factors.insert(element, select(word >= dropout.threshold, dropout.scale, 0.0f32));
        }
    }
    factors
}

/// The words of columns `4 * block ..` of a row.
#[cube]
pub fn dropout_words(dropout: &Dropout, row: &DropoutRow, block: u32) -> Vector<u32, Const<4>> {
    philox4x32_10(
        block | row.head,
        row.position,
        row.sample,
        dropout.iteration,
        dropout.key_0,
        dropout.key_1,
    )
}

/// Returns the places of rows on the client's device: position and sample of each, as words.
pub fn places_on_device(client: &Client, places: &Arc<[RowPlace]>) -> Handle {
    let words = |places: &[RowPlace]| places.iter().flat_map(|place| [place.position, place.sample]).collect();
    on_device(client, places, words)
}

/// The dropout of rows as an argument of a kernel; their places are brought to the device if they are not there.
pub fn dropped_rows_argument(client: &Client, dropout: &RowDropout) -> DroppedRowsLaunch {
    let handle = places_on_device(client, &dropout.places);
    // SAFETY: the buffer holds two words for each place.
    let places = unsafe { BufferArg::from_raw_parts(handle, 2 * dropout.places.len()) };
    let site = DropoutLaunch::new(
        dropout.key[0],
        dropout.key[1],
        dropout.iteration,
        dropout.threshold(),
        dropout.scale() as f32,
        dropout.first_head,
    );
    DroppedRowsLaunch::new(site, places)
}
