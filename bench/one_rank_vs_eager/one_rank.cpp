// One rank of herd on the GPT of compare.py: one step per line of input; per line of output its
// milliseconds, those of the update, processor milliseconds, loss, peak bytes of tensors.
//   one_rank LAYERS WIDTH VOCAB CONTEXT BATCH
#include <ATen/Parallel.h>

#include <chrono>
#include <ctime>
#include <iostream>

#include "herd/bridge/budget_allocator.h"
#include "herd/models/gpt.h"
#include "tests/models/training_run_internal.h"

namespace {

double processor_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Sizes {
  int64_t layers, width, vocab, context, batch;
};

void run(const Sizes& sizes) {
  herd::DeviceMemory::install();
  at::set_num_threads(1);
  herd::spec::RunFile::Model shape;
  shape.layers = sizes.layers, shape.width = sizes.width, shape.heads = sizes.width / 64;
  shape.vocab = sizes.vocab, shape.context = sizes.context, shape.tie_embeddings = false;
  herd::models::TrainingRun training(herd::models::make_gpt(shape));
  const at::Tensor tokens =
      at::arange(sizes.batch * (sizes.context + 1), at::kLong).mul(7919).remainder(sizes.vocab).view({sizes.batch, -1});
  const at::Tensor inputs = tokens.slice(1, 0, sizes.context), targets = tokens.slice(1, 1, sizes.context + 1);
  std::cout << "ready " << training.model().parameters() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const double processor_start = processor_ms();
    const auto start = std::chrono::steady_clock::now();
    const double loss = training.gradient(inputs, targets, 1);
    const auto between = std::chrono::steady_clock::now();
    training.step(0);
    const auto end = std::chrono::steady_clock::now();
    const auto ms = [](auto duration) { return std::chrono::duration<double, std::milli>(duration).count(); };
    std::cout << ms(end - start) << ' ' << ms(end - between) << ' ' << processor_ms() - processor_start << ' ' << loss
              << ' ' << herd::DeviceMemory::peak_bytes() << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::cerr << "one_rank LAYERS WIDTH VOCAB CONTEXT BATCH\n";
    return 2;
  }
  run({std::stoll(argv[1]), std::stoll(argv[2]), std::stoll(argv[3]), std::stoll(argv[4]), std::stoll(argv[5])});
}
