#include "tests/schedule/interpreter.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <random>
#include <vector>

#include "herd/schedule/meaning.h"
#include "herd/schedule/schedule_names.h"
#include "herd/schedule/step_dependencies.h"

namespace herd::testing_support {
namespace {

using Values = std::vector<uint64_t>;
constexpr uint64_t kComplete = 0x9e3779b97f4a7c15;  // completing multiplies by this: twice or never shows

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}
uint64_t contribution(Rank rank, int operation, int64_t element) {
  return mix(mix(mix(rank + 1) + operation + 1) + element + 1);
}

struct Broken {
  std::string why;
};

class Interpreter {
 public:
  Interpreter(std::span<const Schedule> all, const RunOptions& options)
      : all_(all), options_(options), random_(options.seed), ranks_(all.size()) {
    for (size_t r = 0; r < all.size(); ++r) {
      State& state = ranks_[r];
      state.before = derive_dependencies(all[r]);
      state.after.resize(all[r].steps.size());
      for (size_t i = 0; i < state.before.size(); ++i) {
        for (const int earlier : state.before[i]) state.after[earlier].push_back(static_cast<int>(i));
      }
      for (int space = 0; space < 5; ++space) {
        const int64_t size = space_size(all[r], static_cast<Rank>(r), static_cast<Space>(std::min(space, 3)));
        state.memory[space].resize(size);
        for (uint64_t& value : state.memory[space]) value = random_();
      }
      state.ready = {kUser};
    }
  }

  RunResult run() {
    try {
      while (step_somewhere()) {
      }
      for (const State& state : ranks_) {
        if (state.operation < options_.operations) return {Verdict::kStuck, "a rank stays in an operation"};
      }
      for (const auto& [channel, box] : messages_) {
        if (!box.empty()) return {Verdict::kWrong, "a message is left over"};
      }
      for (const auto& [channel, count] : signals_) {
        if (count != 0) return {Verdict::kWrong, "a signal is left over"};
      }
      return {};
    } catch (const Broken& broken) {
      return {Verdict::kWrong, broken.why};
    }
  }

 private:
  static constexpr int kUser = -1;
  struct State {
    std::vector<std::vector<int>> before, after;
    std::array<Values, 5> memory;  // input, output, scratch, stage, stage
    std::vector<int> ready;        // steps whose dependencies are done; kUser = the user between operations
    std::vector<int> missing;
    int left = 0;
    int operation = -1;
  };
  using Channel = std::pair<Rank, Rank>;

  bool step_somewhere() {
    std::vector<std::pair<Rank, int>> choices;
    for (Rank r = 0; r < static_cast<Rank>(ranks_.size()); ++r) {
      for (const int step : ranks_[r].ready) choices.push_back({r, step});
    }
    while (!choices.empty()) {
      const size_t pick = random_() % choices.size();
      const auto [rank, step] = choices[pick];
      if (try_step(rank, step)) return true;
      choices[pick] = choices.back();
      choices.pop_back();
    }
    return false;
  }

  bool try_step(Rank rank, int index) {
    if (index == kUser) {
      user(rank);
      return true;
    }
    const Step& step = all_[rank].steps[index];
    switch (step.kind) {
      case StepKind::kSend: {
        if (options_.buffered) {
          messages_[{rank, step.peer}].push_back(load(rank, step.sources[0]));
          break;
        }
        const int taker = taker_of(rank, step.peer);
        if (taker < 0) return false;
        take(step.peer, taker, load(rank, step.sources[0]));
        done(step.peer, taker);
        break;
      }
      case StepKind::kReceive:
      case StepKind::kReceiveReduce: {
        auto& box = messages_[{step.peer, rank}];
        if (box.empty()) return false;
        take(rank, index, box.front());
        box.pop_front();
        break;
      }
      case StepKind::kCopy:
        put(rank, step.targets, load(rank, step.sources[0]));
        break;
      case StepKind::kReduce: {
        Values sum = load(rank, step.sources[0]);
        for (size_t s = 1; s < step.sources.size(); ++s) add(sum, load(rank, step.sources[s]));
        put(rank, step.targets, finished(step, std::move(sum)));
        break;
      }
      case StepKind::kSignal:
        ++signals_[{rank, step.peer}];
        break;
      case StepKind::kWait:
        if (signals_[{step.peer, rank}] == 0) return false;
        --signals_[{step.peer, rank}];
        break;
    }
    done(rank, index);
    return true;
  }

  int taker_of(Rank from, Rank to) const {
    if (to < 0 || to >= static_cast<Rank>(ranks_.size())) throw Broken{"no such peer"};
    for (const int index : ranks_[to].ready) {
      if (index == kUser) continue;
      const Step& step = all_[to].steps[index];
      const bool receives = step.kind == StepKind::kReceive || step.kind == StepKind::kReceiveReduce;
      if (receives && step.peer == from) return index;
    }
    return -1;
  }

  void take(Rank rank, int index, Values message) {
    const Step& step = all_[rank].steps[index];
    if (static_cast<int64_t>(message.size()) != step.targets[0].size()) throw Broken{"a message of another size"};
    if (step.kind == StepKind::kReceiveReduce) {
      Values own = load(rank, step.sources[0]);
      add(own, message);
      message = finished(step, std::move(own));
    }
    put(rank, {step.targets[0]}, message);
  }

  static void add(Values& sum, const Values& other) {
    if (sum.size() != other.size()) throw Broken{"a sum of different sizes"};
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  }

  static Values finished(const Step& step, Values values) {
    if (step.completes) {
      for (uint64_t& value : values) value *= kComplete;
    }
    return values;
  }

  uint64_t* at(Rank rank, const Slice& slice) {
    if (slice.rank < 0 || slice.rank >= static_cast<Rank>(ranks_.size())) throw Broken{"no such rank"};
    int space = static_cast<int>(slice.space);
    if (slice.space == Space::kStage) space += ranks_[rank].operation % 2;
    Values& memory = ranks_[slice.rank].memory[space];
    if (slice.begin < 0 || slice.end < slice.begin || slice.end > static_cast<int64_t>(memory.size())) {
      throw Broken{"outside of memory"};
    }
    return memory.data() + slice.begin;
  }

  Values load(Rank rank, const Slice& slice) {
    const uint64_t* begin = at(rank, slice);
    return Values(begin, begin + slice.size());
  }

  void put(Rank rank, const std::vector<Slice>& targets, const Values& values) {
    for (const Slice& target : targets) {
      if (target.size() != static_cast<int64_t>(values.size())) throw Broken{"a target of another size"};
      std::copy(values.begin(), values.end(), at(rank, target));
    }
  }

  void done(Rank rank, int index) {
    State& state = ranks_[rank];
    std::erase(state.ready, index);
    for (const int later : state.after[index]) {
      if (--state.missing[later] == 0) state.ready.push_back(later);
    }
    if (--state.left == 0) state.ready.push_back(kUser);
  }

  void user(Rank rank) {
    State& state = ranks_[rank];
    state.ready.clear();
    if (state.operation >= 0) check(rank);
    if (++state.operation == options_.operations) return;
    for (int space = 0; space < 3; ++space) {
      for (uint64_t& value : state.memory[space]) value = random_();
    }
    for (const MessagePiece& given : initial_contributions(all_[rank], rank)) {
      for (int64_t i = 0; i < given.range.size(); ++i) {
        state.memory[static_cast<int>(given.space)][given.range.begin + i] =
            contribution(rank, state.operation, given.message_begin + i);
      }
    }
    state.missing.clear();
    for (size_t i = 0; i < state.before.size(); ++i) {
      state.missing.push_back(static_cast<int>(state.before[i].size()));
      if (state.before[i].empty()) state.ready.push_back(static_cast<int>(i));
    }
    state.left = static_cast<int>(state.before.size());
    if (state.left == 0) state.ready.push_back(kUser);
  }

  void check(Rank rank) {
    const State& state = ranks_[rank];
    if (all_[rank].collective == Collective::kBarrier) {
      for (const State& other : ranks_) {
        if (other.operation < state.operation) throw Broken{"leaves a barrier that a rank has not entered"};
      }
    }
    for (const MessagePiece& place : expected_results(all_[rank], rank)) {
      for (int64_t i = 0; i < place.range.size(); ++i) {
        uint64_t expected = 0;
        if (place.contributor != kEveryRank) {
          expected = contribution(place.contributor, state.operation, place.message_begin + i);
        } else {
          for (Rank r = 0; r < static_cast<Rank>(ranks_.size()); ++r) {
            expected += contribution(r, state.operation, place.message_begin + i);
          }
          if (ranks_.size() > 1) expected *= kComplete;
        }
        if (state.memory[static_cast<int>(place.space)][place.range.begin + i] != expected) {
          throw Broken{"rank " + std::to_string(rank) + " ends with a wrong element " +
                       std::to_string(place.message_begin + i)};
        }
      }
    }
  }

  std::span<const Schedule> all_;
  RunOptions options_;
  std::mt19937_64 random_;
  std::vector<State> ranks_;
  std::map<Channel, std::deque<Values>> messages_;
  std::map<Channel, int> signals_;
};

}  // namespace

RunResult interpret(std::span<const Schedule> all_ranks, const RunOptions& options) {
  return Interpreter(all_ranks, options).run();
}

}  // namespace herd::testing_support
