//! What the program says of a checkpoint that is whole, of one that is not, and of paths without one.

use std::fs;
use std::path::Path;

use burn::tensor::{Bytes, DType};
use burn_megatron::checkpoint::{ArrayPart, CheckpointOptions, CheckpointWriter};
use burn_megatron::collectives::ProcessGroup;
use burn_megatron::parameters::Placement;
use tempfile::TempDir;

use super::*;
use crate::inspect::ranks_text;

fn save(directory: &Path) {
    let options = CheckpointOptions {
        layout: serde_json::json!({ "tensor": 1 }),
        ..CheckpointOptions::default()
    };
    let mut writer = CheckpointWriter::new(ProcessGroup::single(), directory, options).unwrap();
    let part = |name: &str, shape: [usize; 2]| {
        let data = Bytes::from_elems(vec![1.5_f32; shape.iter().product()]);
        ArrayPart::whole(name, Placement::whole(shape), DType::F32, data)
    };
    let parts = vec![
        part("model.weight", [30, 20]),
        part("optimizer.moment_1.weight", [30, 20]),
    ];
    let state = serde_json::json!({ "samples": 640, "scale": 65536.0 });
    writer.save(20, parts, state).unwrap();
}

fn inspect(checkpoint: &Path, json: bool) -> Result<String, CheckpointError> {
    let checkpoint = checkpoint.to_owned();
    run(&Command::Inspect { checkpoint, json })
}

fn verify(checkpoint: &Path) -> Result<String, CheckpointError> {
    let checkpoint = checkpoint.to_owned();
    run(&Command::Verify { checkpoint })
}

#[test]
fn a_person_reads_what_a_checkpoint_holds() {
    let folder = TempDir::new().unwrap();
    save(folder.path());
    let page = inspect(folder.path(), false).unwrap();
    for words in [
        "iteration   20\n",
        ", 1 rank\n",
        "layout      {\"tensor\":1}\n",
        "  samples  640\n",
        "  rank_00000.safetensors     4.9 KiB  xxh3 ",
        "  model.weight               F32   [30, 20]     2.3 KiB  rank 0\n",
        "  optimizer.moment_1.weight  F32   [30, 20]     2.3 KiB  rank 0\n",
        "total       2 arrays, 1200 elements; 1 file, 4.9 KiB\n",
    ] {
        assert!(page.contains(words), "{words:?} is not in\n{page}");
    }
}

#[test]
fn a_program_reads_the_same() {
    let folder = TempDir::new().unwrap();
    save(folder.path());
    let figures: serde_json::Value = serde_json::from_str(&inspect(folder.path(), true).unwrap()).unwrap();
    assert_eq!(figures["iteration"], 20);
    assert_eq!(figures["state"]["samples"], 640);
    assert_eq!(figures["arrays"][1]["name"], "optimizer.moment_1.weight");
    assert_eq!(figures["arrays"][1]["shape"], serde_json::json!([30, 20]));
    assert_eq!(figures["arrays"][0]["parts"][0]["file"], "rank_00000.safetensors");
    assert_eq!(figures["files"][0]["xxh3"].as_str().unwrap().len(), 16);
}

#[test]
fn verify_names_what_is_wrong() {
    let folder = TempDir::new().unwrap();
    save(folder.path());
    let text = verify(folder.path()).unwrap();
    assert!(
        text.ends_with("iter_0000020: whole, 2 arrays in 1 file, 4.9 KiB\n"),
        "{text}"
    );
    let shard = folder.path().join("iter_0000020/rank_00000.safetensors");
    let mut bytes = fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&shard, bytes).unwrap();
    let error = verify(folder.path()).unwrap_err().to_string();
    assert!(error.contains("rank_00000.safetensors has been altered"), "{error}");
}

#[test]
fn convert_writes_a_file_that_others_can_read() {
    let folder = TempDir::new().unwrap();
    save(&folder.path().join("sharded"));
    let output = folder.path().join("whole");
    let command = Command::Convert {
        checkpoint: folder.path().join("sharded"),
        output: output.clone(),
    };
    let path = run(&command).unwrap();
    assert_eq!(Path::new(path.trim_end()), output.join("iter_0000020"));
    verify(&output).unwrap();
    let bytes = fs::read(output.join("iter_0000020/rank_00000.safetensors")).unwrap();
    let header = String::from_utf8_lossy(&bytes);
    assert!(
        header.contains("\"model.weight\":{\"dtype\":\"F32\",\"shape\":[30,20]"),
        "the array has its shape"
    );
}

#[test]
fn paths_without_a_checkpoint_are_named() {
    let folder = TempDir::new().unwrap();
    let nothing = folder.path().join("nothing");
    for path in [folder.path(), &nothing] {
        let error = inspect(path, false).unwrap_err().to_string();
        assert!(
            error.contains("no checkpoint in") && error.contains(path.to_str().unwrap()),
            "{error}"
        );
    }
}

#[test]
fn ranks_are_listed_in_stretches() {
    assert_eq!(ranks_text(&[]), "no rank");
    assert_eq!(ranks_text(&[3]), "rank 3");
    assert_eq!(ranks_text(&[0, 1]), "ranks 0, 1");
    assert_eq!(ranks_text(&[0, 1, 2, 3, 8]), "ranks 0 to 3, 8");
}

#[test]
fn sizes_are_short() {
    for (bytes, text) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (3 << 29, "1.5 GiB"),
    ] {
        assert_eq!(size_text(bytes), text);
    }
}

#[test]
fn the_command_line_is_well_formed() {
    use clap::CommandFactory;
    Arguments::command().debug_assert();
}
