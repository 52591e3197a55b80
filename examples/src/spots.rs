//! The data of the lessons with images: noise with a bright spot, to be classified by the spot's quadrant.

use burn::prelude::*;
use burn::tensor::DType;
use burn_megatron::random::RandomStream;

/// Rows and columns of an image.
pub const IMAGE_SIZE: usize = 8;

#[derive(Clone, Debug)]
pub struct Spot {
    /// Row by row.
    pub pixels: Vec<f64>,
    /// The quadrant of the spot, from the upper left.
    pub label: i32,
}

impl Spot {
    /// Draws image `number`, always the same one, with a spot that is brighter than the noise by `brightness`.
    pub fn numbered(number: usize, brightness: f64) -> Self {
        let noise = RandomStream::new(7, &format!("image {number}"));
        let mut pixels = vec![0.0; IMAGE_SIZE * IMAGE_SIZE];
        noise.fill_normal(0, 1.0, &mut pixels);
        let mut place = [0.0; 2];
        noise.fill_uniform(1000, (IMAGE_SIZE / 2) as f64, &mut place);
        let [x, y] = place.map(|p| (p + IMAGE_SIZE as f64 / 2.0) as usize);
        pixels[y * IMAGE_SIZE + x] += brightness;
        let label = (2 * (y / (IMAGE_SIZE / 2)) + x / (IMAGE_SIZE / 2)) as i32;
        Self { pixels, label }
    }
}

/// Images with their labels.
#[derive(Clone, Debug)]
pub struct Images {
    /// `[count, 1, IMAGE_SIZE, IMAGE_SIZE]`, in f32.
    pub pixels: Tensor<4>,
    /// `[count]`
    pub labels: Tensor<1, Int>,
}

impl Images {
    /// Puts images together.
    pub fn of(spots: Vec<Spot>, device: &Device) -> Self {
        let count = spots.len();
        let labels: Vec<i32> = spots.iter().map(|spot| spot.label).collect();
        let pixels: Vec<f64> = spots.into_iter().flat_map(|spot| spot.pixels).collect();
        let pixels = TensorData::new(pixels, [count, 1, IMAGE_SIZE, IMAGE_SIZE]);
        Self {
            pixels: Tensor::from_data(pixels, (device, DType::F32)),
            labels: Tensor::from_data(TensorData::new(labels, [count]), device),
        }
    }

    /// Draws `count` images with bright spots, from number `first`.
    pub fn numbered(first: usize, count: usize, device: &Device) -> Self {
        let spots = (first..first + count).map(|number| Spot::numbered(number, 6.0));
        Self::of(spots.collect(), device)
    }
}
