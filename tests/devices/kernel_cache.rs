//! Compiled kernels that are kept from one start to the next.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;
use tests::program::{end, pretrain_gpt, start, training_text};

use crate::devices::{KERNEL_CACHE, LIMIT, MODEL, emulate};

/// The file of known kernels.
const KERNELS: &str = "kernels";

/// A folder for kernels, and how many are compiled.
struct Cache {
    folder: TempDir,
    libraries: TempDir,
}

impl Cache {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            folder: TempDir::new()?,
            libraries: cuda_emulator::library_folder()?,
        })
    }

    /// Trains for a step, and returns what it prints of it, and the number of kernels that were compiled.
    fn train(&self, program: &Path, layout: &[&str]) -> anyhow::Result<(String, usize)> {
        let count = self.folder.path().join("count");
        let mut command = Command::new(program);
        command
            .args(["--device", "cuda", "--dtype", "f32", "--eval-iters", "0"])
            .args(layout)
            .args(MODEL.split_whitespace())
            .arg(training_text());
        emulate(&mut command, self.libraries.path());
        command
            .env(KERNEL_CACHE, self.folder.path().join("cache"))
            .env("CUDA_EMULATOR_COMPILATIONS", &count);
        let ended = end(start(&mut command)?, LIMIT)?;
        ended.expect_code(0)?;
        ensure!(!ended.stderr.contains("are not kept"), "{}", ended.stderr);
        let loss = ended.stdout.split(" | ").find(|field| field.starts_with("loss "));
        let compiled = fs::read(&count).map_or(0, |bytes| bytes.len());
        let _ = fs::remove_file(&count);
        Ok((loss.context("no step is reported")?.to_owned(), compiled))
    }

    /// The files of known kernels.
    fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for host in fs::read_dir(self.folder.path().join("cache"))? {
            for key in fs::read_dir(host?.path())? {
                files.push(key?.path().join(KERNELS));
            }
        }
        Ok(files)
    }
}

pub fn second_start() -> anyhow::Result<()> {
    let (cache, program) = (Cache::new()?, pretrain_gpt()?);
    let two = ["--world-size", "2"];
    let (loss, alone) = cache.train(&program, &[])?;
    ensure!(alone > 20, "{alone} kernels are compiled at the first start");
    ensure!(
        cache.train(&program, &[])? == (loss.clone(), 0),
        "kernels are compiled again"
    );
    // Two processes at once, which take them over and add their own.
    let (loss_of_two, added) = cache.train(&program, &two)?;
    ensure!(
        added < alone,
        "{added} of {alone} kernels are compiled by two ranks after one"
    );
    ensure!(
        cache.train(&program, &two)? == (loss_of_two, 0),
        "kernels are compiled again"
    );
    ensure!(cache.train(&program, &[])? == (loss, 0), "kernels are compiled again");
    Ok(())
}

/// The same kernels by CubeCL's keys, and maybe others by their source.
pub fn other_program() -> anyhow::Result<()> {
    let (cache, program) = (Cache::new()?, pretrain_gpt()?);
    let (loss, compiled) = cache.train(&program, &[])?;
    let other = cache.folder.path().join("other_program");
    fs::copy(&program, &other)?;
    OpenOptions::new()
        .append(true)
        .open(&other)?
        .write_all(b"built again")?;
    ensure!(
        cache.train(&other, &[])? == (loss.clone(), compiled),
        "it takes the kernels of another program"
    );
    ensure!(cache.train(&program, &[])? == (loss.clone(), 0), "its kernels are gone");
    ensure!(cache.train(&other, &[])? == (loss, 0), "its kernels are gone");
    ensure!(cache.files()?.len() == 2, "{:?}", cache.files()?);
    Ok(())
}

pub fn damaged() -> anyhow::Result<()> {
    let (cache, program) = (Cache::new()?, pretrain_gpt()?);
    let (loss, compiled) = cache.train(&program, &[])?;
    cache.train(&program, &[])?;
    let [path] = &cache.files()?[..] else {
        anyhow::bail!("one program has the files {:?}", cache.files()?);
    };
    let whole = fs::read(path)?;
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    for damaged in [&whole[..whole.len() / 3], &changed, b""] {
        fs::write(path, damaged)?;
        // What the last process knew is not lost with the file.
        let (found, again) = cache.train(&program, &[])?;
        ensure!(found == loss && again <= compiled, "{found} after {again} compilations");
        ensure!(
            cache.train(&program, &[])? == (loss.clone(), 0),
            "kernels are compiled again"
        );
        ensure!(fs::read(path)? == whole, "the file is not whole again");
    }
    Ok(())
}
