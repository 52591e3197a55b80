//! [`exchange`]: what each rank of a mesh has found, on all of them.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::mesh::Mesh;
use crate::collectives::{CollectiveError, ReduceOp};

/// Returns every rank's value, in the order of the mesh: its last axis is the fastest.
///
/// # Communication
/// Per axis of the mesh, an all-reduce of 8 bytes, and an all-gather of the values as text.
///
/// # Errors
/// The error of the first collective that failed.
pub(super) fn exchange<T: Serialize + DeserializeOwned>(mesh: &Mesh, own: T) -> Result<Vec<T>, CollectiveError> {
    let mut all = vec![own];
    for axis in (0..mesh.shape().num_axes()).rev() {
        let group = mesh.group(axis).labelled("what a comparison found");
        if group.size() == 1 {
            continue;
        }
        let text = serde_json::to_vec(&all).expect("it is plain data");
        let mut longest = [text.len() as i64];
        group.all_reduce(&mut longest, ReduceOp::Max)?;
        let length = longest[0] as usize;
        let mut padded = text;
        // Spaces around a value are none of it.
        padded.resize(length, b' ');
        let mut gathered = vec![0; length * group.size()];
        group.all_gather(&padded, &mut gathered)?;
        all = gathered
            .chunks(length)
            .flat_map(|text| serde_json::from_slice::<Vec<T>>(text).expect("the other ranks run the same program"))
            .collect();
    }
    Ok(all)
}

/// The number of this rank in the world, as the groups of a mesh know it.
pub(super) fn own_rank(mesh: &Mesh) -> usize {
    match mesh.shape().num_axes() {
        0 => 0,
        _ => mesh.group(0).ranks()[mesh.group(0).rank()],
    }
}

/// Floats as their bits: JSON has no infinity.
pub(super) mod bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        value.to_bits().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        u64::deserialize(deserializer).map(f64::from_bits)
    }
}
