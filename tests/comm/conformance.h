// One suite for every transport: any collective by any algorithm, dtype, op, count and root, in place or not, even or
// uneven, in ordinary or symmetric memory, several groups at once; results compared bit for bit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "herd/collectives/request.h"
#include "herd/comm/communicator.h"
#include "herd/schedule/schedule.h"
#include "tests/collectives/all_algorithms.h"

namespace herd::testing_support {

struct ConformanceCase {
  Collective collective = Collective::kAllReduce;
  std::string_view algorithm = {};  // empty: herd chooses
  int64_t count = 0;                // elements, before uneven() makes its own
  bool uneven = false;
  bool in_place = false;
  bool symmetric = false;
  DType dtype = DType::kI32;
  ReduceOp op = ReduceOp::kSum;
  Rank root = 0;
};

std::string describe(const ConformanceCase& c);

Schedule header_of(const ConformanceCase& c, Rank self, int num_ranks);
CollectiveRequest request_of(const Schedule& header, bool one_host);

// Which part of the product of all parameters is run.
enum class Cover {
  kRanks,     // every algorithm by every count, even and uneven, in place and not; one dtype and op each
  kTypes,     // every algorithm by every dtype and op it has; one count
  kPairwise,  // every pair of values of any two parameters in some case
  kFull,      // the product
};

// The cases that n ranks of a world can run. On one host stage and symmetric memory work.
std::vector<ConformanceCase> conformance_cases(int num_ranks, Cover cover, const Placement& placement = {});

// Runs cases on one rank, three at a time on three groups, each rank in another order. Throws at the first wrong
// element, and where the bytes counted are not those of the schedules. Collective.
void run_conformance(Communicator& world, std::span<const ConformanceCase> cases, const Placement& placement = {});

// Sums that round, by every all-reduce, reduce-scatter and reduce, and dtype: throws where two ranks hold different
// bits. Their hash: the same in every run of as many ranks on as many hosts, by threads and by processes.
uint64_t hash_of_rounded_sums(Communicator& world, const Placement& placement = {});

// `count` random operations of a fixed seed by the public calls: all ranks draw the same ones.
void run_random_operations(Communicator& world, uint64_t seed, int count, bool one_host);

}  // namespace herd::testing_support
