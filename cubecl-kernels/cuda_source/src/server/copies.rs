//! Copies between tensors and the host: rows, which may have gaps between them in a buffer.

use cubecl_common::bytes::Bytes;
use cubecl_core::server::{CopyDescriptor, ServerError};

use super::CudaSourceServer;
use super::launch::unknown;

impl CudaSourceServer {
    pub(super) fn read_one(&mut self, descriptor: &CopyDescriptor) -> Result<Bytes, ServerError> {
        let resource = self.resource(&descriptor.handle)?;
        let rows = Rows::of(descriptor);
        let mut bytes = vec![0u8; rows.count * rows.width];
        rows.check(resource.size)?;
        for (row, to) in bytes.chunks_mut(rows.width.max(1)).enumerate() {
            // SAFETY: the rows are inside the buffer, as checked, and the server's thread alone writes there.
            let from = unsafe { std::slice::from_raw_parts(resource.address.add(row * rows.pitch), rows.width) };
            to.copy_from_slice(from);
        }
        Ok(Bytes::from_bytes_vec(bytes))
    }

    pub(super) fn write_one(&mut self, descriptor: &CopyDescriptor, data: &[u8]) -> Result<(), ServerError> {
        let resource = self.resource(&descriptor.handle)?;
        let rows = Rows::of(descriptor);
        rows.check(resource.size)?;
        assert!(data.len() >= rows.count * rows.width, "too few bytes for the shape");
        for (row, from) in data.chunks(rows.width.max(1)).take(rows.count).enumerate() {
            // SAFETY: the rows are inside the buffer, as checked, and the server's thread alone reads there.
            let to = unsafe { std::slice::from_raw_parts_mut(resource.address.add(row * rows.pitch), rows.width) };
            to.copy_from_slice(from);
        }
        Ok(())
    }
}

/// A tensor's layout in its buffer, in bytes: rows, padded to a pitch.
struct Rows {
    count: usize,
    width: usize,
    pitch: usize,
}

impl Rows {
    fn of(descriptor: &CopyDescriptor) -> Self {
        let (shape, strides) = (&descriptor.shape, &descriptor.strides);
        let rank = shape.len();
        let elements: usize = shape.iter().product();
        let size = descriptor.elem_size;
        match rank {
            0 | 1 => Self {
                count: 1,
                width: elements * size,
                pitch: elements * size,
            },
            _ => Self {
                count: shape.iter().take(rank - 1).product(),
                width: shape[rank - 1] * size,
                pitch: strides[rank - 2] * size,
            },
        }
    }

    fn check(&self, size: usize) -> Result<(), ServerError> {
        let is_empty = self.count == 0 || self.width == 0;
        if !is_empty && (self.count - 1) * self.pitch + self.width > size {
            let Self { count, width, pitch } = self;
            let what = format!("{count} rows of {width} bytes every {pitch} do not fit a buffer of {size}");
            return Err(unknown(what).into());
        }
        Ok(())
    }
}
