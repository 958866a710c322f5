// What a command line that is refused says of the nodes of its job.
#include "herd/cli/refused_arguments.h"

#include <gtest/gtest.h>

namespace herd::cli {
namespace {

TEST(RefusedArguments, NameTheNodesAsFarAsTheyCanBeRead) {
  const NamedNodes both = nodes_in({"run", "--max-restart", "2", "--nnodes=3", "--node-rank", "1", "--rendezvous",
                                    "10.0.0.1:29400", "--token-file=secret", "--", "train", "--nnodes", "9"});
  EXPECT_EQ(both.job.num_nodes, 3);
  EXPECT_EQ(both.job.node_rank, 1);
  EXPECT_EQ(both.job.rendezvous, "10.0.0.1:29400");
  EXPECT_EQ(both.token_file, "secret");

  const NamedNodes wrong = nodes_in({"train", "run.toml", "--nnodes", "two", "--node-rank=1x", "--rendezvous"});
  EXPECT_EQ(wrong.job.num_nodes, 1);
  EXPECT_EQ(wrong.job.node_rank, 0);
  EXPECT_EQ(wrong.job.rendezvous, "");
}

}  // namespace
}  // namespace herd::cli
