//! `IndexArray`: an array in memory, or a part of a mapped file.

use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::Arc;

use bytemuck::Pod;
use memmap2::Mmap;

/// Numbers in memory or in a mapped file.
#[derive(Debug, Clone)]
pub(crate) enum IndexArray<T> {
    /// Of this process.
    Owned(Vec<T>),
    /// Shared by all processes that map the file.
    Mapped {
        file: Arc<Mmap>,
        bytes: Range<usize>,
        element: PhantomData<T>,
    },
}

impl<T: Pod> IndexArray<T> {
    /// Returns the array in these bytes of a file.
    ///
    /// # Panics
    /// If they are not in the file, not aligned or not whole elements.
    pub(super) fn mapped(file: Arc<Mmap>, bytes: Range<usize>) -> Self {
        let _: &[T] = bytemuck::cast_slice(&file[bytes.clone()]);
        Self::Mapped {
            file,
            bytes,
            element: PhantomData,
        }
    }
}

impl<T: Pod> Deref for IndexArray<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Owned(values) => values,
            Self::Mapped { file, bytes, .. } => bytemuck::cast_slice(&file[bytes.clone()]),
        }
    }
}
