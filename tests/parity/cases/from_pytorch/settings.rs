//! Models with each setting of `config.json` away from its default: their logits are those of transformers, which
//! makes them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use burn_megatron::launch::World;
use libtest_mimic::Trial;
use models::ModelFamily;
use models::decoder::ROPE_KEYS;
use models::huggingface::keys_of;
use models::registry::{FAMILIES, FamilyProgram, run_with_family};
use serde_json::{Map, Value, json};
use tests::python::{lacks_transformers, with_transformers};
use tests::trials::trial_unless;

use super::transformers::compare_files;
use crate::parity::cases::comparison::{ONE, connect};
use tests::harness::{Case, Job};

pub fn trials() -> Vec<Trial> {
    let name = "each_setting_of_every_family_has_the_effect_that_it_has_in_transformers";
    vec![trial_unless(lacks_transformers(), name, || {
        let folder = tempfile::tempdir()?;
        let [tables, models] = ["tables.json", "models"].map(|name| folder.path().join(name));
        let mut settings = Map::from_iter([("rope_scaling".to_owned(), json!(ROPE_KEYS))]);
        for family in FAMILIES {
            settings.extend(run_with_family(family.name, Tables)?);
        }
        std::fs::write(&tables, Value::Object(settings).to_string())?;
        let made = with_transformers(&[OsStr::new("models"), tables.as_ref(), models.as_ref()])?;
        print!("{made}");
        compare_logits(&models)
    })]
}

/// The settings of each type of a family's models.
struct Tables;

impl FamilyProgram for Tables {
    type Output = Map<String, Value>;

    fn run<C: ModelFamily>(self) -> Map<String, Value> {
        let table = |name: &&str| ((*name).to_owned(), json!(keys_of(C::KEYS, name)));
        C::MODEL_TYPES.iter().map(table).collect()
    }
}

/// Compares the logits of all models in and below a folder with those of transformers, on a rank of its own.
pub fn compare_logits(folder: &Path) -> anyhow::Result<()> {
    let case = ONE.describe(Case::new("parity", "settings"), "f32");
    print!("{}", Job::new(case.with("folder", folder.display()), 1).output()?);
    Ok(())
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let folders = folders_of_models(case.setting("folder")?)?;
    let (mut largest, mut failures) = (0.0_f64, Vec::new());
    for folder in &folders {
        match compare_files(folder.clone(), connect(case, world)?) {
            Ok(difference) => largest = largest.max(difference),
            Err(error) => failures.push(format!("{}: {error:#}", folder.display())),
        }
    }
    println!(
        "{} models, largest difference of logits {largest:.1e} of their norm",
        folders.len()
    );
    ensure!(!folders.is_empty() && failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// The folders that have logits of transformers.
fn folders_of_models(folder: PathBuf) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(folders_of_models(path)?);
        } else if path.ends_with("expected.safetensors") {
            found.push(folder.clone());
        }
    }
    found.sort();
    Ok(found)
}
