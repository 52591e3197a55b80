//! Admission, pieces of prompts, endings.

use burn_megatron_data::tokenizer::ByteTokenizer;
use proptest::prelude::*;

use super::super::pages::CacheConfig;
use super::super::sampling::{Choice, SamplingConfig};
use super::*;

fn scheduler(max_batch: usize, num_pages: usize, step_tokens: usize, max_waiting: usize) -> Scheduler {
    let config = GeneratorConfig {
        cache: CacheConfig {
            page_tokens: 4,
            num_pages,
        },
        max_batch,
        step_tokens,
        max_waiting,
    };
    Scheduler::new(config, Arc::new(ByteTokenizer))
}

fn request(prompt: usize, max_new_tokens: usize) -> GenerationRequest {
    GenerationRequest::new(vec![65; prompt], max_new_tokens, SamplingConfig::default())
}

/// Draws `token` for every sequence of a plan whose prompt ends with it.
fn draws(scheduler: &Scheduler, plan: &StepPlan, token: u32) -> Vec<Draw> {
    let is_drawn = |sequence: &u64| {
        let running = scheduler.running.get(sequence);
        running.is_some_and(|running| running.prompt_left == 0)
    };
    let draw = |sequence: u64| Draw {
        sequence,
        is_of_prompt: false,
        choice: Choice {
            token,
            log_probability: -1.0,
            top: Vec::new(),
            margin: 1.0,
        },
    };
    let sequences = plan.work.iter().map(|(sequence, _)| *sequence);
    sequences.filter(is_drawn).map(draw).collect()
}

/// Plans a step and draws `token` in it.
fn step(scheduler: &mut Scheduler, token: u32) -> (StepPlan, Vec<GenerationEvent>) {
    let plan = scheduler.plan();
    let drawn = draws(scheduler, &plan, token);
    (plan, scheduler.take(drawn))
}

#[test]
fn prompts_are_computed_in_pieces_beside_the_batch() {
    let mut scheduler = scheduler(4, 100, 6, 10);
    scheduler.submit(request(3, 5)).unwrap();
    let (plan, events) = step(&mut scheduler, 66);
    assert_eq!(plan.work, [(0, 3)]);
    assert_eq!(plan.admitted[0].pages.len(), 2);
    assert_eq!((events[0].text.as_str(), events[0].finished), ("B", None));
    // A long prompt and one of a single token join: five tokens of the step are left for them.
    scheduler.submit(request(9, 2)).unwrap();
    scheduler.submit(request(1, 2)).unwrap();
    let mut work = || step(&mut scheduler, 66).0.work;
    assert_eq!(work(), [(0, 1), (1, 5)]);
    assert_eq!(work(), [(0, 1), (2, 1), (1, 4)]);
    assert_eq!(work(), [(0, 1), (1, 1), (2, 1)]);
}

#[test]
fn samples_wait_for_pages_and_places_in_order() {
    let mut scheduler = scheduler(2, 4, 100, 3);
    // Three pages, then two, then one: the third does not overtake the second.
    for (prompt, output) in [(8, 5), (4, 5), (1, 2)] {
        scheduler.submit(request(prompt, output)).unwrap();
    }
    assert_eq!(scheduler.plan().admitted.len(), 1);
    assert_eq!(scheduler.counts(), [1, 2]);
    assert_eq!(scheduler.cache_use().free_pages, 1);
    assert!(scheduler.cancel(RequestId(0)));
    let plan = scheduler.plan();
    assert_eq!(plan.removed, [0]);
    let admitted = plan.admitted.iter().map(|admission| admission.sequence);
    assert_eq!(admitted.collect::<Vec<_>>(), [1, 2]);
    assert!(!scheduler.cancel(RequestId(0)));
}

#[test]
fn requests_beyond_the_cache_and_the_queue_are_refused() {
    let mut scheduler = scheduler(1, 3, 100, 2);
    let error = scheduler.submit(request(10, 4)).unwrap_err();
    assert_eq!(error.to_string(), "a sample needs 4 pages of the cache, which has 3");
    for _ in 0..3 {
        scheduler.submit(request(1, 4)).unwrap();
    }
    let error = scheduler.submit(request(5, 4)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "3 samples would wait, at most 2 may: this request needs 2 pages of the cache, of which 3 are free"
    );
}

#[test]
fn a_sample_that_waits_for_pages_waits_though_there_is_a_place() {
    let mut scheduler = scheduler(4, 3, 100, 0);
    scheduler.submit(request(5, 4)).unwrap();
    let error = scheduler.submit(request(5, 4)).unwrap_err();
    assert!(
        error.to_string().starts_with("1 samples would wait, at most 0 may"),
        "{error}"
    );
    scheduler.submit(request(1, 4)).unwrap();
    assert_eq!(scheduler.plan().admitted.len(), 2);
    assert_eq!(scheduler.cache_use().free_pages, 0);
}

#[test]
fn samples_end_by_length_by_stop_and_at_the_end_of_the_document() {
    let mut scheduler = scheduler(3, 100, 100, 10);
    let mut stopped = request(1, 9);
    stopped.stop = vec!["BB".into()];
    scheduler.submit(request(1, 1)).unwrap();
    scheduler.submit(stopped).unwrap();
    let (_, events) = step(&mut scheduler, 66);
    assert_eq!(events[0].finished, Some(FinishReason::Length));
    assert_eq!((events[1].text.as_str(), events[1].finished), ("", None));
    let (plan, events) = step(&mut scheduler, 66);
    assert_eq!(plan.removed, [0]);
    assert_eq!(
        (events[0].text.as_str(), events[0].finished),
        ("", Some(FinishReason::Stop))
    );
    assert!(scheduler.is_idle());
    // What was held back comes with the end of the document; or the text continues after it.
    for (ignores, expected) in [(false, Some(FinishReason::EndOfDocument)), (true, None)] {
        let mut asked = request(1, 9);
        asked.stop = vec!["BC".into()];
        asked.ignores_end_of_document = ignores;
        scheduler.submit(asked).unwrap();
        step(&mut scheduler, 66);
        let (_, events) = step(&mut scheduler, ByteTokenizer::END_OF_DOCUMENT);
        assert_eq!(events[0].finished, expected);
        assert_eq!(events[0].text, if ignores { "" } else { "B" });
    }
}

proptest! {
    #[test]
    fn every_sample_gets_all_its_tokens(
        requests in prop::collection::vec((1_usize..20, 1_usize..8, 1_usize..3), 1..12),
        max_batch in 1_usize..4,
        step_tokens in 1_usize..12,
    ) {
        let mut scheduler = scheduler(max_batch, 12, step_tokens, 1000);
        let mut expected = 0;
        for (prompt, output, samples) in requests {
            let request = GenerationRequest { num_samples: samples, ..request(prompt, output) };
            expected += samples * output;
            prop_assert!(scheduler.submit(request).is_ok());
        }
        let (mut tokens, mut steps) = (0, 0);
        while !scheduler.is_idle() {
            let plan = scheduler.plan();
            prop_assert!(!plan.work.is_empty(), "a step without work, and {:?} samples", scheduler.counts());
            prop_assert!(scheduler.counts()[0] <= max_batch);
            let computed: usize = plan.work.iter().map(|(_, new)| new).sum();
            prop_assert!(computed <= step_tokens.max(max_batch + 1), "{} tokens", computed);
            let drawn = draws(&scheduler, &plan, 66);
            tokens += scheduler.take(drawn).len();
            steps += 1;
            prop_assert!(steps < 10_000);
        }
        prop_assert_eq!(tokens, expected);
        prop_assert_eq!(scheduler.cache_use().free_pages, 12);
    }
}
