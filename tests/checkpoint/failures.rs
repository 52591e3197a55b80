//! What fails on one rank fails on all, with the same words, and what was there before stays.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use libtest_mimic::{Failed, Trial};
use tempfile::TempDir;

use crate::checkpoint::arrays;
use crate::checkpoint::layouts::{latest, names, run, start};
use tests::job::{Ended, expect};
use tests::small_disk::SmallDisk;

/// Returns what each of two ranks was refused with, after checking that it is the same on both.
fn refusals(ended: &Ended) -> Result<Vec<String>, Failed> {
    let of = |rank: usize| -> Vec<String> {
        let marker = format!("rank {rank} is refused: ");
        let lines = ended.stdout.lines();
        lines
            .filter_map(|line| Some(line.split_once(&marker)?.1.to_owned()))
            .collect()
    };
    let (first, second) = (of(0), of(1));
    expect(
        first == second && !first.is_empty(),
        &format!("rank 0: {first:?}\nrank 1: {second:?}\n{}", ended.stderr),
    )?;
    Ok(first)
}

fn expect_words(message: &str, words: &[&str]) -> Result<(), Failed> {
    let missing = words.iter().find(|word| !message.contains(*word));
    expect(missing.is_none(), &format!("{missing:?} is not in: {message}"))
}

/// Checks that the folder holds whole checkpoints of two iterations and nothing else but the lock.
fn expect_whole(directory: &Path, iterations: [&str; 2]) -> Result<(), Failed> {
    let found = names(directory)?;
    expect(found == [".lock", iterations[0], iterations[1]], &format!("{found:?}"))?;
    let checkpoint = latest(directory)?;
    checkpoint.verify()?;
    Ok(arrays::check(&checkpoint, 0, 1)?)
}

pub fn file_too_large_on_one_rank_fails_on_all() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let ended = run("too_large", 2, folder.path())?;
    let messages = refusals(&ended)?;
    expect(
        messages.len() == 2,
        "a save in the foreground and one in the background",
    )?;
    for message in &messages {
        expect_words(
            message,
            &[
                "iteration 20 was not saved",
                "rank 1: cannot write",
                "rank_00001.safetensors: File too large",
            ],
        )?;
    }
    expect_whole(folder.path(), ["iter_0000010", "iter_0000030"])
}

pub fn ranks_that_disagree_are_named() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let ended = run("disagree", 2, folder.path())?;
    let messages = refusals(&ended)?;
    let expected = [
        "element [0, 0] is in a part of rank 0 and in one of rank 1",
        "element [2, 0] is in no part of any rank; ranks with parts: [0, 1]",
        "has shape [4, 2] on rank 0 and [8, 2] on rank 1",
        "has type F32 on rank 0 and F64 on rank 1",
    ];
    expect(messages.len() == 5, &format!("{messages:#?}"))?;
    for (message, words) in messages.iter().zip(expected) {
        expect_words(message, &["array \"model.array\"", words])?;
    }
    expect_words(&messages[4], &["rank 0 saves iteration 20 and rank 1 iteration 21"])?;
    expect(names(folder.path())? == [".lock"], "nothing is written")
}

pub fn second_run_is_refused() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let mut first = start("hold", 2, folder.path(), &[])?;
    first.wait_until_ready(2)?;
    let holder = format!("process {} on host", first.pid("pid-0")?);
    let second = run("refused", 2, folder.path())?;
    let path = folder.path().to_string_lossy();
    for message in refusals(&second)? {
        expect_words(&message, &["another run saves to", &path, &holder])?;
    }
    first.launcher.kill()?;
    first.end()?;
    // A lock ends with its holder.
    let third = run("refused", 2, folder.path())?;
    expect(refusals(&third)? == ["nothing"], "the third run is not refused")
}

pub fn later_checkpoint_is_named_on_all() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let ended = run("begins_early", 2, folder.path())?;
    let place = folder.path().join("iter_0000040");
    let words = format!(
        "{} is later than iteration 0, at which this run begins",
        place.display()
    );
    for message in refusals(&ended)? {
        expect_words(&message, &[&words, "save to another folder"])?;
    }
    expect(names(folder.path())? == [".lock", "iter_0000040"], "nothing is changed")
}

pub fn folder_that_is_not_writable_is_named() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    let directory = folder.path().join("read-only");
    fs::create_dir(&directory)?;
    fs::set_permissions(&directory, Permissions::from_mode(0o555))?;
    for path in [directory.clone(), directory.join("below")] {
        let ended = run("not_writable", 2, &path)?;
        for message in refusals(&ended)? {
            let path = path.to_string_lossy();
            expect_words(
                &message,
                &["cannot save to", &path, "rank 0: cannot", "Permission denied"],
            )?;
        }
    }
    Ok(())
}

pub fn folders_that_are_not_the_same_are_named() -> Result<(), Failed> {
    let folder = TempDir::new()?;
    let ended = run("two_folders", 2, folder.path())?;
    let messages: Vec<&str> = ended.stdout.lines().collect();
    expect(messages.len() == 2, &format!("{messages:#?}"))?;
    for message in messages {
        let words = [
            "rank 1 does not find",
            "which rank 0 has made: every rank must save to the same folder",
        ];
        expect_words(message, &words)?;
    }
    expect(
        names(&folder.path().join("0"))? == [".lock"],
        "the temporary folder is removed",
    )
}

/// The trial, ignored aloud where nothing can be mounted.
pub fn no_space_left() -> Trial {
    let problem = SmallDisk::mount(4).err();
    if let Some(problem) = &problem {
        eprintln!("no_space_left_fails_on_all is ignored: {problem}");
    }
    Trial::test("no_space_left_fails_on_all", || {
        let small = SmallDisk::mount(4)?;
        let ended = run("no_space", 2, small.path())?;
        for message in refusals(&ended)? {
            expect_words(
                &message,
                &[
                    "iteration 20 was not saved",
                    "cannot write",
                    ".safetensors: No space left",
                ],
            )?;
        }
        expect_whole(small.path(), ["iter_0000010", "iter_0000030"])
    })
    .with_ignored_flag(problem.is_some())
}
