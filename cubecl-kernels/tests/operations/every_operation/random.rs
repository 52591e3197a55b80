//! The random numbers of kernels against the host's, bit for bit.

use std::sync::Arc;

use anyhow::ensure;
use cubecl::Device;
use cubecl::prelude::*;
use cubecl::server::Handle;
use cubecl_kernels::cube::dropout::{
    DroppedRows, dropout_factors, dropout_row, dropped_rows_argument, philox4x32_10 as philox_on_device,
    places_on_device,
};
use cubecl_kernels::random::philox::philox4x32_10;
use cubecl_kernels::random::{RowDropout, RowPlace};
use libtest_mimic::Trial;

use crate::support::compare::normal;
use crate::support::setting::plain;

pub fn trials() -> Vec<Trial> {
    vec![
        plain("cuda::philox_words_are_the_hosts", words_are_the_hosts),
        plain(
            "cuda::dropout_falls_where_the_hosts_does",
            dropout_falls_where_the_hosts_does,
        ),
        plain("cuda::places_are_brought_to_a_device_once", places_are_brought_once),
    ]
}

/// `inputs` has four words of a counter and two of a key for each unit.
#[cube(launch)]
fn write_words(inputs: &[u32], output: &mut [u32]) {
    let unit = ABSOLUTE_POS;
    if unit < inputs.len() / 6 {
        let words = philox_on_device(
            inputs[6 * unit],
            inputs[6 * unit + 1],
            inputs[6 * unit + 2],
            inputs[6 * unit + 3],
            inputs[6 * unit + 4],
            inputs[6 * unit + 5],
        );
        #[unroll]
        for word in 0..4usize {
            output[4 * unit + word] = words.extract(word);
        }
    }
}

fn words_are_the_hosts() -> anyhow::Result<()> {
    let units = 1000;
    let mut inputs: Vec<u32> = normal(6 * units, 7).iter().map(|x| x.to_bits() as u32).collect();
    inputs[..6].fill(0);
    inputs[6..12].fill(u32::MAX);
    let client = Device::Cuda(Default::default()).client();
    let input = client.create_from_slice(bytemuck::cast_slice(&inputs));
    let output = client.empty(4 * units * size_of::<u32>());
    // SAFETY: the buffers have these numbers of words.
    let arguments = unsafe {
        (
            BufferArg::from_raw_parts(input, inputs.len()),
            BufferArg::from_raw_parts(output.clone(), 4 * units),
        )
    };
    let cubes = CubeCount::new_1d(units.div_ceil(64) as u32);
    write_words::launch(&client, cubes, CubeDim::new_1d(64), arguments.0, arguments.1);
    let bytes = client.read_one(output).map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let words: &[u32] = bytemuck::cast_slice(&bytes);
    for (input, words) in inputs.chunks_exact(6).zip(words.chunks_exact(4)) {
        let expected = philox4x32_10([input[0], input[1], input[2], input[3]], [input[4], input[5]]);
        ensure!(words == expected, "{words:x?} for {input:x?}, expected {expected:x?}");
    }
    Ok(())
}

/// Writes what a row's elements are multiplied by, a vector a unit, a row a cube along y.
#[cube(launch)]
fn write_factors<N: Size>(dropped: &DroppedRows, output: &mut [Vector<f32, N>], vectors: usize, head: u32) {
    let (row, vector) = (CUBE_POS_Y as usize, ABSOLUTE_POS_X as usize);
    if vector < vectors {
        let place = dropout_row(dropped, row, head);
        let column = (vector * N::value()) as u32;
        output[row * vectors + vector] = dropout_factors::<N>(&dropped.dropout, &place, column);
    }
}

fn dropout_falls_where_the_hosts_does() -> anyhow::Result<()> {
    let client = Device::Cuda(Default::default()).client();
    for (size, columns, head) in [(1usize, 37usize, 0u32), (2, 38, 3), (4, 40, 1)] {
        let rows = 5;
        let place = |row: u32| RowPlace {
            position: row * 17,
            sample: u32::MAX - row,
        };
        let dropout = RowDropout {
            key: [0xDEAD_BEEF, 3],
            iteration: 1_000_000,
            first_head: 2,
            probability: 0.25,
            places: (0..rows as u32).map(place).collect(),
        };
        let output = client.empty(rows * columns * size_of::<f32>());
        // SAFETY: the buffer has `rows * columns` numbers.
        let argument = unsafe { BufferArg::from_raw_parts(output.clone(), rows * columns) };
        write_factors::launch(
            &client,
            CubeCount::new_2d((columns / size).div_ceil(32) as u32, rows as u32),
            CubeDim::new_1d(32),
            size,
            dropped_rows_argument(&client, &dropout),
            argument,
            columns / size,
            head,
        );
        let bytes = client.read_one(output).map_err(|error| anyhow::anyhow!("{error:?}"))?;
        let factors: &[f32] = bytemuck::cast_slice(&bytes);
        for (row, factors) in factors.chunks_exact(columns).enumerate() {
            let mut expected = vec![0.0; columns];
            dropout.fill_row(&mut expected, row, head as usize, dropout.scale() as f32, 0.0);
            ensure!(
                factors == expected,
                "row {row} of vectors of {size}: {factors:?}, expected {expected:?}"
            );
        }
    }
    Ok(())
}

fn places_are_brought_once() -> anyhow::Result<()> {
    let client = Device::Cuda(Default::default()).client();
    let table = |sample| -> Arc<[RowPlace]> { (0..5).map(|position| RowPlace { position, sample }).collect() };
    let memory = |handle: &Handle| {
        let text = format!("{:?}", handle.memory);
        text.split("location").next().map(str::to_owned)
    };
    let places = table(7);
    let first = places_on_device(&client, &places);
    ensure!(
        memory(&places_on_device(&client, &places)) == memory(&first),
        "a table that is there is brought again"
    );
    ensure!(
        memory(&places_on_device(&client, &table(7))) != memory(&first),
        "two tables are one"
    );
    let words = client
        .read_one(first.clone())
        .map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let expected: Vec<u32> = (0..5).flat_map(|position| [position, 7]).collect();
    ensure!(
        u32::from_bytes(&words) == expected.as_slice(),
        "the places on the device are others"
    );
    ensure!(!first.can_mut(), "a table that is in use is not kept");
    drop(places);
    places_on_device(&client, &table(8));
    ensure!(first.can_mut(), "a table that nothing holds is kept");
    Ok(())
}
