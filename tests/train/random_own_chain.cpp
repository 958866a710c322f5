#include "random_own_chain.h"

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <vector>

namespace herd::train {
namespace {

namespace F = torch::nn::functional;

constexpr int64_t kWords = 11, kMostTokens = 7;

enum class Form : uint8_t {
  kFloat,     // [n, ...], with a gradient
  kConstant,  // [n, ...], floating, without one
  kTable,     // floating, with a gradient and the same sizes for any number of samples
  kMask,      // [n, ...], bool
  kIndices,   // [n, ...], int64 below kWords
};

struct Drawn {
  std::string name;  // as Chain::add() reads it
  Form form = Form::kFloat;
  std::vector<int64_t> sizes = {};  // those after the samples, and after the tokens
  bool has_tokens = false;          // [n, T, ...], zero where a sample has fewer
  int64_t elements() const {
    int64_t product = 1;
    for (const int64_t size : sizes) product *= size;
    return product;
  }
};

// What a block does with what it reads.
struct Recipe {
  std::vector<Drawn> inputs, outputs;
  int64_t width = 4;
  bool has_norm = false, has_table = false, is_shared = false, gives_views = false;
};

// Returns what blocks compute with: rows of a floating tensor, summed over its tokens, one for each sample.
at::Tensor rows_of(const Drawn& drawn, const at::Tensor& x) {
  return drawn.has_tokens ? x.flatten(1).unflatten(1, {x.size(1), drawn.elements()}).sum(1) : x.flatten(1);
}

bool per_sample(Form form) { return form != Form::kTable; }
bool is_floating(Form form) { return form == Form::kFloat || form == Form::kConstant || form == Form::kTable; }

// Repeats the columns of x [n, k] until a tensor of so many is full.
at::Tensor spread(const at::Tensor& x, std::vector<int64_t> sizes, int64_t elements) {
  const int64_t times = (elements + x.size(1) - 1) / x.size(1);
  sizes.insert(sizes.begin(), x.size(0));
  return x.repeat({1, times}).narrow(1, 0, elements).reshape(sizes);
}

// Adds up what it reads, each through a layer of its own.
struct MixImpl : torch::nn::Module {
  explicit MixImpl(const Recipe& recipe) : recipe_(recipe) {
    for (size_t i = 0; i < recipe.inputs.size(); ++i) {
      const Drawn& input = recipe.inputs[i];
      const std::string name = "in" + std::to_string(i);
      linears_.emplace_back(nullptr);
      words_.emplace_back(nullptr);
      if (input.form == Form::kIndices)
        words_.back() = register_module(name, torch::nn::Embedding(kWords, recipe.width));
      else
        linears_.back() = register_module(name, torch::nn::Linear(input.elements(), recipe.width));
    }
    scale_ = register_parameter("scale", torch::ones({recipe.width}));
    if (recipe.has_table) table = register_parameter("table", 0.5 * torch::randn({kWords, recipe.width}));
    if (recipe.has_norm)
      norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({recipe.width})));
  }

  at::Tensor forward(const Tensors& x) {
    at::Tensor sum;
    for (size_t i = 0; i < x.size(); ++i) {
      at::Tensor part;
      if (words_[i])
        part = words_[i]->forward(x[i].flatten(1)).mean(1);
      else if (per_sample(recipe_.inputs[i].form))
        part = linears_[i]->forward(rows_of(recipe_.inputs[i], x[i]).to(scale_.scalar_type()));
      else
        part = linears_[i]->forward(x[i].reshape({1, -1}));
      sum = sum.defined() ? sum + part : part;
    }
    sum = torch::tanh(sum) * scale_;
    return norm_ ? norm_->forward(sum) : sum;
  }

  at::Tensor table;

 private:
  Recipe recipe_;
  std::vector<torch::nn::Linear> linears_;
  std::vector<torch::nn::Embedding> words_;
  at::Tensor scale_;
  torch::nn::LayerNorm norm_{nullptr};
};
TORCH_MODULE(Mix);

// Adds up what it reads without any weight: [n, width].
at::Tensor mix(const Recipe& recipe, const Tensors& x) {
  at::ScalarType type = torch::kFloat;
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i].is_floating_point()) type = x[i].scalar_type();
  at::Tensor sum;
  for (size_t i = 0; i < x.size(); ++i) {
    const at::Tensor rows = per_sample(recipe.inputs[i].form) ? rows_of(recipe.inputs[i], x[i]) : x[i].reshape({1, -1});
    const at::Tensor part = spread(torch::sin(rows.to(type)), {recipe.width}, recipe.width);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

// Gives the outputs of a recipe from mixed [n, width].
Tensors outputs_of(const Recipe& recipe, const Tensors& x, at::Tensor mixed, const MixImpl* module) {
  int64_t samples = 1;
  for (size_t i = 0; i < x.size(); ++i)
    if (per_sample(recipe.inputs[i].form)) samples = x[i].size(0);
  mixed = mixed.expand({samples, mixed.size(1)});
  Tensors out;
  for (size_t o = 0; o < recipe.outputs.size(); ++o) {
    const Drawn& output = recipe.outputs[o];
    // Masks and indices follow from the batch alone: a rounding must not change them.
    const auto exact =
        std::ranges::find_if(recipe.inputs, [](const Drawn& input) { return !is_floating(input.form); }) -
        recipe.inputs.begin();
    if (output.form == Form::kTable) {
      out.push_back(module->table);
    } else if (output.form == Form::kMask || output.form == Form::kIndices) {
      const at::Tensor numbers = x[static_cast<size_t>(exact)].flatten(1).to(torch::kLong);
      const at::Tensor chosen =
          (spread(numbers, output.sizes, output.elements()) * 3 + static_cast<int64_t>(o)) % kWords;
      out.push_back(output.form == Form::kMask ? chosen > 4 : chosen);
    } else {
      at::Tensor y = recipe.gives_views && output.elements() <= mixed.size(1)
                         ? mixed.narrow(1, 0, output.elements()).unflatten(1, output.sizes)
                         : spread(mixed, output.sizes, output.elements()) * (1.0 + 0.1 * static_cast<double>(o));
      if (output.has_tokens) {
        const auto spans = std::ranges::find(recipe.inputs, "spans", &Drawn::name) - recipe.inputs.begin();
        std::vector<int64_t> sizes = x[static_cast<size_t>(spans)].sizes().vec();
        sizes.resize(2 + output.sizes.size(), 1);
        y = y.unsqueeze(1) * x[static_cast<size_t>(spans)].to(y.scalar_type()).view(sizes);
      }
      out.push_back(output.form == Form::kConstant ? y.detach() : y);
    }
  }
  return out;
}

Tensors loss_of(const at::Tensor& logits, const at::Tensor& labels) {
  const auto options = F::CrossEntropyFuncOptions().reduction(torch::kSum).ignore_index(-1);
  return {F::cross_entropy(logits.to(torch::kFloat), labels, options), (labels >= 0).sum()};
}

std::string described(const std::vector<Drawn>& tensors) {
  std::string text;
  for (const Drawn& tensor : tensors) {
    text += (text.empty() ? "" : ", ") + tensor.name + " " +
            (tensor.form == Form::kFloat      ? "float"
             : tensor.form == Form::kConstant ? "constant"
             : tensor.form == Form::kTable    ? "table"
             : tensor.form == Form::kMask     ? "mask"
                                              : "indices") +
            (tensor.has_tokens ? " tokens" : "");
    for (const int64_t size : tensor.sizes) text += " " + std::to_string(size);
  }
  return text;
}

// Draws a chain block by block.
class Drawer {
 public:
  Drawer(std::mt19937& random, int64_t scale) : random_(random), token_random_(random), scale_(scale) {
    token_random_.discard(1000);
    counts_tokens_ = token_random_() % 4 == 0;
    for (const Drawn& tensor : batch_tensors(scale)) {
      if (counts_tokens_ || !tensor.has_tokens) batch_.push_back(tensor);
    }
  }

  RandomChain draw() {
    const int blocks = number(5, 12);
    shares_ = chance(0.25);
    for (int b = 0; b + 1 < blocks; ++b) add_block("block" + std::to_string(b), b);
    add_loss();
    if (chance(0.3))
      out_.frozen = chance(0.5) ? "*.scale *.norm.bias" : "block0.* block" + std::to_string(number(1, 3)) + ".*";
    if (out_.frozen[0] == 'b' && !matches_) out_.frozen = "none";
    const auto batch = batch_tensors(scale_);
    const std::vector<std::string> read_by_chain = out_.chain.batch_names();
    for (const Drawn& tensor : batch) {
      if (tensor.has_tokens && std::ranges::find(read_by_chain, tensor.name) != read_by_chain.end())
        out_.data.tokens.dimensions.emplace_back(tensor.name, 1), out_.data.tokens.most = kMostTokens;
    }
    out_.data.read = [batch](const std::vector<int64_t>& samples) { return read(batch, samples); };
    return std::move(out_);
  }

 private:
  static std::vector<Drawn> batch_tensors(int64_t scale) {
    return {{"points", Form::kConstant, {6 * scale}}, {"ids", Form::kIndices, {4}},
            {"keep", Form::kMask, {2, 3 * scale}},    {"grid", Form::kConstant, {2, 3, scale}},
            {"spans", Form::kConstant, {}, true},     {"series", Form::kConstant, {2 * scale}, true}};
  }

  static Batch read(const std::vector<Drawn>& tensors, const std::vector<int64_t>& samples) {
    Batch batch;
    const auto n = static_cast<int64_t>(samples.size());
    const at::Tensor index = torch::tensor(samples).unsqueeze(1);
    const at::Tensor lengths = 1 + index * 5 % kMostTokens;
    const auto longest = lengths.max().item<int64_t>();
    for (size_t t = 0; t < tensors.size(); ++t) {
      const Drawn& tensor = tensors[t];
      const int64_t elements = tensor.elements() * (tensor.has_tokens ? longest : 1);
      const at::Tensor column = torch::arange(elements, torch::kLong).unsqueeze(0);
      const at::Tensor hash = (index * 7919 + column * (104729 + static_cast<int64_t>(t) * 31)) % 10007;
      std::vector<int64_t> sizes = tensor.sizes;
      if (tensor.has_tokens) sizes.insert(sizes.begin(), longest);
      sizes.insert(sizes.begin(), n);
      at::Tensor values = tensor.form == Form::kIndices ? hash % kWords
                          : tensor.form == Form::kMask  ? hash % 2 == 0
                          : tensor.name == "spans"      ? torch::ones_like(hash, torch::kFloat)
                                                        : torch::sin(hash.to(torch::kFloat));
      if (tensor.has_tokens) values = values * (column.div(tensor.elements(), "floor") < lengths);
      batch.tensors.emplace_back(tensor.name, values.reshape(sizes));
    }
    at::Tensor labels = index.squeeze(1) * 5 % kWords;
    labels = torch::where(index.squeeze(1) % 5 == 3, torch::full_like(labels, -1), labels);
    batch.count = (labels >= 0).sum().item<int64_t>();
    batch.tensors.emplace_back("labels", labels);
    return batch;
  }

  int number(int least, int most) {
    return least + static_cast<int>(random_() % static_cast<uint32_t>(most - least + 1));
  }
  bool chance(double share) { return random_() < share * 4294967296.0; }

  std::vector<int64_t> sizes() {
    std::vector<int64_t> out;
    for (int dims = number(1, 3); dims > 0; --dims) out.push_back(number(1, 4));
    out.back() *= scale_;
    return out;
  }

  std::vector<Drawn> inputs(bool first) {
    std::vector<Drawn> out;
    std::set<std::string> names;
    const auto add = [&](const Drawn& tensor) {
      if (names.insert(tensor.name).second) out.push_back(tensor);
    };
    for (int reads = first ? 0 : number(1, 3); reads > 0; --reads) {
      const auto near = static_cast<size_t>(number(1, std::min(3, static_cast<int>(made_.size()))));
      add(chance(0.4) ? made_[random_() % made_.size()] : made_[made_.size() - near]);
    }
    const bool has_samples = std::ranges::any_of(out, [](const Drawn& tensor) { return per_sample(tensor.form); });
    if (!has_samples || chance(0.3)) add(batch_[random_() % batch_.size()]);
    std::shuffle(out.begin(), out.end(), random_);
    return out;
  }

  void add_block(const std::string& name, int b) {
    Recipe recipe;
    recipe.inputs = inputs(b == 0);
    recipe.width = number(3, 8) * scale_;
    recipe.has_norm = chance(0.4);
    recipe.gives_views = chance(0.3);
    const bool has_module = b == 0 || chance(0.7);
    recipe.has_table = has_module && (b == 0 || chance(0.15));
    const bool exact = std::ranges::any_of(recipe.inputs, [](const Drawn& input) { return !is_floating(input.form); });
    for (int t = 0, tensors = number(1, 3); t < tensors; ++t) {
      Drawn output{.name = name + ":" + std::to_string(t), .sizes = sizes()};
      if (t > 0 && chance(0.5)) {
        output.form = exact && chance(0.7) ? (chance(0.5) ? Form::kMask : Form::kIndices) : Form::kConstant;
        if (recipe.has_table && chance(0.5)) output.form = Form::kTable, output.sizes = {kWords, recipe.width};
      }
      output.has_tokens =
          counts_tokens_ && (output.form == Form::kFloat || output.form == Form::kConstant) && token_random_() % 3 == 0;
      recipe.outputs.push_back(output);
    }
    const bool has_tokens = std::ranges::any_of(recipe.outputs, &Drawn::has_tokens);
    if (has_tokens && std::ranges::find(recipe.inputs, "spans", &Drawn::name) == recipe.inputs.end())
      recipe.inputs.push_back(*std::ranges::find(batch_, "spans", &Drawn::name));
    if (b >= 1 && b <= 3 && has_module) matches_ = true;
    if (b == 0) first_ = recipe;
    out_.text += "\n  " + name + (has_module ? " module" : " function") + (recipe.gives_views ? " views" : "") + " (" +
                 described(recipe.inputs) + ") -> " + described(recipe.outputs);
    std::vector<std::string> reads;
    for (const Drawn& input : recipe.inputs) reads.push_back(input.name);
    if (has_module)
      out_.chain.add(
          name, reads, [recipe] { return Mix(recipe); },
          [recipe](MixImpl& module, const Tensors& x) { return outputs_of(recipe, x, module.forward(x), &module); });
    else
      out_.chain.add_function(name, reads,
                              [recipe](const Tensors& x) { return outputs_of(recipe, x, mix(recipe, x), nullptr); });
    for (const Drawn& output : recipe.outputs) made_.push_back(output);
  }

  void add_loss() {
    Recipe recipe;
    recipe.inputs = inputs(false);
    // It reads a tensor with a gradient, so that there is something to train.
    const auto last = std::ranges::find(made_.rbegin(), made_.rend(), Form::kFloat, &Drawn::form);
    if (std::ranges::find(recipe.inputs, last->name, &Drawn::name) == recipe.inputs.end())
      recipe.inputs.push_back(*last);
    recipe.width = shares_ ? first_.width : kWords;
    const size_t labels = recipe.inputs.size();
    std::vector<std::string> reads;
    for (const Drawn& input : recipe.inputs) reads.push_back(input.name);
    reads.emplace_back("labels");
    out_.text += std::string("\n  loss") + (shares_ ? " shares block0" : "") + " (" + described(recipe.inputs) + ")";
    if (shares_)
      out_.chain.add_shared<MixImpl>("loss", reads, "block0", [recipe, labels](MixImpl& module, const Tensors& x) {
        const at::Tensor mixed = mix(recipe, {x.begin(), x.begin() + static_cast<int64_t>(labels)});
        return loss_of(
            mixed.to(module.table.scalar_type()).matmul(module.table.t()).expand({x[labels].size(0), kWords}),
            x[labels]);
      });
    else
      out_.chain.add(
          "loss", reads, [recipe] { return Mix(recipe); },
          [labels](MixImpl& module, const Tensors& x) {
            const at::Tensor logits = module.forward({x.begin(), x.begin() + static_cast<int64_t>(labels)});
            return loss_of(2 * logits.expand({x[labels].size(0), kWords}), x[labels]);
          });
  }

  std::mt19937& random_;
  std::mt19937 token_random_;  // so that chains without tokens are those of their seeds
  int64_t scale_;
  bool counts_tokens_ = false;
  RandomChain out_;
  std::vector<Drawn> batch_, made_;
  Recipe first_;
  bool shares_ = false, matches_ = false;
};

}  // namespace

RandomChain random_own_chain(std::mt19937& random, int64_t scale) { return Drawer(random, scale).draw(); }

}  // namespace herd::train
