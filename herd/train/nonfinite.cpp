#include "herd/train/nonfinite.h"

#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "herd/program/collective_message.h"
#include "herd/runtime/executor.h"
#include "herd/train/peer_listener.h"

namespace herd::train {
namespace {

using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

bool is_finite(const at::Tensor& tensor) {
  return !tensor.defined() || !tensor.is_floating_point() || at::isfinite(tensor).all().item<bool>();
}

// Looks for NaN and infinity in what ops read and write, until it has found one.
class NonfiniteWatch {
 public:
  NonfiniteWatch(const runtime::Chain& chain, const runtime::FlatParameters& parameters,
                 const runtime::ModelBindings& bindings)
      : chain_(chain), parameters_(parameters), bindings_(bindings) {}

  runtime::BindingTable wrap(runtime::BindingTable table) {
    for (const OpKind kind :
         {OpKind::kForward, OpKind::kRecompute, OpKind::kLoss, OpKind::kBackward, OpKind::kBackwardWeight}) {
      table[kind] = [this, inner = table.at(kind)](const Op& op, int64_t step) {
        const double loss = bindings_.loss_so_far();
        runtime::EventPtr event = inner(op, step);
        if (found_.empty()) inspect(op, loss);
        return event;
      };
    }
    return table;
  }
  const std::string& found() const { return found_; }

 private:
  void inspect(const Op& op, double loss_before) {
    for (const Value& value : op.reads) {
      if (value.kind == ValueKind::kWeight && !is_finite(parameters_.group(value.index).weights()))
        return record("weights", op);
    }
    if (std::isfinite(loss_before) && !std::isfinite(bindings_.loss_so_far())) return record("loss", op);
    for (const Value& value : op.writes) {
      const bool output = value.kind == ValueKind::kActivation, dx = value.kind == ValueKind::kActivationGradient;
      if ((output || dx) && !is_finite(bindings_.find_tensor(value))) return record(output ? "output" : "gradient", op);
      if (value.kind == ValueKind::kGradient && !is_finite(parameters_.group(value.index).gradient()))
        return record("gradient", op);
    }
  }
  void record(const char* what, const Op& op) {
    found_ = std::string(what) + " of " + chain_[static_cast<size_t>(op.block)]->name() + ", micro-batch " +
             std::to_string(op.micro_batch);
  }

  const runtime::Chain& chain_;
  const runtime::FlatParameters& parameters_;
  const runtime::ModelBindings& bindings_;
  std::string found_;
};

std::string gather_findings(const std::string& mine, Communicator& comm) {
  constexpr size_t kLineBytes = 256;
  std::vector<uint8_t> line(kLineBytes, 0), all(kLineBytes * static_cast<size_t>(comm.size()));
  std::memcpy(line.data(), mine.data(), std::min(mine.size(), kLineBytes - 1));
  comm.all_gather(line, all, {.name = "where the NaN came from"});
  std::string text;
  for (int r = 0; r < comm.size(); ++r) {
    const char* found = reinterpret_cast<const char*>(all.data()) + static_cast<size_t>(r) * kLineBytes;
    if (*found) text += (text.empty() ? "rank " : "; rank ") + std::to_string(r) + ": " + found;
  }
  return text;
}

}  // namespace

std::string find_nonfinite(const program::Program& step, const runtime::Chain& chain,
                           runtime::FlatParameters& parameters, const runtime::AxisGroups& groups,
                           runtime::ModelBindings::Options options, runtime::StepInput input, int64_t step_number,
                           Communicator& comm) {
  options.stop_on_nonfinite = false;
  runtime::ModelBindings bindings(
      chain, parameters, groups, [](int, int, const float*, int64_t) {}, std::move(options));
  NonfiniteWatch watch(chain, parameters, bindings);
  bindings.begin_step(std::move(input));
  {
    runtime::Executor executor(step, watch.wrap(bindings.table()), peer_listener(comm), bindings.lanes_of(step));
    executor.run(step_number);
    executor.drain();
  }
  return gather_findings(watch.found(), comm);
}

}  // namespace herd::train
