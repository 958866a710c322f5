#include "herd/train/measured_memory.h"

#include <algorithm>
#include <numeric>

#include "herd/program/program_names.h"

namespace herd::train {
namespace {

using program::MemoryUse;

program::BytesByUse live_bytes_by_use() {
  program::BytesByUse out = {};
  const auto add = [&](MemoryUse use, MemoryLabel label) {
    out[static_cast<size_t>(use)] += DeviceMemory::live_bytes(label);
  };
  add(MemoryUse::kWeights, MemoryLabel::kWeights);
  add(MemoryUse::kGradients, MemoryLabel::kGradients);
  add(MemoryUse::kStates, MemoryLabel::kStates);
  add(MemoryUse::kActivations, MemoryLabel::kActivations);
  add(MemoryUse::kActivations, MemoryLabel::kOther);  // tokens and labels of the batch
  add(MemoryUse::kBuffers, MemoryLabel::kWorkspace);
  return out;
}

}  // namespace

runtime::BindingTable MeasuredMemory::watch(runtime::BindingTable table) {
  for (auto& [kind, binding] : table) {
    binding = [this, inner = std::move(binding)](const program::Op& op, int64_t step) {
      // The lane is checked first: only the thread of the compute lane may read the rest.
      if (op.lane != program::Lane::kCompute || op.kind == program::OpKind::kRelease || !on_) {
        runtime::EventPtr event = inner(op, step);
        DeviceMemory::check_budget();
        return event;
      }
      peak_ = std::max(peak_, DeviceMemory::peak_bytes());
      DeviceMemory::reset_peak();
      const program::BytesByUse before = live_bytes_by_use();
      runtime::EventPtr event = inner(op, step);
      DeviceMemory::check_budget();
      note(op, before);
      return event;
    };
  }
  return table;
}

// Counts what an op leaves as values, and what it took beyond that and gave back as a buffer.
void MeasuredMemory::note(const program::Op& op, const program::BytesByUse& before) {
  const int64_t peak = DeviceMemory::peak_bytes();
  peak_ = std::max(peak_, peak);
  program::BytesByUse bytes = live_bytes_by_use();
  int64_t sum = 0;
  for (size_t use = 0; use < bytes.size(); ++use) {
    bytes[use] = std::max(bytes[use], before[use]);
    sum += bytes[use];
  }
  // A sum above the peak means that the op gave memory back before it took more. The excess is taken off buffers first,
  // then off activations and gradients.
  for (const MemoryUse use : {MemoryUse::kBuffers, MemoryUse::kActivations, MemoryUse::kGradients}) {
    int64_t& of_use = bytes[static_cast<size_t>(use)];
    const int64_t excess = std::clamp<int64_t>(sum - peak, 0, of_use);
    of_use -= excess, sum -= excess;
  }
  if (sum < peak) bytes[static_cast<size_t>(MemoryUse::kBuffers)] += peak - sum;
  ops_.push_back({&op, bytes});
}

void MeasuredMemory::set_recording(bool on) {
  on_ = on;
  ops_.clear();
}

int64_t MeasuredMemory::take_peak() { return std::exchange(peak_, 0); }

std::vector<program::OpMemory> MeasuredMemory::last_step(const runtime::Executor& executor) const {
  const auto& ops = executor.program().ops;
  std::vector<program::OpMemory> out;
  const std::vector<runtime::OpTime> times = executor.times();
  for (const Counted& entry : ops_) {
    const int index = static_cast<int>(entry.op - ops.data());
    const auto time =
        std::find_if(times.begin(), times.end(), [&](const runtime::OpTime& at) { return at.op == index; });
    if (time == times.end()) continue;
    out.push_back({index, program::describe(executor.program(), *entry.op), time->begin_us, time->end_us, entry.bytes});
  }
  const double begin = out.empty() ? 0 : out.front().begin_us;
  for (program::OpMemory& entry : out) entry.begin_us -= begin, entry.end_us -= begin;
  return out;
}

}  // namespace herd::train
