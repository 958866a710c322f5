#include "herd/topology/topology_text.h"

#include <charconv>
#include <cstdio>
#include <sstream>
#include <variant>

#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/base/units.h"

namespace herd {
namespace {

struct Key {
  const char* name;
  std::variant<int Host::*, int64_t Host::*, double Host::*, double Link::*> member;  // of Host, or of its uplink
};

const Key kKeys[] = {{"ranks", &Host::ranks},
                     {"cores", &Host::cores},
                     {"core_bytes_per_us", &Host::core_bytes_per_us},
                     {"memory_bytes_per_us", &Host::memory_bytes_per_us},
                     {"cached_core_bytes_per_us", &Host::cached_core_bytes_per_us},
                     {"cached_bytes_per_us", &Host::cached_bytes_per_us},
                     {"cache_bytes", &Host::cache_bytes},
                     {"peer_read_factor", &Host::peer_read_factor},
                     {"peer_write_factor", &Host::peer_write_factor},
                     {"shared_write_factor", &Host::shared_write_factor},
                     {"stage_write_factor", &Host::stage_write_factor},
                     {"stage_read_factor", &Host::stage_read_factor},
                     {"message_factor", &Host::message_factor},
                     {"signal_us", &Host::signal_us},
                     {"message_us", &Host::message_us},
                     {"step_us", &Host::step_us},
                     {"call_us", &Host::call_us},
                     {"turn_us", &Host::turn_us},
                     {"uplink_latency_us", &Link::latency_us},
                     {"uplink_bytes_per_us", &Link::bytes_per_us},
                     {"uplink_message_us", &Link::message_us},
                     {"uplink_core_bytes_per_us", &Link::core_bytes_per_us},
                     {"uplink_burst_bytes", &Link::burst_bytes},
                     {"uplink_burst_bytes_per_us", &Link::burst_bytes_per_us}};

template <typename H>
auto& member_of(H& host, double Link::*member) {
  return host.uplink.*member;
}
template <typename H, typename T>
auto& member_of(H& host, T Host::*member) {
  return host.*member;
}

[[noreturn]] void fail(int line, const std::string& rule) {
  throw Error(Code::kCorruptFile, "topology, line " + std::to_string(line) + ": " + rule);
}

template <typename T>
T parse_number(const std::string& word, int line) {
  T value{};
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || problem != std::errc{} || end != word.data() + word.size()) {
    fail(line, "a number stands here, not \"" + word.substr(0, 40) + "\"");
  }
  return value;
}

std::string valid_keys() {
  std::string names;
  for (const Key& key : kKeys) names += (names.empty() ? "" : ", ") + std::string(key.name);
  return names;
}

void parse_hosts(std::istringstream& words, int line, Topology& topology) {
  std::string word;
  words >> word;
  const int count = parse_number<int>(word, line);
  if (count < 1 || count > kMaxHosts - static_cast<int>(topology.hosts.size())) {
    fail(line, "1 to " + std::to_string(kMaxHosts) + " hosts, not " + std::to_string(count));
  }
  Host host;
  while (words >> word) {
    const Key* found = nullptr;
    for (const Key& key : kKeys) {
      if (word == key.name) found = &key;
    }
    if (!found) fail(line, "no key \"" + word.substr(0, 40) + "\"; there are " + valid_keys());
    std::string value;
    words >> value;
    std::visit(
        [&](auto member) {
          auto& target = member_of(host, member);
          target = parse_number<std::remove_reference_t<decltype(target)>>(value, line);
        },
        found->member);
  }
  topology.hosts.insert(topology.hosts.end(), count, host);
}

std::vector<int> parse_numbers(std::istringstream& words, int line) {
  std::vector<int> numbers;
  for (std::string word; words >> word;) numbers.push_back(parse_number<int>(word, line));
  return numbers;
}

void parse_tier(std::istringstream& words, int line, Topology& topology) {
  std::string size, latency, rate, word;
  words >> size >> word >> latency;
  if (word != "latency_us") fail(line, "a tier is: tier SIZE latency_us NUMBER bytes_per_us NUMBER");
  words >> word >> rate;
  if (word != "bytes_per_us") fail(line, "a tier is: tier SIZE latency_us NUMBER bytes_per_us NUMBER");
  topology.tiers.push_back(
      {parse_number<int>(size, line), {parse_number<double>(latency, line), parse_number<double>(rate, line)}});
  if (words >> word) fail(line, "\"" + word.substr(0, 40) + "\" is too much");
}

void parse_fabric(std::istringstream& words, int line, Topology& topology) {
  std::string kind;
  words >> kind;
  if (kind != "torus" && kind != "mesh") fail(line, "a fabric is torus or mesh, not \"" + kind.substr(0, 40) + "\"");
  topology.fabric = kind == "torus" ? Fabric::kTorus : Fabric::kMesh;
  topology.axes = parse_numbers(words, line);
}

std::string numbers_text(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += " " + std::to_string(number);
  return text;
}

}  // namespace

std::string to_text(const Topology& topology) {
  std::string text = "herd-topology 1\nname " + topology.name + "\nspine_bytes_per_us " +
                     format_number(topology.spine_bytes_per_us) + "\n";
  for (size_t i = 0; i < topology.hosts.size();) {
    size_t equal = i + 1;
    while (equal < topology.hosts.size() && topology.hosts[equal] == topology.hosts[i]) ++equal;
    text += "hosts " + std::to_string(equal - i);
    for (const Key& key : kKeys) {
      text += " " + std::string(key.name) + " ";
      std::visit(
          [&](auto member) {
            const auto& value = member_of(topology.hosts[i], member);
            if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(value)>>) {
              text += std::to_string(value);
            } else {
              text += format_number(value);
            }
          },
          key.member);
    }
    text += "\n";
    i = equal;
  }
  for (const Tier& tier : topology.tiers) {
    text += "tier " + std::to_string(tier.size) + " latency_us " + format_number(tier.uplink.latency_us) +
            " bytes_per_us " + format_number(tier.uplink.bytes_per_us) + "\n";
  }
  if (topology.fabric != Fabric::kSwitch) {
    text += (topology.fabric == Fabric::kTorus ? "fabric torus" : "fabric mesh") + numbers_text(topology.axes) + "\n";
  }
  if (!topology.placement.empty()) text += "placement" + numbers_text(topology.placement) + "\n";
  return text;
}

Topology parse_topology(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string line;
  if (!std::getline(lines, line) || line != "herd-topology 1") fail(1, "the file begins with \"herd-topology 1\"");
  Topology topology;
  for (int number = 2; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    std::string key, value;
    if (!(words >> key) || key[0] == '#') continue;
    if (key == "name") {
      const size_t at = line.find("name") + 5;
      topology.name = at < line.size() ? printable(line.substr(at)) : "";
    } else if (key == "spine_bytes_per_us") {
      words >> value;
      topology.spine_bytes_per_us = parse_number<double>(value, number);
      if (words >> value) fail(number, "\"" + value.substr(0, 40) + "\" is too much");
    } else if (key == "hosts") {
      parse_hosts(words, number, topology);
    } else if (key == "tier") {
      parse_tier(words, number, topology);
    } else if (key == "fabric") {
      parse_fabric(words, number, topology);
    } else if (key == "placement") {
      topology.placement = parse_numbers(words, number);
    } else {
      fail(number,
           "no key \"" + key.substr(0, 40) + "\"; there are name, spine_bytes_per_us, hosts, tier, fabric, placement");
    }
  }
  try {
    check(topology);
  } catch (const Error& error) {
    throw Error(Code::kCorruptFile, error.message());
  }
  return topology;
}

}  // namespace herd
