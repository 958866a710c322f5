// Adds two vectors over two ranks:   herd run -n 2 -- all_reduce
#include <cstdio>
#include <vector>

#include "herd/comm/communicator.h"

int main() {
  auto comm = herd::Communicator::create();
  std::vector<float> x = comm.rank() == 0 ? std::vector<float>{1, 2, 3} : std::vector<float>{1, 0, 1};
  comm.all_reduce(x, {.op = herd::ReduceOp::kSum});
  std::printf("rank %d of %d has [%g, %g, %g]\n", comm.rank(), comm.size(), x[0], x[1], x[2]);
}
