//! Lines for burn's own layers, by the names of their parts.

use super::Plan;

impl Plan {
    /// Cuts the heads of burn's `MultiHeadAttention` at these paths over the tensor-parallel ranks, which must divide
    /// their number. Each rank then has a term of the output.
    pub fn attention(self, layers: &str) -> Self {
        self.column(&format!("{layers}.{{query,key,value}}"))
            .row(&format!("{layers}.output"))
    }

    /// Cuts the inner width of burn's `PositionWiseFeedForward` at these paths over the tensor-parallel ranks. Each
    /// rank then has a term of the output.
    pub fn feed_forward(self, layers: &str) -> Self {
        self.column(&format!("{layers}.linear_inner"))
            .row(&format!("{layers}.linear_outer"))
    }

    /// Cuts every layer of burn's `TransformerEncoder` at these paths: [`attention`](Self::attention) and
    /// [`feed_forward`](Self::feed_forward). Norms stay whole.
    pub fn transformer_encoder(self, encoders: &str) -> Self {
        self.attention(&format!("{encoders}.layers.*.mha"))
            .feed_forward(&format!("{encoders}.layers.*.pwff"))
    }

    /// Cuts every layer of burn's `TransformerDecoder` at these paths: both attentions and the feed-forward layer.
    /// Norms stay whole.
    pub fn transformer_decoder(self, decoders: &str) -> Self {
        self.attention(&format!("{decoders}.layers.*.{{self_attn,cross_attn}}"))
            .feed_forward(&format!("{decoders}.layers.*.pwff"))
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::nn::transformer::{
        TransformerDecoder, TransformerDecoderConfig, TransformerEncoder, TransformerEncoderConfig,
    };
    use burn_flex::{Flex, FlexDevice};

    use super::*;
    use crate::sharded::device;
    use crate::sharded::placement::AxisPlacement::{Replicated, Shard};
    use crate::sharded::placement::{AxisRole, MeshShape};
    use crate::sharded::plan::planned_parameters;

    #[derive(Module, Debug)]
    struct Translator {
        encoder: TransformerEncoder,
        decoder: TransformerDecoder,
    }

    #[test]
    fn of_burns_transformer_layers_all_but_norms_and_the_biases_of_outputs_is_cut() {
        let device = device::<Flex>(FlexDevice);
        let model = Translator {
            encoder: TransformerEncoderConfig::new(8, 16, 2, 2).init(&device),
            decoder: TransformerDecoderConfig::new(8, 16, 2, 2).init(&device),
        };
        let parameters = planned_parameters(&model).expect("a device whose tensors are placed");
        let plan = Plan::new()
            .transformer_encoder("encoder")
            .transformer_decoder("decoder");
        let mesh = MeshShape::new([(AxisRole::Tensor, 2)]);
        let places = plan.resolve(&parameters, &mesh).expect("burn's names");
        for (parameter, places) in parameters.iter().zip(places) {
            let parts: Vec<&str> = parameter.name.rsplit('.').take(2).collect();
            let expected = match parts[..] {
                ["weight", "query" | "key" | "value" | "linear_inner"] => Shard(1),
                ["bias", "query" | "key" | "value" | "linear_inner"] => Shard(0),
                ["weight", "output" | "linear_outer"] => Shard(0),
                _ => Replicated,
            };
            assert_eq!(places[0], expected, "{}", parameter.name);
        }
    }
}
