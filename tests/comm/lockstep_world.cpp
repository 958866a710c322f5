#include "tests/comm/lockstep_world.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <random>

#include "herd/comm/collective_call.h"
#include "herd/schedule/meaning.h"
#include "herd/schedule/schedule_names.h"
#include "herd/transport/local_channel.h"

namespace herd::testing_support {
namespace {

class Pages final : public transport::SharedRegion {
 public:
  Pages(size_t members, int64_t bytes) : bytes_(bytes), total_(members * static_cast<size_t>(bytes)) {
    void* made = mmap(nullptr, total_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(made);
  }
  ~Pages() override { munmap(data_, total_); }
  std::byte* of(int member) const override { return data_ + member * bytes_; }
  int64_t bytes() const override { return bytes_; }

 private:
  int64_t bytes_;
  size_t total_;
  std::byte* data_;
};

int64_t in_pages(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

class LockstepHost {
 public:
  explicit LockstepHost(int size) : words_(static_cast<size_t>(size)) {
    for (int i = 0; i < size; ++i) events_.push_back(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  }
  ~LockstepHost() {
    for (int event : events_) close(event);
  }
  int size() const { return static_cast<int>(events_.size()); }
  transport::Doorbell doorbell(Rank rank) {
    return {&words_[static_cast<size_t>(rank)], events_[static_cast<size_t>(rank)]};
  }
  std::shared_ptr<transport::SharedRegion> region(const std::string& key, size_t members, int64_t bytes) {
    auto& found = regions_[key];
    if (found == nullptr) found = std::make_shared<Pages>(members, in_pages(bytes));
    return found;
  }

 private:
  std::vector<transport::DoorbellWord> words_;
  std::vector<int> events_;
  std::map<std::string, std::shared_ptr<transport::SharedRegion>> regions_;
};

namespace {

class LockstepTransport final : public transport::Transport {
 public:
  LockstepTransport(std::shared_ptr<LockstepHost> host, Rank rank) : host_(std::move(host)), rank_(rank) {}
  std::string_view name() const override { return "lockstep"; }
  Rank rank() const override { return rank_; }
  int size() const override { return host_->size(); }
  std::unique_ptr<transport::Channel> open_channel(const std::string& key, const std::vector<Rank>& members,
                                                   SteadyTime deadline) override {
    const transport::LocalLayout layout(static_cast<int>(members.size()));
    std::vector<transport::Doorbell> doorbells;
    for (Rank member : members) doorbells.push_back(host_->doorbell(member));
    const auto self = static_cast<Rank>(std::find(members.begin(), members.end(), rank_) - members.begin());
    return std::make_unique<transport::LocalChannel>(self, allocate(key, members, layout.total, deadline),
                                                     std::move(doorbells));
  }
  std::shared_ptr<transport::SharedRegion> allocate(const std::string& key, const std::vector<Rank>& members,
                                                    int64_t bytes, SteadyTime) override {
    return host_->region(key, members.size(), bytes);
  }
  bool is_gone(Rank) override { return false; }
  transport::PeerState state(Rank) override { return transport::PeerState::kAlive; }
  std::string describe(Rank) override { return "it is in the same thread"; }
  void set_activity(std::string_view) override {}
  std::string activity_of(Rank) override { return ""; }
  void announce_sleep() override {}
  void cancel_sleep() override {}
  void sleep_until(SteadyTime) override {}
  void wake() override {}

 private:
  std::shared_ptr<LockstepHost> host_;
  Rank rank_;
};

bool overlap(const Slice& a, const Slice& b) {
  return a.rank == b.rank && a.space == b.space && a.begin < b.end && b.begin < a.end;
}

std::string unrunnable_step(const Schedule& s, const Step& step) {
  if (step.peer == s.self || step.peer >= s.num_ranks) return "its peer is no other rank";
  const bool flag = step.kind == StepKind::kSignal || step.kind == StepKind::kWait;
  const bool local = step.kind == StepKind::kCopy || step.kind == StepKind::kReduce;
  const int64_t size = local ? step.sources[0].size() : 0;
  for (const auto* slices : {&step.sources, &step.targets}) {
    for (const Slice& slice : *slices) {
      if (slice.rank < 0 || slice.rank >= s.num_ranks) return "no such rank";
      if (slice.rank != s.self && (slice.space == Space::kScratch || (!flag && !local))) return "memory out of reach";
      const int64_t most = space_size(s, slice.rank, slice.space);
      if (slice.begin < 0 || slice.end < slice.begin || slice.end > most) return "beyond its memory";
      if (!flag && slices == &step.targets && slice.space == Space::kInput) return "writes the input";
      if (local && slice.size() != size) return "sizes differ";
    }
  }
  if (step.kind == StepKind::kReceiveReduce && step.sources[0].size() != step.targets[0].size()) return "sizes differ";
  for (size_t i = 0; i < step.targets.size() && (local || step.kind == StepKind::kReceiveReduce); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (overlap(step.targets[i], step.targets[j])) return "written twice";
    }
    for (const Slice& source : step.sources) {
      if (overlap(source, step.targets[i]) && !(source == step.targets[i])) return "read while it is written";
    }
  }
  return "";
}

// One rank's user: what it calls, and what it finds.
struct User {
  std::span<double> in, out;
  std::optional<comm::PendingOp> task;
  int operation = -1;
};

// Ranks and lanes take turns by chance, until all are through, one is wrong, or nobody can move.
class Driver {
 public:
  Driver(std::span<const Schedule> all, const RunOptions& options)
      : all_(all), options_(options), random_(options.seed), users_(all.size()), world_(all) {
    for (Rank rank = 0; rank < world_.size(); ++rank) {
      User& user = users_[static_cast<size_t>(rank)];
      auto* memory = reinterpret_cast<double*>(world_.memory(rank));
      const int64_t in = space_size(all[static_cast<size_t>(rank)], rank, Space::kInput);
      const int64_t out = space_size(all[static_cast<size_t>(rank)], rank, Space::kOutput);
      user.in = {memory, static_cast<size_t>(in)};
      user.out = {memory + in, static_cast<size_t>(out)};
      world_.group(rank).executor().fault().skip_turn = [this] { return shuffling_ && random_() % 2 == 0; };
    }
  }

  RunResult run() {
    for (int idle = 0; !through();) {
      const auto rank = static_cast<Rank>(random_() % users_.size());
      const bool moved = move(rank);
      if (!why_.empty()) return {Verdict::kWrong, why_};
      idle = moved ? 0 : idle + 1;
      if (idle < 4 * world_.size()) continue;
      shuffling_ = false;
      bool any = false;
      for (Rank one = 0; one < world_.size() && why_.empty(); ++one) any |= move(one);
      if (!why_.empty()) return {Verdict::kWrong, why_};
      if (!any) return {Verdict::kStuck, "nobody can move"};
      shuffling_ = true;
      idle = 0;
    }
    return {};
  }

 private:
  bool through() const {
    return std::all_of(users_.begin(), users_.end(),
                       [&](const User& user) { return user.operation == options_.operations; });
  }

  bool move(Rank rank) {
    User& user = users_[static_cast<size_t>(rank)];
    if (user.operation == options_.operations) return world_.group(rank).poll();
    if (user.task && !user.task->done) return world_.group(rank).poll();
    const Schedule& schedule = all_[static_cast<size_t>(rank)];
    const ExactData data(schedule);
    if (user.task) {
      why_ = user.task->error ? user.task->error->message() : data.compare(user.operation, user.out);
      if (!why_.empty()) why_ = "rank " + std::to_string(rank) + ": " + why_;
    }
    if (!why_.empty() || ++user.operation == options_.operations) return true;
    data.give(user.operation, user.in, user.out);
    comm::CollectiveCall call =
        call_of(schedule, reinterpret_cast<std::byte*>(user.in.data()), reinterpret_cast<std::byte*>(user.out.data()));
    user.task.emplace();
    world_.group(rank).prepare(*user.task, call);
    world_.group(rank).submit(*user.task);
    return true;
  }

  std::span<const Schedule> all_;
  RunOptions options_;
  std::mt19937_64 random_;
  bool shuffling_ = true;
  std::string why_;
  std::vector<User> users_;  // their tasks outlive the groups
  LockstepWorld world_;
};

}  // namespace

LockstepWorld::LockstepWorld(std::span<const Schedule> all) : host_(std::make_shared<LockstepHost>(all.size())) {
  std::vector<Rank> everyone(all.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  memory_ = host_->region("memory", all.size(), kMemoryBytes);
  for (Rank rank = 0; rank < host_->size(); ++rank) {
    auto regions = std::make_shared<comm::RegionTable>();
    regions->add({1, memory_, everyone, rank});
    comm::GroupSettings settings;
    settings.domain = std::make_shared<comm::FailureDomain>();
    settings.members = everyone;
    settings.schedules = [schedule = all[static_cast<size_t>(rank)]](std::string_view, const CollectiveRequest&) {
      return schedule;
    };
    groups_.push_back(std::make_unique<comm::GroupState>(
        std::make_shared<comm::ProgressEngine>(std::make_shared<LockstepTransport>(host_, rank)), std::move(regions),
        std::move(settings)));
  }
}

LockstepWorld::~LockstepWorld() = default;

std::byte* LockstepWorld::memory(Rank rank) const { return memory_->of(rank); }
int LockstepWorld::doorbell(Rank rank) const { return host_->doorbell(rank).descriptor(); }
void LockstepWorld::sleep(Rank rank) { host_->doorbell(rank).announce_sleep(); }

double ExactData::contribution(Rank rank, int operation, int64_t element) const {
  const uint64_t bits =
      scramble(scramble(scramble(static_cast<uint64_t>(rank) + 1) + static_cast<uint64_t>(operation)) +
               static_cast<uint64_t>(element));
  return static_cast<double>(bits >> 24) * schedule_.num_ranks;  // the average is an integer, too
}

double ExactData::sum(int operation, int64_t element) const {
  double total = 0;
  for (Rank rank = 0; rank < schedule_.num_ranks; ++rank) total += contribution(rank, operation, element);
  return total / schedule_.num_ranks;
}

void ExactData::give(int operation, std::span<double> in, std::span<double> out) const {
  std::fill(out.begin(), out.end(), -1.0 - operation);
  for (const MessagePiece& place : initial_contributions(schedule_, schedule_.self)) {
    const auto& space = place.space == Space::kInput ? in : out;
    for (int64_t i = 0; i < place.range.size(); ++i) {
      space[static_cast<size_t>(place.range.begin + i)] =
          contribution(place.contributor, operation, place.message_begin + i);
    }
  }
}

std::string ExactData::compare(int operation, std::span<const double> out) const {
  for (const MessagePiece& place : expected_results(schedule_, schedule_.self)) {
    for (int64_t i = 0; i < place.range.size(); ++i) {
      const double got = out[static_cast<size_t>(place.range.begin + i)];
      const double want = place.contributor == kEveryRank
                              ? sum(operation, place.message_begin + i)
                              : contribution(place.contributor, operation, place.message_begin + i);
      if (got != want)
        return "operation " + std::to_string(operation) + " ends with a wrong element " +
               std::to_string(place.message_begin + i);
    }
  }
  return "";
}

comm::CollectiveCall call_of(const Schedule& s, std::byte* in, std::byte* out) {
  comm::CollectiveCall call;
  call.request.collective = s.collective;
  call.request.root = s.root;
  call.request.elements = s.elements;
  call.request.dtype = s.dtype;
  call.request.in_place = s.in_place;
  call.reduces = s.collective == Collective::kAllReduce || s.collective == Collective::kReduce ||
                 s.collective == Collective::kReduceScatter;
  call.op = call.reduces ? ReduceOp::kAverage : ReduceOp::kSum;
  call.input_bytes = space_size(s, s.self, Space::kInput) * size_of(s.dtype);
  call.output_bytes = space_size(s, s.self, Space::kOutput) * size_of(s.dtype);
  call.input = call.input_bytes > 0 ? in : nullptr;
  call.output = call.output_bytes > 0 ? out : nullptr;
  return call;
}

std::string unrunnable(std::span<const Schedule> all) {
  for (const Schedule& s : all) {
    for (const Step& step : s.steps) {
      if (const std::string rule = unrunnable_step(s, step); !rule.empty()) return rule;
    }
  }
  return "";
}

RunResult execute(std::span<const Schedule> all, const RunOptions& options) { return Driver(all, options).run(); }

}  // namespace herd::testing_support
