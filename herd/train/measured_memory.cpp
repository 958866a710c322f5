#include "herd/train/measured_memory.h"

#include <algorithm>
#include <numeric>

#include "herd/program/program_names.h"

namespace herd::train {
namespace {

using program::MemoryUse;

program::BytesByUse live() {
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
      // The lane first: only the thread of the compute lane may read the rest.
      if (op.lane != program::Lane::kCompute || op.kind == program::OpKind::kRelease || !on_) return inner(op, step);
      peak_ = std::max(peak_, DeviceMemory::peak_bytes());
      DeviceMemory::reset_peak();
      const program::BytesByUse before = live();
      runtime::EventPtr event = inner(op, step);
      note(op, before);
      return event;
    };
  }
  return table;
}

// What an op leaves is a value; what it took beyond that and gave back is a buffer.
void MeasuredMemory::note(const program::Op& op, const program::BytesByUse& before) {
  const int64_t most = DeviceMemory::peak_bytes();
  peak_ = std::max(peak_, most);
  program::BytesByUse bytes = live();
  int64_t sum = 0;
  for (size_t use = 0; use < bytes.size(); ++use) {
    bytes[use] = std::max(bytes[use], before[use]);
    sum += bytes[use];
  }
  // It gave one thing back before it took the other: a buffer, then an activation, where there is as much of them.
  for (const MemoryUse use : {MemoryUse::kBuffers, MemoryUse::kActivations, MemoryUse::kGradients}) {
    int64_t& of_use = bytes[static_cast<size_t>(use)];
    const int64_t less = std::clamp<int64_t>(sum - most, 0, of_use);
    of_use -= less, sum -= less;
  }
  if (sum < most) bytes[static_cast<size_t>(MemoryUse::kBuffers)] += most - sum;
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
  for (const Counted& one : ops_) {
    const int index = static_cast<int>(one.op - ops.data());
    const auto time =
        std::find_if(times.begin(), times.end(), [&](const runtime::OpTime& at) { return at.op == index; });
    if (time == times.end()) continue;
    out.push_back({index, program::describe(executor.program(), *one.op), time->begin_us, time->end_us, one.bytes});
  }
  const double begin = out.empty() ? 0 : out.front().begin_us;
  for (program::OpMemory& one : out) one.begin_us -= begin, one.end_us -= begin;
  return out;
}

}  // namespace herd::train
