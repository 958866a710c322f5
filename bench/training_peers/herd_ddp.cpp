// Steps of a GPT in plain libtorch, alone or under herd::DistributedDataParallel; started by compare.py.
//   herd_ddp alone|herd LAYERS WIDTH VOCAB CONTEXT BATCH STEPS
// Rank 0 prints milliseconds and loss, one step a line.
#include <cstdlib>
#include <optional>
#include <string>

#include "bench/training_peers/gpt_steps.h"
#include "herd/ddp/distributed_data_parallel.h"

int main(int argc, char** argv) {
  if (argc != 8) return std::fprintf(stderr, "herd_ddp alone|herd LAYERS WIDTH VOCAB CONTEXT BATCH STEPS\n"), 2;
  const bool together = std::string(argv[1]) == "herd";
  const bench::GptShape shape{std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]),
                              std::atoi(argv[6])};
  at::set_num_threads(1);
  torch::manual_seed(1);
  auto gpt = std::make_shared<bench::Gpt>(shape);
  if (!together) {
    bench::run_steps(
        *gpt, shape, std::atoi(argv[7]), true, [] {}, [&](const at::Tensor& x) { return gpt->forward(x); });
    return 0;
  }
  auto comm = herd::Communicator::create();
  herd::DistributedDataParallel<bench::Gpt> ddp(gpt, comm);
  bench::run_steps(
      *gpt, shape, std::atoi(argv[7]), comm.rank() == 0, [&] { comm.barrier(); },
      [&](const at::Tensor& x) { return ddp(x); });
}
