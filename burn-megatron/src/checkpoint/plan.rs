//! What a rank writes: [`ShardPlan`] for itself, and [`Summary`] for rank 0, which makes the index of all of them.
//!
//! Pure: no file is touched.

use std::collections::{BTreeMap, HashMap, HashSet};

use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::{Deserialize, Serialize};

use super::contents::{StoredArray, StoredFile, StoredPart};
use super::coverage::{self, Fault, unravel};
use super::part::{PartSpec, loaded_dtype};
use super::region::Region;
use crate::parameters::Placement;

/// The file that a rank writes.
#[derive(Debug)]
pub(super) struct ShardPlan {
    /// The bytes before the arrays: length and JSON, as safetensors has them.
    pub header: Vec<u8>,
    /// The parts in the order of the file, each with what is stored of it; parts of which nothing is are left out.
    pub order: Vec<(usize, Region)>,
    /// Size of the file; 0 when there is none because nothing is stored.
    pub file_bytes: u64,
}

/// What rank 0 must know of a rank's parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Summary {
    pub rank: usize,
    pub iteration: u64,
    pub file_bytes: u64,
    pub parts: Vec<PartSummary>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PartSummary {
    pub name: String,
    pub dtype: Dtype,
    pub placement: Placement,
    pub range: (usize, usize),
    /// The name in the file; none where nothing is stored.
    pub key: Option<String>,
}

/// Plans the file of a rank.
///
/// A box that is stored whole has the shape of the box without padding; one that is cut is flat.
///
/// # Errors
/// Says which array is wrong, and how.
pub(super) fn plan_shard(rank: usize, iteration: u64, specs: &[PartSpec]) -> Result<(ShardPlan, Summary), String> {
    let mut keys = HashSet::new();
    let mut parts = Vec::with_capacity(specs.len());
    let mut stored = Vec::new();
    for (number, spec) in specs.iter().enumerate() {
        let (region, dtype) = spec.check()?;
        let key = (region.stored_len() > 0).then(|| unused_key(&mut keys, &spec.name));
        if let Some(key) = &key {
            let shape = stored_shape(&spec.placement, &region);
            stored.push((number, key.clone(), dtype, shape, region));
        }
        parts.push(PartSummary {
            name: spec.name.clone(),
            dtype,
            placement: spec.placement.clone(),
            range: (spec.range.start, spec.range.end),
            key,
        });
    }
    // Wide elements first, as the safetensors library does it: each array begins at a multiple of its element's size.
    stored.sort_by_key(|(_, _, dtype, _, _)| std::cmp::Reverse(dtype.bitsize()));
    let mut data_bytes = 0;
    let mut infos = Vec::with_capacity(stored.len());
    for (_, key, dtype, shape, region) in &stored {
        let end = (region.stored_len().checked_mul(dtype.bitsize() / 8))
            .and_then(|bytes| bytes.checked_add(data_bytes))
            .ok_or("the arrays have more bytes than can be counted")?;
        let info = TensorInfo {
            dtype: *dtype,
            shape: shape.clone(),
            data_offsets: (data_bytes, end),
        };
        infos.push((key.clone(), info));
        data_bytes = end;
    }
    let header = safetensors_header(rank, iteration, infos)?;
    let file_bytes = if stored.is_empty() {
        0
    } else {
        (header.len() + data_bytes) as u64
    };
    let order = stored
        .into_iter()
        .map(|(number, .., region)| (number, region))
        .collect();
    let plan = ShardPlan {
        header,
        order,
        file_bytes,
    };
    let summary = Summary {
        rank,
        iteration,
        file_bytes,
        parts,
    };
    Ok((plan, summary))
}

/// Returns `name`, or `name#2` and so on where the rank has several parts of one array.
fn unused_key(keys: &mut HashSet<String>, name: &str) -> String {
    let numbered = (2..).map(|number| format!("{name}#{number}"));
    let key = std::iter::once(name.to_owned())
        .chain(numbered)
        .find(|key| !keys.contains(key))
        .expect("there is no end of numbers");
    keys.insert(key.clone());
    key
}

/// Returns the shape of what is stored: that of the box without padding, or flat where the box is cut.
pub(super) fn stored_shape(placement: &Placement, region: &Region) -> Vec<usize> {
    if !region.is_whole_box() {
        return vec![region.stored_len()];
    }
    let sizes = placement.logical_shape().iter().zip(placement.offset());
    sizes
        .zip(placement.local_shape())
        .map(|((&logical, &offset), &local)| local.min(logical.saturating_sub(offset)))
        .collect()
}

/// The JSON of a safetensors file.
#[derive(Serialize)]
struct Header<'a> {
    #[serde(rename = "__metadata__")]
    notes: BTreeMap<&'static str, String>,
    #[serde(flatten)]
    arrays: BTreeMap<String, &'a TensorInfo>,
}

fn safetensors_header(rank: usize, iteration: u64, infos: Vec<(String, TensorInfo)>) -> Result<Vec<u8>, String> {
    // The library checks the arrays; their JSON is written here, in the order of their names, so that the same arrays
    // are the same bytes whenever they are saved.
    let metadata = Metadata::new(None, infos).map_err(|error| error.to_string())?;
    let header = Header {
        notes: BTreeMap::from([
            ("format", "burn-megatron checkpoint shard".to_owned()),
            ("iteration", iteration.to_string()),
            ("rank", rank.to_string()),
        ]),
        arrays: metadata.tensors().into_iter().collect(),
    };
    let mut json = serde_json::to_vec(&header).map_err(|error| error.to_string())?;
    // Trailing spaces align the arrays to a multiple of 8.
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.extend(json);
    Ok(header)
}

/// Returns the name of the file of a rank.
pub(super) fn shard_name(rank: usize) -> String {
    format!("rank_{rank:05}.safetensors")
}

/// Joins what all ranks store: arrays in the order in which the ranks name them, and files without their checksums.
///
/// # Errors
/// Ranks that do not agree on an array, or elements that are not stored exactly once; names the array and the ranks.
pub(super) fn join(summaries: &[Summary]) -> Result<(Vec<StoredArray>, Vec<StoredFile>), String> {
    let mut files = Vec::new();
    let mut arrays: Vec<JoinedArray> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for summary in summaries {
        let first = &summaries[0];
        if summary.iteration != first.iteration {
            return Err(format!(
                "rank {} saves iteration {} and rank {} iteration {}",
                first.rank, first.iteration, summary.rank, summary.iteration
            ));
        }
        for part in &summary.parts {
            let number = match known.get(part.name.as_str()) {
                Some(&number) => number,
                None => {
                    arrays.push(JoinedArray::begin(summary.rank, part)?);
                    known.insert(&part.name, arrays.len() - 1);
                    arrays.len() - 1
                }
            };
            arrays[number].add(summary.rank, files.len(), part)?;
        }
        if summary.file_bytes > 0 {
            files.push(StoredFile {
                name: shard_name(summary.rank),
                rank: summary.rank,
                bytes: summary.file_bytes,
                blocks: Vec::new(),
            });
        }
    }
    let arrays = arrays.into_iter().map(JoinedArray::finish).collect::<Result<_, _>>()?;
    Ok((arrays, files))
}

/// An array of which parts are collected.
struct JoinedArray {
    array: StoredArray,
    /// The rank that named it first.
    first_rank: usize,
    /// The rank of each part.
    ranks: Vec<usize>,
    regions: Vec<Region>,
}

impl JoinedArray {
    fn begin(rank: usize, part: &PartSummary) -> Result<Self, String> {
        let dtype = loaded_dtype(part.dtype)
            .ok_or_else(|| format!("array {:?} on rank {rank} has type {:?}", part.name, part.dtype))?;
        let array = StoredArray {
            name: part.name.clone(),
            dtype,
            shape: part.placement.logical_shape().to_vec(),
            parts: Vec::new(),
        };
        Ok(Self {
            array,
            first_rank: rank,
            ranks: Vec::new(),
            regions: Vec::new(),
        })
    }

    fn add(&mut self, rank: usize, file: usize, part: &PartSummary) -> Result<(), String> {
        let (name, first) = (&part.name, self.first_rank);
        if part.placement.logical_shape() != self.array.shape {
            return Err(format!(
                "array {name:?} has shape {:?} on rank {first} and {:?} on rank {rank}",
                self.array.shape,
                part.placement.logical_shape()
            ));
        }
        if loaded_dtype(part.dtype) != Some(self.array.dtype) {
            return Err(format!(
                "array {name:?} has type {:?} on rank {first} and {:?} on rank {rank}",
                self.array.dtype, part.dtype
            ));
        }
        let Some(key) = &part.key else { return Ok(()) };
        let range = part.range.0..part.range.1;
        let region = Region::new(&part.placement, range.clone());
        self.regions
            .push(region.map_err(|what| format!("array {name:?} on rank {rank}: {what}"))?);
        self.ranks.push(rank);
        self.array.parts.push(StoredPart {
            file,
            key: key.clone(),
            placement: part.placement.clone(),
            range,
        });
        Ok(())
    }

    fn finish(self) -> Result<StoredArray, String> {
        let shape = &self.array.shape;
        let fault = match coverage::check(shape.iter().product(), &self.regions) {
            Ok(()) => return Ok(self.array),
            Err(fault) => fault,
        };
        let name = &self.array.name;
        Err(match fault {
            Fault::Missing { element } => {
                let mut ranks = self.ranks;
                ranks.dedup();
                format!(
                    "array {name:?} of shape {shape:?}: element {:?} is in no part of any rank; ranks with parts: \
                     {ranks:?}",
                    unravel(element, shape)
                )
            }
            Fault::Twice { element, parts } => {
                let [first, second] = parts.map(|part| self.ranks[part]);
                format!(
                    "array {name:?} of shape {shape:?}: element {:?} is in a part of rank {first} and in one of rank \
                     {second}",
                    unravel(element, shape)
                )
            }
        })
    }
}
