#include "herd/cli/doctor.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "herd/base/version.h"
#include "herd/cli/doctor_checks_internal.h"

namespace herd::cli {
namespace {

const char* health_name(Health health) {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kNote:
      return "note";
    case Health::kMissing:
      return "missing";
  }
  return "unknown";
}

}  // namespace

std::vector<Finding> examine(const DoctorOptions& options) {
  std::vector<Finding> findings = {{"herd", version()}};
  look_at_processor(findings);
  look_at_memory(findings, options.measure);
  look_at_gpus(findings);
  look_at_kernel(findings);
  look_at_programs(findings);
  return findings;
}

std::string format_findings(const std::vector<Finding>& findings, bool json) {
  if (json) {
    nlohmann::ordered_json report;
    for (const Finding& finding : findings) {
      nlohmann::ordered_json entry = {{"value", finding.value}, {"health", health_name(finding.health)}};
      if (!finding.fix.empty()) entry["fix"] = finding.fix;
      report[finding.name] = entry;
    }
    return report.dump(2) + "\n";
  }
  std::string text;
  for (const Finding& finding : findings) {
    char line[64];
    std::snprintf(line, sizeof line, "%-8s %-18s ", health_name(finding.health), finding.name.c_str());
    text += line + finding.value + "\n";
    if (!finding.fix.empty()) text += "         fix: " + finding.fix + "\n";
  }
  return text;
}

void add_doctor_command(CLI::App& app) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* doctor = app.add_subcommand("doctor", "what this machine offers and what is missing");
  doctor->add_flag("--json", options->json, "one JSON object, a key per finding");
  doctor->add_flag("!--no-measure", options->measure, "do not measure memory bandwidth (takes a second)");
  doctor->callback([options] {
    const int status = run_doctor(*options);
    if (status != 0) throw CLI::RuntimeError(status);
  });
}

int run_doctor(const DoctorOptions& options) {
  const std::vector<Finding> findings = examine(options);
  std::fputs(format_findings(findings, options.json).c_str(), stdout);
  for (const Finding& finding : findings) {
    if (finding.health == Health::kMissing) return 1;
  }
  return 0;
}

}  // namespace herd::cli
