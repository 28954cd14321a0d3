// The spec: what the agent writes is what the supervisor reads, and nothing anyone could write
// makes it misbehave.
#include "supervise/spec.h"

#include <gtest/gtest.h>

#include "agent/isolate/task_spec.h"
#include "base/rng.h"

namespace billow {
namespace {

using supervise::Spec;

struct Decoded {
  std::vector<const char*> pointers;
  std::unique_ptr<Spec> spec = std::make_unique<Spec>();
  const char* wrong = nullptr;
};
Decoded decode(const std::string& bytes) {
  Decoded d;
  d.pointers.resize(supervise::spec_pointers_needed(bytes.size()));
  d.wrong = supervise::decode_spec(bytes.data(), bytes.size(), d.pointers.data(), d.pointers.size(),
                                   d.spec.get());
  return d;
}

agent::TaskSpec full_spec() {
  agent::TaskSpec s;
  s.argv = {"python3", "", "train.py", "--name=a b"};
  s.env = {"A=1", "B="};
  s.cwd = "/data";
  s.identity = agent::Identity{1000, 100, {100, 27}};
  s.umask = 077;
  s.terminal = agent::TerminalSize{50, 132};
  s.stdin_open = true;
  s.time_limit = seconds(60);
  s.paid_until = SteadyTime{12345};
  s.cgroup_v2 = "/sys/fs/cgroup/x";
  s.cgroups_v1 = {"/a", "/b"};
  s.cgroup_memory = "/b";
  s.cgroup_freezer_v1 = "/c";
  s.hide_devices = {"nvidia1", "dri/renderD129"};
  s.user_namespace = s.no_new_privs = true;
  s.resource_limits = {{7, 1024, 4096}};
  s.nice = -5;
  s.oom_score_adj = 100;
  s.refused_calls = 6;
  s.die_with_pid = 4711;
  return s;
}

TEST(Spec, ReadsBackWhatWasWritten) {
  const auto bytes = agent::encode_spec(full_spec());
  ASSERT_TRUE(bytes) << bytes.error().message;
  const Decoded d = decode(*bytes);
  ASSERT_EQ(d.wrong, nullptr);
  const Spec& s = *d.spec;
  ASSERT_EQ(s.argv_count, 4u);
  EXPECT_STREQ(s.argv[1], "");
  EXPECT_STREQ(s.argv[3], "--name=a b");
  EXPECT_EQ(s.argv[4], nullptr);
  EXPECT_STREQ(s.env[1], "B=");
  EXPECT_EQ(s.env[2], nullptr);
  EXPECT_STREQ(s.cwd, "/data");
  EXPECT_EQ(s.uid, 1000u);
  EXPECT_EQ(s.groups_count, 2u);
  EXPECT_EQ(s.groups[1], 27u);
  EXPECT_EQ(s.umask, 077u);
  EXPECT_TRUE(s.pty && s.stdin_open && s.user_namespace && s.no_new_privs);
  EXPECT_EQ(s.columns, 132);
  EXPECT_EQ(s.time_limit_ns, seconds(60).ns);
  EXPECT_EQ(s.paid_until_boot_ns, 12345);
  EXPECT_EQ(s.cgroups_v1_count, 2u);
  EXPECT_STREQ(s.cgroups_v1[1], "/b");
  EXPECT_STREQ(s.hide_devices[1], "dri/renderD129");
  EXPECT_EQ(s.rlimits[0].hard, 4096u);
  EXPECT_EQ(s.nice, -5);
  EXPECT_EQ(s.die_with_pid, 4711);
  EXPECT_EQ(s.refused_calls, 6u);
}

TEST(Spec, RefusesNonsenseInWordsForAUser) {
  agent::TaskSpec s = full_spec();
  s.argv.clear();
  EXPECT_FALSE(agent::encode_spec(s));
  s = full_spec();
  s.cwd = "relative";
  EXPECT_FALSE(agent::encode_spec(s));
  s = full_spec();
  s.env = {"NOEQUALS"};
  EXPECT_FALSE(agent::encode_spec(s));
  s = full_spec();
  s.argv.push_back(std::string("a\0b", 3));
  EXPECT_FALSE(agent::encode_spec(s));
  s = full_spec();
  s.hide_devices = {"../etc/shadow"};
  EXPECT_FALSE(agent::encode_spec(s));
  for (const char* upwards : {"/tmp/..", "/tmp/../etc", "/tmp/..x/../y"}) {
    s = full_spec();
    s.shown = {upwards};
    EXPECT_FALSE(agent::encode_spec(s)) << upwards;
  }
  s.shown = {"/tmp/..data/x", "/tmp/...", "/tmp/..x/..y"};
  EXPECT_TRUE(agent::encode_spec(s));
  s = full_spec();
  s.argv.push_back(std::string(supervise::spec_bytes_max, 'x'));
  EXPECT_EQ(agent::encode_spec(s).error().code, Code::too_large);
}

TEST(Spec, SkipsTagsOfANewerAgent) {
  std::string bytes = *agent::encode_spec(full_spec());
  const supervise::SpecEntry unknown{999, 0, 3};
  bytes.append(reinterpret_cast<const char*>(&unknown), sizeof(unknown)).append("xyz");
  const std::uint32_t size = static_cast<std::uint32_t>(bytes.size());
  std::memcpy(bytes.data() + offsetof(supervise::SpecHeader, bytes), &size, sizeof(size));
  EXPECT_EQ(decode(bytes).wrong, nullptr);
}

// Every accepted mutation must still be safe to use: pointers inside the buffer and strings that
// end there.
TEST(Spec, SurvivesMutations) {
  const std::string good = *agent::encode_spec(full_spec());
  int accepted = 0;
  for (std::uint64_t seed = 1; seed <= 20000; ++seed) {
    Rng rng(seed);
    std::string bytes = good;
    const int edits = static_cast<int>(rng.below(4)) + 1;
    for (int i = 0; i < edits; ++i) {
      switch (rng.below(4)) {
        case 0:
          bytes[rng.below(bytes.size())] = static_cast<char>(rng.next());
          break;
        case 1:
          bytes.resize(rng.below(bytes.size()) + 1);
          break;
        case 2:
          bytes.insert(rng.below(bytes.size()),
                       std::string(rng.below(16) + 1, static_cast<char>(rng.next())));
          break;
        default: {
          const std::uint32_t value = static_cast<std::uint32_t>(rng.next());
          if (bytes.size() >= 4)
            std::memcpy(bytes.data() + rng.below(bytes.size() - 3), &value, 4);
        }
      }
    }
    if (rng.chance(0.7) && bytes.size() >= sizeof(supervise::SpecHeader)) {
      const std::uint32_t size = static_cast<std::uint32_t>(bytes.size());
      std::memcpy(bytes.data() + offsetof(supervise::SpecHeader, bytes), &size, sizeof(size));
    }
    const Decoded d = decode(bytes);
    if (d.wrong != nullptr)
      continue;
    ++accepted;
    auto inside = [&](const char* s) {
      return s >= bytes.data() && s + std::strlen(s) < bytes.data() + bytes.size();
    };
    for (const char** a = d.spec->argv; *a != nullptr; ++a)
      ASSERT_TRUE(inside(*a)) << "seed " << seed;
    for (const char** e = d.spec->env; *e != nullptr; ++e)
      ASSERT_TRUE(inside(*e)) << "seed " << seed;
    for (std::uint32_t i = 0; i < d.spec->cgroups_v1_count; ++i)
      ASSERT_TRUE(inside(d.spec->cgroups_v1[i])) << "seed " << seed;
    ASSERT_LE(d.spec->groups_count, supervise::spec_groups_max);
  }
  EXPECT_GT(accepted, 100);  // or the test would prove nothing
}

}  // namespace
}  // namespace billow
