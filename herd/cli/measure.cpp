#include "herd/cli/measure.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "herd/schedule/names.h"

namespace herd::cli {

std::optional<Measured> measure(const CollectiveRequest& request, std::string_view algorithm, double seconds) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  std::string command = "exec '" + self + "' bench " + std::string(collective_name(request.collective)) + " --ranks " +
                        std::to_string(request.num_ranks) + " --bytes " + std::to_string(request.bytes()) +
                        " --algorithm " + std::string(algorithm) + " --seconds " + std::to_string(seconds) + " --json";
  if (request.direct) command += " --symmetric";
  command += " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string output;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
  const int status = pclose(pipe);
  const size_t brace = output.find('{');
  const auto row =
      brace == std::string::npos ? nlohmann::json() : nlohmann::json::parse(output.substr(brace), nullptr, false);
  if (status == 0 && row.is_object() && row.contains("us_median")) {
    return Measured{row["us_median"].get<double>(), row.value("predicted_us", 0.0)};
  }
  std::fprintf(stderr, "%s was not measured: %s\n", std::string(algorithm).c_str(), output.c_str());
  return std::nullopt;
}

}  // namespace herd::cli
