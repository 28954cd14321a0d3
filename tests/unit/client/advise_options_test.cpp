// The advisor reads its options itself; what our table offers it must take.
#include <gtest/gtest.h>

#include <set>

#include "advise/commands.h"
#include "client/frame/commands.h"
#include "simulate/simulate.h"

namespace billow::client {
namespace {

TEST(AdviseCommands, OfferOnlyOptionsTheAdvisorTakes) {
  using Run =
      advise::CommandResult (*)(const std::vector<std::string>&, const advise::CommandContext&);
  const std::vector<std::pair<std::string, Run>> commands = {
      {"advise", advise::run_advise}, {"prices", advise::run_prices}, {"plan", advise::run_plan}};
  const std::set<std::string> ours = {"head", "data", "help"};
  for (const CommandSpec& c : all_commands())
    for (const auto& [name, run] : commands) {
      if (c.name != name)
        continue;
      for (const OptionSpec* o : options_of(c)) {
        if (ours.contains(o->name))
          continue;
        std::vector<std::string> args = {std::string("--") + o->name};
        if (o->value)
          args.emplace_back("1");
        args.emplace_back("--help");
        EXPECT_EQ(run(args, {}).exit_code, 0) << name << " --" << o->name;
      }
    }
}

TEST(SimulateCommands, OfferOnlyOptionsTheSimulatorTakes) {
  // An option it does not know is refused by name before anything is read.
  for (const CommandSpec& c : all_commands()) {
    if (!c.name.starts_with("simulate "))
      continue;
    for (const OptionSpec* o : options_of(c)) {
      if (std::string_view(o->name) == "help")
        continue;
      std::vector<std::string> args = {c.name.substr(9), std::string("--") + o->name};
      if (o->value)
        args.emplace_back("1");
      ::testing::internal::CaptureStderr();
      (void)sched::simulate_main(args);
      EXPECT_EQ(::testing::internal::GetCapturedStderr().find("unknown option"), std::string::npos)
          << c.name << " --" << o->name;
    }
  }
}

}  // namespace
}  // namespace billow::client
