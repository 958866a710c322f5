// metrics.jsonl: whatever the bytes, steps that ascend and come back from their own text, or kCorruptFile; and salvage
// throws nothing, and finds all steps of a text that parses.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "accepted.h"
#include "herd/base/error.h"
#include "herd/storage/metrics.h"

namespace {

std::string text_of(const std::vector<herd::StepMetrics>& steps) {
  std::string text = "{\"format\":\"herd-metrics\",\"version\":1}\n";
  for (const auto& one : steps) text += herd::format_metrics(one) + "\n";
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const herd::SalvagedMetrics salvaged = herd::salvage_metrics(text, "metrics.jsonl");
  for (size_t i = 1; i < salvaged.steps.size(); ++i) {
    if (salvaged.steps[i].step <= salvaged.steps[i - 1].step) std::abort();
  }
  const std::string printed = text_of(salvaged.steps);
  if (text_of(herd::parse_metrics(printed, "again.jsonl")) != printed) std::abort();
  try {
    const auto steps = herd::parse_metrics(text, "metrics.jsonl");
    if (!salvaged.passed_over.empty() || text_of(steps) != printed) std::abort();
    if (!steps.empty()) ++num_accepted;
  } catch (const herd::Error& error) {
    if (error.code() != herd::Code::kCorruptFile || salvaged.passed_over.empty()) throw;
  }
  return 0;
}
