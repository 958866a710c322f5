#include "herd/cli/collective_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/cli/option_checks.h"
#include "herd/collectives/registry.h"
#include "herd/launch/cores.h"
#include "herd/measure/memory_probe.h"
#include "herd/schedule/schedule_names.h"
#include "herd/topology/load_topology.h"
#include "herd/topology/presets.h"

namespace herd::cli {

void add_collective_options(CLI::App& app, CollectiveOptions& o) {
  app.add_option("OP", o.op,
                 "all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter, all_to_all or barrier")
      ->required();
  app.add_option("--ranks", o.ranks, "number of ranks")->capture_default_str();
  app.add_option("--bytes", o.bytes, "the whole message: 4KiB, 64MiB, ..")->capture_default_str();
  app.add_option("--dtype", o.dtype, "fp32, fp64, fp16, bf16, int8, uint8, int32, int64, bool")->capture_default_str();
  app.add_option("--root", o.root, "root of a broadcast, reduce, gather or scatter")->capture_default_str();
  app.add_flag("--out-of-place", o.out_of_place, "input and output are different memory");
  app.add_flag("--ordinary-memory", o.ordinary_memory, "buffers that peers do not map");
  app.add_option("--topology", o.topology_file,
                 "file of docs/formats/topology.md, or torus:4x4, mesh:4x4, hosts:4x8, racks:2x4x8; else this host, "
                 "its memory timed now")
      ->check(not_empty());
  app.add_option("--segment", o.segment, "bytes of a segment, for algorithms that have segments; else by the message")
      ->check(not_empty());
}

namespace {

// Returns the topology on which a job of so many ranks would choose its algorithms here.
Topology this_host_as_timed(int ranks) {
  const int cores = launch::host_cores(), timed_ranks = std::min(ranks, cores);
  Topology topology = one_host(ranks, cores);
  if (timed_ranks > 1) topology.hosts[0] = measure::with_memory(topology.hosts[0], measure::probe_memory(timed_ranks));
  return topology;
}

}  // namespace

Topology topology_of(const CollectiveOptions& o) {
  if (o.ranks < 1)
    throw Error(Code::kBadConfig, "--ranks >= 1, but it is " + std::to_string(o.ranks) + "\n  fix: --ranks 2");
  if (o.topology_file.empty()) return this_host_as_timed(o.ranks);
  try {
    return first_ranks(load_topology(o.topology_file), o.ranks);
  } catch (const Error& error) {
    throw Error(error.code(), "--topology " + error.message());
  }
}

void check_segments(std::string_view op, int64_t segment_bytes) {
  if (segment_bytes == 0 || (op != "send" && names_with_segments(parse_collective(op)) != "none")) return;
  throw Error(Code::kBadConfig, "--segment is for algorithms that have segments: no " + std::string(op) +
                                    " has\n  fix: leave it out; all_reduce and broadcast have some");
}

CollectiveRequest request_of(const CollectiveOptions& o, const Topology& topology) {
  CollectiveRequest request;
  request.collective = parse_collective(o.op);
  request.num_ranks = o.ranks;
  request.root = o.root;
  request.dtype = parse_dtype(o.dtype);
  const int64_t bytes = parse_bytes(o.bytes), size = size_of(request.dtype);
  if (bytes % size != 0) {
    throw Error(Code::kBadConfig, "--bytes is a multiple of an element, but " + std::to_string(bytes) + " % " +
                                      std::to_string(size) + " = " + std::to_string(bytes % size) +
                                      "\n  fix: --bytes " + std::to_string(bytes < size ? size : bytes - bytes % size));
  }
  if (!o.segment.empty()) request.segment_bytes = parse_bytes(o.segment);
  check_segments(o.op, request.segment_bytes);
  request.elements = request.collective == Collective::kBarrier ? 0 : bytes / size;
  // A communicator's gather and scatter always copy root's part.
  const bool copies_root = request.collective == Collective::kGather || request.collective == Collective::kScatter;
  request.in_place = !o.out_of_place && !copies_root;
  request.same_host = topology.hosts.size() == 1;
  request.direct = request.same_host && !o.ordinary_memory;
  return request;
}

}  // namespace herd::cli
