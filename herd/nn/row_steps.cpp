#include "herd/nn/row_steps.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace herd::nn {
namespace {

RowOperand sum_of_first(int ranks, int count, bool of_sent) {
  RowOperand out;
  std::vector<int64_t>& coefficients = of_sent ? out.of_sent : out.of_received;
  coefficients.assign(static_cast<size_t>(ranks), 0);
  std::fill_n(coefficients.begin(), count, 1);
  return out;
}

RowOperand count_of(int ranks, int rank, bool of_sent) {
  RowOperand out = sum_of_first(ranks, 0, of_sent);
  (of_sent ? out.of_sent : out.of_received)[static_cast<size_t>(rank)] = 1;
  return out;
}

// An operand in terms of how many rows each rank has for each other: (source, target) -> coefficient.
class Form {
 public:
  Form() = default;
  Form(const RowOperand& operand, int rank) : base_(operand.base) {
    for (size_t other = 0; other < operand.of_sent.size(); ++other)
      add({rank, static_cast<int>(other)}, operand.of_sent[other]);
    for (size_t other = 0; other < operand.of_received.size(); ++other)
      add({static_cast<int>(other), rank}, operand.of_received[other]);
  }
  static Form rows(int source, int target) {
    Form out;
    out.add({source, target}, 1);
    return out;
  }
  Form& operator+=(const Form& other) {
    base_ += other.base_;
    for (const auto& [count, coefficient] : other.terms_) add(count, coefficient);
    return *this;
  }
  bool operator==(const Form&) const = default;

 private:
  void add(std::pair<int, int> count, int64_t coefficient) {
    if ((terms_[count] += coefficient) == 0) terms_.erase(count);
  }
  int64_t base_ = 0;
  std::map<std::pair<int, int>, int64_t> terms_;
};

// The steps of a rank by the rank at the other end; -1 = none, or several.
std::vector<int> steps_by_rank(const std::vector<RowStep>& steps, int ranks, int RowStep::*other) {
  std::vector<int> out(static_cast<size_t>(ranks), -1);
  for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
    const int rank = steps[static_cast<size_t>(i)].*other;
    if (rank >= 0 && rank < ranks) out[static_cast<size_t>(rank)] = out[static_cast<size_t>(rank)] < 0 ? i : ranks;
  }
  for (int& step : out) step = step == ranks ? -1 : step;
  return out;
}

}  // namespace

int64_t RowOperand::value(std::span<const int64_t> sent, std::span<const int64_t> received) const {
  return base + std::inner_product(of_sent.begin(), of_sent.end(), sent.begin(), int64_t{0}) +
         std::inner_product(of_received.begin(), of_received.end(), received.begin(), int64_t{0});
}

std::vector<RowStep> row_steps(int ranks, int rank) {
  std::vector<RowStep> out;
  for (int distance = 0; distance < ranks; ++distance) {
    const int target = (rank + distance) % ranks, source = (rank + ranks - distance) % ranks;
    out.push_back({target, source, sum_of_first(ranks, target, true), count_of(ranks, target, true),
                   sum_of_first(ranks, source, false), count_of(ranks, source, false)});
  }
  return out;
}

std::string unproved(const std::vector<std::vector<RowStep>>& steps_of_ranks) {
  const int P = static_cast<int>(steps_of_ranks.size());
  for (int rank = 0; rank < P; ++rank) {
    const std::vector<RowStep>& steps = steps_of_ranks[static_cast<size_t>(rank)];
    const std::string who = "rank " + std::to_string(rank) + " ";
    if (static_cast<int>(steps.size()) != P) return who + "has " + std::to_string(steps.size()) + " steps";
    const std::vector<int> to = steps_by_rank(steps, P, &RowStep::target),
                           from = steps_by_rank(steps, P, &RowStep::source);
    Form sent, received;  // where the rows of the next rank begin
    for (int other = 0; other < P; ++other) {
      const int sends = to[static_cast<size_t>(other)], receives = from[static_cast<size_t>(other)];
      const std::string whom = "rank " + std::to_string(other);
      if (sends < 0 || receives < 0) return who + "does not meet " + whom + " once";
      const RowStep &send = steps[static_cast<size_t>(sends)], &receive = steps[static_cast<size_t>(receives)];
      if (Form(send.send_begin, rank) != sent || Form(send.send_rows, rank) != Form::rows(rank, other))
        return who + "sends other rows than those for " + whom;
      if (Form(receive.receive_begin, rank) != received || Form(receive.receive_rows, rank) != Form::rows(other, rank))
        return who + "puts what comes from " + whom + " elsewhere";
      sent += Form::rows(rank, other);
      received += Form::rows(other, rank);
      const std::vector<RowStep>& of_other = steps_of_ranks[static_cast<size_t>(other)];
      if (static_cast<size_t>(sends) >= of_other.size() || of_other[static_cast<size_t>(sends)].source != rank)
        return who + "sends to " + whom + " in step " + std::to_string(sends) + ", which that gets from another";
    }
  }
  return "";
}

}  // namespace herd::nn
