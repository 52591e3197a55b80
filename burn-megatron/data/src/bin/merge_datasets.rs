//! `merge_datasets`: all data sets of a folder as one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use burn_megatron_data::indexed_dataset::{bin_path, idx_path, merge};
use burn_megatron_data::programs::{Bytes, failed, parse};
use clap::Parser;

/// Writes all data sets of a folder, sorted by name, as one, as Megatron-LM's tools/merge_datasets.py
///
/// Flags are taken with hyphens or underscores; of a repeated one the last counts.
#[derive(Debug, Parser)]
struct Arguments {
    /// Folder with pairs of .bin and .idx files; other files are not looked at
    #[arg(long, value_name = "FOLDER")]
    input: PathBuf,
    /// Path of the output without .bin and .idx
    #[arg(long, value_name = "PREFIX")]
    output_prefix: PathBuf,
}

fn main() -> ExitCode {
    match run(&parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let prefixes = prefixes(&arguments.input)?;
    let totals = merge(&prefixes, &arguments.output_prefix)?;
    println!(
        "{}: {} data sets, {} documents, {} sequences, {} tokens, {}",
        arguments.output_prefix.display(),
        prefixes.len(),
        totals.documents,
        totals.sequences,
        totals.tokens,
        Bytes(totals.bytes)
    );
    Ok(())
}

/// Finds the data sets of a folder, sorted by name.
fn prefixes(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let unreadable = || format!("cannot read the folder {}", folder.display());
    let mut prefixes = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "bin" || extension == "idx")
            && path.is_file()
        {
            prefixes.insert(path.with_extension(""));
        }
    }
    ensure!(
        !prefixes.is_empty(),
        "no .bin and .idx files in the folder {}",
        folder.display()
    );
    for prefix in &prefixes {
        for half in [bin_path(prefix), idx_path(prefix)] {
            if !half.is_file() {
                bail!("{} is missing: a data set is a pair of .bin and .idx", half.display());
            }
        }
    }
    Ok(prefixes.into_iter().collect())
}
