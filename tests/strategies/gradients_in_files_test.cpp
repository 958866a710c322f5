// Gradients that wait in files, as a rewrite: it proves with what it goes with, leaves the device a few of them, moves
// each once each way, and mutants of it are found.
#include "herd/strategies/gradients_in_files.h"

#include <gtest/gtest.h>

#include "herd/program/memory_bound.h"
#include "herd/program/program_text.h"
#include "herd/spec/model_states.h"
#include "tests/golden.h"
#include "tests/strategies/op_mutants.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;
using program::Tier;
using program::Value;
using program::ValueKind;

spec::RunFile gradients_run(int dp, int zero, int64_t layers = 3, const std::string& offload = "nvme_gradients") {
  spec::RunFile run = offload_run(dp, zero, layers, offload);
  run.strategy.order = "layer_major";
  return run;
}

bool is_gradient_of_file(const Op& op) {
  return op.lane == Lane::kIo && op.kind != OpKind::kRelease &&
         std::ranges::any_of(op.reads, [](const Value& value) { return value.kind == ValueKind::kGradient; });
}

TEST(GradientsInFiles, ProveWithWhatTheyGoWith) {
  int index = 0;
  for (const auto& [dp, zero] : {std::pair(1, 0), {2, 2}, {2, 3}, {4, 3}}) {
    for (const auto& [tp, cp] : {std::pair(1, 1), {2, 1}, {1, 2}}) {
      for (const char* precision : {"fp32", "bf16", "fp16"}) {
        for (const char* recompute : {"none", "full"}) {
          for (const int64_t width : {8, 64}) {
            if (dp * tp * cp > 8 || (cp > 1 && zero == 0) || ++index % one_in(5, 17) != 0) continue;
            spec::RunFile run = gradients_run(dp, zero, 2);
            run.strategy.precision = precision, run.strategy.recompute = recompute, run.model.width = width;
            run.mesh.tp = tp, run.mesh.cp = cp;
            if (tp > 1 && run.strategy.precision == "fp16") continue;  // whose norm is one of all
            if (tp > 1 || index % 3 == 0) run.optimizer.clip = 0, run.health.check_finite = false;
            if (run.strategy.precision == "fp16") run.optimizer.clip = 1;
            if (index % 2 == 0) run.train.batch = dp, run.strategy.order = "micro_batch_major";
            if (index % 4 == 0) run.model.frozen = "h.1.*";
            if (dp == 4) run.mesh.fsdp = 2;
            if (zero != 2 && index % 5 < 3) run.strategy.offload = "nvme_all", run.strategy.window = 1 + index % 3;
            if (zero == 0 && index % 3 == 0 && run.strategy.offload == "nvme_all")
              run.strategy.direct_host = "embedding head*";
            const auto steps = steps_of(run, dp * tp * cp);
            EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
          }
        }
      }
    }
  }
}

TEST(GradientsInFiles, AreReadByPeople) {
  testing_support::expect_golden("tests/strategies/golden/gradients_in_files_zero2_dp2.txt",
                                 to_text(steps_of(gradients_run(2, 2, 1), 2)[1]));
  testing_support::expect_golden("tests/strategies/golden/all_in_files_zero3_dp2.txt",
                                 to_text(steps_of(gradients_run(2, 3, 1, "nvme_all"), 2)[1]));
}

// Files have each gradient that the rank updates beside weights and states, and move it once each way. The device has
// buffers of a few.
TEST(GradientsInFiles, LeaveTheDeviceAFewGradients_AndMoveEachOnceEachWay) {
  constexpr int64_t kLayers = 12;
  for (const auto& [dp, zero] : {std::pair(1, 0), {2, 2}}) {
    spec::RunFile run = gradients_run(dp, zero, kLayers);
    run.model.width = 64, run.strategy.bucket = 25 << 20;
    const spec::ModelTable model = spec::program_table(run, 1);
    const Program step = steps_of(run, dp)[0];
    run.strategy.offload = "nvme";
    const Program kept = steps_of(run, dp)[0];
    int64_t gradients = 0, read = 0, written = 0;
    for (const auto& [value, info] : step.values)
      if (value.kind == ValueKind::kGradient && value.tier == Tier::kNvme) gradients += info.bytes;
    EXPECT_GE(gradients, 4 * model.parameters() / dp);
    EXPECT_LE(gradients, 4 * model.parameters() / dp + static_cast<int64_t>(model.groups.size()) * (2 * 4096 + 64));
    EXPECT_EQ(peak_bound(step, Tier::kNvme).bytes, peak_bound(kept, Tier::kNvme).bytes + gradients);
    for (const Op& op : step.ops) {
      if (!is_gradient_of_file(op)) continue;
      for (const Value& value : op.reads)
        if (value.kind == ValueKind::kGradient)
          (op.kind == OpKind::kFetch ? read : written) += step.values.at(value).bytes;
    }
    EXPECT_EQ(read, gradients);
    EXPECT_EQ(written, gradients);
    const int64_t layer = 4 * model.group_elements(2) / dp;
    EXPECT_LE(peak_bound(step, Tier::kDevice).bytes, peak_bound(kept, Tier::kDevice).bytes - (kLayers - 4) * layer);
  }
}

// With weights and states beside them the device keeps nothing of a parameter, and the host buffers, however many
// layers there are. The file has 16 bytes a parameter in fp32, and moves what passes and updates read and updates make.
TEST(GradientsInFiles, LeaveNothingElsewhere_WhereWeightsAndStatesAreInFilesToo) {
  const auto step_of = [](int64_t layers, int dp) {
    spec::RunFile run = gradients_run(dp, dp > 1 ? 3 : 0, layers, "nvme_all");
    run.model.width = 64, run.strategy.recompute = "full", run.strategy.offload_activations = "nvme";
    run.strategy.bucket = 25 << 20;
    return std::pair(steps_of(run, dp)[0], spec::program_table(run, 1));
  };
  for (const int dp : {1, 2}) {
    const auto [few, model_of_few] = step_of(6, dp);
    const auto [many, model] = step_of(12, dp);
    int64_t of_parameters = 0, of_weights = 0;
    for (const auto& [value, info] : many.values) {
      const bool is_of_parameter =
          value.kind == ValueKind::kWeight || value.kind == ValueKind::kGradient || value.kind == ValueKind::kState;
      EXPECT_TRUE(!is_of_parameter || info.persistent == (value.tier == Tier::kNvme)) << value_name(many.mesh, value);
      if (is_of_parameter && info.persistent) of_parameters += info.bytes;
      if (value.kind == ValueKind::kWeight && info.persistent) of_weights += info.bytes;
    }
    EXPECT_GE(of_parameters, 16 * model.parameters() / dp);
    EXPECT_LE(of_parameters,
              16 * model.parameters() / dp + static_cast<int64_t>(model.groups.size()) * 4 * (4096 + 64));
    for (const Tier tier : {Tier::kDevice, Tier::kHost})
      EXPECT_LT(peak_bound(many, tier).bytes - peak_bound(few, tier).bytes, 6 * 1024) << dp;
    int64_t read = 0, written = 0;
    for (const Op& op : many.ops) {
      if (op.lane != Lane::kIo || op.kind == OpKind::kRelease) continue;
      for (const Value& value : op.reads)
        if (value.kind != ValueKind::kActivation)
          (op.kind == OpKind::kFetch ? read : written) += many.values.at(value).bytes;
    }
    EXPECT_EQ(written, of_parameters);
    EXPECT_GT(read, of_parameters);
    EXPECT_LE(read, of_parameters + 2 * of_weights);  // for the update, for forward and for backward
  }
}

TEST(GradientsInFiles, MutantsAreFound) {
  for (const std::string offload : {"nvme_gradients", "nvme_all"}) {
    for (const auto& [width, has_norm] : {std::pair(8, true), {8, false}, {64, true}, {64, false}}) {
      if (offload == "nvme_all" && has_norm == (width == 64)) continue;
      spec::RunFile run = gradients_run(2, offload == "nvme_all" ? 3 : 2, 2, offload);
      run.model.width = width, run.strategy.bucket = 4 * 8192;
      if (!has_norm) run.optimizer.clip = 0, run.health.check_finite = false;
      const auto steps = steps_of(run, 2);
      program::Expectation expected = expectation_of(run, 2);
      expected.proof.clipped = has_norm;
      ASSERT_EQ(first_finding(steps, expected), "");
      OpMutants files(steps, expected, is_gradient_of_file);
      files.expect_found("left out", [](std::vector<Op>& ops, size_t i) {
        ops.erase(ops.begin() + static_cast<long>(i));
        return true;
      });
      files.expect_found("of another group", [](std::vector<Op>& ops, size_t i) {
        for (Value& value : ops[i].writes)
          if (value.kind == ValueKind::kGradient) value.index = value.index == 1 ? 0 : 1;
        return true;
      });
      files.expect_found("the other way", [](std::vector<Op>& ops, size_t i) {
        ops[i].kind = ops[i].kind == OpKind::kEvict ? OpKind::kFetch : OpKind::kEvict;
        return true;
      });
      EXPECT_GT(files.count(), 20);
      // A gradient that leaves the device, or whose norm is taken, before it is complete.
      OpMutants early(steps, expected, [](const Op& op) {
        return op.kind == OpKind::kNorm || (op.kind == OpKind::kEvict && op.lane == Lane::kCopyOut);
      });
      early.expect_found("before the last sum", [](std::vector<Op>& ops, size_t i) {
        size_t last = i;
        while (last > 0 && std::ranges::count(ops[last - 1].writes, ops[i].reads[0]) == 0) --last;
        std::rotate(ops.begin() + static_cast<long>(last) - 1, ops.begin() + static_cast<long>(i),
                    ops.begin() + static_cast<long>(i) + 1);
        return true;
      });
      EXPECT_GE(early.count(), 4);
    }
  }
}

TEST(GradientsInFiles, NameWhatTheyDoNotGoWith) {
  spec::RunFile run = gradients_run(2, 1);
  EXPECT_ERROR(steps_of(run, 2), Code::kBadConfig, "strategy.zero = 1", "keeps whole gradients",
               "fix: strategy.zero = 2", "or strategy.offload = \"nvme\"");
  run = gradients_run(1, 0);
  run.strategy.order = "micro_batch_major";
  EXPECT_ERROR(steps_of(run, 1), Code::kBadConfig, "2 micro-batches add to it", "fix: strategy.order = \"layer_major\"",
               "train.micro_batch = 2");
  run = gradients_run(2, 2);
  run.mesh.tp = 2;
  EXPECT_ERROR(steps_of(run, 4), Code::kBadConfig, "mesh.tp = 2", "fix: optimizer.clip = 0");
  run = gradients_run(2, 2);
  run.strategy.offload = "nvme_all";
  EXPECT_ERROR(steps_of(run, 2), Code::kBadConfig, "strategy.offload = \"nvme_all\"", "strategy.zero = 2",
               "keeps whole weights", "fix: strategy.zero = 3", "or strategy.offload = \"window\"");
  run.strategy.offload = "nvme_gradients";
  run.strategy.delayed_update = true;
  EXPECT_ERROR(steps_of(run, 2), Code::kBadConfig, "strategy.delayed_update", "nvme_gradients");
}

}  // namespace
}  // namespace herd::strategies
