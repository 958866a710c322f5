#include "herd/cli/measure.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "herd/base/error.h"
#include "herd/cli/bench_operation.h"
#include "herd/cli/run_program.h"
#include "herd/collectives/registry.h"
#include "herd/schedule/schedule_names.h"

namespace herd::cli {

std::vector<std::string> bench_arguments(const CollectiveRequest& request, std::string_view algorithm, double seconds) {
  const std::string op(collective_name(request.collective));
  std::vector<std::string> arguments = {"bench",       op,
                                        "--ranks",     std::to_string(request.num_ranks),
                                        "--bytes",     std::to_string(request.bytes()),
                                        "--dtype",     std::string(dtype_name(request.dtype)),
                                        "--algorithm", std::string(algorithm),
                                        "--seconds",   std::to_string(seconds),
                                        "--json"};
  if (bench_kind(op).rooted) arguments.insert(arguments.end(), {"--root", std::to_string(request.root)});
  if (request.segment_bytes > 0 && has_segments(request.collective, algorithm)) {
    arguments.insert(arguments.end(), {"--segment", std::to_string(request.segment_bytes)});
  }
  if (request.direct) arguments.push_back("--symmetric");
  if (request.in_place && bench_kind(op).in_place == InPlace::kAsAsked) arguments.push_back("--in-place");
  return arguments;
}

void check_measurable(const CollectiveRequest& request) {
  const std::string op(collective_name(request.collective));
  if (!request.in_place && bench_kind(op).in_place == InPlace::kAlways) {
    throw Error(Code::kBadConfig, "communicators have " + op +
                                      " in place alone, so --measure can't be with --out-of-place\n  fix: leave one "
                                      "of them out");
  }
  const int64_t multiple = least_elements(op, request.num_ranks), remainder = request.elements % multiple;
  if (remainder == 0) return;
  throw Error(Code::kBadConfig, "--measure of " + op + " has equal parts, but " + std::to_string(request.elements) +
                                    " elements % " + std::to_string(multiple) +
                                    " ranks = " + std::to_string(remainder) + "\n  fix: --bytes " +
                                    std::to_string((request.elements - remainder + multiple) * size_of(request.dtype)));
}

std::optional<double> measure(const CollectiveRequest& request, std::string_view algorithm, double seconds) {
  std::vector<std::string> command = bench_arguments(request, algorithm, seconds);
  command.insert(command.begin(), std::filesystem::read_symlink("/proc/self/exe"));
  const auto [status, output] = run_program(command);
  const size_t brace = output.find('{');
  const auto row =
      brace == std::string::npos ? nlohmann::json() : nlohmann::json::parse(output.substr(brace), nullptr, false);
  if (status == 0 && row.is_object() && row.contains("us_median")) {
    return row["us_median"].get<double>();
  }
  std::fprintf(stderr, "%s was not measured: %s\n", std::string(algorithm).c_str(), output.c_str());
  return std::nullopt;
}

}  // namespace herd::cli
