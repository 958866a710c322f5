#include "herd/strategies/overlap_picture.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "herd/base/error.h"
#include "herd/program/lifetimes.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"
#include "herd/program/simulate.h"
#include "herd/program/slots.h"
#include "herd/strategies/data_parallel.h"
#include "herd/strategies/direct_host.h"
#include "herd/strategies/host_states.h"
#include "herd/strategies/layer_major.h"
#include "herd/strategies/micro_batches.h"
#include "herd/strategies/priority.h"
#include "herd/strategies/values_in_files.h"
#include "herd/strategies/weight_window.h"

namespace herd::strategies {
namespace {

using program::Op;
using program::OpKind;
using program::Program;

constexpr int kBytesOfUnit = 4;  // of a gradient that the link sums in a unit
constexpr int64_t kWeightBytesOfUnit =
    4'000'000;  // of weights that the link copies in a unit; gradients are as nothing
constexpr int kMost = 64;

// The step of one of two ranks, without a strategy: a parameter group for each layer, and a loss without weights.
Program plain_chain(const OverlapOptions& options) {
  Program step;
  const int last = options.layers;
  step.num_blocks = last + 1;
  step.mesh = {2, {{"dp", {{1, 2}}, {}, Divided::kSamples}}};
  for (int b = 0; b < last; ++b) {
    step.block_groups.push_back({b});
    step.values[program::gradient(b)] = {.bytes = options.units * kBytesOfUnit};
    for (const program::Value& kept : {program::weight(b), program::state(b)}) step.values[kept] = {.persistent = true};
    for (const program::Value& value :
         {program::graph(b, 0), program::activation({b + 1, 0}, 0), program::activation_gradient({b + 1, 0}, 0)})
      step.values[value] = {};
    Op forward{.kind = OpKind::kForward, .reads = {program::weight(b)}, .block = b, .micro_batch = 0};
    if (b > 0) forward.reads.push_back(program::activation({b, 0}, 0));
    forward.writes = {program::activation({b + 1, 0}, 0), program::graph(b, 0)};
    step.ops.push_back(std::move(forward));
  }
  step.block_groups.emplace_back();
  step.values[program::loss(0)] = {.persistent = true};
  step.ops.push_back({.kind = OpKind::kLoss,
                      .reads = {program::activation({last, 0}, 0)},
                      .writes = {program::loss(0), program::activation_gradient({last, 0}, 0)},
                      .block = last,
                      .micro_batch = 0});
  for (int b = last - 1; b >= 0; --b) {
    Op backward{.kind = OpKind::kBackward, .block = b, .micro_batch = 0};
    backward.reads = {program::weight(b), program::graph(b, 0), program::activation_gradient({b + 1, 0}, 0)};
    backward.writes = {program::gradient(b)};
    if (b > 0) backward.writes.push_back(program::activation_gradient({b, 0}, 0));
    step.ops.push_back(std::move(backward));
  }
  for (int b = 0; b < last; ++b) {
    step.ops.push_back({.kind = OpKind::kStep,
                        .reads = {program::gradient(b), program::weight(b), program::state(b)},
                        .writes = {program::weight(b), program::state(b)}});
  }
  return step;
}

// Passes and sums wait for nothing of each other: more than any order can do.
Program without_waits(Program step) {
  const auto is_shared = [](const program::Value& value) {
    return value.kind == program::ValueKind::kWeight || value.kind == program::ValueKind::kGradient;
  };
  for (Op& op : step.ops) {
    if (op.kind == OpKind::kStep) op.lane = program::Lane::kUpdate;
    if (!is_pass(op)) continue;
    std::erase_if(op.reads, is_shared);
    std::erase_if(op.writes, is_shared);
  }
  return step;
}

bool copies_weights(const OverlapOptions& options) {
  return options.schedule == "window" || options.schedule == "layer_major" || options.schedule == "direct_host" ||
         options.schedule == "serial" || options.schedule == "files";
}

// Copies and passes take turns: nothing overlaps.
Program one_by_one(Program step) {
  for (Op& op : step.ops) op.lane = program::Lane::kCompute;
  return step;
}

// The weights wait on the host, where updates leave them. Layer 0 is an embedding.
Program window_step(const OverlapOptions& options, Program step) {
  std::vector<int> layers;
  for (int b = 0; b <= options.layers; ++b) layers.push_back(b);
  for (auto& [value, info] : step.values) {
    if (value.kind == program::ValueKind::kWeight) info.bytes = options.units * kWeightBytesOfUnit;
    if (value.kind == program::ValueKind::kGradient) info.bytes = kBytesOfUnit;
  }
  for (Op& op : step.ops) {
    if (op.kind == OpKind::kBackward && op.block == 0) std::erase(op.reads, program::weight(0));
  }
  step = MicroBatches(options.micro_batches).rewrite(std::move(step));
  if (options.schedule != "window") step = LayerMajor(layers).rewrite(std::move(step));
  step = WeightWindow(layers).rewrite(HostStates(true).rewrite(std::move(step)));
  if (options.schedule == "direct_host") step = DirectHost({0, options.layers - 1}, layers).rewrite(std::move(step));
  if (options.schedule == "serial") step = one_by_one(std::move(step));
  if (options.schedule == "files") {
    std::set<int> groups;
    for (int b = 0; b < options.layers; ++b) groups.insert(b);
    step = ValuesInFiles(std::move(groups)).rewrite(std::move(step));
  }
  return assign_slots(add_releases(std::move(step)));
}

Program step_of(const OverlapOptions& options) {
  const Program plain = plain_chain(options);
  if (copies_weights(options)) return window_step(options, plain);
  if (options.schedule == "priority")
    return Priority({.partition_bytes = kBytesOfUnit, .credit = options.credit})
        .rewrite(DataParallel(0, 1).rewrite(plain));
  const Program fifo = DataParallel(0, 1).rewrite(plain);
  return options.schedule == "fifo" ? fifo : without_waits(fifo);
}

class LinkOfUnits final : public program::CollectiveCost {
 public:
  program::CollectivePrice price(OpKind, int64_t bytes, const Mesh&, int) const override {
    return {.latency_us = static_cast<double>(bytes) / kBytesOfUnit};
  }
};

void check(const OverlapOptions& options) {
  const auto refuse = [](const std::string& what, const std::string& fix) {
    throw Error(Code::kBadConfig, what + "\n  fix: " + fix);
  };
  if (options.schedule != "fifo" && options.schedule != "priority" && options.schedule != "ideal" &&
      !copies_weights(options))
    refuse("there is no schedule \"" + options.schedule + "\"",
           "fifo, priority or ideal of gradients; serial, window, layer_major, direct_host or files of weights");
  const auto in_range = [&](int number, int least, const std::string& name) {
    if (number >= least && number <= kMost) return;
    refuse("the number of " + name + " must be in [" + std::to_string(least) + ", " + std::to_string(kMost) +
               "], got " + std::to_string(number),
           "like 3");
  };
  in_range(options.layers, 1, "layers");
  in_range(options.units, 1, "units");
  in_range(options.credit, 0, "credit");
  in_range(options.micro_batches, 1, "micro-batches");
}

}  // namespace

Overlap overlap_of(const OverlapOptions& options) {
  check(options);
  const Program step = step_of(options);
  spec::ModelTable model;
  model.blocks.resize(static_cast<size_t>(step.num_blocks));
  program::Calibration machine{.cores = 1, .core_bytes_per_us = 1e12, .host_bytes_per_us = 1e12, .op_overhead_us = 0};
  for (int b = 0; b < options.layers; ++b) {
    model.blocks[static_cast<size_t>(b)].output_bytes = 1;
    if (b == 0 && copies_weights(options)) model.blocks[0].looked_up_bytes = kWeightBytesOfUnit;
    machine.measured_us[{OpKind::kForward, b}] = 1;
    machine.measured_us[{OpKind::kBackward, b}] = 2;
  }
  machine.measured_us[{OpKind::kLoss, options.layers}] = 0;
  if (copies_weights(options)) {
    machine.host_link_bytes_per_us = machine.nvme_bytes_per_us = static_cast<double>(kWeightBytesOfUnit);
    machine.update_us_per_element = 1e-9;
  }
  const program::Simulation simulation = simulate({step}, model, machine, LinkOfUnits());
  Overlap out{.step_units = static_cast<int>(std::lround(simulation.step_us)), .timeline = {}};
  out.timeline.title = (copies_weights(options) ? "Weights on the host, " : "Gradients ") + options.schedule;
  out.timeline.rows = {{"", "compute"}, {"", "link"}};
  if (options.schedule == "files") out.timeline.rows.push_back({"", "files"});
  for (const sim::Span& span : simulation.timeline.spans) {
    const bool file = simulation.timeline.rows[static_cast<size_t>(span.row)].name == lane_name(program::Lane::kIo);
    const bool link = span.category == "all_reduce" || (copies_weights(options) && span.category == "fetch");
    if (!file && !link && span.category != "forward" && span.category != "backward") continue;
    sim::Span shown = span;
    shown.row = file ? 2 : link ? 1 : 0;
    const size_t number = span.name.find_first_of("0123456789");
    std::string layer = span.name.substr(number, span.name.find_first_not_of("0123456789", number) - number);
    const size_t micro_batch = span.name.find(" mb");
    if (copies_weights(options) && micro_batch != span.name.npos) layer += "." + span.name.substr(micro_batch + 3);
    const char* const copied = !copies_weights(options) ? "g" : span.category == "evict" ? "u" : "w";
    shown.name = (link || file ? copied : span.category == "forward" ? "F" : "B") + layer;
    out.timeline.spans.push_back(std::move(shown));
  }
  return out;
}

std::string overlap_picture(const OverlapOptions& options) {
  const Overlap overlap = overlap_of(options);
  const auto units = static_cast<size_t>(overlap.step_units);
  const size_t rows = overlap.timeline.rows.size();
  std::vector<std::vector<std::string>> cells(rows, std::vector<std::string>(units, "."));
  std::vector<size_t> busy(rows, 0);
  for (const sim::Span& span : overlap.timeline.spans) {
    const auto row = static_cast<size_t>(span.row);
    const auto begin = static_cast<size_t>(std::lround(span.start_us)),
               end = static_cast<size_t>(std::lround(span.end_us));
    for (size_t unit = begin; unit < end; ++unit) {
      cells[row][unit % units] = unit == begin ? span.name : "==";
      ++busy[row];
    }
  }
  size_t width = 3;
  for (const auto& row : cells) {
    for (const std::string& cell : row) width = std::max(width, cell.size() + 1);
  }
  std::string out;
  for (size_t row = 0; row < rows; ++row) {
    const std::string& name = overlap.timeline.rows[row].name;
    out += name + std::string(9 - name.size(), ' ');
    for (const std::string& cell : cells[row]) out += cell + std::string(width - cell.size(), ' ');
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n";
  }
  const auto idle = [&](size_t row) { return std::to_string(units - std::min(units, busy[row])); };
  return out + "a step takes " + std::to_string(units) + " units: " + idle(0) + " of them compute waits, " + idle(1) +
         " the link" + (rows > 2 ? ", " + idle(2) + " the files" : "") + "\n";
}

}  // namespace herd::strategies
