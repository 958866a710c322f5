#include "herd/schedule/builder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "herd/base/error.h"
#include "herd/schedule/meaning.h"

namespace herd {
namespace {

DType accumulation_of(DType dtype) { return is_floating(dtype) && size_of(dtype) == 2 ? DType::kF32 : dtype; }

[[noreturn]] void refuse(const std::string& rule) { throw Error(Code::kBadConfig, rule); }

// Returns the header, or throws kBadConfig where it is invalid.
Schedule checked(Schedule h) {
  const std::string ranks = "num_ranks = " + std::to_string(h.num_ranks);
  if (h.num_ranks < 1) refuse("a schedule needs num_ranks >= 1, but " + ranks);
  if (h.self < 0 || h.self >= h.num_ranks) {
    refuse("a schedule needs 0 <= self < num_ranks, but self = " + std::to_string(h.self) + ", " + ranks);
  }
  if (h.elements < 0) refuse("a schedule needs elements >= 0, but elements = " + std::to_string(h.elements));
  if (has_root(h.collective) && (h.root < 0 || h.root >= h.num_ranks)) {
    refuse("a collective with a root needs 0 <= root < num_ranks, but root = " + std::to_string(h.root) + ", " + ranks +
           "\n  fix: root = 0");
  }
  check_counts(h);
  return h;
}

}  // namespace

Builder::Builder(Schedule header) : schedule_(checked(std::move(header))), layout_(schedule_) {
  schedule_.accumulate = accumulation_of(schedule_.dtype);
  if (!has_root(schedule_.collective)) schedule_.root = -1;
  schedule_.scratch_elements = schedule_.stage_elements = 0;
  schedule_.steps.clear();
}

Rank Builder::neighbor(int distance) const {
  const int n = num_ranks();
  return ((self() + distance) % n + n) % n;
}

Slice Builder::input(Range range, Rank owner) const {
  const Collective c = schedule_.collective;
  // In a gather in place, only the root's input lies in its output.
  const bool is_separate = c == Collective::kGather && owner != schedule_.root;
  if (schedule_.in_place && !is_separate) return {owner, Space::kOutput, range.begin, range.end};
  const bool own_part_only = c == Collective::kAllGather || c == Collective::kGather;
  const int64_t shift = own_part_only ? part(owner).begin : 0;
  return {owner, Space::kInput, range.begin - shift, range.end - shift};
}

Slice Builder::output(Range range, Rank owner) const {
  const Collective c = schedule_.collective;
  const bool whole = schedule_.in_place && (c == Collective::kReduceScatter || owner == schedule_.root);
  const bool own_part_only = (c == Collective::kReduceScatter || c == Collective::kScatter) && !whole;
  const int64_t shift = own_part_only ? part(owner).begin : 0;
  return {owner, Space::kOutput, range.begin - shift, range.end - shift};
}

Slice Builder::scratch(int64_t elements) {
  const int64_t begin = std::exchange(schedule_.scratch_elements, schedule_.scratch_elements + elements);
  return {self(), Space::kScratch, begin, begin + elements};
}

Slice Builder::stage(int64_t elements) {
  const int64_t begin = std::exchange(schedule_.stage_elements, schedule_.stage_elements + elements);
  return {self(), Space::kStage, begin, begin + elements};
}

Slice Builder::on_rank(Slice slice, Rank owner) {
  slice.rank = owner;
  return slice;
}

void Builder::send(Rank peer, Slice source) {
  if (source.size() > 0) add({.kind = StepKind::kSend, .peer = peer, .sources = {source}});
}

void Builder::receive(Rank peer, Slice target) {
  if (target.size() > 0) add({.kind = StepKind::kReceive, .peer = peer, .targets = {target}});
}

void Builder::receive_reduce(Rank peer, Slice target, Slice source, Sum sum) {
  if (target.size() == 0) return;
  add({.kind = StepKind::kReceiveReduce,
       .peer = peer,
       .targets = {target},
       .sources = {source},
       .completes = sum == Sum::kComplete});
}

void Builder::copy(Slice source, std::vector<Slice> targets) {
  std::erase(targets, source);
  if (source.size() == 0 || targets.empty()) return;
  add({.kind = StepKind::kCopy, .targets = std::move(targets), .sources = {source}});
}

void Builder::reduce(std::vector<Slice> sources, std::vector<Slice> targets, Sum sum) {
  if (sources.empty() || sources[0].size() == 0) return;
  add({.kind = StepKind::kReduce,
       .targets = std::move(targets),
       .sources = std::move(sources),
       .completes = sum == Sum::kComplete});
}

void Builder::signal(Rank peer, std::vector<Slice> handed_over) {
  std::erase_if(handed_over, [](const Slice& slice) { return slice.size() == 0; });
  add({.kind = StepKind::kSignal, .peer = peer, .sources = std::move(handed_over)});
}

void Builder::wait(Rank peer, std::vector<Slice> handed_over) {
  std::erase_if(handed_over, [](const Slice& slice) { return slice.size() == 0; });
  add({.kind = StepKind::kWait, .peer = peer, .sources = std::move(handed_over)});
}

void Builder::send_empty(Rank peer, std::vector<Slice> order_only) {
  order_only.insert(order_only.begin(), Slice{self(), Space::kScratch, 0, 0});
  add({.kind = StepKind::kSend, .peer = peer, .sources = std::move(order_only)});
}

void Builder::receive_empty(Rank peer, std::vector<Slice> order_only) {
  order_only.insert(order_only.begin(), Slice{self(), Space::kScratch, 0, 0});
  add({.kind = StepKind::kReceive, .peer = peer, .targets = std::move(order_only)});
}

void Builder::reserve_scratch(int64_t elements) {
  schedule_.scratch_elements = std::max(schedule_.scratch_elements, elements);
}

void Builder::reserve_stage(int64_t elements) {
  schedule_.stage_elements = std::max(schedule_.stage_elements, elements);
}

}  // namespace herd
