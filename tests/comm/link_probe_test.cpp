#include "herd/comm/link_probe.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "herd/comm/context.h"
#include "herd/comm/fork_world.h"
#include "herd/topology/text.h"
#include "tests/comm/needs_ucx.h"

namespace herd::comm {
namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

using LinkProbing = testing_support::NeedsUcx;

TEST_F(LinkProbing, TellsRankZeroTheSlowestLink_WithEvenlyAndOddlyManyHosts) {
  for (const std::vector<int>& hosts : {std::vector{0, 1}, std::vector{0, 0, 1, 2}}) {
    run_forked(static_cast<int>(hosts.size()),
               [](Communicator& comm) {
                 const auto probe = probe_links(Access::group(comm));
                 require(probe.has_value() == (comm.rank() == 0), "rank 0 hears it, nobody else");
                 if (!probe) return;
                 require(probe->short_us > 0.5 && probe->short_us < 50'000,
                         "a round trip of " + std::to_string(probe->short_us));
                 const double rate = static_cast<double>(probe->long_bytes) / (probe->long_us - probe->short_us);
                 require(rate > 1 && rate < 100'000, "a rate of " + std::to_string(rate) + " bytes/us");
               },
               {.host_of = hosts});
  }
}

TEST_F(LinkProbing, EveryRankHasTheSameTopologyOfRoundNumbers) {
  run_forked(4,
             [](Communicator& comm) {
               const Link link = parse_topology(comm.topology()).hosts[0].uplink;
               require(link.latency_us == rounded(link.latency_us) && link.bytes_per_us == rounded(link.bytes_per_us),
                       "round");
               std::vector<double> all(8);
               comm.all_gather(std::vector{link.latency_us, link.bytes_per_us}, all);
               for (size_t i = 2; i < all.size(); ++i) require(all[i] == all[i % 2], "the same on all ranks");
             },
             {.host_of = {0, 0, 1, 1}});
}

TEST_F(LinkProbing, HasNothingToMeasureOnOneHost) {
  run_forked(2, [](Communicator& comm) { require(!probe_links(Access::group(comm)), "one host has no links"); });
}

}  // namespace
}  // namespace herd::comm
