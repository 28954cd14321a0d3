// What stands in front of a job's command, outside its container: the job's variables do not reach
// Billow's own programs there, and nothing but the agent decides what of the node the job sees.
#include <gtest/gtest.h>

#include <algorithm>

#include "agent/content/containers.h"
#include "core/model/held_variables.h"
#include "core/wire/codec.h"
#include "core/wire/confined.h"

namespace billow::agent {
namespace {

using Variables = std::vector<std::string>;

TEST(HeldVariables, OnlyWhatBillowsProgramsReadKeepsItsName) {
  const Variables given = {"LD_PRELOAD=evil.so", "PATH=/bin", "AWS_REGION=x", "RANK=1", "A=b=c"};
  const Variables held = hold_variables(given);
  EXPECT_EQ(held, (Variables{"BILLOW_HELD_LD_PRELOAD=evil.so", "PATH=/bin", "AWS_REGION=x",
                             "RANK=1", "BILLOW_HELD_A=b=c"}));
  EXPECT_EQ(shown_variables(held), given);
}

TEST(HeldVariables, NamesThatLookHeldReplaceNothing) {
  EXPECT_EQ(shown_variables(hold_variables({"PATH=/bin", "BILLOW_HELD_PATH=/evil"})),
            Variables{"PATH=/bin"});
  EXPECT_EQ(shown_variables({"BILLOW_HELD_A=1", "BILLOW_HELD_A=2"}), Variables{"A=1"});
}

TEST(Containers, AnEnvironmentsContentShowsNothingOfTheNode) {
  net::Loop loop;
  Containers containers(loop, {.directory = testing::TempDir() + "/boxes"}, {});
  wire::agent_v1::Start start;
  start.unix_user = wire::strict_user_name;
  start.env[wire::confined_variable] = "ana";
  Containers::Prepared prepared;
  prepared.plan.root = prepared.plan.node_root = true;
  prepared.environment.variables = {
      {"BILLOW_CACHE", "/home"}, {"BILLOW_BOX_PLAN", "{}"}, {"LD_PRELOAD", "/etc/shadow"}};
  TaskSpec spec;
  spec.identity = Identity{70000, 70000, {}};
  spec.cwd = "/work";
  spec.env = {"BILLOW_HOSTFILE=/run/ours"};
  const std::vector<SecretFiles::Written> none;
  ASSERT_TRUE(containers.wrap_command(prepared, start, {}, {.secrets = none}, spec));
  const std::string name = std::string(container::plan_variable) + "=";
  const auto is_plan = [&](const std::string& one) {
    return one.starts_with(name);
  };
  ASSERT_EQ(std::ranges::count_if(spec.env, is_plan), 1);
  const auto plan = wire::from_json_text<container::Plan>(
      std::ranges::find_if(spec.env, is_plan)->substr(name.size()));
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->confined);
  std::vector<std::string> seen;
  for (const container::Mount& mount : plan->mounts)
    seen.push_back(mount.source);
  EXPECT_EQ(seen, (std::vector<std::string>{"/run/ours", "/work"}));
  EXPECT_EQ(std::ranges::count(spec.env, "BILLOW_CACHE=/home"), 0);
}

}  // namespace
}  // namespace billow::agent
