//! How kernels are launched: which types they take, how wide they load.

use burn::tensor::{DType, Shape};
use burn_backend::cubecl::dtype_to_storage_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::features::TypeUsage;
use cubecl::prelude::*;

/// Returns whether the kernels run for tensors of a type on a device: they read and write it, and compute in f32.
pub fn is_supported(client: &Client, dtype: DType) -> bool {
    let is_computed = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let usage = client.properties().type_usage(dtype_to_storage_type(dtype));
    is_computed && usage.is_superset(TypeUsage::Buffer | TypeUsage::Conversion)
}

/// Returns a new contiguous tensor on another one's device, not yet written.
pub fn empty_beside(other: &CubeTensor, shape: &[usize], dtype: DType) -> CubeTensor {
    let (client, device) = (other.client.clone(), other.device.clone());
    empty_device_contiguous_dtype(client, device, Shape::from(shape.to_vec()), dtype)
}

/// Returns the tensor, contiguous and writable: in its own memory if nothing else holds it.
pub fn own(tensor: CubeTensor) -> CubeTensor {
    if tensor.can_mut() {
        into_contiguous(tensor)
    } else {
        tensor.copy()
    }
}

/// Returns how many numbers one load of a contiguous row of `columns` takes: the most that the device loads at once and
/// that divide the row.
pub fn vector_size(client: &Client, dtype: DType, columns: usize) -> usize {
    let mut sizes = client.io_optimized_vector_sizes(dtype.size());
    sizes.find(|size| columns.is_multiple_of(*size)).unwrap_or(1)
}

/// Returns the address type of a kernel for tensors.
pub fn address_type(tensors: &[&CubeTensor]) -> AddressType {
    let types = tensors.iter().map(|tensor| tensor.required_address_type());
    types.max().unwrap_or_default()
}
