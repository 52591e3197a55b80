//! Folders that cannot be saved to.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::ensure;
use libtest_mimic::{Failed, Trial};
use tempfile::TempDir;

use tests::processes::send;
use tests::program::pretrain_gpt;
use tests::small_disk::SmallDisk;
use tests::training::{Ended, Training, is_temporary, names, read_all};

const LAYOUT: &str = "--world-size 2 --use-distributed-optimizer";
/// A user that may write nothing, for a test that runs as root.
const UNPRIVILEGED: u32 = 65534;

fn expect_words(ended: &Ended, words: &[&str]) -> anyhow::Result<()> {
    for word in words {
        ensure!(ended.stderr.contains(word), "{word:?} is not in:\n{}", ended.stderr);
    }
    Ok(())
}

/// The trial, ignored aloud where it cannot run.
fn trial(name: &'static str, problem: Option<String>, body: fn() -> anyhow::Result<()>) -> Trial {
    if let Some(problem) = &problem {
        eprintln!("{name} is ignored: {problem}");
    }
    Trial::test(name, move || body().map_err(|error| Failed::from(format!("{error:#}"))))
        .with_ignored_flag(problem.is_some())
}

pub fn file_in_place_of_the_folder_is_named() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let save = folder.path().join("save");
    fs::write(&save, "a person's notes")?;
    let training = Training::new(folder.path(), 3, LAYOUT)?;
    for path in [save.clone(), save.join("below")] {
        let ended = training.clone().with_path("--save", &path).start()?.end()?;
        let path = path.display().to_string();
        expect_words(&ended, &[&path, "is not a folder: expected a folder to save to"])?;
        ended.expect_code(1)?;
        ensure!(!ended.stdout.contains("step "), "it trains:\n{}", ended.stdout);
    }
    ensure!(fs::read_to_string(save)? == "a person's notes", "the file is changed");
    Ok(())
}

fn is_root() -> bool {
    // SAFETY: the call takes nothing, cannot fail and touches no memory of this process.
    unsafe { libc::geteuid() == 0 }
}

/// Why another user cannot run the program, if so.
fn unreachable_program() -> Option<String> {
    let program = match pretrain_gpt() {
        Ok(program) => program,
        Err(error) => return Some(format!("{error:#}")),
    };
    if !is_root() {
        return None;
    }
    let mut command = Command::new(&program);
    let command = command.arg("--help").uid(UNPRIVILEGED).stdout(Stdio::null());
    let problem = |what: String| Some(format!("user {UNPRIVILEGED} cannot run {}: {what}", program.display()));
    match command.status() {
        Ok(status) if status.success() => None,
        Ok(status) => problem(status.to_string()),
        Err(error) => problem(error.to_string()),
    }
}

pub fn not_writable() -> Trial {
    trial("folder_that_is_not_writable_is_named", unreachable_program(), || {
        let folder = TempDir::new()?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
        let closed = folder.path().join("closed");
        fs::create_dir(&closed)?;
        fs::set_permissions(&closed, Permissions::from_mode(0o555))?;
        for path in [closed.clone(), closed.join("below")] {
            let training = Training::new(folder.path(), 3, LAYOUT)?.with_path("--save", &path);
            let run = training.start_prepared(|command| {
                if is_root() {
                    command.uid(UNPRIVILEGED);
                }
            })?;
            let ended = run.end()?;
            let path = path.display().to_string();
            expect_words(
                &ended,
                &["cannot save to", &path, "rank 0: cannot", "Permission denied"],
            )?;
            ended.expect_code(1)?;
            ensure!(!ended.stdout.contains("step "), "it trains:\n{}", ended.stdout);
        }
        ensure!(names(&closed).is_empty(), "something is in the folder");
        Ok(())
    })
}

/// The disk is full after some checkpoints: they stay, and with more room the run resumes as if undisturbed.
pub fn no_space_left() -> Trial {
    trial("full_disk_keeps_what_was_saved", SmallDisk::mount(1).err(), || {
        const STEPS: u64 = 24;
        let reference = TempDir::new()?;
        let undisturbed = Training::new(reference.path(), STEPS, LAYOUT)?.with("--save-interval 4");
        let undisturbed = undisturbed.with_path("--save", &reference.path().join("save"));
        undisturbed.run()?;
        let expected = read_all(&reference.path().join("save"))?;
        for more in ["", "--async-save"] {
            let disk = SmallDisk::mount(1).map_err(anyhow::Error::msg)?;
            let folder = TempDir::new()?;
            let training = Training::new(folder.path(), STEPS, LAYOUT)?
                .with(more)
                .with("--save-interval 4");
            let training = training
                .with_path("--save", disk.path())
                .with_path("--load", disk.path());
            let ended = training.start()?.end()?;
            let place = disk.path().display().to_string();
            expect_words(
                &ended,
                &[
                    "was not saved to",
                    &place,
                    "cannot write",
                    ".safetensors: No space left on device",
                ],
            )?;
            ended.expect_code(1)?;
            let found = read_all(disk.path())?;
            ensure!(!found.is_empty() && found.len() < expected.len(), "{:?}", found.keys());
            ensure!(
                found.iter().all(|(step, content)| expected.get(step) == Some(content)),
                "other bits"
            );
            ensure!(
                !names(disk.path()).iter().any(|name| is_temporary(name)),
                "a part of the last stays"
            );

            disk.resize(16).map_err(anyhow::Error::msg)?;
            let ended = training.run()?;
            ensure!(
                ended.resumed_after() == found.keys().next_back().copied(),
                "{}",
                ended.stdout
            );
            ensure!(read_all(disk.path())? == expected, "other checkpoints than undisturbed");
            ensure!(
                training.losses()? == undisturbed.losses()?,
                "other losses than undisturbed"
            );
        }
        Ok(())
    })
}

pub fn second_run_is_refused_and_the_first_unharmed() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let save = folder.path().join("save");
    let run = |name: &str| -> anyhow::Result<Training> {
        let training = Training::new(&folder.path().join(name), 1_000_000, LAYOUT)?;
        Ok(training
            .with("--save-interval 5")
            .with_path("--save", &save)
            .with_path("--load", &save))
    };
    let mut first = run("first")?.start()?;
    first.wait_for_step(6)?;
    let holder = first.ranks()[&0];
    let ended = run("second")?.start()?.end()?;
    let holder = format!("process {holder} on host");
    let place = save.display().to_string();
    expect_words(
        &ended,
        &["another run saves to", &place, &holder, "give each run its own folder"],
    )?;
    ended.expect_code(1)?;
    ensure!(
        !ended.stdout.contains("step "),
        "the second run trains:\n{}",
        ended.stdout
    );
    // The first continues to save.
    let saves = |text: String| text.lines().filter(|line| line.ends_with("| saved")).count();
    let before = saves(first.stdout());
    ensure!(
        tests::processes::wait_until(std::time::Duration::from_secs(60), || saves(first.stdout())
            >= before + 2),
        "the first run saves no more"
    );
    send(first.launcher(), libc::SIGTERM);
    let ended = first.end()?;
    ended.expect_code(143)?;
    let (stopped, _) = ended.stopped()?;
    let found = read_all(Path::new(&save))?;
    let expected: Vec<u64> = (1..stopped)
        .filter(|step| step.is_multiple_of(5))
        .chain([stopped])
        .collect();
    ensure!(found.keys().eq(&expected), "{:?} instead of {expected:?}", found.keys());
    Ok(())
}
