#include "herd/comm/schedule_cache.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/collectives/choose.h"
#include "herd/collectives/registry.h"
#include "herd/comm/fingerprint.h"
#include "herd/comm/world_facts.h"
#include "herd/schedule/schedule_names.h"
#include "herd/topology/discover.h"
#include "herd/topology/presets.h"

namespace herd::comm {
namespace {

bool same(const CachedSchedule& cached, std::string_view algorithm, const CollectiveRequest& b) {
  const CollectiveRequest& a = cached.request;
  return a.elements == b.elements && a.collective == b.collective && a.dtype == b.dtype && a.root == b.root &&
         a.in_place == b.in_place && a.direct == b.direct && a.counts == b.counts &&
         a.segment_bytes == b.segment_bytes && cached.asked == algorithm;
}

}  // namespace

Topology topology_of(const std::vector<Rank>& members, const std::vector<int>& hosts, const WorldFacts& facts) {
  if (facts.topology) return only_ranks(*facts.topology, members);
  return assemble(hosts.empty() ? std::vector<int>(members.size(), 0) : hosts, facts.host, facts.between);
}

ScheduleSource default_schedules(std::shared_ptr<const WorldFacts> facts, std::vector<Rank> members) {
  return [facts = std::move(facts), members = std::move(members)](std::string_view algorithm,
                                                                  const CollectiveRequest& request) {
    const Topology topology = topology_of(members, request.hosts, *facts);
    CollectiveRequest placed = placed_on(request, topology);
    if (!algorithm.empty()) return build_schedule(algorithm, placed);
    const std::string chosen = choose(request, topology, {.tuning = &facts->tuning}).algorithm;
    if (!has_segments(request.collective, chosen)) placed.segment_bytes = 0;
    return build_schedule(chosen, placed);
  };
}

ScheduleCache::ScheduleCache(ScheduleSource source, int64_t stage_bytes)
    : source_(std::move(source)), stage_bytes_(stage_bytes) {}

CachedSchedule& ScheduleCache::get(std::string_view algorithm, const CollectiveRequest& request) {
  if (!schedules_.empty() && same(schedules_.front(), algorithm, request)) return schedules_.front();
  const auto found = std::find_if(schedules_.begin(), schedules_.end(),
                                  [&](const CachedSchedule& cached) { return same(cached, algorithm, request); });
  if (found != schedules_.end()) {
    schedules_.splice(schedules_.begin(), schedules_, found);
    return schedules_.front();
  }
  CachedSchedule cached{request, std::string(algorithm), CompiledSchedule(source_(algorithm, request)), 0, 0};
  const Schedule& schedule = cached.compiled.schedule();
  if (cached.compiled.stage_bytes() > stage_bytes_) {
    throw Error(Code::kBadConfig, "algorithm \"" + schedule.algorithm + "\" wants " +
                                      format_bytes(static_cast<double>(cached.compiled.stage_bytes())) +
                                      " of stage memory, a group has " +
                                      format_bytes(static_cast<double>(stage_bytes_)) +
                                      "\n  fix: another algorithm, for example ring");
  }
  uint64_t hash = hash_text(schedule.algorithm);
  for (uint64_t field : {static_cast<uint64_t>(request.collective), static_cast<uint64_t>(request.elements),
                         static_cast<uint64_t>(request.dtype), static_cast<uint64_t>(request.root),
                         static_cast<uint64_t>(request.in_place), static_cast<uint64_t>(request.segment_bytes)}) {
    hash = mix(hash, field);
  }
  for (const int64_t count : request.counts) hash = mix(hash, static_cast<uint64_t>(count));
  cached.hash = hash;
  schedules_.push_front(std::move(cached));
  return schedules_.front();
}

void ScheduleCache::clear() {
  cleared_ = uses();
  schedules_.clear();
}

std::vector<AlgorithmUse> ScheduleCache::uses() const {
  std::vector<AlgorithmUse> all = cleared_;
  const auto key = [](const AlgorithmUse& use) { return std::tie(use.collective, use.bytes, use.algorithm); };
  for (const CachedSchedule& cached : schedules_) {
    AlgorithmUse use{std::string(collective_name(cached.request.collective)), cached.request.bytes(),
                     cached.compiled.schedule().algorithm, cached.uses};
    const auto found = std::lower_bound(all.begin(), all.end(), use,
                                        [&](const AlgorithmUse& a, const AlgorithmUse& b) { return key(a) < key(b); });
    if (found != all.end() && key(*found) == key(use))
      found->operations += use.operations;
    else
      all.insert(found, std::move(use));
  }
  return all;
}

}  // namespace herd::comm
