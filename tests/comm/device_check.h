// Runs collectives on memory of a device and on the same memory of the host, and compares.
#pragma once

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/schedule/parts.h"
#include "tests/comm/collective_check.h"
#include "tests/comm/on_device.h"

namespace herd::testing_support {

// The same elements on the host and on a device.
class Twin {
 public:
  Twin(Rank rank, int64_t count, DType dtype, int seed = 0)
      : host_(static_cast<size_t>(count * size_of(dtype))), device_(count, dtype), dtype_(dtype) {
    for (int64_t i = 0; i < count; ++i) store(dtype, host_.data(), i, value_of(rank + seed, i));
    device_.write_late(host_.data());
  }
  Buffer host(int64_t begin = 0, int64_t count = -1) {
    return {host_.data() + begin * size_of(dtype_), count < 0 ? device_.buffer().count : count, dtype_};
  }
  Buffer device(int64_t begin = 0, int64_t count = -1) {
    return count < 0 ? device_.buffer() : device_.part(begin, count);
  }
  void expect_same(const std::string& what, int64_t begin = 0, int64_t count = -1) const {
    const std::vector<std::byte> got = device_.read();
    const int64_t first = begin * size_of(dtype_);
    const int64_t bytes = count < 0 ? static_cast<int64_t>(host_.size()) : count * size_of(dtype_);
    if (bytes > 0 && std::memcmp(got.data() + first, host_.data() + first, static_cast<size_t>(bytes)) != 0)
      throw std::runtime_error(what + " of " + std::to_string(device_.buffer().count) +
                               ": the device holds other bytes than the host");
  }

 private:
  std::vector<std::byte> host_;
  OnDevice device_;
  DType dtype_;
};

// Runs every collective on both, the one on the host between those on the device.
inline void check_collectives(Communicator& comm, int64_t count, DType dtype) {
  const int n = comm.size();
  const Rank self = comm.rank();
  const Range mine = part_of(count, n, self);
  const OpOptions options = {.op = dtype == DType::kBool ? ReduceOp::kMax : ReduceOp::kSum};
  Twin x(self, count, dtype), y(self, count, dtype), z(self, count, dtype);
  Work first = comm.all_reduce_async(x.device(), options);
  comm.all_reduce(x.host(), options);
  Work second = comm.broadcast_async(y.device(), n - 1);
  Work third = comm.reduce_async(z.device(), n / 2, options);
  comm.broadcast(y.host(), n - 1);
  comm.reduce(z.host(), n / 2, options);
  third.wait();
  if (!first.done() || !second.done()) throw std::runtime_error("operations of a group end in issue order");
  x.expect_same("all_reduce"), y.expect_same("broadcast"), z.expect_same("reduce");

  for (const bool in_place : {false, true}) {
    Twin part(self, mine.size(), dtype, 1), whole(self, count, dtype, 2);
    comm.all_gather(in_place ? whole.host(mine.begin, mine.size()) : part.host(), whole.host());
    comm.all_gather(in_place ? whole.device(mine.begin, mine.size()) : part.device(), whole.device());
    whole.expect_same("all_gather");
    Twin from(self, count, dtype, 3), to(self, mine.size(), dtype, 4);
    comm.reduce_scatter(from.device(), in_place ? from.device(mine.begin, mine.size()) : to.device(), options);
    comm.reduce_scatter(from.host(), in_place ? from.host(mine.begin, mine.size()) : to.host(), options);
    in_place ? from.expect_same("reduce_scatter", mine.begin, mine.size()) : to.expect_same("reduce_scatter");
  }

  Twin equal(self, count, dtype, 5), all(self, count * n, dtype, 6), sent(self, count * n, dtype, 7);
  for (const Rank root : {0, n - 1}) {
    comm.gather(equal.host(), all.host(), root);
    comm.gather(equal.device(), all.device(), root);
    all.expect_same("gather");
    comm.scatter(sent.host(), equal.host(), root);
    comm.scatter(sent.device(), equal.device(), root);
    equal.expect_same("scatter");
  }
  comm.all_to_all(sent.device(), all.device());
  comm.all_to_all(sent.host(), all.host());
  all.expect_same("all_to_all");
  comm.all_to_all(all.device(), all.device());
  comm.all_to_all(all.host(), all.host());
  all.expect_same("all_to_all in place");
}

inline void check_uneven_counts(Communicator& comm) {  // of 3 ranks
  const std::vector<int64_t> counts = {5, 0, 1000};
  const int64_t mine = counts[static_cast<size_t>(comm.rank())];
  Twin part(comm.rank(), mine, DType::kF32), whole(comm.rank(), 1005, DType::kF32, 1);
  comm.all_gather(part.device(), whole.device(), {.counts = counts});
  comm.all_gather(part.host(), whole.host(), {.counts = counts});
  whole.expect_same("all_gather");
  const OpOptions scaled = {.op = ReduceOp::kPremultipliedSum, .counts = counts, .factor = 0.5 + comm.rank()};
  comm.reduce_scatter(whole.device(), part.device(), scaled);
  comm.reduce_scatter(whole.host(), part.host(), scaled);
  part.expect_same("reduce_scatter");
  comm.all_reduce(whole.device(), {.op = ReduceOp::kPremultipliedSum, .factor = 0.25});
  comm.all_reduce(whole.host(), {.op = ReduceOp::kPremultipliedSum, .factor = 0.25});
  whole.expect_same("all_reduce");
  const std::vector<int64_t> blocks = {1, 0, 30, 7, 2, 0, 0, 0, 400};
  const auto sum_of = [&](int64_t first, int64_t step) {
    return blocks[static_cast<size_t>(first)] + blocks[static_cast<size_t>(first + step)] +
           blocks[static_cast<size_t>(first + 2 * step)];
  };
  Twin out(comm.rank(), sum_of(3 * comm.rank(), 1), DType::kI64), in(comm.rank(), sum_of(comm.rank(), 3), DType::kI64);
  comm.all_to_all(out.device(), in.device(), {.counts = blocks});
  comm.all_to_all(out.host(), in.host(), {.counts = blocks});
  in.expect_same("all_to_all");
}

}  // namespace herd::testing_support
