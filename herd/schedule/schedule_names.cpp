#include "herd/schedule/schedule_names.h"

#include <iterator>
#include <utility>

#include "herd/base/error.h"

namespace herd {
namespace {

constexpr std::pair<Collective, std::string_view> kCollectives[] = {{Collective::kAllReduce, "all_reduce"},
                                                                    {Collective::kAllGather, "all_gather"},
                                                                    {Collective::kReduceScatter, "reduce_scatter"},
                                                                    {Collective::kBroadcast, "broadcast"},
                                                                    {Collective::kReduce, "reduce"},
                                                                    {Collective::kBarrier, "barrier"},
                                                                    {Collective::kGather, "gather"},
                                                                    {Collective::kScatter, "scatter"},
                                                                    {Collective::kAllToAll, "all_to_all"}};

constexpr bool in_order_of_values() {
  for (size_t i = 0; i < std::size(kCollectives); ++i) {
    if (static_cast<size_t>(kCollectives[i].first) != i) return false;
  }
  return true;
}
static_assert(in_order_of_values());

std::string describe(const std::vector<Slice>& slices) {
  std::string text;
  for (const Slice& slice : slices) text += (text.empty() ? "" : " ") + describe(slice);
  return text.empty() ? "nothing" : text;
}

}  // namespace

std::string_view collective_name(Collective collective) {
  const auto index = static_cast<size_t>(collective);
  return index < std::size(kCollectives) ? kCollectives[index].second : "unknown collective";
}

Collective parse_collective(std::string_view name) {
  std::string valid;
  for (const auto& [value, known_name] : kCollectives) {
    if (known_name == name) return value;
    valid += (valid.empty() ? "" : ", ") + std::string(known_name);
  }
  throw Error(Code::kBadConfig, "no collective \"" + std::string(name) + "\"\n  fix: one of " + valid);
}

std::string_view space_name(Space space) {
  switch (space) {
    case Space::kInput:
      return "input";
    case Space::kOutput:
      return "output";
    case Space::kScratch:
      return "scratch";
    case Space::kStage:
      return "stage";
  }
  return "unknown space";
}

std::string_view step_kind_name(StepKind kind) {
  switch (kind) {
    case StepKind::kSend:
      return "send";
    case StepKind::kReceive:
      return "receive";
    case StepKind::kReceiveReduce:
      return "receive_reduce";
    case StepKind::kCopy:
      return "copy";
    case StepKind::kReduce:
      return "reduce";
    case StepKind::kSignal:
      return "signal";
    case StepKind::kWait:
      return "wait";
  }
  return "unknown step";
}

std::string describe(const Slice& slice) {
  return "rank " + std::to_string(slice.rank) + " " + std::string(space_name(slice.space)) + "[" +
         std::to_string(slice.begin) + "," + std::to_string(slice.end) + ")";
}

std::string describe(const Step& step) {
  const std::string peer = std::to_string(step.peer);
  switch (step.kind) {
    case StepKind::kSend:
      return "send to " + peer + ": " + describe(step.sources);
    case StepKind::kReceive:
      return "receive from " + peer + " into " + describe(step.targets);
    case StepKind::kReceiveReduce:
      return "receive from " + peer + " and add to " + describe(step.sources) + " into " + describe(step.targets);
    case StepKind::kCopy:
      return "copy " + describe(step.sources) + " to " + describe(step.targets);
    case StepKind::kReduce:
      return "reduce " + describe(step.sources) + " into " + describe(step.targets);
    case StepKind::kSignal:
      return "signal " + peer + ": " + describe(step.sources);
    case StepKind::kWait:
      return "wait for " + peer + ": " + describe(step.sources);
  }
  return "unknown step";
}

}  // namespace herd
