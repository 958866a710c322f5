// Finds how this run's files are asked best, and how fast they then are: some seconds before the first step, once for
// each folder and drive. A later start of the run takes over what cluster.toml says. Threads: one.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "herd/comm/communicator.h"
#include "herd/memory/nvme_file.h"
#include "herd/planner/cluster.h"
#include "herd/runtime/flat_parameters.h"

namespace herd::train {

struct FileCalibration {
  NvmeRequests requests;
  double bytes_per_us = 0;  // of a rank while all ranks use their files; the mean over those that have one
  bool compared = false;    // true: with other ways to ask
};

struct FileCalibrationOptions {
  double seconds = 2;            // in which the ways to ask are compared
  int64_t min_bytes = 64 << 20;  // of a rank's file; of shorter ones the rate is measured, with the usual requests
  // What an earlier start of the run has measured on the same drives; then nothing is measured. The same on all ranks.
  std::optional<FileCalibration> known = {};
};

// Reads and writes back parts of the values in files, all ranks at once, and asks for them in the best way from then
// on. The values stay as they are. Every rank gets the same answer. Collective, also of ranks without files.
FileCalibration calibrate_files(runtime::FlatParameters& parameters, const FileCalibrationOptions& options,
                                Communicator& comm);

// Returns the way with the highest rate. Another than the first is taken only where it is 5 % faster, so that noise
// chooses nothing; a rate of 0 was not measured. REQUIRES as many rates as ways. Pure.
NvmeRequests best_requests(std::span<const NvmeRequests> ways, std::span<const double> rates);

// Names folders with the devices that they are on: "/drive1/herd on device 259:1".
std::string drives_of(const runtime::FilePlace& place);
// Returns what cluster.toml in the run's folder says of these drives. Rank 0 reads it. Collective.
std::optional<FileCalibration> known_files(const std::filesystem::path& cluster_file, const std::string& drives,
                                           Communicator& comm);

}  // namespace herd::train
