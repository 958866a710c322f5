#include "herd/collectives/axis_internal.h"
#include "herd/collectives/registry.h"

namespace herd {
namespace {

// Places are (l, A): l in the host, A of the host, the place being l + m * A.
class HierarchicalExchange {
 public:
  explicit HierarchicalExchange(const CollectiveRequest& request)
      : request_(request), grid_(request), b_(builder_for(request, kHierarchical.name)) {}

  Schedule build() {
    if (build_if_alone(b_)) return b_.finish();
    m_ = grid_.size(0);
    h_ = b_.num_ranks() / m_;
    l_ = grid_.cell_of(b_.self()) % m_;
    host_ = grid_.cell_of(b_.self()) / m_;
    inside_host();
    between_hosts();
    return b_.finish();
  }

 private:
  Rank rank_at(int l, int host) const { return grid_.rank_at(l + m_ * host); }
  int64_t size(Rank from, Rank to) const { return b_.layout().sent(from, to).size(); }

  // Rank l' of this host gets what goes to rank l' of any host; it arrives ordered by host, then by who sent it.
  void inside_host() {
    CollectiveRequest line = request_to(m_, l_, grid_.is_inside_hosts(request_, 0));
    for (int from = 0; from < m_; ++from) {
      for (int to = 0; to < m_; ++to) {
        int64_t count = 0;
        for (int host = 0; host < h_; ++host) count += size(rank_at(from, host_), rank_at(to, host));
        line.counts.push_back(count);
      }
    }
    std::vector<std::vector<Range>> place(static_cast<size_t>(h_));  // of the block from l'' to host B
    for (int host = 0; host < h_; ++host) {
      for (int from = 0; from < m_; ++from) {
        const int64_t elements = size(rank_at(from, host_), rank_at(l_, host));
        const Slice slice = b_.scratch(elements);
        place[static_cast<size_t>(host)].push_back({slice.begin, slice.end});
        if (host == 0 && from == 0) arrived_ = slice;
        arrived_.end = slice.end;
      }
    }
    SubGroup group{line_ranks(host_), Window(b_.sent(0, 0).space), Window(Space::kScratch)};
    for (int to = 0; to < m_; ++to) {
      for (int host = 0; host < h_; ++host) {
        group.input.append(b_.layout().sent(b_.self(), rank_at(to, host)), true);
      }
    }
    for (int from = 0; from < m_; ++from) {
      for (int host = 0; host < h_; ++host) {
        group.output.append(place[static_cast<size_t>(host)][static_cast<size_t>(from)], true);
      }
    }
    add(std::move(line), group);
  }

  void between_hosts() {
    CollectiveRequest line = request_to(h_, host_, false);
    for (int from = 0; from < h_; ++from) {
      for (int to = 0; to < h_; ++to) {
        int64_t count = 0;
        for (int l = 0; l < m_; ++l) count += size(rank_at(l, from), rank_at(l_, to));
        line.counts.push_back(count);
      }
    }
    std::vector<Rank> ranks;
    for (int host = 0; host < h_; ++host) ranks.push_back(rank_at(l_, host));
    if (grid_.cells_are_ranks()) {  // what comes from a host is contiguous in the output
      add(std::move(line), {ranks, Window(arrived_), Window(b_.output({0, b_.layout().num_received(b_.self())}))});
      return;
    }
    const Slice collected = b_.scratch(b_.layout().num_received(b_.self()));
    add(std::move(line), {ranks, Window(arrived_), Window(collected)});
    int64_t at = collected.begin;
    for (int host = 0; host < h_; ++host) {
      for (int l = 0; l < m_; ++l) {
        const Slice target = b_.received(rank_at(l, host), b_.self());
        b_.copy({b_.self(), Space::kScratch, at, at + target.size()}, {target});
        at += target.size();
      }
    }
  }

  std::vector<Rank> line_ranks(int host) const {
    std::vector<Rank> ranks;
    for (int l = 0; l < m_; ++l) ranks.push_back(rank_at(l, host));
    return ranks;
  }

  CollectiveRequest request_to(int num_ranks, int self, bool near) const {
    CollectiveRequest line;
    line.collective = Collective::kAllToAll;
    line.self = self;
    line.num_ranks = num_ranks;
    line.dtype = request_.dtype;
    line.same_host = near;
    return line;
  }

  void add(CollectiveRequest line, const SubGroup& group) {
    line.elements = elements_of_counts(line.collective, line.num_ranks, line.counts);
    add_schedule(b_, build_schedule(line.same_host ? "staged" : "pairwise", line), group);
  }

  const CollectiveRequest& request_;
  Grid grid_;
  Builder b_;
  int m_ = 1, h_ = 1, l_ = 0, host_ = 0;
  Slice arrived_ = {};
};

}  // namespace

Schedule all_to_all_hierarchical(const CollectiveRequest& request) { return HierarchicalExchange(request).build(); }

}  // namespace herd
