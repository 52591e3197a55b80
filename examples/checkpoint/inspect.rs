//! A checkpoint in words for people, and in figures for programs.

use std::fmt::Write;

use burn_megatron::checkpoint::{Checkpoint, StoredArray};
use examples::figures::bytes;
use serde_json::{Value, json};

/// Returns what a checkpoint holds, as a page of text.
pub fn describe(checkpoint: &Checkpoint) -> String {
    let mut page = String::new();
    let mut line = |text: std::fmt::Arguments| {
        writeln!(page, "{text}").expect("a string takes all");
    };
    line(format_args!("checkpoint  {}", checkpoint.path().display()));
    line(format_args!("iteration   {}", checkpoint.iteration()));
    line(format_args!(
        "saved by    burn-megatron {}, {}",
        checkpoint.library_version(),
        count_text(checkpoint.world_size(), "rank"),
    ));
    line(format_args!("layout      {}", checkpoint.layout()));
    match checkpoint.state().as_object() {
        Some(fields) => {
            line(format_args!("state"));
            let width = fields.keys().map(String::len).max().unwrap_or(0);
            for (name, value) in fields {
                line(format_args!("  {name:width$}  {value}"));
            }
        }
        None => line(format_args!("state       {}", checkpoint.state())),
    }
    line(format_args!("files"));
    for file in checkpoint.files() {
        line(format_args!(
            "  {}  {:>10}  xxh3 {:016x}",
            file.name,
            bytes(file.bytes),
            file.checksum()
        ));
    }
    line(format_args!("arrays"));
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let names = width(&mut checkpoint.arrays().iter().map(|array| array.name.len()));
    let shapes = width(&mut checkpoint.arrays().iter().map(|array| shape_text(array).len()));
    for array in checkpoint.arrays() {
        line(format_args!(
            "  {:names$}  {:4}  {:shapes$}  {:>10}  {}",
            array.name,
            format!("{:?}", array.dtype),
            shape_text(array),
            bytes(array.num_bytes() as u64),
            ranks_text(&ranks_of(checkpoint, array)),
        ));
    }
    let elements: u64 = checkpoint
        .arrays()
        .iter()
        .map(|array| array.num_elements() as u64)
        .sum();
    line(format_args!(
        "total       {}, {elements} elements; {}, {}",
        count_text(checkpoint.arrays().len(), "array"),
        count_text(checkpoint.files().len(), "file"),
        bytes(checkpoint.files().iter().map(|file| file.bytes).sum())
    ));
    page
}

/// Returns what a checkpoint holds, as JSON.
pub fn figures(checkpoint: &Checkpoint) -> Value {
    let files = checkpoint.files().iter().map(|file| {
        json!({
            "name": file.name,
            "rank": file.rank,
            "bytes": file.bytes,
            "xxh3": format!("{:016x}", file.checksum()),
        })
    });
    let arrays = checkpoint.arrays().iter().map(|array| {
        let parts = array.parts.iter().map(|part| {
            json!({
                "file": checkpoint.files()[part.file].name,
                "key": part.key,
                "offset": part.placement.offset(),
                "shape": part.placement.local_shape(),
                "range": [part.range.start, part.range.end],
            })
        });
        json!({
            "name": array.name,
            "dtype": format!("{:?}", array.dtype),
            "shape": array.shape,
            "bytes": array.num_bytes(),
            "parts": parts.collect::<Vec<_>>(),
        })
    });
    json!({
        "path": checkpoint.path(),
        "iteration": checkpoint.iteration(),
        "library_version": checkpoint.library_version(),
        "world_size": checkpoint.world_size(),
        "layout": checkpoint.layout(),
        "state": checkpoint.state(),
        "files": files.collect::<Vec<_>>(),
        "arrays": arrays.collect::<Vec<_>>(),
    })
}

fn shape_text(array: &StoredArray) -> String {
    format!("{:?}", array.shape)
}

/// The ranks that wrote parts of an array, ascending.
fn ranks_of(checkpoint: &Checkpoint, array: &StoredArray) -> Vec<usize> {
    let mut ranks: Vec<usize> = (array.parts.iter())
        .map(|part| checkpoint.files()[part.file].rank)
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Returns `ranks 0 to 3, 8` for `[0, 1, 2, 3, 8]`.
pub fn ranks_text(ranks: &[usize]) -> String {
    let mut stretches: Vec<(usize, usize)> = Vec::new();
    for &rank in ranks {
        match stretches.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => stretches.push((rank, rank)),
        }
    }
    let texts: Vec<String> = stretches
        .iter()
        .map(|(first, last)| match last - first {
            0 => format!("{first}"),
            1 => format!("{first}, {last}"),
            _ => format!("{first} to {last}"),
        })
        .collect();
    match ranks.len() {
        0 => "no rank".to_owned(),
        1 => format!("rank {}", texts.join(", ")),
        _ => format!("ranks {}", texts.join(", ")),
    }
}

/// Returns `1 file`, `2 files`.
pub fn count_text(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
