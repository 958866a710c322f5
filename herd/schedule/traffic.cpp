#include "herd/schedule/traffic.h"

namespace herd {

int64_t bytes_sent(const Schedule& s) {
  int64_t elements = 0;
  for (const Step& step : s.steps) {
    if (step.kind == StepKind::kSend) elements += step.sources[0].size();
    if (step.kind != StepKind::kCopy && step.kind != StepKind::kReduce) continue;
    for (const auto* slices : {&step.sources, &step.targets}) {
      for (const Slice& slice : *slices) elements += slice.rank != s.self ? slice.size() : 0;
    }
  }
  return elements * size_of(s.dtype);
}

int num_messages(const Schedule& s) {
  int messages = 0;
  for (const Step& step : s.steps) messages += step.kind == StepKind::kSend || step.kind == StepKind::kSignal;
  return messages;
}

}  // namespace herd
