#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "herd/base/error.h"
#include "herd/base/version.h"
#include "herd/cli/doctor_checks_internal.h"
#include "herd/cli/run_program.h"
#include "herd/comm/connect_world.h"
#include "herd/launch/environment.h"
#include "herd/transport/network_interface.h"
#include "herd/transport/wire.h"

namespace herd::cli {
namespace {

// Returns the path of a program in PATH, or "".
std::string find_program(const std::string& name) {
  const std::string folders = launch::process_variables()["PATH"];
  for (size_t begin = 0; begin < folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string path = folders.substr(begin, end - begin) + "/" + name;
    if (access(path.c_str(), X_OK) == 0) return path;
    begin = end + 1;
  }
  return "";
}

std::filesystem::path own_folder() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
}

Finding shared_memory() {
  const int fd = memfd_create("herd-doctor", MFD_CLOEXEC);
  if (fd < 0) {
    return {"shared memory", std::string("memfd_create: ") + std::strerror(errno), Health::kMissing,
            "Linux 3.17 or newer, and a container whose seccomp profile allows memfd_create"};
  }
  constexpr off_t kBytes = 1 << 20;
  const int failed = posix_fallocate(fd, 0, kBytes);
  close(fd);
  if (failed != 0) {
    return {"shared memory", std::string("fallocate: ") + std::strerror(failed), Health::kMissing, "free some memory"};
  }
  return {"shared memory", "memfd works (leaves nothing behind)"};
}

Finding process_watching() {
  const long fd = syscall(SYS_pidfd_open, getpid(), 0);
  if (fd >= 0) {
    close(static_cast<int>(fd));
    return {"dead peers", "pidfd works: noticed in milliseconds"};
  }
  return {"dead peers", std::string("pidfd_open: ") + std::strerror(errno) + ": noticed by a held socket instead",
          Health::kNote, "Linux 5.3 or newer, and a container whose seccomp profile allows pidfd_open"};
}

Finding asynchronous_io() {
  // Without parameters, a kernel that has the call answers EFAULT or EINVAL. One that lacks or forbids it answers
  // something else.
  syscall(SYS_io_uring_setup, 1, nullptr);
  if (errno == EFAULT || errno == EINVAL) return {"io_uring", "available"};
  return {"io_uring", std::strerror(errno), Health::kNote,
          "sysctl kernel.io_uring_disabled=0, or a container whose seccomp profile allows it; needed for NVMe offload "
          "only"};
}

Finding trainer() {
  const std::filesystem::path folder = own_folder();
  const std::filesystem::path path = folder / "herd-trainer";
  if (access(path.c_str(), X_OK) != 0) {
    return {"torch", "no trainer beside " + (folder / "herd").string() + ": herd train and generate can't run",
            Health::kNote, "scripts/setup builds it with libtorch (preset release)"};
  }
  const ProgramEnd end = run_program({path.string(), "--version"});
  const std::string first_line = end.output.substr(0, end.output.find('\n'));
  if (end.status != 0) {
    return {"torch", path.string() + " does not start (status " + std::to_string(end.status) + "): " + first_line,
            Health::kMissing,
            "keep libtorch where herd was built with it, name its folder in LD_LIBRARY_PATH, or build and install herd "
            "again with the Torch_DIR of the libtorch that is there"};
  }
  if (!first_line.starts_with(std::string("herd ") + version() + ",")) {
    return {"torch", path.string() + " is of \"" + first_line + "\", this command of herd " + version(),
            Health::kMissing, "install both from one build"};
  }
  return {"torch", "the trainer " + path.string() + " starts: " + first_line};
}

Finding transports() {
  const std::string ucx = transport::ucx_version();
  if (!ucx.empty()) return {"transports", "inproc, shm, tcp inside TLS 1.3, ucx " + ucx};
  return {"transports", "inproc, shm, tcp inside TLS 1.3; no ucx in this build", Health::kNote,
          "for RDMA, or a trusted network, install libucx-dev and build again with -DHERD_UCX=ON"};
}

// Reports what the settings of a job ask for in vain.
Finding refusal(const std::string& name, const Error& error, const std::string& fix) {
  const size_t line = error.message().find('\n');
  return {name, error.message().substr(0, line), Health::kMissing,
          line == std::string::npos ? fix : error.message().substr(error.message().find("fix: ") + 5)};
}

// Reports the interfaces of this host, and the one that a job would use between hosts.
Finding network() {
  std::string interfaces;
  for (const transport::NetworkInterface& interface : transport::network_interfaces()) {
    interfaces += (interfaces.empty() ? "" : ", ") + interface.name + " " + interface.address;
    if (interface.mbit_per_s > 0) interfaces += " (" + std::to_string(interface.mbit_per_s) + " Mbit/s)";
  }
  std::string choice = "between hosts: the one that reaches the rendezvous (HERD_NETWORK=NAME overrides)";
  launch::Environment env;
  try {
    env = launch::read_environment();
  } catch (const Error&) {  // the finding "job" says what is wrong
  }
  if (!env.network.empty() || env.num_nodes > 1) choice = "between hosts: " + comm::interfaces_between_hosts(env);
  try {
    choice += "; " + comm::wire_here(env);
  } catch (const Error& error) {
    return refusal("network", error, "HERD_TRANSPORT=tcp");
  }
  return {"network", (interfaces.empty() ? "no interface" : interfaces) + "; " + choice};
}

Finding this_job() {
  try {
    const launch::Environment env = launch::read_environment();
    if (env.source == "alone") return {"job", "none: started by no launcher"};
    return {"job",
            "rank " + std::to_string(env.rank) + " of " + std::to_string(env.size) + ", started by " + env.source};
  } catch (const Error& error) {
    return refusal("job", error, "start every rank with herd run, torchrun, mpirun or srun");
  }
}

}  // namespace

void look_at_kernel(std::vector<Finding>& findings) {
  utsname system = {};
  uname(&system);
  findings.push_back({"kernel", std::string(system.sysname) + " " + system.release + " " + system.machine});
  findings.push_back(shared_memory());
  findings.push_back(process_watching());
  findings.push_back(asynchronous_io());
}

void look_at_programs(std::vector<Finding>& findings) {
  findings.push_back(transports());
  findings.push_back(network());
  findings.push_back(trainer());
  std::string launchers = "herd run";
  for (const char* name : {"torchrun", "mpirun", "srun"}) {
    if (!find_program(name).empty()) launchers += std::string(", ") + name;
  }
  findings.push_back({"launchers", launchers});
  findings.push_back(this_job());
}

}  // namespace herd::cli
