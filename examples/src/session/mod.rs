//! `Session`: one rank's model, data and trainer, made from flags, and the loop over steps.

mod conversations;
mod data;
mod data_sets;
mod found_checkpoint;
mod masked;
mod run_text;
mod sample;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use burn::tensor::Device;
use burn_megatron::checkpoint::{ArrayPart, Checkpoint};
use burn_megatron::collectives::{ReduceOp, has_device_memory};
use burn_megatron::context::ParallelContext;
use burn_megatron::data::{BatchSource, Loader, MicroBatch};
use burn_megatron::data_parallel::{DataParallelConfig, ReducedGradients};
use burn_megatron::pipeline_parallel::Timeline;
use burn_megatron::pipeline_parallel::schedule::{Schedule, ScheduleKind};
use burn_megatron::training::memory::peak_bytes;
use burn_megatron::training::{RankTime, StepMetrics, StragglerReport, Trainer, TrainerConfig, TrainingConfig};
use burn_megatron_monitoring::timers::Timer;
use models::ModelFamily;
use models::huggingface::AdapterConfig;

use crate::adapting::{RunAdapters, in_words};
use crate::arguments::{CheckpointArguments, TrainingArguments};
use crate::launching::StopReason;
use crate::run_tokenizer::RunTokenizer;
use crate::saved_state::RunState;
use crate::step_observer::StepObserver;
use data::{read_text, start_loader};
use run_text::{RunText, SampleSizes, TextRequest};

/// Observer of a step's gradients.
type Inspect<'a> = dyn FnMut(&ReducedGradients) + 'a;

/// Change of chunks before they are trained; a `dyn`, so that a session is compiled once for it.
type Prepare<'a, M> = dyn FnMut(Vec<M>) -> Vec<M> + 'a;

/// One rank of a run.
pub struct Session<C: ModelFamily> {
    trainer: Trainer<C::Stage>,
    timeline: Timeline,
    observer: Arc<StepObserver>,
    kind: ScheduleKind,
    context: ParallelContext,
    model: C,
    training: TrainingConfig,
    loader: Loader,
    text: RunText,
    tokenizer: RunTokenizer,
    model_notes: Vec<String>,
    adapters: Option<AdapterConfig>,
    num_steps: u64,
    eval_iters: u64,
    /// Since the last report.
    time: RankTime,
    device: Device,
    /// The most bytes that the device's pools have reserved.
    peak_device_bytes: u64,
    /// Remarks on what was to be offloaded to where it is.
    offload_notes: Vec<String>,
}

/// The sizes of a run, reported before it starts.
#[derive(Clone, Debug)]
pub struct SessionSummary {
    /// Parameters of the whole model, padding not counted.
    pub num_parameters: usize,
    /// Tokens to train on, one epoch.
    pub num_train_tokens: usize,
    /// Documents, and how many of them validate.
    pub num_documents: (usize, usize),
    /// Remark on where they come from.
    pub note: Option<String>,
    /// Remarks on the model of the checkpoint: what is easily missed.
    pub model: Vec<String>,
    /// The adapters that are trained in place of the parameters, in words.
    pub adapters: Option<String>,
    /// Places of the optimizer and others, where they are not what the flags seem to say.
    pub offload: Vec<String>,
}

/// The mean losses of a validation, in nats per token.
#[derive(Clone, Debug)]
pub struct ValidationLosses {
    /// Mean over all text that is set aside.
    pub loss: f64,
    /// Means of each data set, by its name, with `--multiple-validation-sets`.
    pub of_sets: Vec<(String, f64)>,
}

impl<C: ModelFamily> Session<C> {
    /// Makes this rank's model, data and trainer. `device` is without autodiff, which training adds.
    ///
    /// # Communication
    /// A comparison of the text over all ranks; the weights of the data-parallel ranks become those of the first.
    ///
    /// # Errors
    /// When the flags do not fit each other or the layout, the text cannot be read or is not the same on every rank.
    pub fn new(arguments: &TrainingArguments, context: &ParallelContext, device: &Device) -> anyhow::Result<Self> {
        Self::with_prepared_model(arguments, context, device, &mut |chunks| chunks)
    }

    /// Makes this rank's chunks of the model, changed by `prepare` before training, its data and trainer.
    ///
    /// # Communication
    /// As [`new`](Self::new).
    pub fn with_prepared_model(
        arguments: &TrainingArguments,
        context: &ParallelContext,
        device: &Device,
        prepare: &mut Prepare<'_, C::Stage>,
    ) -> anyhow::Result<Self> {
        arguments.model.validate()?;
        let sharding = arguments.parallel.communication.sharding()?;
        let is_on_device = has_device_memory(device);
        let offloaded_layers = if is_on_device { arguments.offload.layers() } else { 0 };
        let context = &context
            .clone()
            .with_layer_segments(sharding.shards_parameters())
            .with_offloaded_layers(offloaded_layers);
        let found = found_checkpoint::find(&arguments.checkpoints, context)?;
        let checkpoint = found.checkpoint;
        let family = arguments.model.family(checkpoint.as_ref())?.name;
        ensure!(
            family == C::NAME,
            "the flags name the model family {family}, this is {}",
            C::NAME
        );
        let arguments = &TrainingArguments {
            checkpoints: found.arguments,
            ..arguments.clone()
        };
        let tokenizer = RunTokenizer::choose(
            &arguments.data.tokenizer,
            checkpoint.as_ref(),
            arguments.model.objective(checkpoint.as_ref())?,
        )?;
        let tokenizer = if arguments.data.sft {
            tokenizer.with_template()?
        } else {
            tokenizer
        };
        let model = arguments
            .model
            .model::<C>(checkpoint.as_ref(), tokenizer.vocabulary_size())?;
        model.validate(context.config())?;
        let given = [arguments.model.hidden_dropout, arguments.model.attention_dropout];
        let dropout = checkpoint
            .as_ref()
            .and_then(|checkpoint| dropout_note(checkpoint, given));
        let [rows, tokens] = [model.vocab_size(), tokenizer.vocabulary_size()];
        let vocabulary = (rows > tokens)
            .then(|| format!("the model's vocabulary has {rows} rows, and the tokenizer {tokens} tokens for them"));
        let model_notes = vocabulary.into_iter().chain(dropout).collect();
        let adapters = RunAdapters::choose(arguments, checkpoint.as_ref(), &model)?;
        let training = arguments.training_config(arguments.sample_length(&model, checkpoint.as_ref())?)?;
        training.validate(context.grid(), context.is_sequence_parallel())?;

        let num_samples = training.train_samples;
        let request = TextRequest {
            arguments: &arguments.data,
            objective: model.objective(),
            sizes: sample_sizes(&training, arguments.logging.eval_iters),
            tokenizer: &tokenizer,
        };
        let text = read_text(request)?;
        text.check_same(context)?;

        let sizes = arguments.parallel.layer_sizes(model.n_layers())?;
        let stages = &arguments.parallel.stages;
        // Of which each rank draws its shards alone; adapters are put into whole layers.
        let is_lazy = sharding.shards_parameters() && adapters.is_none();
        let drawing = context.clone().with_lazy_parameters(is_lazy);
        let trained_on = device.clone().autodiff();
        let chunks = prepare(model.init_stage(&stages.layers(sizes)?, &trained_on, &drawing)?);
        let chunks = match (&adapters, &checkpoint) {
            (Some(adapters), Some(checkpoint)) => adapters.adapt(&model, chunks, checkpoint, context, &trained_on)?,
            _ => chunks,
        };
        let has_parameters = adapters.as_ref().is_some_and(|adapters| !adapters.is_stored);
        let communication = &arguments.parallel.communication;
        let kind = stages.schedule(sizes.num_chunks)?;
        let offload = arguments.offload.config()?;
        let offload_parameters = arguments.offload.parameters()?;
        let idle_offloads = [
            (
                "--optimizer-cpu-offload",
                "optimizer is",
                offload.changes_nothing_on(device),
            ),
            (
                "--offload-param cpu",
                "parameters are",
                offload_parameters.changes_nothing_on(device),
            ),
            (
                "--cpu-offloading",
                "activations are",
                arguments.offload.cpu_offloading && !is_on_device,
            ),
        ];
        let idle_offloads = idle_offloads.into_iter().filter(|(.., is_idle)| *is_idle);
        let notes = idle_offloads.map(|(flag, what, _)| {
            format!("the CPU computes: the {what} in host memory already, and {flag} changes nothing")
        });
        let offload_notes = notes.collect();
        let config = TrainerConfig {
            data_parallel: DataParallelConfig::new()
                .with_bucket_size(communication.ddp_bucket_size)
                .with_sharding(sharding)
                .with_overlap_param_gather(communication.overlap_param_gather)
                .with_overlap_grad_reduce(communication.overlap_grad_reduce)
                .with_offload_parameters(offload_parameters)
                // Parameters that are not trained, as with adapters and --freeze, stay as they are: no step need look.
                .with_broadcast_buffers(false),
            overlap_param_gather: communication.overlap_param_gather,
            schedule: Some(kind),
            loss_scale: arguments.precision.loss_scale(),
            count_gradients: arguments.logging.log_num_zeros_in_grad,
            offload,
            ..TrainerConfig::new()
        };
        let observer = Arc::new(StepObserver::new(&arguments.monitoring, context.rank()));
        let timeline = Timeline::default().with_observer(observer.clone());
        let mut trainer = Trainer::new(chunks, &training, config, context, &trained_on)?.with_timeline(&timeline);
        if let Some(checkpoint) = checkpoint.filter(|_| !has_parameters) {
            resume::<C>(
                &mut trainer,
                &checkpoint,
                &arguments.checkpoints,
                &training,
                (&text, request),
            )?;
        }
        let consumed_samples = trainer.consumed_samples();
        // A run that is made shorter than it has become already has nothing left.
        let num_samples = num_samples.max(consumed_samples);
        let num_steps = trainer.iteration() + training.batch_sizes()?.num_steps_from(consumed_samples, num_samples);
        let loader = start_loader(text.train.clone(), &training, context, num_samples, consumed_samples)?;
        Ok(Self {
            trainer,
            timeline,
            observer,
            kind,
            context: context.clone(),
            model,
            training,
            loader,
            text,
            tokenizer,
            model_notes,
            adapters: adapters.map(|adapters| adapters.config),
            num_steps,
            eval_iters: arguments.logging.eval_iters,
            time: RankTime::default(),
            device: device.clone(),
            peak_device_bytes: 0,
            offload_notes,
        })
    }

    /// Returns the sizes of the run.
    pub fn summary(&self) -> SessionSummary {
        SessionSummary {
            num_parameters: self.model.num_parameters(),
            num_train_tokens: self.text.num_train_tokens,
            num_documents: self.text.num_documents,
            note: self.text.note.clone(),
            model: self.model_notes.clone(),
            adapters: self.adapters.as_ref().map(|adapters| in_words(adapters, &self.model)),
            offload: self.offload_notes.clone(),
        }
    }

    /// This rank's chunks of the model.
    pub fn model(&self) -> &Vec<C::Stage> {
        self.trainer.model()
    }

    /// The record of what this rank does, while it is on.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The observer that measures the parts of this rank's steps.
    pub fn observer(&self) -> &StepObserver {
        &self.observer
    }

    /// The layout and this rank's place in it.
    pub fn context(&self) -> &ParallelContext {
        &self.context
    }

    /// Which schedule orders a step's micro-batches.
    pub fn kind(&self) -> ScheduleKind {
        self.kind
    }

    /// The order of the last step's micro-batches, in words, at first that of the first.
    pub fn order(&self) -> String {
        let schedule = self.schedule();
        let (chunks, micro_batches) = (schedule.num_chunks, schedule.num_micro_batches);
        let chunks = match chunks {
            1 => String::new(),
            _ => format!("{chunks} chunks each, "),
        };
        let grows = match self.training.rampup_batch_size {
            None => "",
            Some(_) => " and later more",
        };
        format!("{chunks}{micro_batches} micro-batches{grows}")
    }

    /// The schedule of a step.
    pub fn schedule(&self) -> &Schedule {
        self.trainer.executor().schedule()
    }

    /// Steps of the whole run.
    pub fn num_steps(&self) -> u64 {
        self.num_steps
    }

    /// Returns the steps taken, including those before the checkpoint that this run continued from.
    pub fn iteration(&self) -> u64 {
        self.trainer.iteration()
    }

    /// Samples trained on, by all ranks together, including those before the checkpoint.
    pub fn consumed_samples(&self) -> u64 {
        self.trainer.consumed_samples()
    }

    /// Returns what a checkpoint has in addition to its arrays.
    pub fn state(&self) -> RunState<C> {
        RunState {
            family: C::NAME.to_owned(),
            trainer: self.trainer.state(),
            model: self.model.clone(),
            training: self.training.clone(),
            text_hash: self.text.hash_text(),
            tokenizer: Some(self.tokenizer.state()),
            adapters: self.adapters.clone(),
        }
    }

    pub fn tokenizer(&self) -> &RunTokenizer {
        &self.tokenizer
    }

    /// This rank's part of a checkpoint's arrays.
    pub fn snapshot(&self) -> anyhow::Result<Vec<ArrayPart>> {
        let mut parts = self.trainer.snapshot()?;
        if self.context.rank() == 0 {
            parts.extend(self.tokenizer.parts());
        }
        Ok(parts)
    }

    /// Runs one step and returns its metrics, the same on every rank.
    ///
    /// # Communication
    /// That of [`Trainer::step`], and two all-reduces of four numbers over the world for the metrics.
    ///
    /// # Errors
    /// As [`Trainer::step`]; when the data end.
    pub fn step(&mut self) -> anyhow::Result<StepMetrics> {
        self.run_step(None)
    }

    /// Runs one step, showing its gradients to `inspect` after finalisation and before clipping. The step's time in
    /// the metrics is without that of `inspect`.
    pub fn step_inspected(&mut self, mut inspect: impl FnMut(&ReducedGradients)) -> anyhow::Result<StepMetrics> {
        self.run_step(Some(&mut inspect))
    }

    fn run_step(&mut self, inspect: Option<&mut Inspect<'_>>) -> anyhow::Result<StepMetrics> {
        let started = Instant::now();
        let sent_before = self.context.bytes_communicated();
        let blocked_before = self.context.time_blocked();
        let (global_batch_size, num_micro_batches) =
            (self.trainer.global_batch_size(), self.trainer.num_micro_batches());
        let batches = self.observer.timers().start(Timer::BatchGenerator);
        let micro_batches: Vec<MicroBatch> = self.loader.by_ref().take(num_micro_batches).collect::<Result<_, _>>()?;
        drop(batches);
        ensure!(
            micro_batches.len() == num_micro_batches,
            "the data ended after {} steps",
            self.trainer.iteration()
        );
        let mut inspected = Duration::ZERO;
        self.observer.passes_begin();
        let result = match inspect {
            None => self.trainer.step(&micro_batches)?,
            Some(inspect) => self.trainer.step_inspected(&micro_batches, |gradients| {
                let started = Instant::now();
                inspect(gradients);
                inspected = started.elapsed();
            })?,
        };
        let elapsed = started.elapsed() - inspected;
        let waiting = self.context.time_blocked() - blocked_before;
        self.time.waiting += waiting;
        self.time.compute += elapsed.saturating_sub(waiting);
        let seconds = elapsed.as_secs_f64();

        let sent = self.context.bytes_communicated() - sent_before;
        let mut sums = [sent as f64];
        let on_device = self.device.memory_pool_usage().map(|usage| usage.bytes_reserved);
        self.peak_device_bytes = self.peak_device_bytes.max(on_device.unwrap_or(0));
        let mut maxima = [seconds, peak_bytes() as f64, self.peak_device_bytes as f64];
        let world = self.context.world_group();
        world.all_reduce(&mut sums, ReduceOp::Sum)?;
        world.all_reduce(&mut maxima, ReduceOp::Max)?;
        let [step_seconds, peak_memory, peak_device_memory] = maxima;
        let tokens = global_batch_size * self.training.seq_length;
        Ok(StepMetrics {
            step: self.trainer.iteration(),
            global_batch_size: global_batch_size as u64,
            loss: result.loss,
            grad_norm: result.grad_norm,
            learning_rate: result.learning_rate,
            loss_scale: result.loss_scale,
            is_skipped: result.is_skipped,
            num_zeros_in_grad: result.gradient_counts.map(|counts| counts.zeros),
            num_non_finite_in_grad: result.gradient_counts.map(|counts| counts.non_finite),
            tokens_per_second: tokens as f64 / step_seconds,
            step_seconds,
            model_flops_per_second: self
                .model
                .flops_per_iteration(self.training.seq_length, global_batch_size)
                / step_seconds,
            peak_memory_bytes: peak_memory as u64,
            peak_device_memory_bytes: on_device.map(|_| peak_device_memory as u64),
            communication_bytes: sums[0] as u64,
        })
    }

    /// Returns whether some of the text is set aside for validation.
    pub fn has_validation(&self) -> bool {
        self.text.has_validation()
    }

    /// Returns the mean losses over the first global batches of the validation text; the same batches every time.
    ///
    /// # Communication
    /// As [`Trainer::evaluate`].
    ///
    /// # Errors
    /// As [`Trainer::evaluate`]; when the validation text is too short for one sample, or nothing is set aside.
    pub fn evaluate(&self) -> anyhow::Result<ValidationLosses> {
        let _timer = self.observer.timers().start(Timer::Evaluate);
        let sizes = sample_sizes(&self.training, self.eval_iters);
        let loss = self.mean_loss(self.text.validation(sizes)?)?;
        let sets = self.text.validation_of_sets().iter();
        let of_sets = sets.map(|(name, dataset)| Ok((name.clone(), self.mean_loss(dataset.clone())?)));
        Ok(ValidationLosses {
            loss,
            of_sets: of_sets.collect::<anyhow::Result<_>>()?,
        })
    }

    fn mean_loss(&self, source: Arc<dyn BatchSource>) -> anyhow::Result<f64> {
        let num_samples = sample_sizes(&self.training, self.eval_iters).num_validation;
        let loader = start_loader(source, &self.training, &self.context, num_samples, 0)?;
        let micro_batches = loader.collect::<Result<Vec<_>, _>>()?;
        Ok(self.trainer.evaluate(micro_batches)?)
    }

    /// Returns how all ranks spent the time of the steps since the last report, validation left out. A rank is a
    /// straggler when it computes longer than the median by more than `share` of it.
    ///
    /// # Communication
    /// One all-gather of two numbers over the world.
    pub fn stragglers(&mut self, share: f64) -> anyhow::Result<StragglerReport> {
        let mine = std::mem::take(&mut self.time);
        Ok(StragglerReport::gather(mine, share, self.context.world_group())?)
    }

    /// Returns why the ranks stop, if any wants to: all ranks learn it at the same step.
    ///
    /// # Communication
    /// One all-reduce of one number over the world.
    pub fn agree_to_stop(&self, of_this_rank: Option<StopReason>) -> anyhow::Result<Option<StopReason>> {
        StopReason::agree(of_this_rank, self.context.world_group())
    }
}

/// Returns what a model drops that no flag speaks of; `None` if it drops nothing.
fn dropout_note(checkpoint: &Checkpoint, given: [Option<f64>; 2]) -> Option<String> {
    let known = ["hidden_dropout", "attention_dropout"].into_iter().zip(given);
    let stored = known.filter_map(|(name, given)| {
        let probability = checkpoint.state().get("model")?.get(name)?.as_f64()?;
        let is_silent = given.is_none() && probability > 0.0;
        is_silent.then(|| format!("--{} {probability}", name.replace('_', "-")))
    });
    let stored: Vec<String> = stored.collect();
    (!stored.is_empty()).then(|| format!("as the model of {}: {}", checkpoint.path().display(), stored.join(" ")))
}

fn sample_sizes(training: &TrainingConfig, eval_iters: u64) -> SampleSizes {
    SampleSizes {
        seq_length: training.seq_length,
        num_train: training.train_samples,
        num_validation: eval_iters * training.global_batch_size as u64,
        seed: training.seed as u32,
    }
}

/// Continues from a checkpoint, or starts a new run with its parameters.
fn resume<C: ModelFamily>(
    trainer: &mut Trainer<C::Stage>,
    checkpoint: &Checkpoint,
    flags: &CheckpointArguments,
    training: &TrainingConfig,
    (text, request): (&RunText, TextRequest<'_>),
) -> anyhow::Result<()> {
    let path = checkpoint.path();
    if flags.finetune {
        return Ok(trainer.restore_parameters(checkpoint)?);
    }
    let state = RunState::<C>::of(checkpoint)?;
    if !flags.allow_data_change {
        state.check_data(path, &text.hash_text(), training, |num_train| {
            let sizes = SampleSizes {
                num_train,
                ..request.sizes
            };
            Ok(read_text(TextRequest { sizes, ..request })?.train.order() == text.train.order())
        })?;
    }
    if !flags.override_opt_param_scheduler {
        state.check_schedules(path, training)?;
    }
    Ok(trainer.restore(checkpoint, &state.trainer)?)
}
