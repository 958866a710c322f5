#include "herd/schedule/message_layout.h"

#include <algorithm>
#include <string>

#include "herd/base/error.h"
#include "herd/schedule/meaning.h"
#include "herd/schedule/schedule_names.h"

namespace herd {

MessageLayout::MessageLayout(const Schedule& h) : num_ranks_(h.num_ranks), elements_(h.elements) {
  const size_t n = static_cast<size_t>(h.num_ranks);
  longest_ = part_of(elements_, num_ranks_, 0).size();
  if (h.counts.empty()) return;
  longest_ = *std::max_element(h.counts.begin(), h.counts.end());
  if (h.collective != Collective::kAllToAll) {
    begins_.push_back(0);
    for (const int64_t count : h.counts) begins_.push_back(begins_.back() + count);
    return;
  }
  counts_ = h.counts;
  send_begins_.resize(n * n);
  receive_begins_.resize(n * n);
  for (size_t rank = 0; rank < n; ++rank) {
    int64_t sent = 0, received = 0;
    for (size_t peer = 0; peer < n; ++peer) {
      send_begins_[rank * n + peer] = sent;
      receive_begins_[peer * n + rank] = received;
      sent += counts_[rank * n + peer];
      received += counts_[peer * n + rank];
    }
  }
}

Range MessageLayout::part(int index) const {
  if (begins_.empty()) return part_of(elements_, num_ranks_, index);
  return {begins_[static_cast<size_t>(index)], begins_[static_cast<size_t>(index) + 1]};
}

Range MessageLayout::sent(Rank from, Rank to) const {
  if (counts_.empty()) return part_of(elements_, num_ranks_, to);
  const size_t at = static_cast<size_t>(from) * static_cast<size_t>(num_ranks_) + static_cast<size_t>(to);
  return {send_begins_[at], send_begins_[at] + counts_[at]};
}

Range MessageLayout::received(Rank from, Rank to) const {
  if (counts_.empty()) {
    const int64_t size = part_of(elements_, num_ranks_, to).size();
    return {from * size, (from + 1) * size};
  }
  const size_t at = static_cast<size_t>(from) * static_cast<size_t>(num_ranks_) + static_cast<size_t>(to);
  return {receive_begins_[at], receive_begins_[at] + counts_[at]};
}

bool MessageLayout::in_place_fits() const {
  if (counts_.empty()) return elements_ % num_ranks_ == 0;
  for (Rank a = 0; a < num_ranks_; ++a) {
    for (Rank b = 0; b < num_ranks_; ++b) {
      if (!(received(a, b) == sent(b, a))) return false;
    }
  }
  return true;
}

int64_t elements_of_counts(Collective collective, int num_ranks, const std::vector<int64_t>& counts) {
  int64_t sum = 0;
  for (const int64_t count : counts) sum += count;
  if (collective != Collective::kAllToAll) return sum;
  const size_t n = static_cast<size_t>(num_ranks);
  int64_t most = 0;
  for (size_t rank = 0; rank < n; ++rank) {
    int64_t sent = 0, received = 0;
    for (size_t peer = 0; peer < n; ++peer) {
      sent += counts[rank * n + peer];
      received += counts[peer * n + rank];
    }
    most = std::max({most, sent, received});
  }
  return most;
}

void check_counts(const Schedule& h) {
  const auto refuse = [](const std::string& rule) { throw Error(Code::kBadConfig, rule); };
  if (!h.counts.empty()) {
    const std::string name(collective_name(h.collective));
    if (!has_counts(h.collective)) refuse(name + " has no parts, so no counts");
    const size_t n = static_cast<size_t>(h.num_ranks);
    const size_t expected = h.collective == Collective::kAllToAll ? n * n : n;
    if (h.counts.size() != expected) {
      refuse(name + " of " + std::to_string(n) + " ranks needs " + std::to_string(expected) + " counts, but has " +
             std::to_string(h.counts.size()));
    }
    for (size_t i = 0; i < h.counts.size(); ++i) {
      if (h.counts[i] < 0) {
        refuse(name + " needs counts >= 0, but counts[" + std::to_string(i) + "] = " + std::to_string(h.counts[i]));
      }
    }
    const int64_t sum_of_counts = elements_of_counts(h.collective, h.num_ranks, h.counts);
    if (sum_of_counts != h.elements) {
      refuse(name + " has elements = " + std::to_string(h.elements) + ", but its counts make " +
             std::to_string(sum_of_counts));
    }
  }
  if (h.collective == Collective::kAllToAll && h.in_place && !MessageLayout(h).in_place_fits()) {
    refuse("all_to_all in place needs blocks that are received where others are sent from: " +
           (h.counts.empty() ? "elements % ranks = " + std::to_string(h.elements % h.num_ranks) + ", not 0"
                             : std::string("counts[a * n + b] = counts[b * n + a] for all ranks")) +
           "\n  fix: input and output in different memory");
  }
}

}  // namespace herd
