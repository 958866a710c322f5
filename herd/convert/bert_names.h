// Maps BERT between herd and Hugging Face's transformers: names and config.json. The model is herd's kind = "bert", and
// theirs BertForMaskedLM. The equations are the same (norms after each sum, exact gelu, a head that predicts masked
// words), and so are the logits of texts of one segment. No layout differs.
//   herd                 Hugging Face
//   wte.weight           bert.embeddings.word_embeddings.weight
//   wpe.weight           bert.embeddings.position_embeddings.weight
//   segments.weight      bert.embeddings.token_type_embeddings.weight
//   ln_embedding.*       bert.embeddings.LayerNorm.*
//   h.N.attn.qkv.*       bert.encoder.layer.N.attention.self.{query,key,value}.*, one below the other
//   h.N.attn.proj.*      bert.encoder.layer.N.attention.output.dense.*
//   h.N.ln_1.*           bert.encoder.layer.N.attention.output.LayerNorm.*
//   h.N.mlp.up.*         bert.encoder.layer.N.intermediate.dense.*
//   h.N.mlp.down.*       bert.encoder.layer.N.output.dense.*
//   h.N.ln_2.*           bert.encoder.layer.N.output.LayerNorm.*
//   masked.dense.*       cls.predictions.transform.dense.*
//   masked.ln.*          cls.predictions.transform.LayerNorm.*
//   masked.bias          cls.predictions.bias; of untied models cls.predictions.decoder.bias, too
//   masked.weight        cls.predictions.decoder.weight (untied models only)
// Older files name a norm's parameters gamma and beta. The pooler and the head for next sentences of BertForPreTraining
// are left out. Source: Devlin et al. 2019, arXiv:1810.04805. Threads: pure.
#pragma once

#include "herd/convert/transformers_format.h"

namespace herd::convert {

// Returns the tensors of transformers whose rows, one below the other, are those of the weight.
std::vector<StoredTensor> bert_tensors(const Weight& weight, const spec::RunFile::Model& model);

// Returns the text of config.json; `dtype` is the name that torch has for the type: "float32".
std::string format_bert_config(const TransformersConfig& config, std::string_view dtype);
// Reads config.json. Throws kCorruptFile if `text` is no JSON object or a number is missing. Throws kBadConfig with the
// member, its line, its value and what herd has, for a model that computes something else (hidden_act,
// position_embedding_type, type_vocab_size, is_decoder, add_cross_attention) or has no head for masked words.
TransformersConfig parse_bert_config(std::string_view text, const std::string& file);

// Its check_model() accepts kind = "bert" with LayerNorm, as many key and value heads as heads, and heads that are
// width / heads wide.
const TransformersFormat& bert_format();

}  // namespace herd::convert
