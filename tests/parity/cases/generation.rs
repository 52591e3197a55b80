//! Generation: the same text in every layout, whatever else is in the batch and whenever it came; log-probabilities
//! with the cache are those of the whole forward pass; greedy text of an imported GPT-2 is that of `transformers`.
//!
//! A job of tensor- and sequence-parallel stages trains and saves. Further jobs, each in a layout of its own, load
//! that, generate, and write what came to a file, which the test's own process compares. The job of one rank also
//! generates by whole forward passes, without a cache. `gpt2_greedy.py` has made the fixture of `transformers`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use burn::module::Module;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::World;
use burn_megatron::parameters::read_host;
use burn_megatron::parity::Tolerance;
use burn_megatron::pipeline_parallel::{LayerLayout, LayerSizes};
use burn_megatron::random::{StepCoordinates, TokenMap};
use burn_megatron::training::load_parameters;
use burn_megatron_data::tokenizer::{Token, Tokenizer};
use libtest_mimic::{Failed, Trial};
use models::ModelFamily;
use models::bloom::BloomConfig;
use models::generation::{
    CacheConfig, DrawPlace, FinishReason, GenerationEvent, GenerationRequest, Generator, GeneratorConfig, History,
    SamplingConfig, choose,
};
use models::gpt::{Gpt, GptConfig};
use models::huggingface::{HuggingFaceFormat, HuggingFaceModel};
use models::llama::LlamaConfig;
use models::neox::NeoxConfig;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::checkpoints::{step, trainer, writer};
use super::comparison::{Layout, ONE, PP2, TP2, TP2SP, TP4, connect, dtype, layout};
use super::problem;
use tests::harness::{Case, Job};

const TP2SPPP2: Layout = layout("tp2sppp2", 2, true, 1).stages(2, 1);
const TP2PP2: Layout = layout("tp2pp2", 2, false, 1).stages(2, 1);
const PP2V2: Layout = layout("pp2v2", 1, false, 1).stages(2, 2);
/// Who generates; the first is what the others are compared with.
const LAYOUTS: [Layout; 6] = [ONE, TP2, TP2SP, PP2, TP2PP2, PP2V2];
const STEPS: u64 = 3;
/// A draw, or the highest of two scores, that is closer may be another one in another layout, in f32.
const CLOSE: f64 = 1e-5;
const NO_PAGE_IS_SHORT: usize = 64;

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for dtype in ["f64", "f32"] {
        let name = format!("generated_text_is_the_same_in_every_layout_{dtype}");
        trials.push(Trial::test(name, move || compare_layouts(dtype).map_err(failed)));
    }
    for layout in [ONE, TP2PP2] {
        let name = format!("greedy_text_of_a_gpt2_is_that_of_transformers_{}", layout.name);
        trials.push(Trial::test(name, move || {
            compare_with_transformers::<GptConfig>("gpt2", &layout).map_err(failed)
        }));
    }
    for (model, layout) in [
        ("llama/llama3", ONE),
        ("llama/llama3", TP2SP),
        ("llama/mistral", TP2),
        ("llama/multi_query", TP2SP),
        ("llama/multi_query", TP4),
        ("llama/qwen2", TP2PP2),
        ("llama/qwen3", TP2PP2),
        ("llama/yarn", ONE),
        ("llama/window", TP2),
        ("neox/pythia", TP2SP),
        ("neox/sequential", PP2),
        ("bloom/four", ONE),
        ("bloom/six", TP2PP2),
    ] {
        let (_, short) = model.split_once('/').expect("a folder of its family");
        let name = format!("greedy_text_of_{short}_is_that_of_transformers_{}", layout.name);
        trials.push(Trial::test(name, move || {
            match model.split_once('/') {
                Some(("bloom", _)) => compare_with_transformers::<BloomConfig>(model, &layout),
                Some(("neox", _)) => compare_with_transformers::<NeoxConfig>(model, &layout),
                _ => compare_with_transformers::<LlamaConfig>(model, &layout),
            }
            .map_err(failed)
        }));
    }
    trials
}

fn failed(error: anyhow::Error) -> Failed {
    format!("{error:#}").into()
}

/// Tokens without a text of their own: `12 7 `.
struct Numbers {
    vocabulary_size: usize,
}

impl Tokenizer for Numbers {
    fn vocabulary_size(&self) -> usize {
        self.vocabulary_size
    }

    fn end_of_document(&self) -> Option<Token> {
        Some(self.vocabulary_size as Token - 1)
    }

    fn encode(&self, text: &str, tokens: &mut Vec<Token>) {
        tokens.extend(
            text.split_whitespace()
                .filter_map(|number| number.parse::<Token>().ok()),
        );
    }

    fn decode(&self, tokens: &[Token]) -> String {
        tokens.iter().map(|token| format!("{token} ")).collect()
    }
}

/// A sample that is complete.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sample {
    text: String,
    tokens: Vec<u32>,
    log_probabilities: Vec<f64>,
    /// Those of the prompt's tokens but the first.
    prompt: Vec<(u32, f64)>,
    /// Those of the whole vocabulary, token by token of the text.
    all: Vec<Vec<(u32, f64)>>,
    margins: Vec<f64>,
    finished: Option<FinishReason>,
}

impl Sample {
    fn take(&mut self, event: GenerationEvent) {
        self.text += &event.text;
        let of_prompt = event.prompt.into_iter();
        self.prompt
            .extend(of_prompt.map(|score| (score.token, score.log_probability)));
        self.tokens.push(event.token);
        self.log_probabilities.push(event.log_probability);
        self.all.push(event.top);
        self.margins.push(event.margin);
        self.finished = event.finished;
    }
}

/// The samples by the numbers of their requests, and their own.
type Samples = BTreeMap<(u64, usize), Sample>;

fn requests() -> Vec<GenerationRequest> {
    let prompts: [&[u32]; 4] = [&[3], &[7, 50, 2, 2, 9, 11, 30], &[1, 2, 3], &[]];
    let drawn = SamplingConfig {
        logit_bias: vec![(2, 1.5), (9, -2.0)],
        temperature: 0.8,
        top_k: 20,
        top_p: 0.9,
        min_p: 0.01,
        repetition_penalty: 1.2,
        frequency_penalty: 0.3,
        presence_penalty: -0.2,
        seed: 17,
    };
    let settings = [
        SamplingConfig::greedy(),
        drawn.clone(),
        SamplingConfig::default(),
        drawn,
    ];
    let requests = prompts.into_iter().zip(settings).enumerate();
    let requests = requests.map(|(number, (prompt, sampling))| GenerationRequest {
        number: number as u64,
        num_samples: 1 + number % 2,
        top_log_probabilities: problem::VOCAB_SIZE,
        scores_prompt: number != 2,
        ignores_end_of_document: true,
        ..GenerationRequest::new(prompt.to_vec(), 8, sampling)
    });
    requests.collect()
}

/// A rank of a job that generates.
struct Scene<C> {
    model: C,
    chunks: Vec<Gpt>,
    context: ParallelContext,
}

impl<C: ModelFamily<Stage = Gpt>> Scene<C> {
    fn load(case: &Case, world: &World, model: C, checkpoint: &Path) -> anyhow::Result<Self> {
        let context = connect(case, world)?;
        let layers = LayerLayout::even(LayerSizes {
            n_layers: model.n_layers(),
            num_stages: context.grid().pipeline_parallel_size(),
            num_chunks: case.setting("chunks")?,
        })?;
        let model = model.with_usual_padding();
        let chunks = model.init_stage(&layers, &tests::device(), &context)?.valid();
        let chunks = load_parameters(chunks, &Checkpoint::find(checkpoint)?, &context)?;
        Ok(Self { model, chunks, context })
    }

    fn generator(&self, config: GeneratorConfig) -> anyhow::Result<Generator> {
        let tokenizer = Numbers {
            vocabulary_size: self.model.vocab_size(),
        };
        let tokenizer = Arc::new(tokenizer);
        let chunks = self.chunks.clone();
        Ok(Generator::new(
            chunks,
            &self.model,
            tokenizer,
            config,
            &self.context,
            &Device::flex(),
        )?)
    }

    /// Generates for requests, each of which comes after a number of steps; the samples on rank 0, none on others.
    fn run(&self, config: GeneratorConfig, requests: &[(usize, GenerationRequest)]) -> anyhow::Result<Samples> {
        let mut generator = self.generator(config)?;
        if self.context.rank() > 0 {
            generator.serve()?;
            return Ok(Samples::new());
        }
        let mut waiting: Vec<_> = requests.to_vec();
        let mut numbers = BTreeMap::new();
        let mut samples = Samples::new();
        let mut steps = 0;
        while !(waiting.is_empty() && generator.is_idle()) {
            for (_, request) in waiting.extract_if(.., |(after, _)| *after <= steps) {
                let number = request.number;
                numbers.insert(generator.submit(request)?, number);
            }
            for event in generator.step()? {
                let place = (numbers[&event.request], event.sample);
                samples.entry(place).or_default().take(event);
            }
            steps += 1;
        }
        let free = generator.cache_use().context("rank 0 knows")?;
        ensure!(free.free_pages == free.num_pages, "pages are not given back: {free:?}");
        generator.finish()?;
        Ok(samples)
    }
}

fn limits(max_batch: usize, num_pages: usize, step_tokens: usize) -> GeneratorConfig {
    GeneratorConfig {
        cache: CacheConfig {
            page_tokens: 4,
            num_pages,
        },
        max_batch,
        step_tokens,
        max_waiting: 100,
    }
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    match case.setting::<String>("check")?.as_str() {
        "save" => save(case, world),
        "generate" => generate(case, world),
        other => match other.strip_prefix("transformers_") {
            Some("gpt2") => generate_like_transformers::<GptConfig>("gpt2", case, world),
            Some(name) if name.starts_with("bloom/") => generate_like_transformers::<BloomConfig>(name, case, world),
            Some(name) if name.starts_with("neox/") => generate_like_transformers::<NeoxConfig>(name, case, world),
            Some(name) => generate_like_transformers::<LlamaConfig>(name, case, world),
            None => anyhow::bail!("there is no check {other}"),
        },
    }
}

const VARIANT: problem::Variant = problem::Variant {
    dropout: 0.0,
    ..problem::Variant::USUAL
};

fn folder(case: &Case) -> anyhow::Result<PathBuf> {
    Ok(PathBuf::from(case.setting::<String>("folder")?))
}

fn save(case: &Case, world: &World) -> anyhow::Result<()> {
    let context = connect(case, world)?;
    let mut trainer = trainer(VARIANT, 1, &context)?;
    for number in 0..STEPS {
        step(&mut trainer, number, &context)?;
    }
    let mut writer = writer(world, &folder(case)?.join("saved"))?;
    Ok(writer.save(STEPS, trainer.snapshot()?, json!(null))?)
}

/// Generates in several ways, which must give the same, and leaves it in a file.
fn generate(case: &Case, world: &World) -> anyhow::Result<()> {
    let folder = folder(case)?;
    let scene = Scene::load(case, world, problem::model(VARIANT), &folder.join("saved"))?;
    let tolerance = tolerance(dtype(case)?);
    let together: Vec<_> = requests().into_iter().map(|request| (0, request)).collect();
    let samples = scene.run(limits(8, NO_PAGE_IS_SHORT, 512), &together)?;

    let mut alone = Samples::new();
    for request in &together {
        alone.extend(scene.run(limits(1, NO_PAGE_IS_SHORT, 512), std::slice::from_ref(request))?);
    }
    same("alone", &samples, &alone, tolerance)?;
    let late: Vec<_> = (0..).step_by(3).zip(requests()).collect();
    let late = scene.run(limits(8, NO_PAGE_IS_SHORT, 512), &late)?;
    same("joining late", &samples, &late, tolerance)?;
    // Prompts two tokens at a time, and pages for one or two samples, in any order.
    let pieces = scene.run(limits(3, 7, 2), &together)?;
    same("in pieces, with few pages", &samples, &pieces, tolerance)?;

    if world.world_size() == 1 {
        let naive = without_cache(&scene)?;
        same("without a cache", &naive, &samples, tolerance)?;
    }
    if world.rank() == 0 {
        let samples: Vec<_> = samples.into_iter().collect();
        fs::write(
            folder.join(case.setting::<String>("layout")?),
            serde_json::to_vec(&samples)?,
        )?;
    }
    Ok(())
}

/// How far log-probabilities may be apart: the rounding of a pass, of numbers of about 1.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => Tolerance::of(dtype).loss,
        _ => Tolerance::of(dtype).parameter,
    }
}

/// Generates by a whole forward pass for each token.
fn without_cache(scene: &Scene<GptConfig>) -> anyhow::Result<Samples> {
    let mut samples = Samples::new();
    for mut request in requests() {
        if request.prompt.is_empty() {
            request.prompt.push(problem::VOCAB_SIZE as u32 - 1);
        }
        for number in 0..request.num_samples {
            let mut tokens = request.prompt.clone();
            let mut sample = Sample::default();
            for _ in 0..request.max_new_tokens {
                let ids: Vec<i32> = tokens.iter().map(|token| *token as i32).collect();
                let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [1, tokens.len()]), &Device::flex());
                let step = StepCoordinates {
                    seed: 0,
                    iteration: 0,
                    tokens: TokenMap::of_samples(&[0], tokens.len()),
                };
                let logits = scene.chunks[0].logits(ids, &step);
                if request.scores_prompt && tokens.len() == request.prompt.len() {
                    sample.prompt = prompt_scores(read_host(logits.clone().narrow(1, 0, problem::VOCAB_SIZE)), &tokens);
                }
                let last = logits.narrow(0, tokens.len() - 1, 1).narrow(1, 0, problem::VOCAB_SIZE);
                let place = DrawPlace {
                    number: request.number,
                    sample: number as u32,
                    position: tokens.len() as u32,
                };
                let top = request.top_log_probabilities;
                let (prompt, drawn) = tokens.split_at(request.prompt.len());
                let history = History { prompt, drawn };
                let choice = choose(&read_host(last), history, &request.sampling, place, top)?;
                tokens.push(choice.token);
                sample.text += &format!("{} ", choice.token);
                sample.tokens.push(choice.token);
                sample.log_probabilities.push(choice.log_probability);
                sample.margins.push(choice.margin);
                sample.all.push(choice.top);
            }
            sample.finished = Some(FinishReason::Length);
            samples.insert((request.number, number), sample);
        }
    }
    Ok(samples)
}

/// The log-probabilities of all tokens but the first by their definition; `scores` are those of the vocabulary after
/// each token.
fn prompt_scores(scores: Vec<f64>, tokens: &[u32]) -> Vec<(u32, f64)> {
    let rows = scores.chunks_exact(problem::VOCAB_SIZE).zip(&tokens[1..]);
    rows.map(|(row, &token)| {
        let sum: f64 = row.iter().map(|score| score.exp()).sum();
        (token, row[token as usize] - sum.ln())
    })
    .collect()
}

/// Fails unless samples have the same text, up to the first close draw in f32, and log-probabilities that are as close
/// as asked. Returns the largest difference.
fn same(what: &str, expected: &Samples, found: &Samples, tolerance: f64) -> anyhow::Result<f64> {
    let is_exact = tolerance < CLOSE * CLOSE;
    ensure!(
        expected.keys().eq(found.keys()),
        "{what}: other samples: {:?}",
        found.keys()
    );
    let mut worst = 0.0_f64;
    for (place, expected) in expected {
        let found = &found[place];
        let pairs = expected.tokens.iter().zip(&found.tokens);
        let equal = pairs.take_while(|(left, right)| left == right).count();
        if equal < expected.tokens.len() {
            let margin = expected.margins[equal];
            ensure!(
                !is_exact && margin < CLOSE,
                "{what}: sample {place:?} has token {} as {:?} and {:?}, margin {margin:.1e}",
                equal,
                expected.tokens,
                found.tokens
            );
            println!("{what}: sample {place:?} differs from token {equal} on, a draw within {margin:.1e}");
        } else {
            ensure!(
                (expected.tokens.len(), &expected.text, expected.finished)
                    == (found.tokens.len(), &found.text, found.finished),
                "{what}: sample {place:?} ends otherwise: {expected:?} {found:?}"
            );
        }
        ensure!(
            expected.prompt.len() == found.prompt.len(),
            "{what}: sample {place:?} has scores of its prompt {:?} and {:?}",
            expected.prompt,
            found.prompt
        );
        for ((token, expected), (other, found)) in expected.prompt.iter().zip(&found.prompt) {
            ensure!(
                token == other,
                "{what}: the scores of sample {place:?} are of other tokens"
            );
            worst = worst.max((expected - found).abs() / expected.abs().max(1.0));
        }
        // The token that differs was still drawn from the same scores.
        for (expected, found) in expected.all.iter().zip(&found.all).take(equal + 1) {
            let by_token: BTreeMap<u32, f64> = found.iter().copied().collect();
            ensure!(
                by_token.len() == problem::VOCAB_SIZE,
                "{what}: log-probabilities are missing"
            );
            for (token, log) in expected {
                worst = worst.max((log - by_token[token]).abs() / log.abs().max(1.0));
            }
        }
    }
    ensure!(
        worst <= tolerance,
        "{what}: log-probabilities differ by {worst:.1e}, at most {tolerance:.0e} is rounding"
    );
    Ok(worst)
}

fn run_job(check: &str, layout: &Layout, dtype: &str, folder: &Path) -> anyhow::Result<String> {
    let case = (layout.describe(Case::new("parity", "generation"), dtype))
        .with("check", check)
        .with("chunks", layout.chunks)
        .with("layout", layout.name)
        .with("folder", folder.display());
    let output = Job::new(case, layout.world_size()).output();
    output.with_context(|| format!("{check}, {}", layout.name))
}

fn compare_layouts(dtype: &'static str) -> anyhow::Result<()> {
    let root = tempfile::tempdir()?;
    run_job("save", &TP2SPPP2, dtype, root.path())?;
    let read = |layout: &Layout| -> anyhow::Result<Samples> {
        let output = run_job("generate", layout, dtype, root.path())?;
        print!("{output}");
        let samples: Vec<((u64, usize), Sample)> = serde_json::from_slice(&fs::read(root.path().join(layout.name))?)?;
        Ok(samples.into_iter().collect())
    };
    let [first, others @ ..] = LAYOUTS;
    let expected = read(&first)?;
    let different: std::collections::BTreeSet<_> = expected.values().flat_map(|sample| &sample.tokens).collect();
    ensure!(different.len() > 10, "a dull text: {expected:?}");
    let num_scores: Vec<usize> = expected.values().map(|sample| sample.prompt.len()).collect();
    ensure!(num_scores == [0, 6, 6, 0, 0, 0], "scores of prompts: {num_scores:?}");
    let tolerance = tolerance(if dtype == "f64" { DType::F64 } else { DType::F32 });
    for layout in others {
        let worst = same(layout.name, &expected, &read(&layout)?, tolerance)?;
        println!(
            "{}, {dtype}: the same text, log-probabilities within {worst:.1e}",
            layout.name
        );
    }
    Ok(())
}

/// What `transformers` has generated, as `gpt2_greedy.py`, `llama.py` and their like wrote it.
#[derive(Deserialize)]
struct Greedy {
    prompt: Vec<u32>,
    repetition_penalty: f64,
    tokens: Vec<u32>,
    log_probabilities: Vec<f64>,
}

/// The folder of a model that PyTorch has generated with.
fn fixture(name: &str) -> PathBuf {
    let folder = tests::folder().join("parity/fixtures");
    match name {
        "gpt2" => folder.join("gpt2_greedy"),
        of_family => folder.join(of_family).join("f64"),
    }
}

fn compare_with_transformers<C: HuggingFaceFormat>(name: &str, layout: &Layout) -> anyhow::Result<()> {
    let root = tempfile::tempdir()?;
    let model = HuggingFaceModel::<C>::open(fixture(name))?;
    model.write_checkpoint(root.path().join("imported"), json!(null))?;
    run_job(&format!("transformers_{name}"), layout, "f64", root.path()).map(drop)
}

fn generate_like_transformers<C: ModelFamily<Stage = Gpt>>(
    name: &str,
    case: &Case,
    world: &World,
) -> anyhow::Result<()> {
    let expected: Vec<Greedy> = serde_json::from_slice(&fs::read(fixture(name).join("greedy.json"))?)?;
    let model = HuggingFaceModel::<C>::open(fixture(name))?.config().clone();
    let scene = Scene::load(case, world, model, &folder(case)?.join("imported"))?;
    let requests = expected.iter().enumerate().map(|(number, greedy)| {
        let sampling = SamplingConfig {
            repetition_penalty: greedy.repetition_penalty,
            ..SamplingConfig::greedy()
        };
        let request = GenerationRequest {
            number: number as u64,
            ignores_end_of_document: true,
            ..GenerationRequest::new(greedy.prompt.clone(), greedy.tokens.len(), sampling)
        };
        (number, request)
    });
    let found = scene.run(limits(3, NO_PAGE_IS_SHORT, 16), &requests.collect::<Vec<_>>())?;
    for ((_, sample), greedy) in found.iter().zip(&expected) {
        ensure!(
            sample.tokens == greedy.tokens,
            "{:?} is continued by {:?}, and by transformers with {:?}",
            greedy.prompt,
            sample.tokens,
            greedy.tokens
        );
        // Theirs are computed in f64 too.
        for (ours, theirs) in sample.log_probabilities.iter().zip(&greedy.log_probabilities) {
            ensure!((ours - theirs).abs() < 1e-9, "log-probability {ours} against {theirs}");
        }
    }
    ensure!(
        world.rank() > 0 || found.len() == expected.len(),
        "{} samples",
        found.len()
    );
    Ok(())
}
