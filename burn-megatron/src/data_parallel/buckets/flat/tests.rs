//! What a buffer on a device does is what one in host memory does; here the device is Flex's.

use half::bf16;
use proptest::prelude::*;

use super::*;

/// A parameter's place and its gradients, one for each micro-batch.
#[derive(Clone, Debug)]
struct Parameter {
    length: usize,
    gradients: Vec<Option<Vec<f32>>>,
}

fn parameters() -> impl Strategy<Value = Vec<Parameter>> {
    let number = prop_oneof![8 => -2.0f32..2.0, 1 => Just(0.0), 1 => Just(f32::INFINITY)];
    let parameter = (1usize..40).prop_flat_map(move |length| {
        let gradient = proptest::option::of(proptest::collection::vec(number.clone(), length));
        let gradients = proptest::collection::vec(gradient, 3);
        gradients.prop_map(move |gradients| Parameter { length, gradients })
    });
    proptest::collection::vec(parameter, 1..5)
}

/// Buffers of both kinds after the same gradients, in 16 bits or 32, and the places of the parameters.
fn filled(
    parameters: &[Parameter],
    is_half: bool,
    group: &ProcessGroup,
) -> ([FlatBuffer; 2], [NonFinite; 2], Vec<BucketRange>) {
    let device = Device::flex();
    let mut ranges = Vec::new();
    let mut end = 0;
    for parameter in parameters {
        ranges.push(end..end + parameter.length);
        end += parameter.length + 3;
    }
    let mut buffers = [
        FlatBuffer::F32(HostBuffer::allocate(end, group).expect("one rank")),
        FlatBuffer::Device(DeviceBuffer::zeros(end, DType::F32, &device)),
    ];
    let mut non_finite = [(); 2].map(|()| NonFinite::none(parameters.len()));
    for (buffer, non_finite) in buffers.iter_mut().zip(&mut non_finite) {
        let place = |range: &Range<usize>, parameter, is_first| GradientPlace {
            offset: range.start,
            parameter,
            is_first,
        };
        // What the step before has left there.
        for range in &ranges {
            let rest = Tensor::full([range.len()], 7.0, &device);
            buffer.accumulate(rest, place(range, 0, true), non_finite);
        }
        for (number, (parameter, range)) in parameters.iter().zip(&ranges).enumerate() {
            let mut is_first = true;
            for gradient in parameter.gradients.iter().flatten() {
                let data = if is_half {
                    let halves: Vec<bf16> = gradient.iter().map(|&number| bf16::from_f32(number)).collect();
                    TensorData::new(halves, [range.len()])
                } else {
                    TensorData::new(gradient.clone(), [range.len()])
                };
                let dtype = data.dtype();
                let gradient = Tensor::from_data(data, (&device, dtype));
                buffer.accumulate(gradient, place(range, number, is_first), non_finite);
                is_first = false;
            }
            if is_first {
                buffer.clear(range.start, range.len());
            }
        }
    }
    let parts = ranges.into_iter().map(|range| BucketRange { bucket: 0, range });
    (buffers, non_finite, parts.collect())
}

fn same(buffers: &[FlatBuffer; 2], parts: &[BucketRange]) -> Result<(), TestCaseError> {
    for BucketRange { range, .. } in parts {
        let [host, on_device] = buffers.each_ref().map(|buffer| buffer.data(range.clone()));
        let tensors = buffers.each_ref().map(|buffer| {
            let tensor = buffer.tensor(range.clone(), &Device::flex());
            tensor.into_data()
        });
        // The bits: what is not a number is not equal to itself.
        prop_assert_eq!(host.as_bytes(), on_device.as_bytes(), "{:?}", range);
        prop_assert_eq!(tensors[0].as_bytes(), host.as_bytes());
        prop_assert_eq!(tensors[1].as_bytes(), host.as_bytes());
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_device_does_what_the_host_does(parameters in parameters(), is_half: bool) {
        let (mut buffers, non_finite, parts) = filled(&parameters, is_half, &ProcessGroup::single());
        same(&buffers, &parts)?;
        let [host, on_device] = non_finite.each_ref().map(NonFinite::first);
        prop_assert_eq!(host, on_device);
        let ranges: Vec<Range<usize>> = parts.iter().map(|part| part.range.clone()).collect();
        for ranges in [&ranges[..], &ranges[..1], &[]] {
            let [host, on_device] = buffers.each_ref().map(|buffer| buffer.count(ranges));
            prop_assert_eq!(host, on_device);
        }
        let sets = [parts.clone(), Vec::new(), parts[..1].to_vec()];
        let sums = |buffer| FlatBuffer::sums_of_squares(std::slice::from_ref(buffer), &sets);
        let [host, on_device] = buffers.each_ref().map(sums);
        for (host, on_device) in host.iter().zip(on_device) {
            // In f64 and in f32.
            prop_assert!(*host == on_device || (host - on_device).abs() <= 1e-6 * host, "{} and {}", host, on_device);
        }
        for buffer in &mut buffers {
            let end = parts.last().map_or(0, |part| part.range.end);
            buffer.scale(0..end, 0.25);
        }
        same(&buffers, &parts)?;
        for (number, BucketRange { range, .. }) in parts.iter().enumerate() {
            for buffer in &mut buffers {
                match number % 2 {
                    0 => buffer.scale_range(range.clone(), 0.3),
                    _ => buffer.clamp_range(range.clone(), 0.2),
                }
            }
        }
        same(&buffers, &parts)?;
    }

    #[test]
    fn sums_over_a_group_go_back_to_their_places(parameters in parameters()) {
        let group = ProcessGroup::single();
        let (buffers, _, parts) = filled(&parameters, false, &group);
        let is_there: Vec<bool> = (0..parts.len()).map(|number| number % 2 == 0).collect();
        let buffers = buffers.map(|buffer| {
            let mut alone = [buffer];
            let found = FlatBuffer::sum_over(&mut alone, &parts, &is_there, SummingRanks::all(&group));
            assert_eq!(found.expect("one rank"), is_there);
            let [buffer] = alone;
            let reduced = buffer.reduce_scatter_start(ReduceOp::Mean, &group).wait().expect("one rank");
            let gathered = reduced.all_gather_start(&group).wait().expect("one rank");
            gathered.all_reduce_start(ReduceOp::Sum, &group).wait().expect("one rank")
        });
        same(&buffers, &parts)?;
    }
}

#[test]
fn what_is_not_finite_is_seen_in_every_type() {
    for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN] {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let good = TensorData::new(vec![0.0f32, -1.5, 3e4, -3e4, f32::MIN_POSITIVE], [5]).convert_dtype(dtype);
            assert!(host::is_finite(&good), "{dtype:?}");
            let bad = TensorData::new(vec![0.0f32, bad, 1.0], [3]).convert_dtype(dtype);
            assert!(!host::is_finite(&bad), "{bad:?}");
        }
    }
}
