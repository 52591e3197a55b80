//! The model of a checkpoint, and what flags say of it.

use std::path::Path;

use burn_megatron::checkpoint::{CheckpointConfig, CheckpointWriter};
use burn_megatron::collectives::ProcessGroup;
use cubecl_kernels::rotary::tables::RotaryScaling;
use models::gpt::GptConfig;
use models::llama::LlamaConfig;
use models::t5::T5Config;
use serde::Serialize;
use serde_json::json;
use tempfile::TempDir;

use super::super::tests::try_parse;
use super::*;

/// Saves a model as an imported one, without its parameters.
fn save_model(directory: &Path, family: &str, model: impl Serialize) -> Checkpoint {
    let state = json!({ "family": family, "model": model, "imported_from": "files" });
    let mut writer = CheckpointWriter::new(ProcessGroup::single(), directory, CheckpointConfig::new()).unwrap();
    writer.save(0, Vec::new(), state).unwrap();
    Checkpoint::find(directory).unwrap()
}

fn flags(text: &str) -> ModelArguments {
    try_parse(text).expect("they are flags")
}

#[test]
fn the_checkpoint_says_what_the_model_is_and_flags_confirm_it() {
    let folder = TempDir::new().unwrap();
    let scaling = RotaryScaling::Linear { factor: 4.0 };
    let llama = LlamaConfig::new(2, 32, 4, 2, 48, 64, 300)
        .with_rotary_scaling(scaling)
        .with_tied_embeddings(true)
        .with_hidden_dropout(0.1)
        .with_init_deviation(0.3)
        .with_window(Some(8));
    let checkpoint = save_model(&folder.path().join("llama"), "llama", &llama);
    let model = |text: &str, num_tokens| -> anyhow::Result<LlamaConfig> {
        let arguments = flags(text);
        assert_eq!(arguments.family(Some(&checkpoint))?.name, "llama");
        arguments.model(Some(&checkpoint), num_tokens)
    };
    // The tokenizer has fewer tokens than the embedding rows.
    assert_eq!(model("", 261).unwrap(), llama);
    let confirmed = "--model-family llama --num-layers 2 --hidden-size 32 --num-attention-heads 4 --num-query-groups 2 \
                     --kv-channels 8 --ffn-hidden-size 48 --normalization RMSNorm --swiglu --window-size 7,0 \
                     --rotary-base 10000 --rotary-percent 1 --group-query-attention --norm-epsilon 1e-5";
    assert_eq!(model(confirmed, 300).unwrap(), llama.clone().with_d_head(Some(8)));
    // What may change.
    let changed = model(
        "--hidden-dropout 0 --attention-dropout 0.2 --padded-vocab-size 304 --init-method-std 0.5 \
         --logit-chunk-tokens 9 --seq-length 32 --max-position-embeddings 128 --recompute-granularity full",
        261,
    );
    let expected = LlamaConfig {
        max_seq_length: 128,
        layer_recompute: flags("--recompute-granularity full").recompute.layers(),
        ..llama
            .with_hidden_dropout(0.0)
            .with_attention_dropout(0.2)
            .with_padded_vocab_size(Some(304))
            .with_init_deviation(0.5)
            .with_logit_chunk_tokens(Some(9))
    };
    assert_eq!(changed.unwrap(), expected);
    for (text, words) in [
        ("--model-family gpt", "--model-family is llama there and gpt here"),
        ("--model-size gpt2-124m", "--model-family is llama there and gpt here"),
        ("--model-size llama3.2-1b", "--num-layers is 2 there and 16 here"),
        ("--num-layers 3", "--num-layers is 2 there and 3 here"),
        ("--num-query-groups 4", "--num-query-groups is 2 there and 4 here"),
        ("--ffn-hidden-size 64", "--ffn-hidden-size is 48 there and 64 here"),
        ("--norm-epsilon 1e-3", "--norm-epsilon is 0.00001 there and 0.001 here"),
        (
            "--untie-embeddings-and-output-weights",
            "--untie-embeddings-and-output-weights is false there and true here",
        ),
        ("--add-qkv-bias", "--add-qkv-bias is false there and true here"),
        ("--qk-layernorm", "--qk-layernorm is false there and true here"),
        ("--window-size 8", "--window-size is 7 there and 8 here"),
        ("--rotary-base 500", "--rotary-base is 10000 there and 500 here"),
        (
            "--normalization LayerNorm",
            "--normalization is RMSNorm there and LayerNorm here",
        ),
        (
            // A size of the same shape, but for what no flag says.
            "--model-size llama3.1-8b --num-layers 2 --hidden-size 32 --num-attention-heads 4 --num-query-groups 2 \
             --ffn-hidden-size 48 --rotary-base 10000",
            "the scaling of rotary frequencies is {\"factor\":4.0,\"rope_type\":\"linear\"} there and {\"factor\":8.0,",
        ),
    ] {
        let error = model(text, 261).map(drop).or_else(|error| {
            // The family is looked at first.
            flags(text).family(Some(&checkpoint)).map(drop).and(Err(error))
        });
        let error = error.expect_err(text).to_string();
        assert!(
            error.contains("iter_0000000 is of another model: ") && error.contains(words),
            "{text}: {error}"
        );
    }
    let error = model("", 301).unwrap_err().to_string();
    assert!(
        error.contains("its vocabulary has 300 rows, and this run's tokenizer 301 tokens"),
        "{error}"
    );
}

#[test]
fn flags_of_half_a_model_ask_nothing_of_the_other_half() {
    let folder = TempDir::new().unwrap();
    let t5 = T5Config::new(3, 1, 30, 6, 6, 34, 40, 18, 300)
        .with_scales_head(true)
        .with_tied_embeddings(false);
    let checkpoint = save_model(folder.path(), "t5", &t5);
    let model = |text: &str| flags(text).model::<T5Config>(Some(&checkpoint), 261);
    assert_eq!(model("--num-layers 3").unwrap(), t5);
    // Positions are relative: longer samples are taken, and shorter ones change nothing of the model.
    assert_eq!(model("--seq-length 80").unwrap().max_seq_length, 80);
    assert_eq!(model("--seq-length 20").unwrap().max_seq_length, 40);
    let error = model("--decoder-num-layers 3").unwrap_err().to_string();
    assert!(error.contains("--decoder-num-layers is 1 there and 3 here"), "{error}");
    // Learned positions are parameters.
    let gpt = GptConfig::new(2, 6, 3, 5, 257);
    let checkpoint = save_model(&folder.path().join("gpt"), "gpt", &gpt);
    let error = flags("--max-position-embeddings 9").model::<GptConfig>(Some(&checkpoint), 257);
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("--max-position-embeddings is 5 there and 9 here"),
        "{error}"
    );
}
