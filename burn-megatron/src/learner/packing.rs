//! Named tensors as bytes, which go from rank to rank.

use burn::tensor::{DType, TensorData};
use serde::{Deserialize, Serialize};

/// Description in front of the elements of packed tensors.
#[derive(Serialize, Deserialize)]
struct Header {
    /// Name, element type and shape of each tensor.
    tensors: Vec<(String, DType, Vec<usize>)>,
}

/// Returns named tensors as bytes: the length of the header, the header, the elements.
pub(super) fn pack<'a>(tensors: impl Iterator<Item = (&'a str, &'a TensorData)>) -> Vec<u8> {
    let tensors: Vec<_> = tensors.collect();
    let header = Header {
        tensors: tensors
            .iter()
            .map(|(name, data)| ((*name).to_owned(), data.dtype(), data.shape().to_vec()))
            .collect(),
    };
    let header = serde_json::to_vec(&header).expect("numbers and names");
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    tensors.iter().for_each(|(_, data)| bytes.extend(data.as_bytes()));
    bytes
}

/// Returns the tensors that were [packed](pack); none if there are no bytes.
pub(super) fn unpack(bytes: &[u8]) -> Option<Vec<(String, TensorData)>> {
    let (length, rest) = bytes.split_at_checked(size_of::<u64>())?;
    let length = u64::from_le_bytes(length.try_into().expect("eight bytes")) as usize;
    let (header, mut rest) = rest.split_at(length);
    let header: Header = serde_json::from_slice(header).expect("packed by the same program");
    let tensors = header.tensors.into_iter().map(|(name, dtype, shape)| {
        let (data, after) = rest.split_at(shape.iter().product::<usize>() * dtype.size());
        rest = after;
        (name, TensorData::from_bytes_vec(data.to_vec(), shape, dtype))
    });
    Some(tensors.collect())
}
