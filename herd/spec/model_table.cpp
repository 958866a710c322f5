#include "herd/spec/model_table.h"

#include <algorithm>
#include <numeric>

#include "herd/base/error.h"

namespace herd::spec {
namespace {

// One GPT, with the sizes that its rows share.
class GptTable {
 public:
  GptTable(const RunFile& run, int64_t micro_batch)
      : m_(run.model), B_(micro_batch), T_(m_.context), D_(m_.width), V_(m_.vocab), H_(m_.heads) {
    F_ = m_.ffn > 0 ? m_.ffn : 4 * D_;
    KV_ = (m_.kv_heads > 0 ? m_.kv_heads : H_) * (D_ / H_);
    table_.micro_batch = B_;
    table_.tokens = B_ * T_;
    table_.target_bytes = B_ * T_ * 8;
    table_.attention = m_.dropout > 0 ? Attention::kMath : Attention::kFlash;
  }

  ModelTable build() {
    std::vector<ParameterShape> wte = {{"wte.weight", {V_, D_}}}, wpe = {{"wpe.weight", {T_, D_}}};
    int tied = -1;
    if (m_.tie_embeddings) {
      tied = add_group("wte", wte);
      add_block(embedding(), {tied, add_group("wpe", wpe)});
    } else {
      wte.push_back(wpe[0]);
      add_block(embedding(), {add_group("embedding", wte)});
    }
    for (int64_t layer = 0; layer < m_.layers; ++layer) {
      const std::string name = "h." + std::to_string(layer);
      add_block(transformer(name), {add_group(name, transformer_parameters(name + "."))});
    }
    std::vector<ParameterShape> last;
    add_norm(last, "ln_f");
    if (tied < 0) last.push_back({"head.weight", {V_, D_}});
    const int own = add_group(tied < 0 ? "head" : "ln_f", last);
    add_block(head(), tied < 0 ? std::vector<int>{own} : std::vector<int>{own, tied});
    return table_;
  }

 private:
  static constexpr int64_t kElement = 4;  // bytes
  int64_t btd() const { return B_ * T_ * D_; }
  int64_t btf() const { return B_ * T_ * F_; }

  int add_group(const std::string& name, std::vector<ParameterShape> parameters) {
    table_.groups.push_back({name, std::move(parameters)});
    return static_cast<int>(table_.groups.size()) - 1;
  }
  void add_block(BlockShape block, std::vector<int> groups) {
    block.groups = std::move(groups);
    table_.blocks.push_back(std::move(block));
  }
  void add_norm(std::vector<ParameterShape>& out, const std::string& name) const {
    out.push_back({name + ".weight", {D_}});
    if (m_.norm == "layernorm") out.push_back({name + ".bias", {D_}});
  }
  static void add_linear(std::vector<ParameterShape>& out, const std::string& name, int64_t rows, int64_t columns) {
    out.push_back({name + ".weight", {rows, columns}});
    out.push_back({name + ".bias", {rows}});
  }
  std::vector<ParameterShape> transformer_parameters(const std::string& prefix) const {
    std::vector<ParameterShape> out;
    add_norm(out, prefix + "ln_1");
    add_linear(out, prefix + "attn.qkv", D_ + 2 * KV_, D_);
    add_linear(out, prefix + "attn.proj", D_, D_);
    add_norm(out, prefix + "ln_2");
    add_linear(out, prefix + "mlp.up", F_, D_);
    add_linear(out, prefix + "mlp.down", D_, F_);
    return out;
  }

  BlockShape embedding() const {
    BlockShape block{.name = "embedding"};
    block.input_bytes = B_ * T_ * 8;
    block.output_bytes = btd() * kElement;
    block.graph_bytes = block.input_bytes;
    block.forward.memory_bytes = 3.0 * static_cast<double>(btd() * kElement);
    // The gradient of the embedding is zeroed whole, then rows are added.
    block.backward.memory_bytes = static_cast<double>((V_ + T_) * D_ * kElement + 3 * btd() * kElement);
    return block;
  }

  // What a transformer layer keeps, B*T*D elements unless said otherwise: the input of ln_1 and its output; q, k, v;
  // what attention gives; the input of ln_2 and its output; up and its gelu, B*T*F each. Norms keep two numbers a row;
  // rms keeps one, and its input scaled. Flash attention keeps one number per head and row, math attention B*H*T*T
  // probabilities (with dropout before and after it). Dropout draws its masks again, so none is kept.
  int64_t transformer_graph_bytes() const {
    const int64_t rows = B_ * T_;
    int64_t bytes = (6 * btd() + rows * (D_ + 2 * KV_) - rows * D_ + 2 * btf()) * kElement;
    bytes += m_.norm == "layernorm" ? 2 * rows * 2 * 4 : 2 * (rows * 4 + btd() * kElement);
    const int64_t scores = B_ * H_ * T_ * T_;
    bytes += table_.attention == Attention::kFlash ? B_ * H_ * T_ * 4 : scores * kElement;
    if (m_.dropout > 0) bytes += scores * kElement;
    return bytes;
  }

  BlockShape transformer(const std::string& name) const {
    BlockShape block{.name = name};
    block.input_bytes = block.output_bytes = btd() * kElement;
    block.graph_bytes = transformer_graph_bytes();
    const double rows = static_cast<double>(B_ * T_);
    const double weights = static_cast<double>((D_ + 2 * KV_) * D_ + D_ * D_ + 2 * D_ * F_);
    const double scores = 4.0 * static_cast<double>(B_ * T_) * static_cast<double>(T_) * static_cast<double>(D_);
    const bool flash = table_.attention == Attention::kFlash;
    block.forward.matmul_flops = 2 * rows * weights;
    block.forward.attention_flops = flash ? scores / 2 : scores;
    // Two norms, two sums and the biases read and write B*T*D, gelu B*T*F.
    block.forward.memory_bytes = static_cast<double>((14 * btd() + 4 * btf()) * kElement);
    const int64_t score_bytes = flash ? 0 : 2 * B_ * H_ * T_ * T_ * kElement;
    block.forward.scratch_bytes = 2 * btd() * kElement + score_bytes;
    block.backward.matmul_flops = 4 * rows * weights;
    block.backward.attention_flops = flash ? 2.5 * scores / 2 : 2 * scores;
    block.backward.memory_bytes = static_cast<double>((22 * btd() + 6 * btf()) * kElement);
    block.backward.scratch_bytes = (2 * btf() + 3 * btd()) * kElement + score_bytes;
    return block;
  }

  BlockShape head() const {
    BlockShape block{.name = "head"};
    block.input_bytes = btd() * kElement;
    const double rows = static_cast<double>(B_ * T_);
    block.forward.matmul_flops = 6 * rows * static_cast<double>(V_) * static_cast<double>(D_);
    // Logits are written, read for the maximum, for the sum, and rewritten as their gradient.
    block.forward.memory_bytes =
        rows * static_cast<double>(V_) * kElement * 5 + 6.0 * static_cast<double>(btd() * kElement);
    block.forward.scratch_bytes = loss_chunk_rows(V_, B_ * T_) * V_ * kElement + 3 * btd() * kElement;
    return block;
  }

  const RunFile::Model& m_;
  int64_t B_, T_, D_, V_, H_, F_ = 0, KV_ = 0;
  ModelTable table_;
};

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

int64_t ParameterShape::elements() const { return product(sizes); }

int64_t ParameterGroupShape::elements() const {
  int64_t sum = 0;
  for (const auto& parameter : parameters) sum += parameter.elements();
  return sum;
}

int64_t ModelTable::parameters() const {
  int64_t sum = 0;
  for (const auto& group : groups) sum += group.elements();
  return sum;
}

double ModelTable::flops() const {
  double sum = 0;
  for (const BlockShape& block : blocks) {
    for (const Cost& cost : {block.forward, block.backward}) sum += cost.matmul_flops + cost.attention_flops;
  }
  return sum;
}

int64_t loss_chunk_rows(int64_t vocab, int64_t rows) {
  const int64_t most = std::max<int64_t>(1, (int64_t{64} << 20) / (4 * vocab));
  const int64_t chunks = (rows + most - 1) / most;
  return (rows + chunks - 1) / chunks;
}

ModelTable model_table(const RunFile& run, int64_t micro_batch) {
  if (run.model.kind != "gpt") {
    throw Error(Code::kBadConfig,
                "model.kind = \"" + run.model.kind + "\" has no layer table\n  fix: model.kind = \"gpt\"");
  }
  return GptTable(run, micro_batch).build();
}

}  // namespace herd::spec
