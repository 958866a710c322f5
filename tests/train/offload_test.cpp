// Optimizer states on the host and in files, with ranks as threads: losses, norms and weights have the bits of a run
// that keeps all on the device, and memory is what the step says. By default a slice of the product; HERD_FULL_TESTS=1
// runs all of it.
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/types.h>

#include "herd/program/memory_bound.h"
#include "herd/program/passes.h"
#include "herd/strategies/gradient_clipping.h"
#include "herd/train/train_chain.h"
#include "plain_loop.h"
#include "tests/support/sample.h"
#include "train_in_threads.h"

namespace herd::train::own_model {
#define main run_own_model
#include "examples/own_model.cpp"
#undef main
}  // namespace herd::train::own_model

namespace herd::train {
namespace {

using program::Tier;

// Each rank's part of a group is updated by itself, so its order of sums is the same wherever its states are.
void expect_same_bits(const Trained& kept, const Trained& moved, const std::string& what) {
  EXPECT_EQ(moved.losses, kept.losses) << what;
  EXPECT_EQ(moved.skipped, kept.skipped) << what;
  EXPECT_EQ(moved.validation, kept.validation) << what;
  for (size_t i = 0; i < kept.norms.size(); ++i) {
    EXPECT_TRUE(std::isnan(kept.norms[i]) || moved.norms[i] == kept.norms[i]) << what;
  }
  ASSERT_EQ(moved.weights.size(), kept.weights.size()) << what;
  for (const auto& [name, weights] : kept.weights) EXPECT_TRUE(weights.equal(moved.weights.at(name))) << what << name;
}

void expect_memory_as_predicted(const Trained& trained, const std::string& what) {
  const auto host = program::peak_bound(trained.step, Tier::kHost).bytes;
  const auto files = program::peak_bound(trained.step, Tier::kNvme).bytes;
  EXPECT_EQ(trained.file_bytes, files) << what;
  int64_t read = 0, written = 0;  // what the ops of the lane say
  for (const program::Op& op : trained.step.ops) {
    if (op.lane != program::Lane::kIo || op.kind == program::OpKind::kRelease) continue;
    for (const program::Value& value : op.reads)
      (op.kind == program::OpKind::kFetch ? read : written) += trained.step.values.at(value).bytes;
  }
  EXPECT_EQ(trained.file_read, read) << what;
  EXPECT_EQ(trained.file_written, written) << what;
  EXPECT_LE(static_cast<double>(trained.host_bytes), 1.03 * static_cast<double>(host)) << what;
  constexpr double kNumbersOfAStep = 512;  // losses and norms, which the step counts on the host
  EXPECT_GE(static_cast<double>(trained.host_bytes), 0.97 * static_cast<double>(host) - kNumbersOfAStep) << what;
}

TEST(Offload, TrainsWithTheSameBits_AndTheMemoryThatIsPredicted) {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);  // docs/design/traps.md
  int index = 0;
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    for (const int pp : {1, 2}) {
      for (const int data : {1, 2, 3, 4}) {
        for (const int zero : {0, 1, 2, 3}) {
          for (const std::string recompute : {"none", "full"}) {
            for (const double clip : {1.0, 0.0}) {
              if (data == 1 && zero > 0) continue;
              if (clip == 0 && precision == "fp16") continue;  // a scaled loss always has a norm
              if (++index % one_in(23, 61) != 0) continue;
              spec::RunFile run = tiny_run();
              run.strategy.precision = precision, run.strategy.recompute = recompute, run.strategy.zero = zero;
              run.mesh.pp = pp;
              run.optimizer.clip = clip, run.health.check_finite = clip > 0;
              run.optimizer.momentum_precision = index % 2 == 0 ? "bf16" : "fp32";
              run.train.micro_batch = 2;
              const std::string what = precision + " pp " + std::to_string(pp) + " dp " + std::to_string(data) +
                                       " zero " + std::to_string(zero) + " recompute " + recompute + " clip " +
                                       std::to_string(clip);
              const Trained kept = train_in_threads(run, pp * data, steps_to_compare());
              for (const std::string offload : {"states", "nvme", "window"}) {
                run.strategy.offload = offload;
                run.strategy.window = 1 + index % 3;
                run.strategy.file_layers = offload == "window" && zero % 3 == 0 ? index % 4 : 0;
                const Trained moved = train_in_threads(run, pp * data, steps_to_compare());
                expect_same_bits(kept, moved, offload + " " + what + ": ");
                expect_memory_as_predicted(moved, offload + " " + what);
              }
            }
          }
        }
      }
    }
  }
}

// Groups that are longer than a bucket are updated piece by piece, each read, stepped and written by itself.
TEST(Offload, UpdatesInPieces_WithTheSameBits_AndTheMemoryThatIsPredicted) {
  constexpr int kSteps = 4;
  int index = 0;
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    for (const auto& [ranks, zero] : {std::pair(1, 0), {2, 1}, {3, 2}, {2, 3}}) {
      for (const bool delayed : {false, true}) {
        if ((delayed && precision == "fp16") || ++index % one_in(5, 3) != 0) continue;
        spec::RunFile run = tiny_run();
        run.model.width = 48, run.model.ffn = 192;
        run.strategy.precision = precision, run.strategy.zero = zero;
        run.strategy.delayed_update = delayed, run.strategy.bucket = 4096;
        if (index % 2 == 0) run.strategy.gradient_precision = "fp32";
        if (index % 2 == 0 && precision != "fp16") run.optimizer.clip = 0, run.health.check_finite = false;
        run.train.micro_batch = 2;
        const std::string what = precision + " ranks " + std::to_string(ranks) + " zero " + std::to_string(zero) +
                                 (delayed ? " delayed" : "");
        run.strategy.offload = "states";  // whose numbers are those of the device
        const Trained whole = train_in_threads(run, ranks, kSteps);
        run.strategy.offload = "nvme";
        const Trained pieces = train_in_threads(run, ranks, kSteps);
        EXPECT_TRUE(std::ranges::any_of(pieces.step.values, [](const auto& entry) {
          return entry.first.kind == program::ValueKind::kState && entry.first.tensor > 1;
        })) << what;
        expect_same_bits(whole, pieces, what + ": ");
        expect_memory_as_predicted(pieces, what);
      }
    }
  }
}

// Gradients wait in files from their sum to their update.
TEST(Offload, KeepsGradientsInFiles_WithTheSameBits_AndTheMemoryThatIsPredicted) {
  constexpr int kSteps = 4;
  int index = 0;
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    for (const auto& [ranks, zero] : {std::pair(1, 0), {2, 2}, {3, 3}}) {
      for (const std::string order : {"micro_batch_major", "layer_major"}) {
        if (++index % one_in(4, 3) != 0) continue;
        spec::RunFile run = tiny_run();
        run.model.width = 48, run.model.ffn = 192;
        run.strategy.precision = precision, run.strategy.zero = zero, run.strategy.order = order;
        run.strategy.bucket = index % 3 == 0 ? 25 << 20 : 4096;
        if (index % 8 == 0) run.optimizer.clip = 0, run.health.check_finite = precision == "fp16";
        run.train.micro_batch = order == "layer_major" ? 2 : 12 / ranks;
        const std::string what = precision + " ranks " + std::to_string(ranks) + " " + order;
        run.strategy.offload = "nvme";
        const Trained kept = train_in_threads(run, ranks, kSteps);
        for (const std::string offload : {"nvme_gradients", "nvme_all"}) {
          if (offload == "nvme_all" && zero == 2) continue;  // whole weights are in no rank's file
          run.strategy.offload = offload;
          const Trained moved = train_in_threads(run, ranks, kSteps);
          expect_same_bits(kept, moved, offload + " " + what + ": ");
          expect_memory_as_predicted(moved, offload + " " + what);
          EXPECT_LT(program::peak_bound(moved.step, Tier::kDevice).bytes,
                    program::peak_bound(kept.step, Tier::kDevice).bytes)
              << offload << " " << what;
        }
      }
    }
  }
}

// Gradients that ranks of a tensor axis have copies of are summed where they lie: in slots, not one after the other.
TEST(Offload, KeepsGradientsThatTensorRanksSumInFiles_WithTheSameBits) {
  spec::RunFile run = tiny_run();
  run.mesh.tp = 2;
  run.optimizer.clip = 0, run.health.check_finite = false;  // a norm is one of all ranks
  run.strategy.order = "layer_major", run.train.micro_batch = 4;
  const Trained kept = train_in_threads(run, 2, 4);
  for (const std::string offload : {"nvme_gradients", "nvme_all"}) {
    run.strategy.offload = offload;
    expect_same_bits(kept, train_in_threads(run, 2, 4), offload + ": ");
  }
}

// What follows a skipped update copies its weights all the same, from staging buffers that other groups have used.
TEST(Offload, SkipsAStepThatOverflows_WithTheSameBits) {
  spec::RunFile run = tiny_run();
  run.strategy.precision = "fp16";
  run.model.dropout = 0;
  const Trained kept = train_in_threads(run, 2, 8, optim::LossScale(0x1p23));
  EXPECT_GT(kept.skipped[0], 0);
  EXPECT_LT(kept.skipped[0], 8);
  for (const auto& [offload, file_layers] : {std::pair("states", 0), {"nvme", 0}, {"window", 0}, {"window", 2}}) {
    run.strategy.offload = offload, run.strategy.file_layers = file_layers;
    expect_same_bits(kept, train_in_threads(run, 2, 8, optim::LossScale(0x1p23)),
                     offload + std::string(" ") + std::to_string(file_layers) + ": ");
  }
}

// Each gradient is summed in the order of micro-batches, whichever comes first: the layer or the micro-batch.
TEST(Offload, TrainsLayerMajor_WithTheBitsOfMicroBatchesOneByOne) {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);  // docs/design/traps.md
  int index = 0;
  for (const std::string precision : {"fp32", "bf16"}) {
    for (const auto& [tp, cp, data] : {std::tuple(1, 1, 1), {1, 1, 2}, {2, 1, 1}, {1, 2, 1}, {2, 1, 2}}) {
      for (const int zero : {0, 1, 2, 3}) {
        for (const std::string recompute : {"none", "full", "every:2"}) {
          for (const std::string offload : {"none", "window"}) {
            if (cp * data == 1 && zero > 0) continue;
            if (++index % one_in(23, 47) != 0) continue;
            spec::RunFile run = tiny_run();
            run.model.tie_embeddings = false;  // a group of one layer
            run.mesh.tp = tp, run.mesh.cp = cp;
            run.strategy.precision = precision, run.strategy.recompute = recompute, run.strategy.zero = zero;
            run.strategy.offload = offload;
            const Trained one_by_one = train_in_threads(run, tp * cp * data, steps_to_compare());
            run.strategy.order = "layer_major";
            const Trained together = train_in_threads(run, tp * cp * data, steps_to_compare());
            expect_same_bits(one_by_one, together,
                             precision + " tp " + std::to_string(tp) + " cp " + std::to_string(cp) + " dp " +
                                 std::to_string(data) + " zero " + std::to_string(zero) + " recompute " + recompute +
                                 " offload " + offload + ": ");
          }
        }
      }
    }
  }
}

// Passes that read weights on the host read the same numbers, whatever else the run does.
TEST(Offload, ReadsWeightsOnTheHost_WithTheBitsOfAWindow) {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);  // docs/design/traps.md
  int index = 0;
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    for (const auto& [tp, pp, data] :
         {std::tuple(1, 1, 1), {1, 1, 2}, {2, 1, 1}, {1, 2, 1}, {1, 1, 3}, {1, 1, 4}, {1, 2, 2}}) {
      for (const bool tied : {true, false}) {
        for (const std::string recompute : {"none", "full"}) {
          for (const std::string blocks : {"embedding", "embedding h.0* head*", "*"}) {
            if (++index % one_in(37, 67) != 0) continue;
            spec::RunFile run = tiny_run();
            run.mesh.tp = tp, run.mesh.pp = pp;
            run.strategy.zero = data > 1 ? index % 3 : 0;
            run.model.tie_embeddings = tied;
            run.strategy.precision = precision, run.strategy.recompute = recompute;
            if (pp == 1 && index % 2 == 0) run.strategy.order = "layer_major";
            const std::string what = precision + " tp " + std::to_string(tp) + " pp " + std::to_string(pp) + " dp " +
                                     std::to_string(data) + " zero " + std::to_string(run.strategy.zero) +
                                     (tied ? " tied" : "") + " recompute " + recompute + " direct " + blocks + ": ";
            const Trained kept = train_in_threads(run, tp * pp * data, steps_to_compare());
            run.strategy.offload = "window";
            const Trained fetched = train_in_threads(run, tp * pp * data, steps_to_compare());
            run.strategy.direct_host = blocks;
            const Trained direct = train_in_threads(run, tp * pp * data, steps_to_compare());
            expect_same_bits(kept, direct, what);
            expect_same_bits(fetched, direct, what);
            EXPECT_LE(direct.held.at(MemoryLabel::kWeights), fetched.held.at(MemoryLabel::kWeights)) << what;
            EXPECT_TRUE(blocks != "*" || direct.held.at(MemoryLabel::kWeights) == 0) << what;
          }
        }
      }
    }
  }
}

// Modules of a user's own (examples/own_model.cpp), on their device or off it.
TEST(Offload, TrainsAModelOfOnesOwn_WithTheSameBits) {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);  // docs/design/traps.md
  constexpr int kSteps = 3;
  const Chain chain = own_model::make_chain();
  const ChainData data{.read = own_model::read_images};
  int index = 0;
  for (const std::string precision : {"fp32", "bf16"}) {
    for (const auto& [ranks, zero] : {std::pair(1, 0), {2, 0}, {3, 1}, {4, 2}, {2, 2}, {4, 3}, {3, 3}}) {
      for (const std::string offload : {"states", "window", "nvme", "nvme_gradients", "nvme_all"}) {
        for (const std::string order : {"micro_batch_major", "layer_major"}) {
          if (offload == "nvme_gradients" && ranks > 1 && zero < 2) continue;
          if (offload == "nvme_all" && ranks > 1 && zero < 3) continue;
          if (++index % one_in(19, 61) != 0) continue;
          spec::RunFile run = spec::parse_run_text("[train]\nbatch = 12\n[optimizer]\nlr = 3e-3\n", "test");
          run.strategy.precision = precision, run.strategy.zero = zero, run.strategy.order = order;
          run.strategy.bucket = index % 2 == 0 ? 25 << 20 : 4096;
          run.train.micro_batch = order == "layer_major" ? 2 : 12 / ranks;
          const std::string what = offload + " " + precision + " ranks " + std::to_string(ranks) + " zero " +
                                   std::to_string(zero) + " " + order + " ";
          const Trained kept = train_chain_in_threads(chain, data, run, ranks, kSteps);
          run.strategy.offload = offload;
          const bool has_window = offload == "window" || offload == "nvme_all";
          if (offload == "window" && (zero == 3 || ranks == 1)) run.strategy.file_layers = index % 4;
          if (has_window && zero < 3 && index % 2 == 0) run.strategy.direct_host = "patches layer1 head";
          expect_same_bits(kept, train_chain_in_threads(chain, data, run, ranks, kSteps), what);
        }
      }
    }
  }
}

// Activations that wait on the host or in files change no bit, in any layout that has them.
TEST(Offload, MovesActivationsWithTheSameBits) {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);  // docs/design/traps.md
  int index = 0;
  for (const std::string precision : {"fp32", "bf16"}) {
    for (const int pp : {1, 2}) {
      for (const int data : {1, 2}) {
        for (const int tp : {1, 2}) {
          for (const int zero : {0, 1, 2, 3}) {
            for (const std::string recompute : {"full", "sqrt", "every:2"}) {
              if ((data == 1 && zero > 0) || pp * data * tp > 4) continue;
              if (++index % one_in(29, 61) != 0) continue;
              spec::RunFile run = tiny_run();
              run.model.layers = 5;
              run.strategy.precision = precision, run.strategy.recompute = recompute, run.strategy.zero = zero;
              run.mesh.pp = pp, run.mesh.tp = tp;
              run.train.micro_batch = 1 + index % 2;
              run.strategy.offload = std::array{"none", "nvme", "window", "states"}[index % 4];
              const std::string what = precision + " pp " + std::to_string(pp) + " dp " + std::to_string(data) +
                                       " tp " + std::to_string(tp) + " zero " + std::to_string(zero) + " recompute " +
                                       recompute + " offload " + run.strategy.offload;
              const Trained kept = train_in_threads(run, pp * data * tp, steps_to_compare());
              for (const std::string where : {"host", "nvme"}) {
                run.strategy.offload_activations = where;
                const Trained moved = train_in_threads(run, pp * data * tp, steps_to_compare());
                expect_same_bits(kept, moved, where + " " + what + ": ");
                expect_memory_as_predicted(moved, where + " " + what);
              }
            }
          }
        }
      }
    }
  }
}

// A slow link changes when copies end, and nothing that is computed.
TEST(Offload, WaitsForALink_WithTheSameBits) {
  spec::RunFile run = tiny_run();
  run.strategy.offload = "states";
  run.optimizer.clip = 0, run.health.check_finite = false;
  const Trained fast = train_in_threads(run, 2, 3);
  run.memory.link = 20'000'000;
  const auto begin = std::chrono::steady_clock::now();
  const Trained slow = train_in_threads(run, 2, 3);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(slow.losses, fast.losses);
  const auto model = spec::program_table(run, 1);
  EXPECT_GE(seconds, 3 * 4.0 * static_cast<double>(model.parameters()) / 20e6);  // each way; the ways run side by side
}

// A pass takes as long as the link takes for the weights that it reads on the host.
TEST(Offload, WaitsForALink_WhereItReadsOnTheHost) {
  spec::RunFile run = tiny_run();
  run.strategy.offload = "window", run.strategy.direct_host = "*";
  run.optimizer.clip = 0, run.health.check_finite = false;
  const Trained fast = train_in_threads(run, 1, 1);
  run.memory.link = 2'000'000;
  const auto begin = std::chrono::steady_clock::now();
  const Trained slow = train_in_threads(run, 1, 1);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(slow.losses, fast.losses);
  const auto model = spec::program_table(run, 1);
  double bytes = 0;
  for (const program::Op& op : slow.step.ops) {
    if (program::is_pass(op))
      bytes += static_cast<double>(direct_bytes(slow.step, op, model.blocks[static_cast<size_t>(op.block)]));
  }
  EXPECT_GT(bytes, 12 * 2 * 4.0 * static_cast<double>(model.group_elements(2)));
  EXPECT_GE(seconds, bytes / 2e6);
}

}  // namespace
}  // namespace herd::train
