#include "herd/measure/figures.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>

#include "herd/base/error.h"

namespace herd::measure {
namespace {

// Cores limit a link where both ways take longer than this multiple of one way. A rate up to this multiple of the
// link's rate counts as the link's own.
constexpr double kMaxLinkRatio = 1.25;
constexpr double kMinBurstRatio = 2;  // a burst passes at this multiple of the link's rate or faster

// Returns the nearest by ratio of the steps, which lie from 1 to 10, times a power of ten; 0 for what is not above 0.
double nearest(double value, std::initializer_list<double> steps) {
  if (!(value > 0) || !std::isfinite(value)) return 0;
  const double power = std::pow(10, std::floor(std::log10(value)));
  double best = power;
  for (const double step : steps) {
    if (std::abs(std::log(value / (step * power))) < std::abs(std::log(value / best))) best = step * power;
  }
  return best;
}
double rounded_to_half_decade(double value) { return nearest(value, {1.0, 3.15, 10.0}); }

}  // namespace

double rounded(double value) { return nearest(value, {1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0, 10.0}); }

Link link_of(const LinkProbe& probe) {
  if (!(probe.long_us > probe.short_us)) {
    throw Error(Code::kBadConfig, "a probe's long message takes longer than its short one, but took " +
                                      std::to_string(probe.long_us) + " us, and " + std::to_string(probe.short_us) +
                                      " us");
  }
  const auto bytes = static_cast<double>(probe.long_bytes);
  const double one_way = probe.long_us - probe.short_us, both_ways = probe.both_us - probe.short_us;
  const double core_rate = both_ways > kMaxLinkRatio * one_way ? 2 * bytes / both_ways : 0;
  return {probe.short_us, bytes / one_way, std::min(probe.message_us, probe.short_us), core_rate};
}

Link with_burst(Link link, const StreamProbe& stream) {
  const size_t pieces = stream.us.size();
  const auto passed_bytes = [&](size_t count) {
    return static_cast<double>(count) * static_cast<double>(stream.piece_bytes);
  };
  const double link_rate = kMaxLinkRatio * link.bytes_per_us;
  size_t burst_pieces = 0;  // pieces that had arrived when they were furthest ahead of the link's rate
  double ahead_bytes = 0;
  for (size_t count = 1; count <= pieces; ++count) {
    const double lead_bytes = passed_bytes(count) - link_rate * stream.us[count - 1];
    if (lead_bytes > ahead_bytes) burst_pieces = count;
    ahead_bytes = std::max(ahead_bytes, lead_bytes);
  }
  if (burst_pieces == 0 || pieces - burst_pieces < std::max<size_t>(2, pieces / 4)) return link;
  const double burst_us = std::max(stream.us[burst_pieces - 1], 1e-3), rest_us = stream.us.back() - burst_us;
  const bool limited = passed_bytes(pieces - burst_pieces) <= link_rate * rest_us;
  if (!limited || passed_bytes(burst_pieces) < kMinBurstRatio * link.bytes_per_us * burst_us) return link;
  link.burst_bytes = passed_bytes(burst_pieces) - link.bytes_per_us * burst_us;
  link.burst_bytes_per_us = passed_bytes(burst_pieces) / burst_us;
  return link;
}

Link slower(const Link& a, const Link& b) {
  const bool limited = a.core_bytes_per_us > 0 && b.core_bytes_per_us > 0;
  return {
      std::max(a.latency_us, b.latency_us),
      std::min(a.bytes_per_us, b.bytes_per_us),
      std::max(a.message_us, b.message_us),
      limited ? std::min(a.core_bytes_per_us, b.core_bytes_per_us) : std::max(a.core_bytes_per_us, b.core_bytes_per_us),
      std::min(a.burst_bytes, b.burst_bytes),
      std::min(a.burst_bytes_per_us, b.burst_bytes_per_us)};
}

Link rounded(const Link& link) {
  return {rounded(link.latency_us),        rounded(link.bytes_per_us), rounded(link.message_us),
          rounded(link.core_bytes_per_us), rounded(link.burst_bytes),  rounded(link.burst_bytes_per_us)};
}

Host with_memory(Host host, const MemoryProbe& probe) {
  // A copy reads and writes each byte. Past the cache there are two copies: one writes memory, and one reads it.
  const double moved = 2 * static_cast<double>(probe.bytes);
  host.cached_core_bytes_per_us = rounded_to_half_decade(moved / std::min(probe.alone_us, probe.all_us));
  host.cached_bytes_per_us = probe.ranks * rounded_to_half_decade(moved / probe.all_us);
  host.core_bytes_per_us = rounded_to_half_decade(moved / std::min(probe.alone_past_cache_us, probe.all_past_cache_us));
  host.memory_bytes_per_us = probe.ranks * rounded_to_half_decade(moved / probe.all_past_cache_us);
  return host;
}

double second_half_us(double whole_us, double second_us) { return std::max(second_us, whole_us / 2); }

}  // namespace herd::measure
