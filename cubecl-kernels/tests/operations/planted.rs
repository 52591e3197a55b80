//! The list of faults that `planted_faults` plants fits the sources.

use std::path::Path;

use anyhow::ensure;
use libtest_mimic::Trial;

#[path = "../faults/list.rs"]
mod list;

use self::list::{faults, path_of, planted};

pub fn trials() -> Vec<Trial> {
    vec![Trial::test("faults::each_is_planted_at_one_place", || {
        Ok(each_has_one_place()?)
    })]
}

fn each_has_one_place() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let faults = faults(&root)?;
    ensure!(!faults.is_empty(), "there are no faults");
    for fault in &faults {
        planted(fault, &std::fs::read_to_string(path_of(fault, &root))?)?;
        ensure!(fault.reaches(fault), "{}: its trials are out of its reach", fault.name);
    }
    Ok(())
}
