#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "herd/base/device_driver.h"
#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/cli/doctor_checks_internal.h"
#include "herd/comm/fork_world.h"
#include "herd/comm/nccl_library.h"

namespace herd::cli {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Says where herd finds no GPU to use. It is no fault, unless NVIDIA's kernel module is there.
Finding no_gpu(const std::string& why) {
  std::error_code ignored;
  if (!std::filesystem::exists("/proc/driver/nvidia/version", ignored)) return {"GPU", "none: " + first_line(why)};
  const size_t fix = why.find("fix: ");
  return {"GPU", "not usable: " + first_line(why), Health::kNote,
          fix == std::string::npos ? "look at nvidia-smi" : why.substr(fix + 5)};
}

// GPUs that are alike are one line.
std::string names_of(DeviceDriver& driver) {
  std::string names, last, software;
  int alike = 0;
  const auto flush = [&] {
    if (alike > 0) names += (names.empty() ? "" : ", ") + std::to_string(alike) + " x " + last;
    alike = 0;
  };
  for (int index = 0; index < driver.count(); ++index) {
    const DeviceFacts facts = driver.facts(index);
    const std::string one = facts.name + " " + format_bytes(static_cast<double>(facts.bytes));
    if (one != last) flush();
    last = one, software = facts.software, ++alike;
  }
  flush();
  return names + "; CUDA: " + software;
}

Finding shared_between_ranks(Communicator& comm, Device device) {
  try {
    comm.use_device(device, DeviceEngine::kIpc);
    return {"GPU IPC", "works: ranks of this host read each other's GPU memory"};
  } catch (const Error& error) {
    return {"GPU IPC", first_line(error.message()) + ": copies pass the host, or NCCL", Health::kNote,
            "a container that shares the host's IPC and PID namespaces (docker run --ipc=host --pid=host)"};
  }
}

Finding nccl() {
  std::string why_not;
  const comm::NcclLibrary* library = comm::nccl_library(&why_not);
  if (library != nullptr) return {"NCCL", comm::nccl_version_text(library->version) + ", " + library->path};
  return {"NCCL", first_line(why_not) + "; a rank that trains looks beside its libtorch, too", Health::kNote,
          "HERD_NCCL=PATH of libnccl.so.2, of 2.18 or newer"};
}

// What two ranks find, each on its GPU where there are two.
std::vector<Finding> findings_of_ranks(Communicator& comm) {
  std::vector<Finding> findings;
  DeviceDriver* driver = nullptr;
  try {
    driver = &device_driver(DeviceKind::kCuda);
  } catch (const Error& error) {
    return {no_gpu(error.message())};
  }
  findings.push_back({"GPU", names_of(*driver)});
  findings.push_back(shared_between_ranks(comm, {DeviceKind::kCuda, comm.rank() % driver->count()}));
  findings.push_back(nccl());
  return findings;
}

std::string text_of(const std::vector<Finding>& findings) {
  auto text = nlohmann::json::array();
  for (const Finding& one : findings) text.push_back({one.name, one.value, static_cast<int>(one.health), one.fix});
  return text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string read_all(int from) {
  std::string text;
  char piece[4096];
  for (ssize_t size = 0; (size = read(from, piece, sizeof piece)) > 0;) text.append(piece, static_cast<size_t>(size));
  return text;
}

}  // namespace

// Processes of their own look, so that this one may still fork: a process that has called CUDA must not.
void look_at_gpus(std::vector<Finding>& findings) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno(Code::kStorage, "create a pipe", errno);
  std::string text, failure;
  try {
    run_forked(2, [&](Communicator& comm) {
      const std::string found = text_of(findings_of_ranks(comm));
      if (comm.rank() == 0 && write(ends[1], found.data(), found.size()) < 0)
        throw_errno(Code::kStorage, "write", errno);
    });
  } catch (const Error& error) {
    failure = error.message();
  }
  close(ends[1]);
  text = read_all(ends[0]);
  close(ends[0]);
  if (text.empty()) {
    findings.push_back(no_gpu(failure));
    return;
  }
  for (const auto& one : nlohmann::json::parse(text))
    findings.push_back({one[0], one[1], static_cast<Health>(one[2].get<int>()), one[3]});
}

}  // namespace herd::cli
