//! The operations on burn's CPU backend.

use burn_flex::Flex;

use super::KernelBackend;

impl KernelBackend for Flex {}
