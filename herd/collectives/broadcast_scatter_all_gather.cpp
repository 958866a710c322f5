#include "herd/collectives/binomial.h"
#include "herd/collectives/broadcast.h"

namespace herd {

Schedule broadcast_scatter_all_gather(const CollectiveRequest& request) {
  Builder b = builder_for(request, "scatter_all_gather");
  if (build_if_alone(b)) return b.finish();
  const int n = b.num_ranks();
  const BinomialTree tree(n, request.root);
  const int place = tree.place_of(b.self());
  // Part q is for place q. The scatter leaves a rank with the parts of its whole subtree.
  const auto parts = [&](int first, int count) { return Range{b.part(first).begin, b.part(first + count - 1).end}; };
  const auto has_after_scatter = [&](int holder, int part) {
    return part >= holder && part < holder + tree.num_below(holder);
  };
  const auto source = [&](Range range) { return place == 0 ? b.input(range) : b.output(range); };
  if (place > 0) b.receive(tree.rank_at(tree.parent(place)), b.output(parts(place, tree.num_below(place))));
  const std::vector<int> children = tree.children(place);  // the nearest first; the farthest heads the largest subtree
  for (auto child = children.rbegin(); child != children.rend(); ++child) {
    b.send(tree.rank_at(*child), source(parts(*child, tree.num_below(*child))));
  }
  const int next = (place + 1) % n;
  for (int step = 0; step < n - 1; ++step) {
    const int sent_part = (place - step + n) % n, received_part = (place - step - 1 + n) % n;
    // A part that the scatter has already brought to the receiver is not sent again.
    if (!has_after_scatter(next, sent_part)) b.send(b.neighbor(1), source(b.part(sent_part)));
    if (!has_after_scatter(place, received_part)) b.receive(b.neighbor(-1), b.output(b.part(received_part)));
  }
  if (place == 0) b.copy(b.input({0, b.elements()}), {b.output({0, b.elements()})});
  return b.finish();
}

}  // namespace herd
