//! How kernels are launched: which types they take, how wide they load, how rows are spread over units and cubes.

use burn::backend::DispatchDevice;
use burn::tensor::{DType, Device, Shape};
use burn_backend::cubecl::dtype_to_storage_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::features::{Plane, TypeUsage};
use cubecl::prelude::*;

use super::reduce::{RowLayout, RowsLaunch};

/// Returns whether the kernels run for tensors of a type on a device: they read and write it, and compute in f32.
pub fn is_supported(client: &Client, dtype: DType) -> bool {
    let is_computed = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let usage = client.properties().type_usage(dtype_to_storage_type(dtype));
    is_computed && usage.is_superset(TypeUsage::Buffer | TypeUsage::Conversion)
}

/// Returns the client of a device, tracked or not, if it is one of CubeCL's.
pub fn client_of(device: &Device) -> Option<Client> {
    let mut device = device.as_dispatch();
    while let DispatchDevice::Autodiff(tracked) = device {
        device = tracked;
    }
    match device {
        DispatchDevice::Cube(device) => Some(device.client()),
        _ => None,
    }
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

/// Layout of a tensor's rows over a device.
#[derive(Clone, Debug)]
pub struct RowPlan {
    /// Layout of a row over units.
    pub layout: RowLayout,
    /// The numbers of a vector.
    pub vector_size: usize,
    /// The vectors of a row.
    pub vectors: usize,
    /// The units of a cube: those of a row along x, and the rows along y.
    pub cube_dim: CubeDim,
    /// The rows that all cubes work on at once, if each cube has one turn.
    pub rows_per_cube: usize,
    rows: usize,
}

/// Numbers of a row that a unit may hold, at best and at most; any others are in local memory.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// Rows get more units, and vectors are shortened, until each unit holds no more than this; a power of two.
    pub wanted: usize,
    /// Numbers that each unit holds at most, when there are no more units.
    pub most: usize,
}

impl RowPlan {
    /// Plans for rows of a contiguous tensor.
    pub fn new(client: &Client, dtype: DType, dims: [usize; 2], registers: Registers) -> Self {
        Self::of_units(client, dtype, dims, registers, 1024)
    }

    /// Plans as [`new`](Self::new) with no more units to a row than these: fewer units have more registers each.
    pub fn of_units(
        client: &Client,
        dtype: DType,
        [rows, columns]: [usize; 2],
        registers: Registers,
        most_units: usize,
    ) -> Self {
        let hardware = &client.properties().hardware;
        let has_planes = client.properties().features.plane.contains(Plane::Ops);
        let vector_size = vector_size(client, dtype, columns).min(registers.wanted);
        let vectors = columns.div_ceil(vector_size);
        let plane = plane_size(client);
        let most_units = (hardware.max_units_per_cube.min(hardware.max_cube_dim.0) as usize).min(most_units);

        let slots_of = |units: usize| vectors.div_ceil(units).max(1);
        let mut units = plane.min(most_units);
        while slots_of(units) * vector_size > registers.wanted && 2 * units <= most_units && units < vectors {
            units *= 2;
        }
        let slots = slots_of(units);
        let is_unrolled = slots * vector_size <= registers.most;
        let slots = if is_unrolled { rounded_up(slots) } else { slots };

        // Several rows share a cube where a plane is enough for one, and planes are sure to be what they are taken for.
        let is_plane = has_planes && units == plane && hardware.plane_size_min == hardware.plane_size_max;
        let rows_per_cube = if is_plane {
            (128 / units).clamp(1, rows.max(1)).next_power_of_two()
        } else {
            1
        };
        let parts = match (is_plane, has_planes) {
            (true, _) => 1,
            (false, true) => units.div_ceil(hardware.plane_size_min.max(1) as usize),
            (false, false) => units,
        };
        Self {
            layout: RowLayout {
                slots,
                units,
                rows: rows_per_cube,
                is_unrolled,
                has_planes,
                parts,
            },
            vector_size,
            vectors,
            cube_dim: CubeDim::new_2d(units as u32, rows_per_cube as u32),
            rows_per_cube,
            rows,
        }
    }

    /// The rows as an argument of a kernel.
    pub fn rows_argument(&self) -> RowsLaunch {
        RowsLaunch::new(self.rows, self.vectors)
    }

    /// Returns the cubes for one turn each, or the most that the device takes: kernels then continue with further rows.
    pub fn cube_count(&self, client: &Client) -> CubeCount {
        let most = client.properties().hardware.max_cube_count.0 as usize;
        let cubes = self.rows.div_ceil(self.rows_per_cube).min(most);
        CubeCount::new_1d(cubes as u32)
    }

    /// Returns the cubes for kernels that leave sums over their rows to be added up: no more than run at once if a unit
    /// takes this many registers, and each with enough rows that the sums of all are few compared with the rows.
    pub fn resident_cubes(&self, client: &Client, registers: usize) -> usize {
        let processors = client.properties().hardware.num_streaming_multiprocessors;
        let processors = processors.unwrap_or(16) as usize;
        let units = self.cube_dim.num_elems() as usize;
        let at_once = (PROCESSOR_UNITS / units).min(PROCESSOR_REGISTERS / (registers.next_multiple_of(8) * units));
        let with_many_rows = (self.rows / ROWS_OF_SUMS).max(processors);
        let with_rows = self.rows.div_ceil(self.rows_per_cube);
        (processors * at_once.max(1)).min(with_many_rows).min(with_rows).max(1)
    }
}

/// Units and registers of a GPU's multiprocessor.
const PROCESSOR_UNITS: usize = 2048;
const PROCESSOR_REGISTERS: usize = 65_536;
/// Rows to a row of sums, where there are enough for all multiprocessors: in 16 bits, sums are then an eighth of the
/// rows.
const ROWS_OF_SUMS: usize = 16;

/// The units of a plane, at most; a guess where there are none.
pub fn plane_size(client: &Client) -> usize {
    let properties = client.properties();
    if properties.features.plane.contains(Plane::Ops) {
        properties.hardware.plane_size_max.max(1) as usize
    } else {
        32
    }
}

/// A power of two, or three quarters of one: not every shape has kernels of its own, and few registers stay idle.
fn rounded_up(slots: usize) -> usize {
    let power = slots.next_power_of_two();
    if power.is_multiple_of(4) && slots <= power / 4 * 3 {
        power / 4 * 3
    } else {
        power
    }
}
