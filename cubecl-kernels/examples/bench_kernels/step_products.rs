//! The matmuls of a GPT's training step by shape: the kernel that cuBLASLt recommends first, which layers run, against
//! the fastest of those that it recommends.

use anyhow::ensure;
use burn::tensor::DType;
use cubecl_kernels::cublaslt::measured::{Choice, Planned, Product, Products};

use super::driver::{Gpu, Memory, Stream};
use super::sizes::StepSizes;
use super::timing::median;

/// Kernels of each product that are timed.
const MOST: usize = 8;
/// Samples, of which the median counts, and how long the launches of one take together.
const SAMPLES: usize = 7;
const SAMPLE_SECONDS: f64 = 4e-3;

/// A product of the step.
pub struct StepProduct {
    pub layer: &'static str,
    pub pass: &'static str,
    /// How often a step of one micro-batch runs it.
    pub times: usize,
    pub product: Product,
}

/// Returns the step's products, in the layouts and types of layers: gradients of weights are added up in f32.
pub fn all(sizes: StepSizes, dtype: DType) -> Vec<StepProduct> {
    let StepSizes {
        tokens,
        d_model,
        n_layers,
        vocabulary,
    } = sizes;
    let mut products = Vec::new();
    for (layer, times, [d_input, d_output], is_stored_output_first) in [
        ("qkv", n_layers, [d_model, 3 * d_model], false),
        ("projection", n_layers, [d_model, d_model], false),
        ("up", n_layers, [d_model, 4 * d_model], false),
        ("down", n_layers, [4 * d_model, d_model], false),
        ("head", 1, [d_model, vocabulary], true),
    ] {
        let gradient_of_weight = if is_stored_output_first {
            [d_output, tokens, d_input]
        } else {
            [d_input, tokens, d_output]
        };
        for (pass, shape, is_transposed) in [
            ("forward", [tokens, d_input, d_output], [false, is_stored_output_first]),
            (
                "gradient of input",
                [tokens, d_output, d_input],
                [false, !is_stored_output_first],
            ),
            ("gradient of weight", gradient_of_weight, [true, false]),
        ] {
            let is_added = pass == "gradient of weight";
            products.push(StepProduct {
                layer,
                pass,
                times,
                product: Product {
                    dtypes: [dtype, if is_added { DType::F32 } else { dtype }],
                    shape,
                    is_transposed,
                    is_added,
                },
            });
        }
    }
    products
}

/// A product with its matrices on the device.
pub struct Placed<'a> {
    products: &'a Products,
    matrices: [Memory; 3],
}

impl<'a> Placed<'a> {
    pub fn new(products: &'a Products, product: &Product) -> anyhow::Result<Self> {
        let [a, b, output] = product.bytes().map(Memory::random);
        Ok(Self {
            products,
            matrices: [a?, b?, output?],
        })
    }

    /// Queues it `times` times.
    pub fn launch(&self, planned: &Planned, times: usize, stream: &Stream) -> anyhow::Result<()> {
        let [a, b, output] = &self.matrices;
        let addresses = [a.address, b.address, output.address];
        for _ in 0..times {
            // SAFETY: the matrices have the product's bytes and outlive what the stream does, which is waited for
            // before they are freed; one stream multiplies at a time.
            let launched = unsafe { self.products.launch(planned, addresses, stream.0) };
            launched.map_err(anyhow::Error::msg)?;
        }
        Ok(())
    }

    /// Returns the median seconds of one.
    pub fn seconds(&self, planned: &Planned, stream: &Stream) -> anyhow::Result<f64> {
        self.launch(planned, 2, stream)?;
        let once = stream.time(|| self.launch(planned, 1, stream))?;
        let times = ((SAMPLE_SECONDS / once.max(1e-9)).ceil() as usize).clamp(1, 50);
        let mut seconds = Vec::new();
        for _ in 0..SAMPLES {
            seconds.push(stream.time(|| self.launch(planned, times, stream))? / times as f64);
        }
        Ok(median(&mut seconds))
    }
}

/// Opens the library on the device that is current.
///
/// # Errors
/// When there is none.
pub fn library(_gpu: &Gpu) -> anyhow::Result<Products> {
    // SAFETY: an open device's context is current on this thread, and is never released.
    unsafe { Products::new() }.map_err(anyhow::Error::msg)
}

/// Prints a row of Markdown for each product.
pub fn print(sizes: StepSizes, dtype: DType) -> anyhow::Result<()> {
    let gpu = Gpu::open()?;
    let (products, stream) = (library(&gpu)?, Stream::new()?);
    println!("| product | rows × depth × columns | times | first, TFLOP/s | best of {MOST} | its place | gain |");
    println!("|---|---|---|---|---|---|---|");
    let (mut first, mut best) = (0.0, 0.0);
    for StepProduct {
        layer,
        pass,
        times,
        product,
    } in all(sizes, dtype)
    {
        let placed = Placed::new(&products, &product)?;
        let mut seconds = Vec::new();
        for recommendation in 0..MOST {
            let choice = Choice {
                recommendation,
                ..Choice::default()
            };
            let Some(planned) = products.plan(&product, choice).map_err(anyhow::Error::msg)? else {
                break;
            };
            seconds.push(placed.seconds(&planned, &stream)?);
        }
        let [rows, depth, columns] = product.shape;
        ensure!(
            !seconds.is_empty(),
            "cuBLASLt has no kernel for {layer}, {pass}: {product:?}"
        );
        let place = (0..seconds.len())
            .min_by(|a, b| seconds[*a].total_cmp(&seconds[*b]))
            .unwrap_or(0);
        let rate = |seconds: f64| 2.0 * (rows * depth * columns) as f64 / seconds / 1e12;
        println!(
            "| {layer}, {pass} | {rows} × {depth} × {columns} | {times} | {:.1} | {:.1} of {} | {} | {:.1} % |",
            rate(seconds[0]),
            rate(seconds[place]),
            seconds.len(),
            place + 1,
            1e2 * (seconds[0] / seconds[place] - 1.0)
        );
        first += times as f64 * seconds[0];
        best += times as f64 * seconds[place];
    }
    println!(
        "products of a step: {:.2} ms by cuBLASLt's first recommendations, {:.2} ms by the best of {MOST}",
        1e3 * first,
        1e3 * best
    );
    Ok(())
}
