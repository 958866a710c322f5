#include "herd/planner/prediction.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/pipeline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "herd/base/error.h"
#include "herd/program/memory_bound.h"
#include "herd/spec/model_states.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "tests/support/expect_error.h"

namespace herd::planner {
namespace {

spec::RunFile known(const std::string& name, std::vector<std::string> overrides = {}) {
  return spec::parse_run_file(std::string(std::getenv("HERD_SOURCE_DIR")) + "/share/herd/models/" + name + ".toml",
                              overrides);
}

Prediction equations(const spec::RunFile& run, int ranks, const Cluster& cluster = small_server(2)) {
  CollectiveCostModel::LineCache memory;
  return predict_by_equations(run, ranks, cluster, memory);
}

Cluster devices() {  // hosts of 8, a device each
  Cluster cluster = small_server(16);
  cluster.topology.hosts[0].ranks = 8;
  cluster.topology.hosts[0].core_bytes_per_us = cluster.topology.hosts[0].cached_core_bytes_per_us = 600e3;
  cluster.topology.hosts[0].uplink.bytes_per_us = 200e3;
  cluster.device = {.has_own_device = true,
                    .memory_bytes = 80000000000,
                    .matmul_16bit_flops_per_us = 312e6,
                    .attention_16bit_flops_per_us = 312e6,
                    .bytes_per_us = 2e6,
                    .op_overhead_us = 10};
  return cluster;
}

TEST(Predict, IsWhatHerdTrainPredicts_ForDataParallel) {
  const spec::RunFile run = known("gpt-162m");
  for (const int ranks : {1, 2}) {
    const Prediction p = predict(run, ranks, small_server(2));
    const spec::Layout layout = strategies::trainable_layout(run, ranks);
    const spec::ModelTable model = spec::model_table(run, layout.micro_batch);
    const auto steps = strategies::compile_and_verify(run, model, layout);
    EXPECT_TRUE(p.simulated);
    EXPECT_EQ(p.device.total(), static_cast<double>(in_order_peak(steps[0], program::Tier::kDevice).bytes));
    EXPECT_EQ(p.device_bound, static_cast<double>(peak_bound(steps[0], program::Tier::kDevice).bytes));
    EXPECT_EQ(p.device.weights + p.device.gradients + p.device.states, 16.0 * static_cast<double>(p.parameters));
    EXPECT_DOUBLE_EQ(p.sent_bytes(), 4 * spec::zero_elements_sent(static_cast<double>(p.parameters), ranks, 0));
    EXPECT_DOUBLE_EQ(p.flops, model.flops() * layout.micro_batches);
  }
}

// Two ranks that share tokens: bytes and time are those of their programs, simulated; T tokens of width h and keys of
// width h_kv, e bytes each, in L layers, and beside them the sum of all gradients.
TEST(Predict, IsWhatItsSimulationSays_ForContextParallel) {
  for (const std::string context : {"all_to_all", "ring"}) {
    const spec::RunFile run = known("gpt-162m", {"mesh.cp=2", "strategy.context=" + context, "train.batch=2",
                                                 "train.micro_batch=1", "model.kv_heads=6"});
    const Cluster cluster = small_server(2);
    const Prediction p = predict(run, 2, cluster);
    ASSERT_TRUE(p.simulated) << p.why_equations;
    const spec::Layout layout = strategies::trainable_layout(run, 2);
    const spec::ModelTable model = spec::program_table(run, layout.micro_batch);
    const auto steps = strategies::compile_and_verify(run, model, layout);
    EXPECT_EQ(p.device.total(), static_cast<double>(in_order_peak(steps[0], program::Tier::kDevice).bytes)) << context;
    EXPECT_EQ(p.device_bound, static_cast<double>(peak_bound(steps[0], program::Tier::kDevice, steps).bytes));
    const Cluster sized = with_ranks(cluster, 2);
    const auto simulated = simulate_on(steps, model, sized, calibration_of(sized, run, layout), 2);
    EXPECT_NEAR(p.step_us, simulated.step_us, 1e-6 * p.step_us) << context;
    const auto& m = run.model;
    const double T = static_cast<double>(m.context), h = static_cast<double>(m.width), h_kv = h / 2, e = 4;
    const double exchanged = 4 * (1 + h_kv / h) * T / 2 * h * e / 2,
                 passed = 2 * (2 * T * h_kv * e / 2) + 2 * T * h_kv * 4;
    const double of_layers =
                     static_cast<double>(m.layers * layout.micro_batches) * (context == "ring" ? passed : exchanged),
                 of_gradients = 4 * spec::zero_elements_sent(static_cast<double>(p.parameters), 2, 0);
    EXPECT_NEAR(p.sent_bytes(), of_layers + of_gradients, 0.01 * of_layers) << context;
    // A rank computes half of what one alone does, and has half of its activations and what it exchanges.
    const Prediction alone =
        predict(known("gpt-162m", {"train.batch=2", "train.micro_batch=1", "model.kv_heads=6"}), 1, cluster);
    EXPECT_NEAR(p.flops, alone.flops / 2, 0.02 * alone.flops) << context;
    EXPECT_LT(p.device.activations, 0.6 * alone.device.activations) << context;
  }
}

TEST(Equations, GiveTheBytesOfTheProgram_ToTheLastOne) {
  for (const char* name : {"gpt-162m", "gpt2", "bert-base", "t5-small", "llama-7b"}) {
    for (const char* dropout : {"model.dropout=0", "model.dropout=0.1"}) {
      for (const char* precision : {"strategy.precision=fp32", "strategy.precision=bf16"}) {
        for (const int ranks : {1, 4}) {
          const char* gradients = ranks == 4 ? "strategy.gradient_precision=fp32" : "strategy.gradient_precision=same";
          const spec::RunFile run =
              known(name, {dropout, precision, gradients, "train.batch=24", "train.micro_batch=2"});
          const Prediction by_program = predict(run, ranks, devices()), by_equation = equations(run, ranks, devices());
          ASSERT_TRUE(by_program.simulated) << by_program.why_equations;
          EXPECT_EQ(by_equation.device.total(), by_program.device.total()) << name << " " << dropout << " " << ranks;
          EXPECT_EQ(by_equation.device.weights, by_program.device.weights);
          EXPECT_EQ(by_equation.device.states, by_program.device.states);
          EXPECT_EQ(by_equation.device.gradients, by_program.device.gradients);
          EXPECT_EQ(by_equation.device.activations, by_program.device.activations);
          EXPECT_EQ(by_equation.device.buffers, by_program.device.buffers);
          EXPECT_DOUBLE_EQ(by_equation.sent_bytes(), by_program.sent_bytes());
          EXPECT_DOUBLE_EQ(by_equation.flops, by_program.flops);
        }
      }
    }
  }
}

TEST(Equations, GiveTheBytesOfTheProgram_ForEveryRecompute) {
  for (const char* how : {"full", "selective", "sqrt", "every:5"}) {
    for (const char* dropout : {"model.dropout=0", "model.dropout=0.1"}) {
      const spec::RunFile run = known("gpt2", {std::string("strategy.recompute=") + how, dropout, "train.batch=8"});
      const Prediction by_program = predict(run, 2, devices()), by_equation = equations(run, 2, devices());
      ASSERT_TRUE(by_program.simulated) << by_program.why_equations;
      EXPECT_EQ(by_equation.device.total(), by_program.device.total()) << how << " " << dropout;
      EXPECT_NEAR(by_equation.step_us, by_program.step_us, 0.1 * by_program.step_us) << how << " " << dropout;
      EXPECT_DOUBLE_EQ(by_equation.flops, by_program.flops) << how << " " << dropout;
    }
  }
}

TEST(Equations, GiveTheBytesOfTheProgram_ForEveryZeroStage) {
  for (const char* name : {"gpt-162m", "gpt2", "llama-7b"}) {
    for (const char* recompute : {"none", "full", "sqrt"}) {
      for (const int zero : {1, 2, 3}) {
        for (const int ranks : {2, 4}) {
          for (const char* batch : {"train.batch=8", "train.batch=24"}) {
            const spec::RunFile run = known(
                name, {"strategy.zero=" + std::to_string(zero), std::string("strategy.recompute=") + recompute, batch,
                       "train.micro_batch=2", ranks == 4 ? "strategy.precision=bf16" : "strategy.precision=fp32",
                       "strategy.gradient_precision=fp32"});
            const Prediction by_program = predict(run, ranks, devices()),
                             by_equation = equations(run, ranks, devices());
            ASSERT_TRUE(by_program.simulated) << by_program.why_equations;
            const std::string text = std::string(name) + " " + recompute + " zero " + std::to_string(zero) + " ranks " +
                                     std::to_string(ranks) + " " + batch;
            EXPECT_EQ(by_equation.device.total(), by_program.device.total()) << text;
            EXPECT_EQ(by_equation.device.weights, by_program.device.weights) << text;
            EXPECT_EQ(by_equation.device.gradients, by_program.device.gradients) << text;
            EXPECT_EQ(by_equation.device.states, by_program.device.states) << text;
            EXPECT_DOUBLE_EQ(by_equation.sent_bytes(), by_program.sent_bytes()) << text;
          }
        }
      }
    }
  }
}

TEST(Equations, GiveTheBytesOfTheProgram_HoweverManyGroupsAreKeptWhole) {
  for (const char* tie : {"model.tie_embeddings=false", "model.tie_embeddings=true"}) {
    for (const char* whole : {"1", "4", "13"}) {
      const spec::RunFile run =
          known("gpt-162m", {"strategy.zero=3", "strategy.keep_whole=" + std::string(whole), tie,
                             "strategy.recompute=every:4", "train.batch=16", "train.micro_batch=2"});
      const Prediction by_program = predict(run, 4, devices()), by_equation = equations(run, 4, devices());
      EXPECT_EQ(by_equation.device.total(), by_program.device.total()) << tie << " " << whole;
      EXPECT_EQ(by_equation.device.weights, by_program.device.weights) << tie << " " << whole;
      EXPECT_EQ(by_equation.device.buffers, by_program.device.buffers) << tie << " " << whole;
      EXPECT_DOUBLE_EQ(by_equation.sent_bytes(), by_program.sent_bytes()) << tie << " " << whole;
    }
  }
}

TEST(Equations, GiveTheBytesOfTheProgram_WhereParametersAreFrozen) {
  int index = 0;
  for (const std::string frozen : {"*.bias", "wte.weight h.3.*", "w*.weight h.0.* h.1.* h.2.*", "w*.weight h.*"}) {
    for (const char* recompute : {"none", "every:5"}) {
      for (const char* zero : {"0", "1", "2", "3"}) {
        if (++index % 3 != 0) continue;
        const char* whole = index % 2 == 0 ? "0" : "3";
        const spec::RunFile run =
            known("gpt-162m", {"model.frozen=" + frozen, std::string("strategy.zero=") + zero,
                               std::string("strategy.recompute=") + recompute, "train.batch=8", "train.micro_batch=1",
                               std::string("strategy.keep_whole=") + whole});
        const Prediction by_program = predict(run, 4, devices()), by_equation = equations(run, 4, devices());
        const std::string text = frozen + " " + recompute + " " + zero;
        EXPECT_GT(by_program.frozen, 0);
        EXPECT_EQ(by_equation.device.total(), by_program.device.total()) << text;
        EXPECT_EQ(by_equation.device.weights, by_program.device.weights) << text;
        EXPECT_EQ(by_equation.device.states, by_program.device.states) << text;
        EXPECT_EQ(by_equation.device.gradients, by_program.device.gradients) << text;
        EXPECT_DOUBLE_EQ(by_equation.sent_bytes(), by_program.sent_bytes()) << text;
        EXPECT_DOUBLE_EQ(by_equation.flops, by_program.flops) << text;
      }
    }
  }
}

TEST(Equations, GiveTheBytesOfTheProgram_ForHybridShards) {
  for (const char* zero : {"strategy.zero=1", "strategy.zero=2", "strategy.zero=3"}) {
    const spec::RunFile run = known("gpt2", {zero, "mesh.fsdp=4", "train.batch=32", "train.micro_batch=2"});
    const Prediction by_program = predict(run, 8, devices()), by_equation = equations(run, 8, devices());
    ASSERT_TRUE(by_program.simulated) << by_program.why_equations;
    EXPECT_EQ(by_equation.device.total(), by_program.device.total()) << zero;
    EXPECT_DOUBLE_EQ(by_equation.sent.at("dp"), by_program.sent.at("dp")) << zero;
    EXPECT_DOUBLE_EQ(by_equation.sent.at("fsdp"), by_program.sent.at("fsdp")) << zero;
  }
}

// Stages send activations to their neighbours; the ends of a pipeline sum the gradient of a tied embedding.
TEST(Equations, CountWhatStagesSend_WithATiedEmbeddingOrWithout) {
  for (const char* tied : {"model.tie_embeddings=true", "model.tie_embeddings=false"}) {
    for (const char* zero : {"strategy.zero=0", "strategy.zero=1"}) {
      for (const char* frozen : {"model.frozen=none", "model.frozen=wte.weight"}) {
        const spec::RunFile run = known("gpt2", {tied, zero, frozen, "mesh.pp=2", "train.batch=16"});
        const double by_program = predict(run, 4, devices()).sent.at("pp");
        EXPECT_NEAR(equations(run, 4, devices()).sent.at("pp"), by_program, 2e-4 * by_program)
            << tied << " " << zero << " " << frozen;
      }
    }
  }
}

// The chain of a program is finer where ranks share layers, so equations come near it and are not it.
TEST(Equations, ComeNearTheProgram_WhereRanksShareLayers) {
  for (const char* name : {"gpt2", "llama-7b"}) {
    for (const char* tp : {"mesh.tp=2", "mesh.tp=4"}) {
      for (const std::vector<std::string>& form : {std::vector<std::string>{"strategy.sequence_parallel=false"},
                                                   {},
                                                   {"strategy.keep_gathered=false"},
                                                   {"strategy.keep_gathered=false", "strategy.recompute=sqrt"},
                                                   {"strategy.recompute=full", "strategy.sequence_parallel=false"},
                                                   {"strategy.recompute=full"},
                                                   {"strategy.recompute=full", "strategy.keep_gathered=false"},
                                                   {"mesh.pp=2", "strategy.keep_gathered=false"},
                                                   {"strategy.zero=1"},
                                                   {"strategy.zero=3"}}) {
        std::vector<std::string> keys = {tp, "train.batch=16", "train.micro_batch=4", "model.layers=12"};
        keys.insert(keys.end(), form.begin(), form.end());
        const spec::RunFile run = known(name, keys);
        const Prediction by_program = predict(run, 8, devices()), by_equation = equations(run, 8, devices());
        ASSERT_TRUE(by_program.simulated) << by_program.why_equations;
        const std::string text = std::string(name) + " " + testing::PrintToString(keys);
        const auto kept = [](const Prediction& p) { return p.device.activations + p.device.buffers; };
        // Groups of a finer chain are smaller, so pools of them take less.
        const bool pools = run.strategy.zero == 3;
        EXPECT_NEAR(by_equation.device.total(), by_program.device.total(),
                    (pools ? 0.035 : 0.005) * by_program.device.total())
            << text;
        EXPECT_NEAR(kept(by_equation), kept(by_program), (pools ? 0.055 : 0.02) * kept(by_program)) << text;
        EXPECT_NEAR(by_equation.step_us, by_program.step_us, 0.1 * by_program.step_us) << text;
        if (run.mesh.pp == 1) {  // else of the stage that takes longest, and of the one that needs most memory
          EXPECT_DOUBLE_EQ(by_equation.flops, by_program.flops) << text;
        }
        for (const auto& [axis, bytes] : by_program.sent)
          EXPECT_NEAR(by_equation.sent.at(axis), bytes, 2e-4 * bytes) << text << " on " << axis;
      }
    }
  }
}

TEST(Equations, TakeTheTimeOfTheSimulation_WithinATenth) {
  for (const int ranks : {1, 2, 4}) {
    const spec::RunFile run = known("gpt-162m", {"train.batch=8"});
    const double simulated = predict(run, ranks, small_server(2)).step_us;
    EXPECT_NEAR(equations(run, ranks).step_us, simulated, 0.1 * simulated) << ranks << " ranks on cores";
  }
  for (const int ranks : {1, 8, 16}) {
    const spec::RunFile run = known("gpt2", {"train.batch=64"});
    const double simulated = predict(run, ranks, devices()).step_us;
    EXPECT_NEAR(equations(run, ranks, devices()).step_us, simulated, 0.1 * simulated) << ranks << " devices";
  }
}

TEST(Equations, ReproduceTheStatesOfGpt3) {
  const Prediction p = equations(known("gpt3-175b", {"strategy.precision=fp16"}), 1, devices());
  EXPECT_NEAR(p.device.weights / 1e9, 350, 0.003 * 350);
  EXPECT_NEAR(p.device.gradients / 1e9, 350, 0.003 * 350);
  EXPECT_NEAR(p.device.states / 1e9, 3 * 700, 0.003 * 2100);
}

TEST(Equations, CountFp16OnADeviceAsBf16_AndItsCopiesInFp32OnACpu) {
  const auto activations = [](const char* precision, const Cluster& cluster) {
    return equations(known("gpt2", {std::string("strategy.precision=") + precision}), 1, cluster).device.activations;
  };
  EXPECT_EQ(activations("fp16", devices()), activations("bf16", devices()));
  EXPECT_GT(activations("fp16", small_server(2)), activations("bf16", small_server(2)));
}

TEST(Equations, ShardStatesAndTrafficByTheZeroStage) {
  for (int stage = 0; stage <= 3; ++stage) {
    const spec::RunFile run =
        known("llama-7b", {"strategy.zero=" + std::to_string(stage), "train.batch=64", "train.micro_batch=1"});
    const Prediction p = equations(run, 64, devices());
    const double psi = static_cast<double>(p.parameters);
    const double states = p.device.weights + p.device.gradients + p.device.states;
    EXPECT_DOUBLE_EQ(states, spec::zero_state_bytes(psi, 64, stage, spec::kBf16Adam)) << stage;
    // Embedding and loss block are gathered once: the one is differentiated without weights, the other in one pass.
    const double once = stage == 3 ? 2.0 * 32000 * 4096 + 4096 : 0;
    const double elements = spec::zero_elements_sent(psi, 64, stage) - once * 63 / 64;
    EXPECT_NEAR(p.sent_bytes(), 2 * elements, 1e-6 * p.sent_bytes()) << stage;  // norms: 16 bytes a group
  }
  const spec::RunFile hybrid = known("llama-7b", {"mesh.fsdp=8", "strategy.zero=3", "train.batch=64"});
  const Prediction p = equations(hybrid, 64, devices());
  const double psi = static_cast<double>(p.parameters);
  EXPECT_DOUBLE_EQ(p.device.weights + p.device.gradients + p.device.states,
                   spec::zero_state_bytes(psi, 8, 3, spec::kBf16Adam));
  const double once = 2.0 * 32000 * 4096 + 4096;
  const double elements = spec::hybrid_elements_sent(psi, 8, 8, 3) - once * 7 / 8;
  EXPECT_NEAR(p.sent_bytes(), 2 * elements, 1e-6 * p.sent_bytes());
}

TEST(Equations, TradeMemoryForTime_ByRecompute) {
  const auto of = [](const std::string& how) {
    return equations(known("gpt2-xl", {"strategy.recompute=" + how, "train.batch=8", "model.dropout=0.1"}), 1,
                     devices());
  };
  const Prediction none = of("none"), full = of("full"), root = of("sqrt"), selective = of("selective"),
                   seventh = of("every:7");
  EXPECT_EQ(root.device.activations, seventh.device.activations);  // sqrt(48)
  EXPECT_LT(full.device.activations, none.device.activations / 10);
  EXPECT_LT(selective.device.activations, none.device.activations);
  EXPECT_GT(selective.device.activations, full.device.activations);
  EXPECT_GT(root.device.activations, full.device.activations);  // seven layers at once against one
  EXPECT_NEAR(full.flops / none.flops, 4.0 / 3, 0.05);
  EXPECT_LT(selective.flops, 1.1 * none.flops);
  EXPECT_GT(full.step_us, 1.2 * none.step_us);
  EXPECT_LT(full.step_us, 1.4 * none.step_us);
}

TEST(Equations, CutAModelIntoStages_ThatStandIdle) {
  const spec::RunFile whole = known("gpt2-xl", {"train.batch=64", "train.micro_batch=1"});
  const spec::RunFile cut = known("gpt2-xl", {"train.batch=64", "train.micro_batch=1", "mesh.pp=4"});
  const Prediction one = equations(whole, 1, devices()), four = equations(cut, 4, devices());
  EXPECT_NEAR(four.idle_share, 3.0 / 67, 1e-12);
  EXPECT_LT(four.device.states, one.device.states / 3);
  EXPECT_GT(four.device.states, one.device.states / 5);
  EXPECT_LT(four.step_us, one.step_us / 2);
  EXPECT_GT(four.step_us, one.step_us / 4);
  EXPECT_GT(four.sent.at("pp"), 0);
}

TEST(Predict, SimulatesTensorParallel_WithTheCollectivesOfItsLayers) {
  const spec::RunFile run = known("gpt2", {"mesh.tp=4", "train.batch=8"});
  const Prediction p = predict(run, 4, devices()), whole = predict(known("gpt2", {"train.batch=8"}), 1, devices());
  EXPECT_TRUE(p.simulated);
  EXPECT_LT(p.flops, whole.flops / 3.9);
  // Two gathers and two reduce-scatters of B*T*D each way and layer, and one for the embedding and for the loss; 3 fp32
  // numbers of each token and rank for the loss; two micro-batches of four. The gradients of what is whole: norms, the
  // biases after sums, positions; and the norm.
  const double activations = 2 * (12 * 4 + 2) * 2 * 0.75 * (4.0 * 1024 * 768 * 2);
  const double losses = 2 * 0.75 * (3 * 4 * 4 * 4.0 * 1024), wholes = 12 * 6 * 768 + 1024 * 768 + 2 * 768;
  EXPECT_NEAR(p.sent.at("tp"), activations + losses + 2 * 0.75 * 2 * wholes + 2 * 0.75 * 8, 1024);
}

// Stages of equal work stand idle for (p-1)/(m+p-1) of the passes; sending costs next to nothing here.
TEST(Predict, SimulatesAPipeline_WhoseBubbleIsThatOfTheEquation) {
  for (const char* order : {"1f1b", "gpipe", "zero_bubble_h1", "interleaved", "zero_bubble_v"}) {
    for (const int micro_batches : {4, 16}) {
      const std::string pipeline = std::string("strategy.pipeline=") + order;
      const std::string batch = "train.batch=" + std::to_string(4 * micro_batches);
      const auto run = [&](const char* layers, const char* stages) {
        return known("gpt2", {"train.micro_batch=4", batch, pipeline, layers, stages, "model.vocab=100"});
      };
      const Prediction p = predict(run("model.layers=16", "mesh.pp=4"), 4, devices());
      const Prediction alone = predict(run("model.layers=4", "mesh.pp=1"), 1, devices());
      ASSERT_TRUE(p.simulated);
      const double idle = 1 - alone.step_us / p.step_us;
      const int chunks = order == std::string("interleaved") ? 2 : 1;
      double expected = spec::bubble_fraction(spec::parse_pipeline(order), 4, micro_batches, chunks);
      if (order == std::string("zero_bubble_v")) {
        // The last rank begins 3 of the 6 m units after the first, which waits at its end for the sum of norms.
        const double units = 6 * micro_batches / (1 - expected);
        expected = 1 - 6 * micro_batches / (units + 3);
      }
      EXPECT_NEAR(idle, expected, 0.05) << order << " " << micro_batches;
      EXPECT_NEAR(p.idle_share, expected, 0.05) << order << " " << micro_batches;
      EXPECT_NEAR(p.flops, alone.flops, 0.05 * alone.flops) << order;
      spec::RunFile unclipped = run("model.layers=16", "mesh.pp=4");
      unclipped.optimizer.clip = 0;
      unclipped.health.check_finite = false;
      const double unclipped_us = predict(unclipped, 4, devices()).step_us;
      EXPECT_LE(unclipped_us, p.step_us * 1.001) << order;
      if (micro_batches >= 6 && order == std::string("zero_bubble_v")) {
        EXPECT_NEAR(1 - alone.step_us / unclipped_us, 0, 0.03) << "no rank waits for another's norm, nor is idle";
      }
      EXPECT_GE(p.device.buffers, 0) << order;
      EXPECT_GT(p.sent.at("pp"), 0);
    }
  }
}

// Of what the collectives inside layers add to a step between two hosts at 200 MB/s.
TEST(Predict, HidesTheCollectivesOfLayersBehindAnotherMicroBatch) {
  const auto step_us = [](double bytes_per_us, const std::string& turns, const std::string& sequence) {
    Cluster cluster = small_server(2);
    Host host = cluster.topology.hosts[0];
    host.ranks = 1;
    host.uplink = {.latency_us = 60, .bytes_per_us = bytes_per_us};
    cluster.topology.hosts = {host, host};
    return predict(
               known("gpt2", {"model.context=256", "train.batch=12", "train.micro_batch=1", "mesh.tp=2",
                              "strategy.interleave_micro_batches=" + turns, "strategy.sequence_parallel=" + sequence}),
               2, cluster)
        .step_us;
  };
  const double all_reduces = step_us(200, "1", "false") - step_us(1e7, "1", "false");
  EXPECT_GE(step_us(200, "1", "false") - step_us(200, "2", "false"), 0.8 * all_reduces);
  const double gathers = step_us(200, "1", "true") - step_us(1e7, "1", "true");
  EXPECT_GE(step_us(200, "1", "true") - step_us(200, "2", "true"), 0.45 * gathers);
  EXPECT_GE(step_us(200, "1", "true") - step_us(200, "4", "true"), 0.7 * gathers);
}

// A step of many micro-batches goes on as it began: two short programs say of it what the long one does.
TEST(Predict, ExtrapolatesWhatTheWholeProgramGives) {
  const auto expect_same = [](const std::vector<std::string>& keys, int ranks, const Cluster& cluster) {
    std::vector<std::string> all = {"model.layers=4", "train.micro_batch=1",
                                    "train.batch=" + std::to_string(13 * ranks)};
    all.insert(all.end(), keys.begin(), keys.end());
    const spec::RunFile run = known("gpt2", all);
    const Prediction whole = predict(run, ranks, cluster), line = predict_extrapolated(run, ranks, cluster);
    std::string text = std::to_string(ranks) + " ranks";
    for (const std::string& key : all) text += " " + key;
    EXPECT_TRUE(whole.simulation) << text;
    EXPECT_FALSE(line.simulation) << text;
    EXPECT_EQ(line.layout.micro_batches, whole.layout.micro_batches) << text;
    EXPECT_NEAR(line.step_us, whole.step_us, 1e-3 * whole.step_us) << text;
    EXPECT_NEAR(line.idle_share, whole.idle_share, 0.01) << text;
    EXPECT_NEAR(line.device.total(), whole.device.total(), 1e-9 * whole.device.total()) << text;
    EXPECT_NEAR(line.device_bound, whole.device_bound, 1e-9 * whole.device_bound) << text;
    EXPECT_DOUBLE_EQ(line.flops, whole.flops) << text;
    EXPECT_NEAR(line.sent_bytes(), whole.sent_bytes(), 1e-9 * whole.sent_bytes()) << text;
  };
  for (const Cluster& cluster : {devices(), small_server(2)}) {
    for (const char* recompute : {"strategy.recompute=none", "strategy.recompute=sqrt"}) {
      expect_same({recompute}, 1, cluster);
      for (const char* zero : {"0", "1", "2", "3"})
        expect_same({recompute, std::string("strategy.zero=") + zero}, 2, cluster);
    }
  }
  for (const char* order : {"1f1b", "gpipe", "interleaved", "zero_bubble_v"}) {
    expect_same({std::string("strategy.pipeline=") + order, "mesh.pp=2", "train.batch=24"}, 2, devices());
  }
}

// Groups of micro-batches that an order makes are uneven where its ranks do not divide them: then messages wait longer,
// which takes up to a fifth more than two short steps say.
TEST(Predict, NeverExtrapolatesToLessMemoryThanAShorterStepTakes) {
  for (const char* micro_batches : {"31", "34", "35"}) {
    const spec::RunFile run =
        known("gpt2", {"model.layers=8", "model.width=96", "model.heads=4", "model.vocab=100", "train.micro_batch=1",
                       std::string("train.batch=") + micro_batches, "mesh.pp=4", "strategy.pipeline=interleaved"});
    const Prediction whole = predict(run, 4, devices()), line = predict_extrapolated(run, 4, devices());
    EXPECT_TRUE(whole.simulation) << micro_batches;
    EXPECT_FALSE(line.simulation) << micro_batches;
    EXPECT_GE(line.device_bound, 0.8 * whole.device_bound) << micro_batches;
    EXPECT_NEAR(line.step_us, whole.step_us, 0.1 * whole.step_us) << micro_batches;
  }
}

// A figure without a technique that the run asks for would be a wrong one. Rows say what equations know.
TEST(Equations, RefuseWhatNoRowSaysTheyKnow) {
  EXPECT_ERROR(equations(known("gpt2", {"strategy.compression=bf16"}), 2), Code::kBadConfig,
               "no equation covers strategy.compression = \"bf16\"\n  fix: strategy.compression = \"none\"");
  EXPECT_ERROR(equations(known("gpt2", {"strategy.offload=window"}), 1), Code::kBadConfig,
               "fix: strategy.offload = \"none\" or \"states\" or \"nvme\"");
  EXPECT_ERROR(equations(known("gpt2", {"mesh.tp=2", "strategy.interleave_micro_batches=2"}), 2), Code::kBadConfig,
               "no equation covers strategy.interleave_micro_batches = 2\n");
  EXPECT_ERROR(equations(known("gpt2", {"model.kind=moe", "model.norm=rmsnorm", "mesh.ep=2"}), 2), Code::kBadConfig,
               "no equation covers mesh.ep = 2\n  fix: mesh.ep = 1");
  const spec::RunFile made_up = known("gpt2", {"strategy.context=hybrid"});
  strategies::Technique row{.name = "made up", .supports = {{"strategy.context", {"hybrid"}}}};
  {
    const strategies::AddedTechnique unknown(row, "compression");
    EXPECT_ERROR(equations(made_up, 1), Code::kBadConfig, "no equation covers strategy.context = \"hybrid\"");
  }
  row.in_equations = true;
  const strategies::AddedTechnique in_equations(row, "compression");
  EXPECT_EQ(equations(made_up, 1).device_bound, equations(known("gpt2"), 1).device_bound);
}

Cluster preset(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(std::string(std::getenv("HERD_SOURCE_DIR")) + "/share/herd/clusters/" + name + ".toml").rdbuf();
  return parse_cluster(text.str(), name);
}

// Gradients leave the device over its link to the host, weights come back, and the host updates its states meanwhile.
TEST(Predict, CountsTheHostLink_WhereStatesLieOnTheHost) {
  const auto run = [](const char* offload) {
    return known("gpt2-xl", {"train.batch=1", "train.micro_batch=1", offload});
  };
  const Cluster cluster = preset("a100-80gb");
  const Prediction held = predict(run("strategy.offload=none"), 1, cluster),
                   offloaded = predict(run("strategy.offload=states"), 1, cluster),
                   by_equation = equations(run("strategy.offload=states"), 1, cluster);
  ASSERT_TRUE(offloaded.simulated);
  const double bytes = 2.0 * static_cast<double>(offloaded.parameters), rate = cluster.device.host_link_bytes_per_us;
  EXPECT_EQ(held.host_link_out + held.host_link_in, 0);
  EXPECT_EQ(offloaded.host_link_out, bytes);
  EXPECT_EQ(offloaded.host_link_in, bytes);
  EXPECT_EQ(by_equation.host_link_out, bytes);
  EXPECT_GT(offloaded.step_us, bytes / rate + offloaded.compute_us);
  EXPECT_GT(offloaded.step_us, held.step_us);
  EXPECT_NEAR(by_equation.step_us, offloaded.step_us, 0.1 * offloaded.step_us);
  Cluster twice = cluster;
  twice.device.host_link_bytes_per_us *= 2;
  EXPECT_LT(predict(run("strategy.offload=states"), 1, twice).step_us, 0.75 * offloaded.step_us);
}

// Of more than 32 ranks a collective is not simulated rank by rank.
TEST(Predict, TakesAlikeForAlikeWorkOfARank_HoweverManyRanks) {
  const auto step_us = [](int ranks) {
    const std::string batch = "train.batch=" + std::to_string(4 * ranks);
    return predict(known("gpt2-xl", {batch, "train.micro_batch=4"}), ranks, preset("a100-80gb")).step_us;
  };
  const double sixteen = step_us(16);
  for (const int ranks : {32, 40, 64}) EXPECT_NEAR(step_us(ranks), sixteen, 0.1 * sixteen) << ranks;
}

struct PublishedStep {  // seconds with full recompute, then with selective recompute and sequence parallel
  const char *model, *pp, *micro_batch;
  int ranks, batch;
  double full_s, selective_s;
};

// Korthikanti et al. 2022, table 5. Theirs of 175 and 530 B are interleaved, which takes less idle time than 1f1b here.
TEST(Predict, ComesNearPublishedSteps_AtTheEfficiencyOfTheCluster) {
  const PublishedStep steps[] = {{"megatron-22b", "mesh.pp=1", "train.micro_batch=4", 8, 4, 1.42, 1.10},
                                 {"megatron-175b", "mesh.pp=8", "train.micro_batch=1", 64, 64, 18.13, 13.75},
                                 {"megatron-530b", "mesh.pp=35", "train.micro_batch=1", 280, 280, 49.05, 37.83},
                                 {"megatron-1t", "mesh.pp=64", "train.micro_batch=1", 512, 512, 94.42, 71.49}};
  for (const PublishedStep& step : steps) {
    const auto seconds = [&](const char* recompute, const char* sequence) {
      const spec::RunFile run =
          known(step.model, {"mesh.tp=8", step.pp, step.micro_batch, "train.batch=" + std::to_string(step.batch),
                             std::string("strategy.recompute=") + recompute,
                             std::string("strategy.sequence_parallel=") + sequence});
      return equations(run, step.ranks, preset("a100-80gb")).step_us / 1e6;
    };
    const double largest = step.ranks == 8 ? 0.27 : 0.08;  // its short matrix products are far from the peak
    EXPECT_NEAR(seconds("full", "false") / step.full_s, 1, largest) << step.model;
    EXPECT_NEAR(seconds("selective", "true") / step.selective_s, 1, largest) << step.model;
  }
}

struct PublishedRate {
  int64_t layers, heads, width, tp, pp, ranks, batch;
  double flops_per_us;  // that a device keeps up, recompute included
  double within;        // of the rate, as one figure a device gives it: narrow matrices keep up less than wide ones
};

// Narayanan et al. 2021, arXiv:2104.04473, table 1 and equation 3: full recompute, without sequence parallel.
TEST(Predict, ComesNearPublishedRatesOfLargeModels_AtTheEfficiencyOfTheCluster) {
  const PublishedRate rates[] = {{36, 32, 4096, 4, 1, 128, 512, 142e6, 0.25},
                                 {96, 128, 16384, 8, 16, 1920, 2160, 155e6, 0.1},
                                 {128, 160, 25600, 8, 64, 3072, 3072, 163e6, 0.1}};
  for (const PublishedRate& rate : rates) {
    const auto key = [](const char* name, int64_t value) { return name + std::to_string(value); };
    const spec::RunFile run =
        known("megatron-175b",
              {key("model.layers=", rate.layers), key("model.heads=", rate.heads), key("model.width=", rate.width),
               key("mesh.tp=", rate.tp), key("mesh.pp=", rate.pp), key("train.batch=", rate.batch),
               "train.micro_batch=1", "strategy.recompute=full", "strategy.sequence_parallel=false"});
    const double B = static_cast<double>(rate.batch), s = 2048, l = static_cast<double>(rate.layers),
                 h = static_cast<double>(rate.width), V = 51200;
    const double flops = 96 * B * s * l * h * h * (1 + s / (6 * h) + V / (16 * l * h));
    const double us = equations(run, static_cast<int>(rate.ranks), preset("a100-80gb")).step_us;
    EXPECT_NEAR(flops / static_cast<double>(rate.ranks) / us / rate.flops_per_us, 1, rate.within) << rate.width;
  }
}

// Under ZeRO-1 and 2 a window's weights are gathered in the hosts' memory, at its rate; under ZeRO-3 on the devices, at
// that of the links between them.
TEST(Predict, PricesGathersOnTheHostAtTheHostsRate) {
  for (const int zero : {1, 2, 3}) {
    const Prediction p = predict(known("gpt2", {"strategy.offload=window", "strategy.zero=" + std::to_string(zero),
                                                "train.batch=8", "train.micro_batch=1", "strategy.precision=fp32"}),
                                 8, devices());
    ASSERT_TRUE(p.simulated);
    double gathers_us = 0;
    for (const sim::Span& span : p.simulation->timeline.spans) {
      if (span.category == "all_gather") gathers_us += span.end_us - span.start_us;
    }
    const double bytes = 4 * static_cast<double>(p.parameters);
    if (zero == 3) {
      EXPECT_LT(gathers_us, 2 * bytes / 100e3);
    } else {
      EXPECT_GT(gathers_us, bytes / devices().device.host_link_bytes_per_us) << zero;
      EXPECT_LT(gathers_us, 4 * bytes / devices().device.host_link_bytes_per_us) << zero;
    }
  }
}

// Thousands of ranks on one host's cores would be simulated for hours.
TEST(Predict, UsesEquationsForMoreRanksOfAHostThanItCanSimulate) {
  const auto start = std::chrono::steady_clock::now();
  const Prediction p = predict(known("llama3-405b"), 16384, small_server(2));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  EXPECT_FALSE(p.simulated);
  EXPECT_NE(p.why_equations.find("on 16384 ranks that share a host's cores"), std::string::npos) << p.why_equations;
}

TEST(Predict, SaysWhyItUsesEquations) {
  const std::vector<std::string> beside_experts = {"mesh.ep=2", "strategy.schedule=priority"};
  EXPECT_ERROR(predict(known("mixtral-8x7b", beside_experts), 4, devices()), Code::kBadConfig,
               "has no rewrite, and no equation covers", "fix:");
  EXPECT_TRUE(predict(known("gpt2", {"strategy.offload=window"}), 1, devices()).simulated);
  const std::vector<std::string> cut = {"mesh.pp=2", "train.batch=8"};
  EXPECT_NO_THROW(predict(known("gpt2", cut), 2, devices()));
  CollectiveCostModel::LineCache memory;
  EXPECT_ERROR(
      predict_by_equations(known("gpt2", {cut[0], cut[1], "strategy.pipeline=interleaved"}), 2, devices(), memory),
      Code::kBadConfig, "interleaved", "one stage a rank", "fix:");
  EXPECT_THROW(predict(known("gpt2", {"mesh.tp=5"}), 4, devices()), Error);
}

}  // namespace
}  // namespace herd::planner
