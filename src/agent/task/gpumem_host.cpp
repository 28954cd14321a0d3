#include "agent/task/gpumem_host.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "agent/isolate/own_place.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "gpumem/client.h"
#include "process/spawn.h"
#include "shim/abi.h"

namespace billow::agent {
namespace {

// On a cold machine the driver needs seconds for its first context.
constexpr Duration start_patience = seconds(15);
constexpr int move_timeout_ms = 600'000;

std::string name_of(TaskId task) {
  return fmt::format("t{}", task.value);
}

// Searches beside this program and in the folders of a bundle or a build tree.
std::string find_near(const std::string& name) {
  std::string folder = executable_dir();
  for (int up = 0; up < 3 && !folder.empty(); ++up) {
    for (const char* sub : {"/", "/bin/", "/lib/", "/lib/billow/", "/shim/"})
      if (std::string path = folder + sub + name; file_exists(path))
        return path;
    folder.resize(folder.rfind('/'));
  }
  return {};
}

}  // namespace

std::string blocks_suspend(std::uint64_t features) {
  std::vector<std::string> why;
  if (features & BILLOW_USES_UVM)
    why.push_back("managed memory (UVM)");
  if (features & BILLOW_USES_IPC)
    why.push_back("memory pools shared between processes (cudaMemPoolExportToShareableHandle)");
  if (features & BILLOW_USES_EXTERNAL)
    why.push_back("memory shared with graphics or RDMA");
  if (features & BILLOW_USES_MULTICAST)
    why.push_back("NVLink multicast");
  if (why.empty())
    return {};
  const std::string remedy =
      features & BILLOW_USES_UVM ? "; allocate with cudaMalloc instead of cudaMallocManaged"
      : features & BILLOW_USES_IPC
          ? "; share cudaMalloc memory or cuMemCreate descriptors instead of pools"
          : "";
  return "it uses " + join(why, " and ") + ", which cannot be saved and restored" + remedy;
}

std::int64_t default_arena_bytes(std::int64_t host_bytes, std::int64_t gpu_bytes, bool simulated) {
  if (simulated)
    return 256ll << 20;  // enough for what tests allocate
  return std::min(host_bytes / 2, gpu_bytes);
}

std::int64_t default_sleep_memory_bytes(std::int64_t host_bytes, std::int64_t arena_bytes) {
  return arena_bytes > 0 ? arena_bytes + host_bytes / 8 : 0;
}

std::int64_t default_sleep_disk_bytes(const std::string& directory) {
  struct statvfs fs {};
  if (::statvfs(directory.c_str(), &fs) != 0)
    return 0;
  return static_cast<std::int64_t>(fs.f_bavail) * static_cast<std::int64_t>(fs.f_frsize) / 2;
}

GpumemHost::GpumemHost(Options options) : options_(std::move(options)) {
  const char* named = std::getenv("BILLOW_VAULT");
  program_ = named && *named ? named : find_near("billow-gpumem");
  const char* shim = std::getenv("BILLOW_SHIM");
  shim_ = shim && *shim ? shim : find_near("libbillow-cuda.so");
  const bool root = ::geteuid() == 0;
  // Only root can create files in /run. The name is the one that 0.1 used: a newer agent then finds
  // the service that an older one started, and with it the jobs suspended there. In /tmp that name
  // is used only if the directory is our own.
  const bool in_run = root && file_exists("/run");
  dir_ = fmt::format("{}/billow-vault-{}", in_run ? "/run" : "/tmp", options_.owner);
  if (!in_run && !open_own_directory(dir_))
    dir_ = options_.temporary + "/vault";
  if (program_.empty())
    unavailable_ = "billow-gpumem is not installed beside billow on this node";
  else if (shim_.empty())
    unavailable_ = "libbillow-cuda.so is not installed beside billow on this node";
  else if (options_.simulated && !std::getenv("BILLOW_CUDA"))
    unavailable_ = "its GPUs are simulated";
}

Status GpumemHost::ensure() {
  if (!unavailable_.empty())
    return fail(Code::unavailable, unavailable_);
  const std::string admin = dir_ + "/admin";
  const bool made = ::mkdir(dir_.c_str(), 0700) == 0;
  if (!made && errno != EEXIST)
    return fail_errno("create " + dir_, errno);
  // Another user's directory could hold another user's sockets.
  const Fd directory = BILLOW_TRY(open_own_directory(dir_));
  if (made && ::fchmod(directory.get(), 0711) != 0)
    return fail_errno(dir_, errno);
  if (gpumem::call_service(admin, "ping", 5000))
    return {};
  const std::string log = options_.data_dir + "/gpumem.log";
  const Fd log_fd(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log_fd)
    return fail_errno(log, errno);
  process::Spawn request;
  request.argv = {program_,
                  "--socket",
                  dir_ + "/jobs",
                  "--admin",
                  admin,
                  "--arena",
                  fmt::format("{}", options_.arena_bytes),
                  "--sleep-memory",
                  fmt::format("{}", options_.sleep_memory_bytes),
                  "--sleep-dir",
                  options_.data_dir + "/sleeping",
                  "--sleep-disk",
                  fmt::format("{}", options_.sleep_disk_bytes)};
  request.out = request.err = log_fd.get();
  request.group = process::Group::session;  // it outlives this agent
  process::Child child = BILLOW_TRY(process::spawn(request));
  const int pid = child.release();
  const SteadyTime give_up = system_clock().steady() + start_patience;
  while (!gpumem::call_service(admin, "ping", 2000)) {
    if (system_clock().steady() > give_up)
      return fail(Code::unavailable, "billow-gpumem does not answer", "see " + log);
    ::poll(nullptr, 0, 10);
  }
  log_info("started the GPU memory service billow-gpumem (pid {}), arena {}", pid,
           format_bytes(static_cast<std::uint64_t>(options_.arena_bytes)));
  return {};
}

Result<std::map<std::string, std::string>> GpumemHost::add(const Job& job) {
  BILLOW_TRY_VOID(ensure());
  const std::string token = random_token(24);
  std::string command =
      fmt::format("add name={} token={} suspendable={} strict={}", name_of(job.task), token,
                  job.suspendable && options_.arena_bytes > 0 ? 1 : 0, job.strict ? 1 : 0);
  for (const Limit& limit : job.limits) {
    std::string uuid = "-";
    if (!options_.simulated) {
      uuid.clear();
      for (char c : limit.gpu.uuid)
        if (std::isxdigit(static_cast<unsigned char>(c)))
          uuid += c;
      if (uuid.size() != 32)
        uuid = "-";
    }
    // A whole card has no limit: the job may use all memory that the driver leaves free.
    const std::int64_t memory = limit.share.whole() ? 0 : limit.share.mem_mib << 20;
    command += fmt::format(" device={}:{}:0:{}", uuid, memory, limit.share.milli);
  }
  auto added = gpumem::call_service(dir_ + "/admin", command, 10'000);
  if (!added && added.error().code == Code::conflict) {  // left by a start that was interrupted
    remove(job.task);
    added = gpumem::call_service(dir_ + "/admin", command, 10'000);
  }
  if (!added)
    return pass(added.error(), "billow-gpumem");
  return std::map<std::string, std::string>{
      {"LD_PRELOAD", shim_}, {BILLOW_ENV_SOCKET, dir_ + "/jobs"}, {BILLOW_ENV_TOKEN, token}};
}

void GpumemHost::remove(TaskId task) {
  (void)gpumem::call_service(dir_ + "/admin", "remove name=" + name_of(task), move_timeout_ms);
}

Result<GpumemHost::Moved> GpumemHost::suspend(TaskId task, SuspendMode mode) {
  const auto reply = BILLOW_TRY(gpumem::call_service(
      dir_ + "/admin", fmt::format("suspend name={} mode={}", name_of(task), enum_name(mode)),
      move_timeout_ms));
  Moved moved{static_cast<std::int64_t>(reply.number("bytes")), reply.real("seconds"), {}};
  if (const auto why = reply.values.find("cold_error"); why != reply.values.end()) {
    moved.note = why->second;
    std::replace(moved.note.begin(), moved.note.end(), '_', ' ');
  }
  return moved;
}

Result<GpumemHost::Moved> GpumemHost::resume(TaskId task) {
  const auto reply = BILLOW_TRY(
      gpumem::call_service(dir_ + "/admin", "resume name=" + name_of(task), move_timeout_ms));
  return Moved{static_cast<std::int64_t>(reply.number("bytes")), reply.real("seconds"), {}};
}

namespace {
std::string pids_text(const std::vector<int>& pids) {
  std::string out;
  for (int pid : pids)
    out += (out.empty() ? "" : ",") + std::to_string(pid);
  return out;
}
}  // namespace

Status GpumemHost::checkpoint(const std::vector<int>& pids) {
  BILLOW_TRY_VOID(ensure());
  BILLOW_TRY(
      gpumem::call_service(dir_ + "/admin", "checkpoint pids=" + pids_text(pids), move_timeout_ms));
  return {};
}
Status GpumemHost::restore(const std::vector<int>& pids) {
  BILLOW_TRY(
      gpumem::call_service(dir_ + "/admin", "restore pids=" + pids_text(pids), move_timeout_ms));
  return {};
}

namespace {
struct Asleep {
  std::uint64_t pinned = 0, memory = 0, file = 0;  // bytes
  std::int64_t wake_ms = 0;
};
std::string asleep_text(const Asleep& a) {
  if (a.pinned + a.memory + a.file == 0)
    return "it has no GPU memory to bring back";
  std::string where;
  const auto add = [&](std::uint64_t bytes, const char* place) {
    if (bytes > 0)
      where += fmt::format("{}{} {}", where.empty() ? "" : ", ", format_bytes(bytes), place);
  };
  add(a.pinned, "in pinned memory");
  add(a.memory, "in memory");
  add(a.file, "on disk");
  return fmt::format("{}; resuming takes about {}", where,
                     format_duration(std::max(milliseconds(a.wake_ms), milliseconds(100))));
}
}  // namespace

Result<std::vector<GpumemHost::Seen>> GpumemHost::look() {
  const auto reply = BILLOW_TRY(gpumem::call_service(dir_ + "/admin", "status", 10'000));
  std::vector<Seen> out;
  for (const auto& line : reply.lines) {
    const auto text = [&](const char* key) {
      const auto found = line.find(key);
      return found == line.end() ? std::string() : found->second;
    };
    if (text("kind") != "job" || !text("name").starts_with("t"))
      continue;
    const auto number = [&](const char* key) {
      return parse_int(text(key), 0, INT64_MAX).value_or(0);
    };
    Seen seen;
    seen.task = TaskId(
        static_cast<std::uint64_t>(parse_int(text("name").substr(1), 0, INT64_MAX).value_or(0)));
    for (const std::string& pid : split(text("pids"), ','))
      if (const auto p = parse_int(pid, 1, INT32_MAX))
        seen.pids.push_back(static_cast<int>(*p));
    seen.features = static_cast<std::uint64_t>(number("features"));
    seen.used_bytes = number("used");
    seen.refused = number("refused");
    if (text("phase") == "suspended")
      seen.asleep = asleep_text({static_cast<std::uint64_t>(number("arena")),
                                 static_cast<std::uint64_t>(number("memory")),
                                 static_cast<std::uint64_t>(number("file")), number("wake_ms")});
    out.push_back(std::move(seen));
  }
  return out;
}

void GpumemHost::end_if_idle() {
  if (!unavailable_.empty())
    return;
  if (const auto left = look())  // tasks that have just ended may still be registered
    for (const Seen& seen : *left)
      remove(seen.task);
  (void)gpumem::call_service(dir_ + "/admin", "stop", 2000);
  (void)::rmdir(dir_.c_str());
}

}  // namespace billow::agent
