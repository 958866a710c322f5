// The same GPT under torch's own data parallelism from C++: c10d::Reducer over gloo, as torch's DistributedDataParallel
// sets it up (buckets of 25 MiB, the first of 1 MiB, gradients as views of them). Started by compare.py.
//   RANK=r WORLD_SIZE=n MASTER_ADDR=a MASTER_PORT=p gloo_reducer LAYERS WIDTH VOCAB CONTEXT BATCH STEPS
// Rank 0 prints milliseconds and loss, one step a line. Built by name: the Reducer's constructor is no public interface
// and differs between versions of torch; this is that of 2.13.
#include <cstdlib>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "bench/training_peers/gpt_steps.h"

namespace {

constexpr size_t kFirstBucket = 1 << 20, kBucket = 25 << 20;

int variable(const char* name) { return std::atoi(std::getenv(name)); }

c10::intrusive_ptr<c10d::ProcessGroup> gloo_group(int rank, int size) {
  c10d::TCPStoreOptions where;
  where.port = static_cast<uint16_t>(variable("MASTER_PORT"));
  where.isServer = rank == 0;
  where.numWorkers = size;
  auto store = c10::make_intrusive<c10d::TCPStore>(std::getenv("MASTER_ADDR"), where);
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                    c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options));
  return group;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return std::fprintf(stderr, "gloo_reducer LAYERS WIDTH VOCAB CONTEXT BATCH STEPS\n"), 2;
  const bench::GptShape shape{std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]),
                              std::atoi(argv[5])};
  const int rank = variable("RANK"), size = variable("WORLD_SIZE");
  at::set_num_threads(1);
  torch::manual_seed(1);  // the same weights everywhere
  auto gpt = std::make_shared<bench::Gpt>(shape);
  const std::vector<at::Tensor> parameters = gpt->parameters();
  const std::vector<bool> sparse(parameters.size(), false);
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(parameters, {kFirstBucket, kBucket}, sparse);
  std::reverse(buckets.begin(), buckets.end());  // gradients come from the last layer to the first
  std::reverse(limits.begin(), limits.end());
  std::unordered_map<size_t, std::string> names;
  for (const auto& item : gpt->named_parameters()) names.emplace(names.size(), item.key());
  const auto group = gloo_group(rank, size);
  c10d::Reducer reducer(parameters, buckets, group, sparse, kBucket, /*find_unused_parameters=*/false,
                        /*gradient_as_bucket_view=*/true, names, kFirstBucket,
                        /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, {});
  const auto barrier = [&] { group->barrier()->wait(); };
  bench::run_steps(*gpt, shape, std::atoi(argv[6]), rank == 0, barrier, [&](const at::Tensor& x) {
    reducer.prepare_for_forward();
    reducer.rebuild_buckets();
    const at::Tensor y = gpt->forward(x);
    reducer.prepare_for_backward({});
    return y;
  });
}
