//! Saved by some ranks, loaded by others; saved during training.

use std::path::Path;

use burn_megatron::checkpoint::Checkpoint;
use libtest_mimic::Failed;
use serde_json::json;
use tempfile::TempDir;

use crate::checkpoint::{DIRECTORY, RANKS, arrays};
use tests::job::{Ended, Job, expect};

pub fn start(case: &str, ranks: usize, directory: &Path, more: &[(&str, &str)]) -> Result<Job, Failed> {
    let directory = directory.to_str().ok_or("a temporary path is text")?;
    let ranks = ranks.to_string();
    let mut environment = vec![(RANKS, ranks.as_str()), (DIRECTORY, directory)];
    environment.extend(more);
    Ok(Job::start_with("checkpoint", case, &environment)?)
}

/// Runs a case that must end well.
pub fn run(case: &str, ranks: usize, directory: &Path) -> Result<Ended, Failed> {
    let ended = start(case, ranks, directory, &[])?.end()?;
    ended.expect_code(0)?;
    Ok(ended)
}

pub fn names(directory: &Path) -> Result<Vec<String>, Failed> {
    let entries = std::fs::read_dir(directory)?;
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<String>, std::io::Error>>()?;
    names.sort();
    Ok(names)
}

pub fn latest(directory: &Path) -> Result<Checkpoint, Failed> {
    Ok(Checkpoint::latest(directory)?.ok_or("there is no checkpoint")?)
}

pub fn ranks_save_and_any_number_loads() -> Result<(), Failed> {
    for saving in [1, 2, 4] {
        let folder = TempDir::new()?;
        run("save", saving, folder.path())?;
        let checkpoint = latest(folder.path())?;
        checkpoint.verify()?;
        expect(checkpoint.files().len() == saving, "each rank writes a file")?;
        expect(checkpoint.world_size() == saving, "the number of ranks is kept")?;
        expect(
            *checkpoint.state() == json!({ "of rank": 0 }),
            "the state is that of rank 0",
        )?;
        expect(
            *checkpoint.layout() == json!({ "tensor": saving }),
            "the layout is kept",
        )?;
        for loading in [1, 3] {
            run("load", loading, folder.path())?;
        }
        for rank in 0..2 {
            arrays::check(&checkpoint, rank, 2)?;
        }
    }
    Ok(())
}

pub fn saves_run_during_training() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    run("background", 2, folder.path())?;
    let found = names(folder.path())?;
    let expected = [".lock", "iter_0000002", "iter_0000003", "iter_0000004"];
    expect(found == expected, &format!("{found:?} instead of {expected:?}"))?;
    for name in &expected[1..] {
        let checkpoint = Checkpoint::open(folder.path().join(name))?;
        checkpoint.verify()?;
        arrays::check(&checkpoint, 0, 1)?;
    }
    Ok(())
}
