#include "herd/param_server/server_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "herd/kernels/reduce_kernel.h"

namespace herd::param_server {
namespace {

Floats make_floats(int64_t count) { return Floats(new float[static_cast<size_t>(count)]); }

Floats zeros(int64_t count) { return Floats(new float[static_cast<size_t>(count)]()); }

}  // namespace

ServerLayout colocated_servers(int num_ranks, int num_servers) {
  ServerLayout layout = dedicated_servers(num_ranks + num_servers, num_servers);
  std::iota(layout.servers.begin(), layout.servers.end(), 0);
  return layout;
}

ServerLayout dedicated_servers(int num_ranks, int num_servers) {
  if (num_servers < 1 || num_servers >= num_ranks) {
    throw Error(Code::kBadConfig, std::to_string(num_ranks) + " ranks can't have " + std::to_string(num_servers) +
                                      " servers\n  fix: at least one server and one worker");
  }
  ServerLayout layout;
  layout.workers.resize(static_cast<size_t>(num_ranks - num_servers));
  layout.servers.resize(static_cast<size_t>(num_servers));
  std::iota(layout.workers.begin(), layout.workers.end(), 0);
  std::iota(layout.servers.begin(), layout.servers.end(), num_ranks - num_servers);
  return layout;
}

ServerLayout mixed_servers(int num_ranks, int num_dedicated) {
  const int num_workers = num_ranks - num_dedicated;
  if (num_workers < 1 || num_dedicated < 0) {
    throw Error(Code::kBadConfig, std::to_string(num_ranks) + " ranks can't have " + std::to_string(num_dedicated) +
                                      " that only serve\n  fix: at least one worker");
  }
  ServerLayout layout;
  layout.workers.resize(static_cast<size_t>(num_workers));
  layout.servers.resize(static_cast<size_t>(num_ranks));
  std::iota(layout.workers.begin(), layout.workers.end(), 0);
  std::iota(layout.servers.begin(), layout.servers.end(), 0);
  return layout;
}

std::vector<double> balanced_shares(int num_ranks, int num_dedicated) {
  const int workers = num_ranks - num_dedicated, of_worker = std::max(0, workers - num_dedicated);
  std::vector<double> shares(static_cast<size_t>(num_ranks), of_worker);
  const double of_dedicated = of_worker == 0 ? 1 : 2.0 * (workers - 1);
  std::fill(shares.begin() + workers, shares.end(), of_dedicated);
  return shares;
}

ServerTable::ServerTable(KeyTable keys, int server, int num_servers, int num_workers, ServerOptions options)
    : keys_(std::move(keys)),
      server_(server),
      num_servers_(num_servers),
      options_(std::move(options)),
      present_(static_cast<size_t>(num_workers), true),
      entries_(static_cast<size_t>(keys_.size())) {
  if (options_.staleness < kAsynchronous) {
    throw Error(Code::kBadConfig, "staleness is " + std::to_string(options_.staleness) +
                                      "\n  fix: 0 or more rounds, or kAsynchronous for no bound");
  }
  if (options_.staleness == kAsynchronous) options_.each_push = true;
}

ServerTable::Entry& ServerTable::entry(int64_t index) {
  keys_.at(index);
  auto& found = entries_[static_cast<size_t>(index)];
  if (found != nullptr) return *found;
  auto made = std::make_unique<Entry>();
  const kernels::ElementRange range = piece(index);
  made->weights = zeros(range.size());
  if (options_.initial && range.size() > 0) {
    options_.initial(index, range.begin, {made->weights.get(), static_cast<size_t>(range.size())});
  }
  made->workers.resize(present_.size());
  found = std::move(made);
  return *found;
}

const ServerTable::Entry* ServerTable::find(int64_t index) const {
  keys_.at(index);
  return entries_[static_cast<size_t>(index)].get();
}

void ServerTable::check_failed() const {
  if (failed_) throw *failed_;
}

void ServerTable::fail(const Error& error) {
  if (!failed_) failed_.emplace(error);
}

void ServerTable::check_push(int worker, int64_t index) const {
  check_failed();
  const Entry* known = find(index);
  if (known == nullptr || options_.staleness == kAsynchronous) return;
  const Progress& progress = known->workers[static_cast<size_t>(worker)];
  if (progress.pushed - progress.pulled_rounds <= options_.staleness) return;
  throw Error(Code::kBadConfig, "worker " + std::to_string(worker) + " is beyond the bound: it has pushed key " +
                                    std::to_string(index) + " " + std::to_string(progress.pushed) +
                                    " times, but its weights are of " + (options_.each_push ? "round " : "version ") +
                                    std::to_string(progress.pulled_rounds) + ", and the staleness is at most " +
                                    std::to_string(options_.staleness) + "\n  fix: pull before the next push");
}

Floats ServerTable::take_buffer(int64_t index) {
  Entry& known = entry(index);
  if (known.unused.empty()) return make_floats(piece(index).size());
  Floats buffer = std::move(known.unused.back());
  known.unused.pop_back();
  return buffer;
}

void ServerTable::push(int worker, int64_t index, Floats gradient, double rate) {
  Entry& known = entry(index);
  const int64_t round = known.workers[static_cast<size_t>(worker)].pushed++;
  if (options_.each_push) {
    step(index, known, gradient.get(), rate);
    known.unused.push_back(std::move(gradient));
    return;
  }
  const auto place = static_cast<size_t>(round - known.version);
  if (known.rounds.size() <= place) known.rounds.resize(place + 1);
  Round& into = known.rounds[place];
  if (into.gradients.empty()) {
    into.gradients.resize(present_.size());
    into.rate = rate;
  }
  into.gradients[static_cast<size_t>(worker)] = std::move(gradient);
  update_complete_rounds(index, known);
}

int64_t ServerTable::complete_rounds(const Entry& known) const {
  if (!options_.each_push) return known.version;
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (size_t worker = 0; worker < present_.size(); ++worker) {
    if (present_[worker]) fewest = std::min(fewest, known.workers[worker].pushed);
  }
  return fewest;
}

void ServerTable::update_complete_rounds(int64_t index, Entry& known) {
  const auto complete = [&](const Round& round) {
    for (size_t worker = 0; worker < present_.size(); ++worker) {
      if (present_[worker] && round.gradients[worker] == nullptr) return false;
    }
    return true;
  };
  while (!known.rounds.empty() && !known.rounds.front().gradients.empty() && complete(known.rounds.front())) {
    update(index, known, known.rounds.front());
    known.rounds.erase(known.rounds.begin());
  }
}

Floats ServerTable::moment(int64_t index, int k) const {
  if (!options_.moments) return zeros(piece(index).size());
  return Floats(options_.moments(index, k).data(), [](float*) {});
}

// Adds what was pushed, or averages it, in the order of workers, and takes one step.
void ServerTable::update(int64_t index, Entry& known, Round& round) {
  std::vector<const void*> sources;
  Floats sum;
  for (const Floats& gradient : round.gradients) {
    if (gradient == nullptr) continue;
    if (sum == nullptr) sum = gradient;
    sources.push_back(gradient.get());
  }
  void* const target = sum.get();
  if (sources.size() > 1) {
    kernels::reduce({&target, 1}, sources, piece(index).size(), DType::kF32, ReduceOp::kSum,
                    options_.average ? 1.0 / static_cast<double>(sources.size()) : 1.0);
  }
  step(index, known, sum.get(), round.rate);
  for (Floats& gradient : round.gradients) {
    if (gradient != nullptr) known.unused.push_back(std::move(gradient));
  }
}

void ServerTable::step(int64_t index, Entry& known, const float* gradient, double rate) {
  const int64_t count = piece(index).size();
  if (known.weights.use_count() > 1) {  // an answer that is under way still reads them
    Floats copy = make_floats(count);
    std::memcpy(copy.get(), known.weights.get(), static_cast<size_t>(count) * sizeof(float));
    known.weights = std::move(copy);
  }
  const Key& key = keys_.at(index);
  const kernels::ElementRange all{0, key.elements};
  const std::span<const kernels::ElementRange> decay = key.decay ? std::span(*key.decay) : std::span(&all, 1);
  const int64_t offset = piece(index).begin;
  if (const auto* sgd = std::get_if<kernels::SgdHyper>(&options_.optimizer)) {
    kernels::SgdHyper hyper = *sgd;
    if (!std::isnan(rate)) hyper.rate = rate;
    if (hyper.momentum != 0 && known.moment1 == nullptr) known.moment1 = moment(index, 0);
    kernels::sgd({known.weights.get(), gradient, known.moment1.get(), count, offset}, hyper, decay);
  } else {
    kernels::AdamWHyper hyper = std::get<kernels::AdamWHyper>(options_.optimizer);
    if (!std::isnan(rate)) hyper.rate = rate;
    hyper.t = options_.updates_before + known.version + 1;
    if (known.moment1 == nullptr) known.moment1 = moment(index, 0), known.moment2 = moment(index, 1);
    kernels::adamw({known.weights.get(), gradient, known.moment1.get(), known.moment2.get(), count, offset}, hyper,
                   decay);
  }
  ++known.version;
}

std::optional<Snapshot> ServerTable::pull(int worker, int64_t index) {
  check_failed();
  Entry& known = entry(index);
  Progress& progress = known.workers[static_cast<size_t>(worker)];
  const int64_t rounds = complete_rounds(known);
  if (options_.staleness != kAsynchronous && rounds < progress.pushed - options_.staleness) return {};
  progress.pulled_rounds = rounds;
  return Snapshot{known.weights, piece(index).size(), known.version, std::max<int64_t>(0, progress.pushed - rounds)};
}

void ServerTable::remove_worker(int worker, const std::string& lost) {
  present_[static_cast<size_t>(worker)] = false;
  if (!lost.empty() && !options_.survive_lost_workers && !options_.each_push) {
    if (!failed_) failed_.emplace(Code::kPeerLost, lost);
    return;
  }
  if (std::find(present_.begin(), present_.end(), true) == present_.end()) return;
  for (int64_t index = 0; index < keys_.size(); ++index) {
    if (Entry* known = entries_[static_cast<size_t>(index)].get()) update_complete_rounds(index, *known);
  }
}

int64_t ServerTable::version(int64_t index) const {
  const Entry* known = find(index);
  return known == nullptr ? 0 : known->version;
}

std::vector<int> ServerTable::missing(int64_t index) const {
  std::vector<int> workers;
  const Entry* known = find(index);
  for (size_t worker = 0; worker < present_.size(); ++worker) {
    if (present_[worker] && (known == nullptr || known->workers[worker].pushed <= complete_rounds(*known))) {
      workers.push_back(static_cast<int>(worker));
    }
  }
  return workers;
}

}  // namespace herd::param_server
