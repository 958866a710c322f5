#include "herd/train/calibrate.h"

#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "herd/launch/cores.h"

namespace herd::train {
namespace {

constexpr double kSeconds = 0.15;  // of each measurement
constexpr int64_t kStreamElements = 8 << 20;

// Microseconds of the fastest call, after one that warms up.
double best_us(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  work();
  double best = 1e300;
  const auto end = Clock::now() + std::chrono::duration<double>(kSeconds);
  do {
    const auto begin = Clock::now();
    work();
    best = std::min(best, std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  } while (Clock::now() < end);
  return best;
}

double stream_bytes_per_us() {
  const at::Tensor a = at::ones({kStreamElements}), b = at::ones({kStreamElements});
  at::Tensor c = at::empty({kStreamElements});
  return 3.0 * static_cast<double>(c.nbytes()) / best_us([&] { at::add_out(c, a, b); });
}

}  // namespace

program::Calibration calibrate(const spec::RunFile& run, const spec::Layout& layout, Communicator& comm) {
  const int threads = at::get_num_threads();
  const auto& m = run.model;
  const int64_t rows = layout.micro_batch * m.context;
  const at::Tensor x = at::ones({rows, m.width}), w = at::ones({m.width, m.ffn});
  at::Tensor y = at::empty({rows, m.ffn});
  const at::Tensor q = at::ones({layout.micro_batch, m.heads, m.context, m.width / m.heads});

  comm.barrier({.name = "calibration"});
  const double matmul = 2.0 * static_cast<double>(rows * m.width * m.ffn) / best_us([&] { at::mm_out(y, x, w); });
  const double scores = 4.0 * static_cast<double>(layout.micro_batch * m.context * m.context * m.width);
  const double attention = scores / 2 / best_us([&] { at::scaled_dot_product_attention(q, q, q, {}, 0.0, true); });
  comm.barrier({.name = "calibration"});
  const double alone = comm.rank() == 0 ? stream_bytes_per_us() : 0;
  comm.barrier({.name = "calibration"});
  std::vector<double> together = {stream_bytes_per_us()};
  comm.all_reduce(together, {.name = "calibration"});

  std::vector<double> figures = {matmul, attention, alone, together[0]};
  comm.broadcast(figures, 0, {.name = "calibration"});
  program::Calibration machine;
  machine.cores = launch::usable_cores();
  machine.threads = threads;
  machine.matmul_flops_per_us = figures[0] / threads;
  machine.attention_flops_per_us = figures[1] / threads;
  machine.core_bytes_per_us = figures[2] / threads;
  machine.host_bytes_per_us = std::max(figures[2], figures[3]);
  return machine;
}

}  // namespace herd::train
