// What a head cannot order, whatever the node's policy says: names and paths that an agent of root
// would follow, and variables that reach Billow's own programs.
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "agent/task/order_check.h"
#include "core/wire/confined.h"

namespace billow::agent {
namespace {

using wire::agent_v1::Start;

Start honest() {
  Start start;
  start.unix_user = "ana";
  start.owner = "ana";
  start.argv = {"true"};
  start.env = {{"PATH", "/bin"}, {"BILLOW_JOB_ID", "7"}, {"EMPTY", ""}};
  start.surroundings.secrets = {{.name = "key", .variable = "", .file = "/run/secrets/key"},
                                {.name = "HF_TOKEN", .variable = "HF_TOKEN", .file = ""}};
  start.secrets = {{.variable = "", .file = "/run/secrets/key", .value = "eA=="},
                   {.variable = "HF_TOKEN", .file = "", .value = "eA=="}};
  start.volumes = {{.source = "/srv", .path = "/mnt/srv", .read_only = true}};
  return start;
}

TEST(OrderCheck, AnHonestOrderPasses) {
  EXPECT_TRUE(check_order(honest()));
  Start missing = honest();
  missing.volumes.front().source = "/no-such-directory/data";
  EXPECT_TRUE(check_order(missing)) << "reported when it is mounted, with its path";
}

TEST(OrderCheck, NamesOfUsersAreOneShortLine) {
  for (const std::string& name :
       {std::string("a\nb"), std::string("ana\0", 4), std::string(300, 'a')}) {
    Start start = honest();
    start.unix_user = name;
    EXPECT_FALSE(check_order(start));
    start = honest();
    start.owner = name;
    EXPECT_FALSE(check_order(start));
    start = honest();
    start.env[wire::confined_variable] = name;
    EXPECT_FALSE(check_order(start));
  }
}

TEST(OrderCheck, AVariableIsOneVariable) {
  const std::pair<std::string, std::string> bad[] = {
      {"", "x"}, {"BILLOW_BOX_PLAN={}", ""}, {std::string("A\0B", 3), "x"}, {"A", {"x\0B=1", 5}}};
  for (const auto& [name, value] : bad) {
    Start start = honest();
    start.env[name] = value;
    EXPECT_FALSE(check_order(start)) << name;
  }
}

TEST(OrderCheck, ASecretIsWrittenNowhereElse) {
  for (const std::string name : {"", ".", "..", "../x", "a/b", "/etc/x"}) {
    Start start = honest();
    start.surroundings.secrets[0].name = name;
    EXPECT_FALSE(check_order(start)) << name;
  }
  for (const std::string file : {"", "x", "/", "/a/", "/a/..", "/../a", "/a/./b", "/proc/x",
                                 "//proc/x", "///dev//x", "/a\nb"}) {
    Start start = honest();
    start.secrets[0].file = file;
    EXPECT_FALSE(check_order(start)) << file;
  }
  Start more = honest();
  more.surroundings.secrets.pop_back();
  EXPECT_FALSE(check_order(more)) << "a secret that the job did not ask for";
}

TEST(OrderCheck, ASecretChangesNoProgramOfBillow) {
  for (const std::string variable : {"BILLOW_BOX_PLAN", "LD_PRELOAD", "A=B", "1A", "A B", ""}) {
    Start start = honest();
    start.secrets[1].variable = variable;
    EXPECT_FALSE(check_order(start)) << variable;
  }
}

TEST(OrderCheck, AVolumeIsADirectoryOfData) {
  for (const std::string source :
       {"", "srv", "/", "//", "/proc", "/proc/1", "/sys/fs", "/dev", "/dev/shm", "/run", "/srv/..",
        "/srv\n/x", "/proc/no-such-process"}) {
    Start start = honest();
    start.volumes[0].source = source;
    EXPECT_FALSE(check_order(start)) << source;
  }
  for (const std::string path : {"", "mnt", "/mnt/..", "/mnt/a\nb"}) {
    Start start = honest();
    start.volumes[0].path = path;
    EXPECT_FALSE(check_order(start)) << path;
  }
  // Only by its name: it has nothing to do with the processes.
  Start start = honest();
  start.volumes[0].source = "/processed";
  EXPECT_TRUE(check_order(start));
}

// The agent allocates, repeats or multiplies by each of them.
using Changes = std::vector<std::pair<const char*, std::function<void(Start&)>>>;

void expect_refused(const Changes& bad) {
  for (const auto& [name, change] : bad) {
    Start start = honest();
    change(start);
    EXPECT_FALSE(check_order(start)) << name;
  }
}

// A line for each.
// clang-format off
TEST(OrderCheck, NumbersAreBounded) {
  expect_refused({
      {"procs", [](Start& s) { s.procs = UINT32_MAX; }},
      {"no procs", [](Start& s) { s.procs = 0; }},
      {"processes", [](Start& s) { s.surroundings.processes_max = INT64_MAX; }},
      {"negative processes", [](Start& s) { s.surroundings.processes_max = -1; }},
      {"CPUs", [](Start& s) { s.cpu_milli = INT64_MAX; }},
      {"memory", [](Start& s) { s.mem_mib = std::int64_t{1} << 43; }},
      {"negative memory", [](Start& s) { s.mem_mib = -1; }},
      {"disk", [](Start& s) { s.disk_mib = std::int64_t{1} << 44; }},
      {"time limit", [](Start& s) { s.time_limit = {INT64_MAX}; }},
      {"grace", [](Start& s) { s.stop_grace = {INT64_MAX}; }},
      {"checkpoints", [](Start& s) { s.checkpoint_every = {INT64_MAX}; }},
      {"signal", [](Start& s) { s.checkpoint_signal = 65; }},
      {"task", [](Start& s) { s.task = TaskId(UINT64_MAX); }},
      {"a negative GPU", [](Start& s) { s.gpus = {{.gpu = -1}}; }},
      {"a share", [](Start& s) { s.gpus = {{.share = {.milli = INT32_MAX}}}; }},
      {"GPU memory", [](Start& s) { s.gpus = {{.share = {.mem_mib = INT64_MAX}}}; }},
      {"a log", [](Start& s) { s.env["BILLOW_LOG_BYTES"] = "9223372036854775807"; }},
  });
  Start most = honest();
  most.procs = 256;
  most.gpus.resize(64, {.gpu = 63, .share = {.milli = 1000}});
  most.time_limit = hours(24 * 366 * 10);
  most.stop_grace = hours(1);
  most.disk_mib = std::int64_t{1} << 40;
  most.surroundings.processes_max = 4'194'304;
  EXPECT_TRUE(check_order(most));
}

TEST(OrderCheck, ListsAndTextsAreBounded) {
  expect_refused({
      {"GPUs", [](Start& s) { s.gpus.resize(65); }},
      {"volumes", [](Start& s) { s.volumes.resize(65, s.volumes[0]); }},
      {"secrets",
       [](Start& s) {
         s.secrets.resize(65, s.secrets[0]);
         s.surroundings.secrets.resize(65, s.surroundings.secrets[0]);
       }},
      {"a secret", [](Start& s) { s.secrets[0].value.assign(100 << 10, 'A'); }},
      {"inputs", [](Start& s) { s.surroundings.inputs.resize(65); }},
      {"outputs", [](Start& s) { s.surroundings.outputs.resize(65); }},
      {"calls", [](Start& s) { s.surroundings.refused_calls.resize(257); }},
      {"a call", [](Start& s) { s.surroundings.refused_calls = {std::string(1 << 20, 'a')}; }},
      {"networks", [](Start& s) { s.surroundings.allow.resize(129); }},
      {"words", [](Start& s) { s.argv.resize(1 << 20); }},
      {"a hook", [](Start& s) { s.suspend_hook.assign(2 << 20, 'x'); }},
      {"a directory", [](Start& s) { s.cwd.assign(2 << 20, 'x'); }},
      {"variables", [](Start& s) { s.env["A"].assign(2 << 20, 'x'); }},
      {"addresses",
       [](Start& s) {
         s.gang = true;
         s.env["BILLOW_ADDRESSES"].assign(5000, ',');
       }},
      {"a tree", [](Start& s) { s.env["BILLOW_FILES"] = "x\nenvironment y"; }},
  });
}
// clang-format on

TEST(OrderCheck, ADigestIsADigest) {
  Start start = honest();
  start.surroundings.environment_digest = std::string(64, 'a');
  EXPECT_TRUE(check_order(start));
  for (const std::string& digest :
       {std::string("../../x"), std::string(64, '.'), std::string(63, 'a')}) {
    start.surroundings.environment_digest = digest;
    EXPECT_FALSE(check_order(start)) << digest;
  }
}

}  // namespace
}  // namespace billow::agent
