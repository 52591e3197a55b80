//! The open slot with burn's own backend: the same bits as without it, and tensors in and out.

use burn::module::Module;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Tensor, TensorData};
use burn_backend::ops::FloatTensorOps as _;
use burn_flex::{Flex, FlexDevice};
use burn_ir::{CustomOpIr, HandleKind, OperationIr, TensorIr};
use burn_megatron::sharded::Sharded;
use burn_ndarray::{NdArray, NdArrayDevice, RouterClient as _, put, take};

/// Losses of three steps on a device, from parameters that burn has drawn on its own.
fn losses(device: &Device) -> Vec<f32> {
    let device = device.clone().autodiff();
    let drawn = Device::flex().autodiff();
    drawn.seed(3);
    let config = TransformerEncoderConfig::new(6, 10, 2, 1).with_dropout(0.0);
    let mut model: TransformerEncoder = config.init(&drawn).fork(&device);
    let mut optimizer = AdamWConfig::new().init();
    let values: Vec<f32> = (0..3 * 5 * 6).map(|index| (index as f32 * 0.37).sin()).collect();
    let input = Tensor::<3>::from_data(TensorData::new(values, [3, 5, 6]), &device);
    let step = |_| {
        let output = model.forward(TransformerEncoderInput::new(input.clone()));
        let loss = (output - input.clone()).powi_scalar(2).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model.clone(), gradients);
        loss.into_scalar::<f32>()
    };
    (0..3).map(step).collect()
}

#[test]
fn burns_backend_in_the_slot_trains_to_the_same_bits() {
    let slot = Device::new(NdArrayDevice::serve::<Flex>(FlexDevice));
    let losses = [losses(&Device::flex()), losses(&slot)];
    assert_eq!(losses[0], losses[1]);
    assert!(losses[0][2] < losses[0][0], "{losses:?}");
}

#[test]
fn tensors_move_between_the_slots_devices_and_others() {
    let [first, second] = [(); 2].map(|()| Device::new(NdArrayDevice::serve::<Flex>(FlexDevice)));
    assert_ne!(first, second);
    let tensor = Tensor::<1>::from_data(TensorData::from([1.5f32, -2.0]), &Device::flex());
    let moved = tensor.to_device(&first) + 1.0;
    let back = (moved.to_device(&second) * 2.0).to_device(&Device::flex());
    assert_eq!(back.into_data(), TensorData::from([5.0f32, -2.0]));
}

#[test]
fn a_primitive_is_taken_out_and_put_in() {
    let device = NdArrayDevice::serve::<Flex>(FlexDevice);
    let tensor = Tensor::<2>::ones([2, 3], &Device::new(device));
    let HandleKind::Float(primitive) = take::<Flex>(tensor.clone().try_into_primitive::<NdArray>().unwrap()) else {
        panic!("a float tensor is of another kind");
    };
    let twice = put::<Flex>(
        HandleKind::Float(Flex::float_mul_scalar(primitive, 2.0.into())),
        &device,
    );
    let twice = Tensor::<2>::from_primitive::<NdArray>(twice);
    assert_eq!(
        [twice, tensor].map(|tensor| tensor.sum().into_scalar::<f32>()),
        [12.0, 6.0]
    );
}

#[test]
#[should_panic(expected = "is not run by the interpreter of burn_megatron::sharded::backend::Sharded")]
fn another_backends_primitive_is_refused_by_name() {
    let device = NdArrayDevice::serve::<Flex>(FlexDevice);
    let tensor = Tensor::<2>::ones([2, 3], &Device::new(device));
    take::<Sharded<Flex>>(tensor.try_into_primitive::<NdArray>().unwrap());
}

/// The way of a fused kernel: an operation that burn does not have.
#[test]
fn a_custom_operation_reaches_the_backend() {
    let mut operations = burn_ndarray::CustomOpRegistry::<Flex>::new();
    operations.register("affine", |handles, operation, _device| {
        let tensor = handles.get_float_tensor::<Flex>(&operation.inputs[0]);
        let [factor, offset] = [0, 1].map(|index| operation.scalars[index].into());
        let tensor = Flex::float_add_scalar(Flex::float_mul_scalar(tensor, factor), offset);
        handles.register_float_tensor::<Flex>(&operation.outputs[0].id, tensor);
    });
    let device = NdArrayDevice::serve_with::<Flex>(FlexDevice, operations);
    let tensor = Tensor::<1>::from_data(TensorData::from([1.0f32, 3.0]), &Device::new(device));
    let tensor = tensor.try_into_primitive::<NdArray>().unwrap();
    let client = tensor.client.clone();
    let input = tensor.into_ir();
    let output = TensorIr::uninit(client.create_empty_handle(), input.shape.clone(), input.dtype);
    let scalars = [2.0, 0.5].map(burn_ir::ScalarIr::Float);
    let operation = CustomOpIr::with_scalars("affine", &[input], &[output], scalars.to_vec());
    let mut outputs = client.register(OperationIr::Custom(operation));
    let result = Tensor::<1>::from_primitive::<NdArray>(outputs.remove(0));
    assert_eq!(result.into_data(), TensorData::from([2.5f32, 6.5]));
}
