#include "herd/train/replica_hash.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <map>

#include "herd/bridge/device_stream.h"
#include "herd/kernels/hash.h"
#include "herd/train/shared_error.h"

namespace herd::train {
namespace {

std::string join_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

std::vector<int64_t> weight_hashes(const runtime::FlatParameters& parameters) {
  std::vector<int64_t> hashes;
  at::Tensor on_device;  // the hashes of groups on a device, which is waited for once
  for (int g = 0; g < parameters.num_groups(); ++g) {
    if (!parameters.keeps_whole(g)) {
      hashes.push_back(kNoHash);
      continue;
    }
    const at::Tensor& weights = parameters.group(g).weights();
    if (!weights.is_cpu()) {
      if (!on_device.defined())
        on_device = at::full({parameters.num_groups()}, kNoHash, weights.options().dtype(at::kLong));
      kernels_of(weights).hash(on_stream(weights), {.memory = weights.const_data_ptr(),
                                                    .bytes = static_cast<int64_t>(weights.nbytes()),
                                                    .result = static_cast<uint64_t*>(on_device[g].mutable_data_ptr())});
      hashes.push_back(kNoHash);
      continue;
    }
    hashes.push_back(
        static_cast<int64_t>(kernels::hash(weights.const_data_ptr(), static_cast<int64_t>(weights.nbytes()))));
  }
  if (!on_device.defined()) return hashes;
  const at::Tensor all = on_device.cpu();
  return {all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel()};
}

std::string describe_differences(const std::vector<int64_t>& hashes_RG, int ranks,
                                 const std::vector<std::string>& groups, const std::vector<int64_t>& places_RG) {
  std::map<std::pair<std::vector<int>, std::vector<int>>, std::string> found;  // (minority, majority) -> groups
  for (size_t g = 0; g < groups.size(); ++g) {
    std::map<int64_t, std::map<int64_t, std::vector<int>>> by_place;  // place -> hash -> ranks
    for (int r = 0; r < ranks; ++r) {
      const size_t at = static_cast<size_t>(r) * groups.size() + g;
      if (hashes_RG[at] != kNoHash) by_place[places_RG.empty() ? 0 : places_RG[at]][hashes_RG[at]].push_back(r);
    }
    for (const auto& [place, by_hash] : by_place) {
      if (by_hash.size() <= 1) continue;
      const std::vector<int>* majority = nullptr;
      for (const auto& [hash, holders] : by_hash)
        if (!majority || holders.size() > majority->size() ||
            (holders.size() == majority->size() && holders < *majority))
          majority = &holders;
      std::vector<int> minority;
      for (const auto& [hash, holders] : by_hash)
        if (&holders != majority) minority.insert(minority.end(), holders.begin(), holders.end());
      std::sort(minority.begin(), minority.end());
      std::string& names = found[{minority, *majority}];
      names += (names.empty() ? "" : ", ") + groups[g];
    }
  }
  std::string text;
  for (const auto& [sides, names] : found)
    text += (text.empty() ? "" : "; ") + join_ranks(sides.first) + (sides.first.size() == 1 ? " holds" : " hold") +
            " other weights than " + join_ranks(sides.second) + " in " + names;
  return text;
}

namespace {

// Returns describe_differences() of what the ranks hold. Collective.
std::string differences_of(const runtime::FlatParameters& parameters, Communicator& comm) {
  if (comm.size() == 1) return "";
  std::vector<std::string> groups;
  for (int g = 0; g < parameters.num_groups(); ++g) groups.push_back(parameters.group(g).name());
  std::vector<int64_t> mine = weight_hashes(parameters), all(mine.size() * comm.size()), place, places(all.size());
  for (int g = 0; g < parameters.num_groups(); ++g) place.push_back(parameters.group(g).place());
  comm.all_gather(mine, all, {.name = "hash of the weights"});
  comm.all_gather(place, places, {.name = "places of the weights"});
  return describe_differences(all, comm.size(), groups, places);
}

}  // namespace

void check_replicas(const runtime::FlatParameters& parameters, Communicator& comm, int64_t step) {
  const std::string differences = differences_of(parameters, comm);
  if (!differences.empty())
    throw SharedError(Code::kBug,
                      "step " + std::to_string(step) + ": replicas have drifted apart: " + differences +
                          "\n  fix: resume from the last checkpoint; if it comes back, test that machine's memory");
}

void check_initial_replicas(const runtime::FlatParameters& parameters, Communicator& comm) {
  const std::string differences = differences_of(parameters, comm);
  if (!differences.empty())
    throw SharedError(Code::kBadConfig,
                      "replicas begin apart: " + differences +
                          "\n  fix: factories that draw initial weights from torch's generator, which "
                          "herd seeds alike on all ranks, or read them from a file");
}

}  // namespace herd::train
