// herd doctor says what this machine offers a training job, and what is missing, with the fix.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace herd::cli {

struct DoctorOptions {
  bool json = false;
  bool measure = true;  // copy memory for a second to see the bandwidth
};

enum class Health { kOk, kNote, kMissing };

struct Finding {
  std::string name;   // "cores", the key in --json
  std::string value;  // "2 of 2, AMD EPYC 9J14"
  Health health = Health::kOk;
  std::string fix = {};  // for a note and for what is missing
};

std::vector<Finding> examine(const DoctorOptions& options);
std::string format_findings(const std::vector<Finding>& findings, bool json);

void add_doctor_command(CLI::App& app);
int run_doctor(const DoctorOptions& options);  // returns 0, or 1 where something is missing

}  // namespace herd::cli
