#include "herd/spec/pipeline_order.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/base/regular_file.h"

namespace herd::spec {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& fix) {
  throw Error(Code::kBadConfig, what + "\n  fix: " + fix);
}

std::string name_of(const Turn& turn) {
  return "FBW"[static_cast<size_t>(turn.pass)] + std::to_string(turn.micro_batch) +
         (turn.local_stage > 0 ? "@" + std::to_string(turn.local_stage) : "");
}

// Finds when each turn ends, in ticks: a pass takes one, a backward that is not split two. Refuses an order that lacks
// a pass, has one twice, or lets ranks wait for each other in a circle.
class Clock {
 public:
  explicit Clock(const PipelineOrder& order)
      : order_(order),
        split_(order.splits_backward()),
        at_(static_cast<size_t>(order.ranks)),
        ends_(static_cast<size_t>(order.ranks)),
        end_of_pass_(static_cast<size_t>(order.stages()) * 3 * static_cast<size_t>(order.micro_batches)) {
    for (int rank = 0; rank < order.ranks; ++rank) check_passes(rank);
  }

  std::vector<std::vector<int>> run() {
    std::vector<int> ranks;  // ranks that may be able to go on
    for (int rank = order_.ranks - 1; rank >= 0; --rank) ranks.push_back(rank);
    std::map<size_t, int> waiting_ranks;  // the rank that waits for a pass, by the pass's index_of()
    while (!ranks.empty()) {
      const int rank = ranks.back();
      ranks.pop_back();
      while (const Turn* turn = next(rank)) {
        if (const auto needed = first_missing(rank, *turn)) {
          waiting_ranks[index_of(needed->first, needed->second)] = rank;
          break;
        }
        finish(rank, *turn);
        if (const auto waiting = waiting_ranks.find(index_of(rank, *turn)); waiting != waiting_ranks.end()) {
          ranks.push_back(waiting->second);
          waiting_ranks.erase(waiting);
        }
      }
    }
    for (int rank = 0; rank < order_.ranks; ++rank) {
      if (next(rank) != nullptr) refuse_circle(rank);
    }
    return ends_;
  }

 private:
  using RankTurn = std::pair<int, Turn>;  // a turn, and the rank that runs it

  // Refuses the rank's turns unless they hold every pass of every one of its stages exactly once.
  void check_passes(int rank) const {
    const std::string who = "rank " + std::to_string(rank) + " of a pipeline's order";
    const auto& turns = order_.turns[static_cast<size_t>(rank)];
    const std::set<Turn> seen(turns.begin(), turns.end());
    for (const Turn& turn : turns) {
      if (turn.micro_batch >= 0 && turn.micro_batch < order_.micro_batches && turn.local_stage >= 0 &&
          turn.local_stage < order_.stages_per_rank)
        continue;
      refuse(who + " runs " + name_of(turn) + ", but there are micro-batches 0 to " +
                 std::to_string(order_.micro_batches - 1) + " and stages 0 to " +
                 std::to_string(order_.stages_per_rank - 1) + " of a rank",
             "leave it out");
    }
    for (int local_stage = 0; local_stage < order_.stages_per_rank; ++local_stage) {
      for (int m = 0; m < order_.micro_batches; ++m) {
        for (const Pass pass : {Pass::kForward, Pass::kBackward, Pass::kWeights}) {
          const Turn expected{pass, m, local_stage};
          if ((pass != Pass::kWeights || split_) && !seen.contains(expected))
            refuse(who + " never runs " + name_of(expected), "every pass of every micro-batch once on its rank");
        }
      }
    }
    if (seen.size() == turns.size()) return;
    std::set<Turn> earlier;
    for (const Turn& turn : turns) {
      if (!earlier.insert(turn).second) refuse(who + " runs " + name_of(turn) + " twice", "leave the second one out");
    }
  }

  const Turn* next(int rank) const {
    const auto& turns = order_.turns[static_cast<size_t>(rank)];
    const size_t at = at_[static_cast<size_t>(rank)];
    return at < turns.size() ? &turns[at] : nullptr;
  }

  RankTurn of_stage(int stage, Pass pass, int micro_batch) const {
    return {order_.rank_of(stage), {pass, micro_batch, order_.local_stage_of(stage)}};
  }

  std::vector<RankTurn> needs(int rank, const Turn& turn) const {
    const int stage = order_.stage_of(rank, turn.local_stage), m = turn.micro_batch;
    if (turn.pass == Pass::kWeights) return {of_stage(stage, Pass::kBackward, m)};
    if (turn.pass == Pass::kForward)
      return stage > 0 ? std::vector{of_stage(stage - 1, Pass::kForward, m)} : std::vector<RankTurn>{};
    std::vector<RankTurn> out = {of_stage(stage, Pass::kForward, m)};
    if (stage + 1 < order_.stages()) out.push_back(of_stage(stage + 1, Pass::kBackward, m));
    return out;
  }

  // Returns the index of a pass in end_of_pass_.
  size_t index_of(int rank, const Turn& turn) const {
    return (static_cast<size_t>(order_.stage_of(rank, turn.local_stage)) * 3 + static_cast<size_t>(turn.pass)) *
               static_cast<size_t>(order_.micro_batches) +
           static_cast<size_t>(turn.micro_batch);
  }
  int end_of(const RankTurn& needed) const { return end_of_pass_[index_of(needed.first, needed.second)]; }

  std::optional<RankTurn> first_missing(int rank, const Turn& turn) const {
    for (const RankTurn& needed : needs(rank, turn)) {
      if (end_of(needed) == 0) return needed;
    }
    return std::nullopt;
  }

  void finish(int rank, const Turn& turn) {
    auto& ends = ends_[static_cast<size_t>(rank)];
    int begin = ends.empty() ? 0 : ends.back();
    for (const RankTurn& needed : needs(rank, turn)) begin = std::max(begin, end_of(needed));
    ends.push_back(begin + (turn.pass == Pass::kBackward && !split_ ? 2 : 1));
    end_of_pass_[index_of(rank, turn)] = ends.back();
    ++at_[static_cast<size_t>(rank)];
  }

  // Follows the waits from rank to rank, until a rank comes again.
  [[noreturn]] void refuse_circle(int rank) const {
    std::vector<int> chain;
    std::string text;
    while (std::find(chain.begin(), chain.end(), rank) == chain.end()) {
      chain.push_back(rank);
      const Turn& turn = *next(rank);
      const RankTurn needed = *first_missing(rank, turn);
      text += "\n  rank " + std::to_string(rank) + " is at " + name_of(turn) + ", which needs " +
              name_of(needed.second) + " of rank " + std::to_string(needed.first);
      rank = needed.first;
    }
    refuse("an order of a pipeline in which ranks wait for each other in a circle:" + text,
           "move what is needed before what needs it on its rank");
  }

  const PipelineOrder& order_;
  const bool split_;
  std::vector<size_t> at_;
  std::vector<std::vector<int>> ends_;
  std::vector<int> end_of_pass_;  // the tick at which each pass ends; 0 = it has not run
};

constexpr size_t kMostBytes = 16 << 20;  // 64 ranks of 8 stages and 1024 micro-batches take 12 MB
constexpr int kMostCount = 1 << 20;

// Parses the text of an order; docs/formats/pipeline_order.md has its grammar.
class Parser {
 public:
  Parser(std::string_view text, std::string name) : lines_{std::string(text)}, name_(std::move(name)) {}

  PipelineOrder parse() {
    if (const auto words = next_line(); words != std::vector<std::string>{"herd-pipeline-order", "1"})
      fail("the first line is \"herd-pipeline-order 1\"");
    PipelineOrder order;
    head(next_line(), order);
    try {
      order.check_sizes();
    } catch (const Error& error) {
      throw Error(error.code(), name_ + ", line " + std::to_string(line_) + ": " + error.message());
    }
    for (int rank = 0; rank < order.ranks; ++rank) turns(next_line(), rank, order);
    if (!next_line().empty()) fail("nothing follows the turns of the last rank");
    return order;
  }

 private:
  [[noreturn]] void fail(const std::string& rule) const {
    throw Error(Code::kBadConfig, name_ + ", line " + std::to_string(line_) + ": " + rule +
                                      "\n  fix: the form that docs/formats/pipeline_order.md shows");
  }

  // Returns the words of the next line that has any; none at the end of the text.
  std::vector<std::string> next_line() {
    for (std::string line; std::getline(lines_, line);) {
      ++line_;
      std::istringstream words(line.substr(0, line.find('#')));
      std::vector<std::string> out;
      for (std::string word; words >> word;) out.push_back(word);
      if (!out.empty()) return out;
    }
    return {};
  }

  int number(std::string_view text, int min_value) const {
    int value = 0;
    const char* end = text.data() + text.size();
    const auto [at, problem] = std::from_chars(text.data(), end, value);
    if (problem != std::errc() || at != end || value < min_value || value > kMostCount)
      fail("a number from " + std::to_string(min_value) + " to " + std::to_string(kMostCount) + " stands here, not \"" +
           printable(std::string(text.substr(0, 40))) + "\"");
    return value;
  }

  void head(const std::vector<std::string>& words, PipelineOrder& order) const {
    const bool named = words.size() >= 6 && words[0] == "ranks" && words[2] == "stages_per_rank" &&
                       words[4] == "micro_batches" && words.size() <= 7 && (words.size() == 6 || words[6] == "folded");
    if (!named) fail("\"ranks P stages_per_rank V micro_batches M\" stands here, and \"folded\" where it is");
    order.ranks = number(words[1], 1);
    order.stages_per_rank = number(words[3], 1);
    order.micro_batches = number(words[5], 1);
    order.folded = words.size() == 7;
  }

  void turns(const std::vector<std::string>& words, int rank, PipelineOrder& order) const {
    if (words.size() < 2 || words[0] != "rank" || words[1] != std::to_string(rank) + ":")
      fail("\"rank " + std::to_string(rank) + ": ...\" stands here, its turns after the colon");
    order.turns.emplace_back();
    for (size_t i = 2; i < words.size(); ++i) {
      const std::string_view word = words[i];
      const size_t pass = std::string_view("FBW").find(word[0]), mark = std::min(word.find('@'), word.size());
      if (pass == std::string_view::npos)
        fail("a turn begins with F, B or W, not \"" + printable(words[i].substr(0, 40)) + "\"");
      const int local_stage = mark < word.size() ? number(word.substr(mark + 1), 0) : 0;
      order.turns.back().push_back({static_cast<Pass>(pass), number(word.substr(1, mark - 1), 0), local_stage});
    }
  }

  std::istringstream lines_;
  std::string name_;
  int line_ = 0;
};

}  // namespace

int PipelineOrder::stage_of(int rank, int local_stage) const {
  return folded && local_stage == 1 ? 2 * ranks - 1 - rank : local_stage * ranks + rank;
}

int PipelineOrder::rank_of(int stage) const { return folded && stage >= ranks ? 2 * ranks - 1 - stage : stage % ranks; }

int PipelineOrder::local_stage_of(int stage) const { return stage / ranks; }

bool PipelineOrder::splits_backward() const {
  const auto is_weights = [](const Turn& turn) { return turn.pass == Pass::kWeights; };
  return std::any_of(turns.begin(), turns.end(),
                     [&](const auto& of_rank) { return std::any_of(of_rank.begin(), of_rank.end(), is_weights); });
}

void PipelineOrder::check_sizes() const {
  if (ranks < 1 || stages_per_rank < 1 || micro_batches < 1) {
    refuse("an order has at least one rank, stage and micro-batch, got " + std::to_string(ranks) + " ranks, " +
               std::to_string(stages_per_rank) + " stages a rank and " + std::to_string(micro_batches) +
               " micro-batches",
           "numbers from 1");
  }
  if (folded && stages_per_rank != 2) {
    refuse("a folded order has two stages a rank, there and back, got " + std::to_string(stages_per_rank),
           "stages_per_rank 2");
  }
  const double passes = 3.0 * ranks * stages_per_rank * micro_batches;
  if (passes > static_cast<double>(kMostTurns)) {
    refuse("the passes of all ranks of an order, forward and both halves of a backward, are at most " +
               std::to_string(kMostTurns) + ", but 3 * " + std::to_string(ranks) + " ranks * " +
               std::to_string(stages_per_rank) + " stages * " + std::to_string(micro_batches) +
               " micro-batches are more",
           "fewer micro-batches");
  }
}

std::vector<std::vector<int>> times_of(const PipelineOrder& order) {
  order.check_sizes();
  if (order.turns.size() != static_cast<size_t>(order.ranks)) {
    refuse("an order of " + std::to_string(order.ranks) + " ranks has turns of " + std::to_string(order.turns.size()),
           "a line \"rank R: ...\" for each rank");
  }
  return Clock(order).run();
}

std::string to_text(const PipelineOrder& order) {
  std::string out = "herd-pipeline-order 1\nranks " + std::to_string(order.ranks) + " stages_per_rank " +
                    std::to_string(order.stages_per_rank) + " micro_batches " + std::to_string(order.micro_batches) +
                    (order.folded ? " folded\n" : "\n");
  for (size_t rank = 0; rank < order.turns.size(); ++rank) {
    out += "rank " + std::to_string(rank) + ":";
    for (const Turn& turn : order.turns[rank]) out += " " + name_of(turn);
    out += "\n";
  }
  return out;
}

PipelineOrder parse_pipeline_order(std::string_view text, const std::string& name) {
  PipelineOrder order = Parser(text, name).parse();
  try {
    times_of(order);
  } catch (const Error& error) {
    throw Error(error.code(), name + ": " + error.message());
  }
  return order;
}

PipelineOrder load_pipeline_order(const std::filesystem::path& path) {
  const std::optional<std::string> text = read_regular_file(path, kMostBytes + 1);
  if (!text) {
    refuse("strategy.pipeline = \"file:" + path.string() + "\": no regular file that can be read",
           "a file of docs/formats/pipeline_order.md, or strategy.pipeline = \"1f1b\"");
  }
  if (text->size() > kMostBytes) {
    refuse(path.string() + ": an order of a pipeline has at most " + std::to_string(kMostBytes) + " B, but it has more",
           "fewer micro-batches");
  }
  return parse_pipeline_order(*text, path.string());
}

}  // namespace herd::spec
