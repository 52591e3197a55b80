//! Operations on quantized tensors: refused, by name. They have no placement.

use std::future::Future;

use burn_backend::ExecutionError;
use burn_backend::ops::QTensorOps;
use burn_backend::quantization::{QuantScheme, QuantizationParametersPrimitive};
use burn_backend::tensor::{FloatTensor, IntTensor, QuantizedTensor};
use burn_backend::{FloatDType, Shape, Slice, TensorData};

use super::super::Sharded;
use crate::collectives::CollectiveBackend;

#[track_caller]
fn refused(operation: &str) -> ! {
    panic!(
        "{operation}: quantized tensors cannot be placed on a mesh; dequantize the model's parameters before it is \
         made parallel, or train it with the layers of burn_megatron::tensor_parallel"
    )
}

macro_rules! refuse {
    ($( fn $name:ident ( $( $argument:ident : $type:ty ),* $(,)? ) -> $result:ty; )*) => {
        impl<B: CollectiveBackend> QTensorOps<Sharded<B>> for Sharded<B> {
            $(
                #[track_caller]
                fn $name($( $argument: $type ),*) -> $result {
                    $( let _ = $argument; )*
                    refused(stringify!($name))
                }
            )*

            fn q_into_data(
                tensor: QuantizedTensor<Sharded<B>>,
            ) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
                B::q_into_data(tensor)
            }
        }
    };
}

refuse! {
    fn q_from_data(data: TensorData, device: &B::Device) -> QuantizedTensor<Sharded<B>>;
    fn quantize(
        tensor: FloatTensor<Sharded<B>>,
        scheme: &QuantScheme,
        qparams: QuantizationParametersPrimitive<Sharded<B>>,
    ) -> QuantizedTensor<Sharded<B>>;
    fn dequantize(tensor: QuantizedTensor<Sharded<B>>, dtype: FloatDType) -> FloatTensor<Sharded<B>>;
    fn q_to_device(tensor: QuantizedTensor<Sharded<B>>, device: &B::Device) -> QuantizedTensor<Sharded<B>>;
    fn q_reshape(tensor: QuantizedTensor<Sharded<B>>, shape: Shape) -> QuantizedTensor<Sharded<B>>;
    fn q_expand(tensor: QuantizedTensor<Sharded<B>>, shape: Shape) -> QuantizedTensor<Sharded<B>>;
    fn q_swap_dims(
        tensor: QuantizedTensor<Sharded<B>>,
        dim1: usize,
        dim2: usize,
    ) -> QuantizedTensor<Sharded<B>>;
    fn q_permute(tensor: QuantizedTensor<Sharded<B>>, axes: &[usize]) -> QuantizedTensor<Sharded<B>>;
    fn q_flip(tensor: QuantizedTensor<Sharded<B>>, axes: &[usize]) -> QuantizedTensor<Sharded<B>>;
    fn q_select(
        tensor: QuantizedTensor<Sharded<B>>,
        dim: usize,
        indices: IntTensor<Sharded<B>>,
    ) -> QuantizedTensor<Sharded<B>>;
    fn q_slice(tensor: QuantizedTensor<Sharded<B>>, slices: &[Slice]) -> QuantizedTensor<Sharded<B>>;
}
