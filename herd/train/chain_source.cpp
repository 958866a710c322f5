#include "herd/train/chain_source.h"

#include <ATen/ops/arange.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "herd/base/error.h"
#include "herd/base/read_ahead.h"
#include "herd/bridge/budget_allocator.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/chain/chain_model.h"
#include "herd/chain/run_named.h"
#include "herd/chain/trace_chain.h"
#include "herd/data/batch.h"
#include "herd/data/sample_order.h"
#include "herd/spec/chain_table.h"
#include "herd/train/shared_error.h"

namespace herd::train {
namespace {

constexpr std::chrono::minutes kTraceDeadline{10};  // rank 0 runs the whole model once

std::string number(int64_t n) { return std::to_string(n); }

[[noreturn]] void refuse(const std::string& what, const std::string& fix) {
  throw Error(Code::kBadConfig, what + "\n  fix: " + fix);
}

// Reads samples of a function, and puts their tensors into the order of the chain.
class ChainReader {
 public:
  ChainReader(const Chain& chain, ReadBatch read, TokenDimensions tokens)
      : names_(chain.batch_names()), read_(std::move(read)), tokens_(std::move(tokens)) {
    for (const Chain::Block& block : chain.blocks()) {
      blocks_ += (blocks_.empty() ? "" : ", ") + block.name;
      for (const std::string& name : block.reads) readers_.try_emplace(name, block.name);
    }
    for (const auto& [name, dimension] : tokens_.dimensions) {
      if (dimension < 1 || std::ranges::find(names_, name) == names_.end())
        refuse("ChainData::tokens names dimension " + number(dimension) + " of \"" + name + "\"",
               dimension < 1 ? "a dimension from 1 on, since dimension 0 counts samples"
                             : "a tensor of the batch that a block reads");
    }
  }

  // Returns the tensors of samples, and sets `count` to how many losses count in them, `tokens` to the tokens of each.
  Tensors read(const std::vector<int64_t>& samples, at::ScalarType compute_type, int64_t& count,
               int64_t& tokens) const {
    const Batch batch = batch_of(samples);
    if (batch.count < -1)
      refuse("Batch::count is " + number(batch.count), "how many losses count, or -1 for one a sample");
    count = batch.count < 0 ? static_cast<int64_t>(samples.size()) : batch.count;
    Tensors out;
    for (const std::string& name : names_) {
      const auto found = std::ranges::find(batch.tensors, name, &std::pair<std::string, at::Tensor>::first);
      if (found == batch.tensors.end() || !found->second.defined()) refuse_missing(name, batch);
      if (std::ranges::count(batch.tensors, name, &std::pair<std::string, at::Tensor>::first) > 1)
        refuse("the batch has two tensors named \"" + name + "\"", "another name for one of them");
      const at::Tensor& tensor = found->second;
      if (tensor.dim() == 0 || tensor.size(0) != static_cast<int64_t>(samples.size()))
        throw Error(Code::kBadConfig,
                    "tensor \"" + name + "\" of the batch, which block \"" + readers_.at(name) + "\" reads, has " +
                        (tensor.dim() == 0 ? "no dimension" : number(tensor.size(0)) + " rows") + " for " +
                        number(static_cast<int64_t>(samples.size())) + " samples, from sample " +
                        number(samples.front()) + " on\n  fix: a row for each index that the data function is given");
      if (tensor.is_complex())
        refuse("tensor \"" + name + "\" of the batch, which block \"" + readers_.at(name) + "\" reads, is complex",
               "torch::view_as_real() of it, and torch::view_as_complex() in a block that reads it");
      out.push_back((tensor.is_floating_point() ? tensor.to(compute_type) : tensor).detach().contiguous());
    }
    tokens = tokens_of(out);
    return out;
  }

  // Returns such tensors with so many tokens: the first ones, or all of them again and again.
  Tensors with_tokens(Tensors tensors, int64_t tokens) const {
    for (const auto& [name, dimension] : tokens_.dimensions) {
      at::Tensor& tensor = tensors[place_of(name)];
      const at::Tensor places = at::arange(tokens, at::kLong).remainder_(tensor.size(dimension));
      tensor = tensor.index_select(dimension, places);
    }
    return tensors;
  }

 private:
  size_t place_of(const std::string& name) const {
    return static_cast<size_t>(std::ranges::find(names_, name) - names_.begin());
  }

  Batch batch_of(const std::vector<int64_t>& samples) const {
    return run_named([&] { return read_(samples); },
                     [&](const std::string& words) {
                       return std::runtime_error("the data function throws for " +
                                                 number(static_cast<int64_t>(samples.size())) +
                                                 " samples from sample " + number(samples.front()) + " on: " + words +
                                                 "\n  fix: a data function that gives a row for each index");
                     });
  }

  // Returns the size of the dimensions that count tokens; 1 where there are none.
  int64_t tokens_of(const Tensors& tensors) const {
    int64_t tokens = 1;
    for (size_t i = 0; i < tokens_.dimensions.size(); ++i) {
      const auto& [name, dimension] = tokens_.dimensions[i];
      const at::Tensor& tensor = tensors[place_of(name)];
      const std::string what = "dimension " + number(dimension) + " of \"" + name + "\", which counts tokens, ";
      if (dimension >= tensor.dim())
        refuse(what + "is none of its " + number(tensor.dim()), "ChainData::tokens with one that it has, from 0");
      const int64_t size = tensor.size(dimension);
      if (i > 0 && size != tokens)
        refuse(what + "has size " + number(size) + ", and that of \"" + tokens_.dimensions[0].first + "\" has " +
                   number(tokens),
               "a data function that gives all of them the same tokens");
      if (size < 1 || size > tokens_.most)
        refuse(what + "has size " + number(size) + ", where ChainData::tokens states 1 to " + number(tokens_.most),
               "TokenDimensions::most with the tokens of the longest sample");
      tokens = size;
    }
    return tokens;
  }

  [[noreturn]] void refuse_missing(const std::string& name, const Batch& batch) const {
    std::string has;
    for (const auto& [given, tensor] : batch.tensors) has += (has.empty() ? "" : ", ") + given;
    throw Error(Code::kBadConfig, "block \"" + readers_.at(name) + "\" reads \"" + name +
                                      "\", which is neither an earlier block nor in the batch" +
                                      "\n  blocks: " + blocks_ + "\n  batch: " + (has.empty() ? "nothing" : has) +
                                      "\n  fix: that tensor from the data function, or another name in the chain");
  }

  std::vector<std::string> names_;
  ReadBatch read_;
  TokenDimensions tokens_;
  std::string blocks_;                          // names, for messages
  std::map<std::string, std::string> readers_;  // the first block that reads a tensor of the batch, and of others
};

// Says which samples a rank reads of a batch.
struct BatchOfRank {
  int64_t first = 0, batch = 0, micro_batch = 0;
  int64_t micro_batches = 0;
  int place = 0, ranks = 1;  // of the data axis
  bool operator==(const BatchOfRank&) const = default;
};

// Holds the micro-batches of one rank.
struct ReadMicroBatches {
  std::vector<runtime::Batch> micro_batches = {};
  int64_t counted = 0;  // losses that count in them
};

class ChainSamples final : public Samples {
 public:
  ChainSamples(ChainReader reader, int64_t samples, bool shuffles, uint64_t seed, at::ScalarType type, int read_ahead,
               Communicator& comm)
      : reader_(std::move(reader)),
        samples_(samples),
        order_(std::max<int64_t>(1, samples), seed),
        shuffles_(shuffles && samples > 0),
        type_(type),
        comm_(comm) {
    if (read_ahead > 0)
      ahead_ = std::make_unique<ReadAhead<BatchOfRank, ReadMicroBatches>>(
          [this](const BatchOfRank& batch) { return read(batch); }, &ChainSamples::next, read_ahead);
  }

  int64_t per_epoch() const override { return samples_; }

  runtime::StepInput read(int64_t first, int64_t batch, int64_t micro_batch,
                          const program::Program& step) const override {
    const BatchOfRank own{.first = first,
                          .batch = batch,
                          .micro_batch = micro_batch,
                          .micro_batches = step.micro_batches,
                          .place = step.data_place(),
                          .ranks = step.data_ranks()};
    ReadMicroBatches from = ahead_ ? ahead_->take(own) : read(own);
    // Ranks that share samples count them alike, so the sum over all ranks has each of them so many times.
    std::vector<int64_t> sum = {from.counted};
    comm_.all_reduce(sum, {.name = "losses that count"});
    const int64_t copies = comm_.size() / own.ranks;
    return {.micro_batches = std::move(from.micro_batches),
            .weight = static_cast<double>(copies) / static_cast<double>(std::max<int64_t>(1, sum[0]))};
  }

 private:
  static BatchOfRank next(const BatchOfRank& batch) {
    BatchOfRank next = batch;
    next.first += batch.batch;
    return next;
  }

  ReadMicroBatches read(const BatchOfRank& of) const {
    const UncountedMemory on_host;  // the device holds the micro-batches that a step has loaded, not all of a batch
    const SampleRange own = samples_of_rank(of.first, of.batch, of.place, of.ranks);
    ReadMicroBatches out;
    for (int64_t m = 0; m < of.micro_batches; ++m) {
      const int64_t begin = std::min(own.end, own.begin + m * of.micro_batch);
      runtime::Batch& micro = out.micro_batches.emplace_back();
      for (int64_t s = begin; s < std::min(own.end, begin + of.micro_batch); ++s) micro.samples.push_back(s);
      std::vector<int64_t> indices;
      for (const int64_t sample : micro.samples) indices.push_back(index_of(sample));
      if (indices.empty()) indices.push_back(index_of(of.first));  // stands in, and adds nothing
      int64_t count = 0;
      micro.tensors = reader_.read(indices, type_, count, micro.tokens);
      if (!micro.samples.empty()) out.counted += count;
    }
    return out;
  }

  int64_t index_of(int64_t sample) const {
    if (shuffles_) return order_.window_of(sample);
    return samples_ > 0 ? sample % samples_ : sample;
  }

  ChainReader reader_;
  int64_t samples_;
  SampleOrder order_;
  bool shuffles_;
  at::ScalarType type_;
  Communicator& comm_;
  std::unique_ptr<ReadAhead<BatchOfRank, ReadMicroBatches>> ahead_;  // null where a step reads its own; ends first
};

// Checks what a chain cannot be trained with.
void check(const ChainData& data) {
  for (const auto& [name, value] : {std::pair("samples", data.samples),
                                    {"validation_samples", data.validation_samples},
                                    {"read_ahead", int64_t{data.read_ahead}}}) {
    if (value < 0) refuse(std::string("ChainData::") + name + " is " + number(value), "0 or more");
  }
}

void check(const spec::RunFile& run) {
  spec::RunFile::Model given = run.model, none;
  given.frozen = none.frozen, given.weights = none.weights, given.kind = none.kind;
  none.head_width = given.head_width, none.kv_heads = given.kv_heads, none.ffn = given.ffn;
  given.tie_embeddings = none.tie_embeddings, given.context = none.context;
  if (given != none)
    refuse("[model] describes one of herd's families, and this program has blocks of its own",
           "leave out the keys of [model], but for model.frozen and model.weights");
  if (run.mesh.tp > 1 || run.mesh.cp > 1 || run.mesh.ep > 1)
    refuse("mesh.tp, cp and ep share the work inside herd's own layers, and a chain has blocks of its own",
           "mesh.tp = 1, and mesh.dp, mesh.fsdp or mesh.pp for more ranks");
  if (run.strategy.recompute == "selective")
    refuse("strategy.recompute = \"selective\" recomputes the attention of herd's own layers",
           "strategy.recompute = \"full\", \"sqrt\" or \"every:K\"");
}

// Tells whether two blocks read a group: then the first and the last stage of a pipeline may both hold it.
bool shares_weights(const spec::ModelTable& table) {
  std::map<int, int> readers;
  for (const spec::BlockShape& block : table.blocks) {
    for (const int group : block.groups) ++readers[group];
  }
  return std::ranges::any_of(readers, [](const auto& entry) { return entry.second > 1; });
}

DType compute_type(const spec::RunFile& run) {
  return run.strategy.precision == "bf16" ? DType::kBF16 : run.strategy.precision == "fp16" ? DType::kF16 : DType::kF32;
}

class ChainSource final : public ModelSource {
 public:
  ChainSource(const Chain& chain, const ChainData& data) : chain_(chain), data_(data) {}

  spec::RunFile complete(spec::RunFile run, Communicator& comm) const override {
    check(data_);
    check(run);
    run.model.kind = "chain";
    run.model.context = 1;
    run.data.kind = "function";
    if (!data_.read_validation) run.train.eval_every = 0;
    std::string text, error;
    int64_t code = -1;
    if (comm.rank() == 0) {
      try {
        text = trace(run).text();
      } catch (const Error& failure) {
        code = static_cast<int64_t>(failure.code());
        text = failure.message();
      } catch (const c10::Error& failure) {
        code = static_cast<int64_t>(Code::kBadConfig);
        text = "the chain cannot be run: " + std::string(failure.what_without_backtrace());
      } catch (const std::exception& failure) {  // what a block or the data function throws has its name
        code = static_cast<int64_t>(Code::kBadConfig);
        text = failure.what();
      }
    }
    std::vector<int64_t> head = {code, static_cast<int64_t>(text.size())};
    comm.broadcast(head, Rank{0}, {.name = "table of the chain", .deadline = kTraceDeadline});
    std::vector<uint8_t> bytes(text.begin(), text.end());
    bytes.resize(static_cast<size_t>(head[1]));
    if (!bytes.empty()) comm.broadcast(bytes, Rank{0}, {.name = "table of the chain"});
    text.assign(bytes.begin(), bytes.end());
    if (head[0] >= 0) throw SharedError(static_cast<Code>(head[0]), text);
    run.chain = std::make_shared<spec::ChainTable>(spec::ChainTable::parse(text, "the table of rank 0"));
    run.model.tie_embeddings = shares_weights(run.chain->traced());
    return run;
  }

  models::Model make(const spec::RunFile&, const spec::ModelTable& table, const program::Program& step,
                     at::Device device) const override {
    std::set<int> own;
    for (const program::Op& op : step.ops) {
      if (op.block >= 0 && op.kind != program::OpKind::kLoad) own.insert(op.block);
    }
    ChainModel built = make_chain_model(chain_, table, own, device);
    models::Model model;
    model.blocks = std::move(built.blocks);
    model.groups = std::move(built.groups);
    return model;
  }

  std::unique_ptr<Samples> open(const spec::RunFile& run, Split split, Communicator& comm) const override {
    const bool trains = split == Split::kTrain;
    return std::make_unique<ChainSamples>(
        reader(trains ? data_.read : data_.read_validation), trains ? data_.samples : data_.validation_samples, trains,
        static_cast<uint64_t>(run.train.seed), scalar_type_of(compute_type(run)), trains ? data_.read_ahead : 0, comm);
  }

  bool has_validation() const override { return static_cast<bool>(data_.read_validation); }
  std::vector<std::string> figures() const override { return chain_.figures(); }
  bool reads_ahead() const override { return data_.read_ahead > 0; }

  runtime::StepInput example(const spec::RunFile& run, int64_t rows) const override {
    runtime::StepInput input;
    runtime::Batch& batch = input.micro_batches.emplace_back();
    for (int64_t i = 0; i < rows; ++i) batch.samples.push_back(i);
    batch.tensors = first_samples(rows, data_.tokens.most, scalar_type_of(compute_type(run)));
    batch.tokens = data_.tokens.most;
    return input;
  }

 private:
  ChainReader reader(const ReadBatch& read) const { return {chain_, read, data_.tokens}; }

  Tensors first_samples(int64_t count, int64_t tokens, at::ScalarType type) const {
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < count; ++i) samples.push_back(data_.samples > 0 ? i % data_.samples : i);
    int64_t counted = 0, read_tokens = 0;
    const UncountedMemory on_host;
    const ChainReader from = reader(data_.read);
    return from.with_tokens(from.read(samples, type, counted, read_tokens), tokens);
  }

  spec::ChainTable trace(const spec::RunFile& run) const {
    TraceOptions options;
    options.compute_dtype = compute_type(run);
    options.gradient_dtype = run.strategy.gradient_precision == "same" ? options.compute_dtype : DType::kF32;
    options.frozen = run.model.frozen;
    options.samples = std::max<int64_t>(2, run.train.micro_batch);
    options.most_tokens = data_.tokens.most;
    const at::ScalarType type = scalar_type_of(options.compute_dtype);
    return trace_chain(
        chain_, [&](int64_t samples, int64_t tokens) { return first_samples(samples, tokens, type); }, options);
  }

  Chain chain_;
  ChainData data_;
};

}  // namespace

void check_counted(int64_t counted, double weight) {
  const int64_t stated = std::llround(1 / weight);
  if (counted == stated) return;
  throw SharedError(Code::kBadConfig, "the chain's last block counted " + number(counted) +
                                          " losses in this step, and the batches state " + number(stated) +
                                          "\n  fix: Batch::count with as many as the last block counts in its samples");
}

std::shared_ptr<const ModelSource> chain_source(const Chain& chain, const ChainData& data) {
  return std::make_shared<ChainSource>(chain, data);
}

}  // namespace herd::train
