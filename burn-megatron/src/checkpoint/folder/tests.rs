//! Names, the lock, replacing, leftovers and pruning.

use tempfile::TempDir;

use super::*;

fn complete(draft: &Draft, content: &str) {
    fs::write(draft.path.join(INDEX_NAME), content).unwrap();
}

/// Makes a complete checkpoint.
fn save(directory: &SaveDirectory, iteration: u64, content: &str) -> PathBuf {
    let draft = directory.begin(iteration).unwrap();
    complete(&draft, content);
    directory.commit(draft).unwrap()
}

fn content(directory: &Path, iteration: u64) -> String {
    fs::read_to_string(directory.join(iteration_name(iteration)).join(INDEX_NAME)).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = entries(directory).unwrap().into_iter().map(|(name, _)| name).collect();
    names.sort();
    names
}

#[test]
fn names_are_parsed_back() {
    assert_eq!(parse_iteration("iter_0000020"), Some(20));
    assert_eq!(parse_iteration(&iteration_name(123_456_789)), Some(123_456_789));
    for wrong in ["iter_20", "iter_+000020", "iter_0000020.old", "iter_00000020", "20"] {
        assert_eq!(parse_iteration(wrong), None, "{wrong}");
    }
    for kind in [Temporary::Partial, Temporary::Replaced] {
        assert_eq!(Temporary::parse(&kind.name(20, 7)), Some((kind, 20)));
    }
    for wrong in [
        ".iter_0000020.partial-",
        ".iter_0000020.other-0000000000000007",
        ".lock",
        ".",
    ] {
        assert_eq!(Temporary::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn a_checkpoint_is_listed_once_it_is_complete() {
    let folder = TempDir::new().unwrap();
    let directory = SaveDirectory::hold(&folder.path().join("deep/er")).unwrap();
    let path = directory.path.clone();
    for iteration in [20, 100, 3] {
        let draft = directory.begin(iteration).unwrap();
        complete(&draft, "{}");
        assert!(list_checkpoints(&path).unwrap().iter().all(|(i, _)| *i != iteration));
        directory.commit(draft).unwrap();
    }
    fs::create_dir(path.join("iter_20")).unwrap();
    let iterations: Vec<u64> = list_checkpoints(&path).unwrap().iter().map(|(i, _)| *i).collect();
    assert_eq!(iterations, [3, 20, 100]);
}

#[test]
fn the_names_of_folders_that_are_made_are_brought_down_to_the_disk() {
    let folder = TempDir::new().unwrap();
    let deep = folder.path().join("deep");
    let mut synced = Vec::new();
    for path in [deep.join("er/est"), deep.join("er"), deep.join("another")] {
        let sync = |folder: &Path| {
            synced.push(folder.to_owned());
            Ok(())
        };
        make_folder(&path, sync).unwrap();
        assert!(path.is_dir());
    }
    assert_eq!(
        synced,
        [folder.path().to_owned(), deep.clone(), deep.join("er"), deep.clone()]
    );
    let error = make_folder(&deep.join("last"), |_| {
        Err(CheckpointError::file("sync folder", &deep)(
            io::ErrorKind::StorageFull.into(),
        ))
    });
    assert!(error.unwrap_err().to_string().contains("cannot sync folder"));
}

#[test]
fn a_checkpoint_of_the_same_iteration_is_replaced() {
    type Exchange = fn(&Path, &Path) -> io::Result<bool>;
    let ways: [Exchange; 2] = [exchange, |_, _| Ok(false)];
    for way in ways {
        let folder = TempDir::new().unwrap();
        let directory = SaveDirectory::hold(folder.path()).unwrap();
        for text in ["old", "new"] {
            let draft = directory.begin(20).unwrap();
            complete(&draft, text);
            directory.commit_with(draft, way).unwrap();
            assert_eq!(content(folder.path(), 20), text);
        }
        assert_eq!(names(folder.path()), [".lock", "iter_0000020"]);
    }
}

#[test]
fn a_checkpoint_that_is_replaced_is_there_all_the_time() {
    let folder = TempDir::new().unwrap();
    let directory = SaveDirectory::hold(folder.path()).unwrap();
    let index = save(&directory, 20, "{}").join(INDEX_NAME);
    std::thread::scope(|scope| {
        let saving = scope.spawn(|| {
            for _ in 0..50 {
                save(&directory, 20, "{}");
            }
        });
        while !saving.is_finished() {
            assert!(index.exists(), "the checkpoint is gone for a moment");
        }
    });
}

#[test]
fn a_replacement_that_fails_leaves_the_old_one() {
    let folder = TempDir::new().unwrap();
    let directory = SaveDirectory::hold(folder.path()).unwrap();
    save(&directory, 20, "old");
    let new = directory.begin(20).unwrap();
    complete(&new, "new");
    let error = directory.commit_with(new, |_, _| Err(io::ErrorKind::PermissionDenied.into()));
    assert!(error.unwrap_err().to_string().contains("iter_0000020"));
    assert_eq!(content(folder.path(), 20), "old");
    assert_eq!(names(folder.path()), [".lock", "iter_0000020"]);
}

#[test]
fn the_next_run_removes_what_a_killed_run_left() {
    let folder = TempDir::new().unwrap();
    let make = |name: String, text: &str| {
        fs::create_dir(folder.path().join(&name)).unwrap();
        fs::write(folder.path().join(name).join(INDEX_NAME), text).unwrap();
    };
    make(iteration_name(20), "whole");
    make(Temporary::Partial.name(30, 1), "half");
    make(Temporary::Replaced.name(20, 2), "old");
    // Killed between the two renames.
    make(Temporary::Replaced.name(10, 3), "moved aside");
    make(".mine".into(), "not ours");
    let _directory = SaveDirectory::hold(folder.path()).unwrap();
    assert_eq!(names(folder.path()), [".lock", ".mine", "iter_0000010", "iter_0000020"]);
    assert_eq!(content(folder.path(), 10), "moved aside");
    assert_eq!(content(folder.path(), 20), "whole");
}

#[test]
fn a_leftover_that_cannot_be_removed_stops_no_run() {
    let folder = TempDir::new().unwrap();
    // A file in place of a folder: removing it as a folder fails.
    let name = Temporary::Partial.name(30, 1);
    fs::write(folder.path().join(&name), "").unwrap();
    let other = Temporary::Partial.name(40, 2);
    fs::create_dir(folder.path().join(other)).unwrap();
    let _directory = SaveDirectory::hold(folder.path()).unwrap();
    assert_eq!(names(folder.path()), [name, ".lock".into()]);
}

#[test]
fn the_oldest_go_and_what_is_later_neither_counts_nor_goes() {
    let folder = TempDir::new().unwrap();
    let directory = SaveDirectory::hold(folder.path()).unwrap();
    for (iteration, left) in [
        (30, vec![30]),
        (40, vec![30, 40]),
        (50, vec![40, 50]),
        // Another run, from the beginning.
        (5, vec![5, 40, 50]),
        (10, vec![5, 10, 40, 50]),
        (15, vec![10, 15, 40, 50]),
        (40, vec![15, 40, 50]),
        (50, vec![40, 50]),
    ] {
        save(&directory, iteration, "{}");
        directory.prune(2, iteration).unwrap();
        let found = list_checkpoints(folder.path()).unwrap();
        assert_eq!(
            found.iter().map(|(i, _)| *i).collect::<Vec<_>>(),
            left,
            "after {iteration}"
        );
    }
    let name = |iteration| directory.later_than(iteration).unwrap();
    assert_eq!(name(49), Some(folder.path().join("iter_0000050")));
    assert_eq!(name(50), None);
}

#[test]
fn a_folder_without_an_index_is_not_counted_and_stays() {
    let folder = TempDir::new().unwrap();
    let directory = SaveDirectory::hold(folder.path()).unwrap();
    for iteration in [10, 20, 30, 40] {
        save(&directory, iteration, "{}");
    }
    for damaged in [10, 30] {
        fs::remove_file(folder.path().join(iteration_name(damaged)).join(INDEX_NAME)).unwrap();
    }
    directory.prune(2, 40).unwrap();
    let all = [".lock", "iter_0000010", "iter_0000020", "iter_0000030", "iter_0000040"];
    assert_eq!(names(folder.path()), all);
    directory.prune(1, 40).unwrap();
    assert_eq!(
        names(folder.path()),
        [".lock", "iter_0000010", "iter_0000030", "iter_0000040"]
    );
}

#[test]
fn one_run_holds_a_folder() {
    let folder = TempDir::new().unwrap();
    let first = SaveDirectory::hold(folder.path()).unwrap();
    let second = SaveDirectory::hold(folder.path()).unwrap_err().to_string();
    let process = format!("process {} on host", std::process::id());
    assert!(
        second.contains(&process) && second.contains(folder.path().to_str().unwrap()),
        "{second}"
    );
    drop(first);
    SaveDirectory::hold(folder.path()).unwrap();
}

#[test]
fn a_file_in_place_of_the_folder_is_named() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = SaveDirectory::hold(&path).unwrap_err().to_string();
        assert!(
            error.contains("is not a folder") && error.contains(path.to_str().unwrap()),
            "{error}"
        );
        let error = list_checkpoints(&path).unwrap_err().to_string();
        assert!(error.contains("is not a folder"), "{error}");
    }
}
