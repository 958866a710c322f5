#include "herd/collectives/axis_internal.h"
#include "herd/collectives/registry.h"

namespace herd {
namespace {

// Exchanges blocks inside hosts, then between them. Local rank l of host h is at place l + ranks_per_host * h of the
// grid.
class HierarchicalExchange {
 public:
  explicit HierarchicalExchange(const CollectiveRequest& request)
      : request_(request), grid_(request), b_(builder_for(request, kHierarchical.name)) {}

  Schedule build() {
    if (build_if_alone(b_)) return b_.finish();
    ranks_per_host_ = grid_.size(0);
    num_hosts_ = b_.num_ranks() / ranks_per_host_;
    local_ = grid_.cell_of(b_.self()) % ranks_per_host_;
    host_ = grid_.cell_of(b_.self()) / ranks_per_host_;
    inside_host();
    between_hosts();
    return b_.finish();
  }

 private:
  Rank rank_at(int local, int host) const { return grid_.rank_at(local + ranks_per_host_ * host); }
  int64_t size(Rank from, Rank to) const { return b_.layout().sent(from, to).size(); }

  // Each rank of this host gets the blocks for its own local rank on every host, ordered by host, then by sender.
  void inside_host() {
    CollectiveRequest line = request_to(ranks_per_host_, local_, grid_.is_inside_hosts(request_, 0));
    for (int from = 0; from < ranks_per_host_; ++from) {
      for (int to = 0; to < ranks_per_host_; ++to) {
        int64_t count = 0;
        for (int host = 0; host < num_hosts_; ++host) count += size(rank_at(from, host_), rank_at(to, host));
        line.counts.push_back(count);
      }
    }
    std::vector<std::vector<Range>> ranges(static_cast<size_t>(num_hosts_));  // scratch of blocks, by host and sender
    for (int host = 0; host < num_hosts_; ++host) {
      for (int from = 0; from < ranks_per_host_; ++from) {
        const int64_t elements = size(rank_at(from, host_), rank_at(local_, host));
        const Slice slice = b_.scratch(elements);
        ranges[static_cast<size_t>(host)].push_back({slice.begin, slice.end});
        if (host == 0 && from == 0) arrived_ = slice;
        arrived_.end = slice.end;
      }
    }
    SubGroup group{line_ranks(host_), Window(b_.sent(0, 0).space), Window(Space::kScratch)};
    for (int to = 0; to < ranks_per_host_; ++to) {
      for (int host = 0; host < num_hosts_; ++host) {
        group.input.append(b_.layout().sent(b_.self(), rank_at(to, host)), true);
      }
    }
    for (int from = 0; from < ranks_per_host_; ++from) {
      for (int host = 0; host < num_hosts_; ++host) {
        group.output.append(ranges[static_cast<size_t>(host)][static_cast<size_t>(from)], true);
      }
    }
    add(std::move(line), group);
  }

  void between_hosts() {
    CollectiveRequest line = request_to(num_hosts_, host_, false);
    for (int from = 0; from < num_hosts_; ++from) {
      for (int to = 0; to < num_hosts_; ++to) {
        int64_t count = 0;
        for (int local = 0; local < ranks_per_host_; ++local) count += size(rank_at(local, from), rank_at(local_, to));
        line.counts.push_back(count);
      }
    }
    std::vector<Rank> ranks;
    for (int host = 0; host < num_hosts_; ++host) ranks.push_back(rank_at(local_, host));
    if (grid_.cells_are_ranks()) {  // the blocks of a host are contiguous in the output
      add(std::move(line), {ranks, Window(arrived_), Window(b_.output({0, b_.layout().num_received(b_.self())}))});
      return;
    }
    const Slice collected = b_.scratch(b_.layout().num_received(b_.self()));
    add(std::move(line), {ranks, Window(arrived_), Window(collected)});
    int64_t offset = collected.begin;
    for (int host = 0; host < num_hosts_; ++host) {
      for (int local = 0; local < ranks_per_host_; ++local) {
        const Slice target = b_.received(rank_at(local, host), b_.self());
        b_.copy({b_.self(), Space::kScratch, offset, offset + target.size()}, {target});
        offset += target.size();
      }
    }
  }

  std::vector<Rank> line_ranks(int host) const {
    std::vector<Rank> ranks;
    for (int local = 0; local < ranks_per_host_; ++local) ranks.push_back(rank_at(local, host));
    return ranks;
  }

  CollectiveRequest request_to(int num_ranks, int self, bool same_host) const {
    CollectiveRequest line;
    line.collective = Collective::kAllToAll;
    line.self = self;
    line.num_ranks = num_ranks;
    line.dtype = request_.dtype;
    line.same_host = same_host;
    return line;
  }

  void add(CollectiveRequest line, const SubGroup& group) {
    line.elements = elements_of_counts(line.collective, line.num_ranks, line.counts);
    add_schedule(b_, build_schedule(line.same_host ? "staged" : "pairwise", line), group);
  }

  const CollectiveRequest& request_;
  Grid grid_;
  Builder b_;
  int ranks_per_host_ = 1, num_hosts_ = 1, local_ = 0, host_ = 0;
  Slice arrived_ = {};
};

}  // namespace

Schedule all_to_all_hierarchical(const CollectiveRequest& request) { return HierarchicalExchange(request).build(); }

}  // namespace herd
