// ZeRO-Infinity's last tier: what the host keeps of a parameter group from step to step lies in files, and the host has
// buffers through which it passes.
//   With strategy.offload = "nvme" these are the states of all groups, and with fp32 the weights that updates work on.
//   With "nvme_all" they are weights, gradients and states of all groups, and weights pass to the device before each
//   pass that reads them.
//   With a window they are the weights and states of the last strategy.file_layers layers, so that a pass gets its
//   weights from a file by way of the host: fetch (lane io), fetch (lane copy-in).
//   Before an op that reads such a value on the host, the lane io fetches it, one such op ahead in the order of the
//   program, and with fp32 weights and states of an update together. After the last op that uses what an update has
//   made, it evicts that. A value that the next op of its kind uses, too, stays on the host meanwhile. Two buffers of
//   each size let the lane read one group, or piece of one (host_states.h), while another is used; the first of a step
//   is read as soon as one is free. With ZeRO-3 each rank has the shards that it updates in files of its own, 1/n of
//   all. It follows all rewrites that say where updates and copies of weights stand.
// Source: Rajbhandari et al. 2021, arXiv:2104.07857, sections 5 and 6.   Threads: pure.
#pragma once

#include <set>
#include <string>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class ValuesInFiles final : public Strategy {
 public:
  // `groups` are the parameter groups in files; with `gradients` their gradients, too, which wait there for updates.
  explicit ValuesInFiles(std::set<int> groups, bool gradients = false)
      : groups_(std::move(groups)), gradients_(gradients) {}
  std::string name() const override { return "values in files"; }
  program::Program rewrite(program::Program step) const override;

 private:
  const std::set<int> groups_;
  const bool gradients_;
};

Technique values_in_files_row();  // returns its row in the table of techniques.h

}  // namespace herd::strategies
