// Publishes what each rank does now, outside the data path, so that an observer of a hang sees every rank. A status
// travels with the next heartbeat (at most 200 ms later) and costs its caller a copy of the text.
// Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "herd/base/ids.h"
#include "herd/base/store.h"

namespace herd::launch {

struct Status {
  Rank rank = 0;
  int64_t sequence = -1;              // number of the operation within the rank, from 0 up; -1 = nothing published
  std::string text;                   // "all_reduce #412 grad.bucket3 on dp"
  SteadyTime since = {}, heard = {};  // times at which the first and the last heartbeat with this status came in
};

void publish_status(Store& store, Rank rank, std::string_view text, int64_t sequence = 0);
std::optional<Status> read_status(Store& store, Rank rank);
// Returns the age of the rank's last heartbeat; nothing where it never connected (a MemoryStore knows no heartbeats).
std::optional<std::chrono::milliseconds> heartbeat_age(Store& store, Rank rank);

std::string status_key(Rank rank);
Status parse_status(Rank rank, const std::string& value);
// Returns one line that names a rank that is behind, or whose operation differs at the same sequence number. Returns ""
// where ranks agree or nothing is known. A status may be older than its peers'. So a rank is behind only if it said so
// after others had got further, or has missed two heartbeats since.
std::string first_divergence(const std::vector<Status>& ranks, SteadyTime now);

}  // namespace herd::launch
