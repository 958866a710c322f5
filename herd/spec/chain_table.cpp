#include "herd/spec/chain_table.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "herd/base/check.h"
#include "herd/base/error.h"

namespace herd::spec {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 4;

// Visits every number of a block that grows with the samples of a micro-batch.
template <class Block, class Visit>
void visit_numbers(Block& block, const Visit& visit) {
  for (auto* pass : {&block.forward, &block.backward, &block.without_graph}) {
    visit("matmul_flops", pass->matmul_flops);
    visit("attention_flops", pass->attention_flops);
    visit("memory_bytes", pass->memory_bytes);
    visit("scratch_bytes", pass->scratch_bytes);
  }
  visit("input_bytes", block.input_bytes);
  visit("output_bytes", block.output_bytes);
  visit("graph_bytes", block.graph_bytes);
}

int64_t bytes_of(const TensorShape& tensor, int64_t samples, int64_t tokens) {
  int64_t bytes = size_of(tensor.dtype);
  for (const int64_t size : tensor.sizes(samples, tokens)) bytes *= size;
  return bytes;
}

Json json_of(const TensorShape& tensor) {
  Json extents = Json::array();
  for (const Extent& extent : tensor.extents) extents.push_back({extent.factor, extent.samples, extent.tokens});
  return {{"name", tensor.name},
          {"bytes", tensor.bytes},
          {"differentiable", tensor.differentiable},
          {"dtype", dtype_name(tensor.dtype)},
          {"extents", extents}};
}

TensorShape tensor_of(const Json& json) {
  TensorShape tensor{.name = json.at("name").get<std::string>(),
                     .bytes = json.at("bytes").get<int64_t>(),
                     .differentiable = json.at("differentiable").get<bool>(),
                     .dtype = parse_dtype(json.at("dtype").get<std::string>())};
  for (const Json& extent : json.at("extents"))
    tensor.extents.push_back({extent.at(0).get<int64_t>(), extent.at(1).get<int>(), extent.at(2).get<int>()});
  return tensor;
}

template <class List>
Json json_of_tensors(const List& tensors) {
  Json out = Json::array();
  for (const TensorShape& tensor : tensors) out.push_back(json_of(tensor));
  return out;
}

std::vector<TensorShape> tensors_of(const Json& json) {
  std::vector<TensorShape> out;
  for (const Json& tensor : json) out.push_back(tensor_of(tensor));
  return out;
}

Json json_of(const std::vector<TensorId>& tensors) {
  Json out = Json::array();
  for (const TensorId tensor : tensors) out.push_back({tensor.producer, tensor.tensor});
  return out;
}

std::vector<TensorId> tensor_ids_of(const Json& json) {
  std::vector<TensorId> out;
  for (const Json& tensor : json) out.push_back({tensor.at(0).get<int>(), tensor.at(1).get<int>()});
  return out;
}

Json json_of(const std::vector<ParameterShape>& parameters) {
  Json out = Json::array();
  for (const ParameterShape& parameter : parameters) out.push_back({parameter.name, parameter.sizes});
  return out;
}

std::vector<ParameterShape> parameters_of(const Json& json) {
  std::vector<ParameterShape> out;
  for (const Json& parameter : json)
    out.push_back({parameter.at(0).get<std::string>(), parameter.at(1).get<std::vector<int64_t>>()});
  return out;
}

Json json_of(const BlockShape& block) {
  Json numbers = Json::array();
  visit_numbers(block, [&](const char*, auto number) { numbers.push_back(number); });
  return {{"name", block.name},
          {"groups", block.groups},
          {"inputs", json_of(block.inputs)},
          {"kept", json_of(block.kept)},
          {"outputs", json_of_tensors(block.outputs)},
          {"buffers", json_of(block.buffers)},
          {"reads_weights", block.backward_reads_weights},
          {"numbers", numbers}};
}

BlockShape block_of(const Json& json, int layer) {
  BlockShape block{.name = json.at("name").get<std::string>(), .groups = json.at("groups").get<std::vector<int>>()};
  block.layer = layer;
  block.backward_reads_weights = json.at("reads_weights").get<bool>();
  block.inputs = tensor_ids_of(json.at("inputs"));
  block.kept = tensor_ids_of(json.at("kept"));
  block.outputs = tensors_of(json.at("outputs"));
  block.buffers = parameters_of(json.at("buffers"));
  size_t next = 0;
  visit_numbers(block, [&](const char*, auto& number) {
    number = json.at("numbers").at(next++).get<std::remove_reference_t<decltype(number)>>();
  });
  return block;
}

Json json_of(const ModelTable& table) {
  Json blocks = Json::array(), groups = Json::array();
  for (const BlockShape& block : table.blocks) blocks.push_back(json_of(block));
  for (const ParameterGroupShape& group : table.groups)
    groups.push_back({{"name", group.name}, {"frozen", group.frozen}, {"parameters", json_of(group.parameters)}});
  return {{"blocks", blocks},
          {"groups", groups},
          {"batch", json_of_tensors(table.batch)},
          {"dtype", dtype_name(table.compute_dtype)},
          {"gradient_dtype", dtype_name(table.gradient_dtype)}};
}

ModelTable table_of(const Json& json, int64_t samples, int64_t tokens) {
  ModelTable table;
  for (const Json& block : json.at("blocks"))
    table.blocks.push_back(block_of(block, static_cast<int>(table.blocks.size())));
  for (const Json& group : json.at("groups")) {
    ParameterGroupShape& shape = table.groups.emplace_back();
    shape.name = group.at("name").get<std::string>();
    shape.frozen = group.at("frozen").get<bool>();
    shape.parameters = parameters_of(group.at("parameters"));
  }
  table.batch = tensors_of(json.at("batch"));
  table.compute_dtype = parse_dtype(json.at("dtype").get<std::string>());
  table.gradient_dtype = parse_dtype(json.at("gradient_dtype").get<std::string>());
  table.micro_batch = samples;
  table.tokens = samples * tokens;
  return table;
}

}  // namespace

ChainTable::ChainTable(int64_t small_samples, ModelTable small, int64_t large_samples, ModelTable large,
                       int64_t most_tokens)
    : small_samples_(small_samples),
      large_samples_(large_samples),
      most_tokens_(most_tokens),
      small_(std::move(small)),
      large_(std::move(large)) {
  HERD_CHECK(small_samples >= 1 && small_samples < large_samples, "two traces of a chain differ in their samples");
  HERD_CHECK_EQ(small_.blocks.size(), large_.blocks.size());
}

ModelTable ChainTable::at(int64_t micro_batch) const {
  ModelTable out = large_;
  out.micro_batch = micro_batch;
  out.tokens = micro_batch * most_tokens_;
  const auto resize = [&](std::vector<TensorShape>& tensors) {
    for (TensorShape& tensor : tensors) tensor.bytes = bytes_of(tensor, micro_batch, most_tokens_);
  };
  resize(out.batch);
  const double share =
      static_cast<double>(micro_batch - small_samples_) / static_cast<double>(large_samples_ - small_samples_);
  for (size_t b = 0; b < out.blocks.size(); ++b) {
    std::vector<double> small;
    visit_numbers(small_.blocks[b], [&](const char*, auto number) { small.push_back(static_cast<double>(number)); });
    size_t next = 0;
    visit_numbers(out.blocks[b], [&](const char*, auto& number) {
      const double low = small[next++], value = low + share * (static_cast<double>(number) - low);
      number = static_cast<std::remove_reference_t<decltype(number)>>(std::llround(value));
    });
    resize(out.blocks[b].outputs);
    out.blocks[b].graph_bytes = std::max<int64_t>(out.blocks[b].graph_bytes, 0);
  }
  return out;
}

std::string ChainTable::identity() const {
  const auto of = [](const std::string& name, int64_t count) { return name + " " + std::to_string(count); };
  std::string out, separator;
  for (const TensorShape& tensor : large_.batch) {
    out += separator + of(tensor.name, bytes_of(tensor, 1, most_tokens_) / size_of(tensor.dtype));
    separator = ", ";
  }
  separator = ": ";
  for (const BlockShape& block : large_.blocks) {
    int64_t parameters = 0;
    for (const int group : block.groups) parameters += large_.group_elements(group);
    out += separator + of(block.name, parameters);
    separator = ", ";
  }
  return out;
}

std::string ChainTable::text() const {
  return Json{{"herd_chain_table", kVersion},
              {"samples", {small_samples_, large_samples_}},
              {"most_tokens", most_tokens_},
              {"tables", {json_of(small_), json_of(large_)}}}
      .dump(1);
}

ChainTable ChainTable::parse(std::string_view text, const std::string& source) {
  try {
    const Json json = Json::parse(text);
    if (json.at("herd_chain_table").get<int>() != kVersion)
      throw Error(Code::kCorruptFile,
                  source + " is a chain table of another version\n  fix: train once with this herd");
    const int64_t small = json.at("samples").at(0).get<int64_t>(), large = json.at("samples").at(1).get<int64_t>();
    const int64_t tokens = json.at("most_tokens").get<int64_t>();
    return {small, table_of(json.at("tables").at(0), small, tokens), large,
            table_of(json.at("tables").at(1), large, tokens), tokens};
  } catch (const Json::exception& error) {
    throw Error(Code::kCorruptFile,
                source + " is no chain table: " + error.what() + "\n  fix: train once, which writes it anew");
  }
}

}  // namespace herd::spec
