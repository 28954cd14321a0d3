#include "gpu/sim/sim_holders.h"

#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"

namespace billow {
namespace {

std::vector<std::string> fields_of(std::string_view line) {
  if (const auto hash = line.find('#'); hash != std::string_view::npos)
    line = line.substr(0, hash);
  std::vector<std::string> words;
  for (std::string& word : split(line, ' ')) {
    if (const auto text = trim(word); !text.empty())
      words.emplace_back(text);
  }
  return words;
}

std::string hold_path(const std::string& state_dir, std::string_view task) {
  return fmt::format("{}/hold/{}", state_dir, task);
}

}  // namespace

Status write_sim_hold(const std::string& state_dir,
                      std::string_view task,
                      const std::vector<SimHoldEntry>& entries) {
  BILLOW_TRY_VOID(check_name("task", task));
  std::string text;
  for (const SimHoldEntry& e : entries) {
    const std::string target = e.cgroup.empty() ? std::to_string(e.pid) : "cgroup:" + e.cgroup;
    if (target.find_first_of(" \n#") != std::string::npos)
      return fail(Code::invalid, fmt::format("\"{}\" cannot be written as a holder", target));
    text += fmt::format("{} {} {} {}", e.gpu, e.milli, e.mem_mib, target);
    if (e.gpu_instance >= 0)
      text += fmt::format(" gi={}", e.gpu_instance);
    text += '\n';
  }
  BILLOW_TRY_VOID(make_directories(state_dir + "/hold"));
  return write_file_atomic(hold_path(state_dir, task), text);
}

Status remove_sim_hold(const std::string& state_dir, std::string_view task) {
  BILLOW_TRY_VOID(check_name("task", task));
  const std::string path = hold_path(state_dir, task);
  if (unlink(path.c_str()) != 0 && errno != ENOENT)
    return fail_errno(path, errno);
  return {};
}

std::vector<SimHoldEntry> parse_sim_hold(std::string_view text) {
  std::vector<SimHoldEntry> entries;
  for (const std::string& line : split(text, '\n')) {
    const auto words = fields_of(line);
    if (words.size() < 4)
      continue;
    const auto gpu = parse_int(words[0], 0, 1023), milli = parse_int(words[1], 0, 1000),
               mem = parse_int(words[2], 0, 1 << 30);
    if (!gpu || !milli || !mem)
      continue;
    SimHoldEntry entry{
        static_cast<std::uint32_t>(*gpu), static_cast<std::int32_t>(*milli), *mem, 0, "", -1};
    if (words[3].starts_with("cgroup:/")) {
      entry.cgroup = words[3].substr(7);
    } else {
      const auto pid = parse_int(words[3], 1, 1 << 30);
      if (!pid)
        continue;
      entry.pid = *pid;
    }
    if (words.size() > 4 && words[4].starts_with("gi=")) {
      if (const auto gi = parse_int(std::string_view(words[4]).substr(3), 0, 1 << 20))
        entry.gpu_instance = *gi;
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

Result<SimFault> parse_sim_fault(std::string_view line) {
  const auto words = fields_of(line);
  const auto wrong = [&](const char* why) {
    return fail(
        Code::invalid, fmt::format("\"{}\" is no fault: {}", trim(line), why),
        "write: xid GPU CODE | lost GPU | hung GPU | ecc GPU COUNT | hot GPU | link GPU COUNT");
  };
  if (words.size() < 2)
    return wrong("too few words");
  SimFault fault;
  if (words[0] == "xid")
    fault.kind = SimFaultKind::xid;
  else if (words[0] == "lost")
    fault.kind = SimFaultKind::lost;
  else if (words[0] == "hung")
    fault.kind = SimFaultKind::hung;
  else if (words[0] == "ecc")
    fault.kind = SimFaultKind::ecc;
  else if (words[0] == "hot")
    fault.kind = SimFaultKind::hot;
  else if (words[0] == "link")
    fault.kind = SimFaultKind::link;
  else
    return wrong("unknown kind");
  const bool has_value = fault.kind == SimFaultKind::xid || fault.kind == SimFaultKind::ecc ||
                         fault.kind == SimFaultKind::link;
  if (words.size() != (has_value ? 3u : 2u))
    return wrong("wrong number of words");
  const auto gpu = parse_int(words[1], 0, 1023);
  if (!gpu)
    return wrong("the GPU is not a number");
  fault.gpu = static_cast<std::uint32_t>(*gpu);
  if (has_value) {
    const auto value = parse_int(words[2], 0, 1'000'000);
    if (!value)
      return wrong("the last word is not a number");
    fault.value = *value;
  }
  return fault;
}

}  // namespace billow
