// What a deployment changes, in the words of its options: every option that a program can lose is
// named with the value that would keep it.
#include <gtest/gtest.h>

#include <algorithm>

#include "client/endpoints/operation.h"
#include "client/endpoints/settings.h"
#include "client/request/job_request.h"
#include "core/wire/codec.h"

namespace billow::client {
namespace {

Json spec_of(const std::vector<std::pair<std::string, std::string>>& options) {
  JobRequest request;
  for (const auto& [name, value] : options)
    EXPECT_TRUE(set_option(request, name, value)) << name;
  return parse_json(wire::to_json_text(request.spec)).value_or(Json());
}
bool nothing_given(const std::string&) {
  return false;
}
std::vector<std::string> texts(const std::vector<SettingChange>& changes) {
  std::vector<std::string> out;
  for (const SettingChange& change : changes)
    out.push_back(change.text());
  return out;
}

// Each of these is lost if it is not given again, and the hint gives it back as it was typed.
TEST(Settings, EveryLostOptionIsNamedAsItWasTyped) {
  const std::vector<std::pair<std::string, std::string>> typed_options = {
      {"gpus", "2"},
      {"gpus", "0.25"},
      {"gpu-mem", "20G"},
      {"gpu-type", "H100,L4"},
      {"mig", "1g.10gb"},
      {"cpus", "0.5"},
      {"mem", "1500M"},
      {"disk", "500G"},
      {"region", "eu,us"},
      {"zone", "a"},
      {"pool", "spare"},
      {"max-price", "3.00"},
      {"image", "a/b:1"},
      {"volume", "data:/mnt/data:ro"},
      {"secret", "TOKEN"},
      {"secret", "TOKEN=HF_TOKEN"},
      {"node-label", "tier=gold"},
      {"label", "team=nlp"},
      {"priority", "5"},
      {"stop-grace", "30s"},
      {"procs", "2"},
      {"suspend-hook", "./save.sh"},
      {"max-processes", "99"},
  };
  for (const auto& [name, value] : typed_options) {
    const auto lost = changes_between(program_settings(spec_of({{name, value}})),
                                      program_settings(spec_of({})), nothing_given);
    const auto found =
        std::ranges::find(lost, name == "region" ? "regions" : name, &SettingChange::setting);
    ASSERT_NE(found, lost.end()) << name;
    EXPECT_EQ(found->after, "none") << name;
    if (name == "image")
      continue;  // its name is completed
    EXPECT_EQ(found->keep, "--" + (name == "region" ? "regions" : name) + " " + value);
  }
}

TEST(Settings, FlagsHaveNoValue) {
  const auto lost = changes_between(program_settings(spec_of({{"exclusive", ""}})),
                                    program_settings(spec_of({})), nothing_given);
  EXPECT_EQ(texts(lost),
            std::vector<std::string>{"exclusive: yes → none (give --exclusive to keep it)"});
}

TEST(Settings, SeveralValuesAreOneChange) {
  const auto changes =
      changes_between(program_settings(spec_of({{"volume", "a:/mnt/a"}, {"volume", "b:/mnt/b c"}})),
                      program_settings(spec_of({{"volume", "a:/mnt/a"}})), nothing_given);
  EXPECT_EQ(texts(changes),
            std::vector<std::string>{
                "volume: a:/mnt/a, b:/mnt/b c → a:/mnt/a (give --volume a:/mnt/a --volume "
                "'b:/mnt/b c' to keep it)"});
}

TEST(Settings, WhatIsGivenAndWhatIsNewNeedsNoHint) {
  const auto given = [](const std::string& option) {
    return option == "gpus";
  };
  EXPECT_EQ(
      texts(changes_between(program_settings(spec_of({{"gpus", "2"}})),
                            program_settings(spec_of({{"gpus", "1"}, {"mem", "4G"}})), given)),
      (std::vector<std::string>{"gpus: 2 → 1", "mem: none → 4G"}));
  EXPECT_TRUE(changes_between(program_settings(spec_of({{"gpus", "2"}})),
                              program_settings(spec_of({{"gpus", "2"}})), nothing_given)
                  .empty());
}

TEST(Settings, PoliciesAreComparedByTheirValues) {
  EndpointPolicy before, after;
  before.access = EndpointAccess::key;
  before.spot = true;
  before.max = after.max = 4;
  after.access = EndpointAccess::open;
  after.idle = seconds(90);
  const auto given = [](const std::string& option) {
    return option == "access" || option == "idle";
  };
  EXPECT_EQ(
      texts(changes_between(settings_of(before), settings_of(after), given)),
      (std::vector<std::string>{"access: key → open", "spot: yes → none (give --spot to keep it)",
                                "idle: 2m → 90s"}));
  constexpr std::string_view own_lines[] = {"access", "max"};
  EXPECT_EQ(settings_text(before), "--max 4, --spot");
  EXPECT_EQ(settings_text(after), "--access open, --max 4, --idle 90s");
  EXPECT_EQ(settings_text(after, own_lines), "--idle 90s");
}

TEST(Settings, LostVariablesAreNamedWithoutTheirValues) {
  EXPECT_FALSE(lost_variables({"HOME", "BILLOW_FILES"}, {{"HOME", "/root"}, {"NEW", "1"}}));
  EXPECT_EQ(lost_variables({"HOME", "MODEL"}, {{"HOME", "/root"}})->text(),
            "env-var: MODEL → none (give --env-var MODEL to keep it)");
  const auto many = lost_variables({"A", "B", "C", "D", "E", "F", "G"}, {});
  EXPECT_EQ(many->before, "A, B, C, D, E and 2 more");
}

// What `describe` prints as options is read back as the same policy.
TEST(Settings, TheTextOfAPolicyCanBeTyped) {
  EndpointPolicy policy;
  policy.access = EndpointAccess::key;
  policy.min = 1;
  policy.max = 9;
  policy.concurrency = 3;
  policy.idle = seconds(90);
  policy.keep_suspended = {};
  policy.wait_target = seconds(2);
  policy.queue_max = 7;
  policy.balance = EndpointBalance::pack;
  policy.scaling = {.min_at = {"Mon-Fri 08:00-18:00=2", "Sat 10:00-12:00=1"},
                    .spend_per_hour = NanoUsd{4'500'000'000},
                    .target_tokens = 4000,
                    .query = {"http://metrics.example.org:9090", "sum(queue) + 0", 2.5},
                    .predict = true};
  Parsed parsed;
  for (const Setting& setting : settings_of(policy))
    if (std::ranges::any_of(scaling_options(), [&](const OptionSpec& option) {
          return setting.option == option.name;
        }))
      for (const std::string& value : setting.values)
        parsed.add(setting.option, value);
  EndpointPolicy read;
  read.access = EndpointAccess::key;
  ASSERT_TRUE(read_scaling(parsed, read));
  EXPECT_EQ(read, policy);
  // `scale` sends exactly what was given.
  EndpointPolicy other;
  other.access = EndpointAccess::key;
  given_scaling(parsed, policy).apply(other);
  EXPECT_EQ(other, policy);
  Parsed one;
  one.add("idle", "90s");
  EXPECT_EQ(wire::to_json_text(given_scaling(one, policy)), R"({"idle_ns":90000000000})");
}

}  // namespace
}  // namespace billow::client
