// A client that was built alone: what it has, and what it says of what it has not.
#include <gtest/gtest.h>

#include <set>

#include "child.h"
#include "client/frame/server_commands.h"

namespace billow::client::testing {
namespace {

struct Ran {
  int code;
  std::string out, err;
};
Ran run(std::vector<std::string> args) {
  Child child(BILLOW_CLIENT, std::move(args),
              {{"XDG_DATA_HOME", "/nonexistent"}, {"XDG_CONFIG_HOME", "/nonexistent"}});
  const int code = child.wait();
  return {code, child.out, child.err};
}

TEST(ClientOnly, KnowsTheNamesOfEveryCommandOfTheServer) {
  std::set<std::string> named, there;
  for (const std::string& name : server_command_names())
    named.insert(name);
  for (const CommandSpec& command : server_commands())
    there.insert(command.name);
  EXPECT_EQ(named, there);
}

TEST(ClientOnly, EveryCommandIsTheClientsOrTheServers) {
  std::set<std::string> both;
  for (const CommandSpec& command : client_commands())
    both.insert(command.name);
  for (const CommandSpec& command : server_commands())
    EXPECT_TRUE(both.insert(command.name).second) << command.name << " is in both";
  std::set<std::string> all;
  for (const CommandSpec& command : all_commands())
    all.insert(command.name);
  EXPECT_EQ(both, all);
}

TEST(ClientOnly, SaysWhereTheServersCommandsAre) {
  for (const std::string& name : server_command_names()) {
    std::vector<std::string> words = {name.substr(0, name.find(' '))};
    if (const auto space = name.find(' '); space != std::string::npos)
      words.push_back(name.substr(space + 1));
    const Ran r = run(words);
    EXPECT_EQ(r.code, 1) << name;
    EXPECT_EQ(r.err, "billow: this program is a client only; run `billow " + name +
                         "` on the head's machine (Linux)\n"
                         "hint: see `billow help` for the commands of a client\n");
  }
  EXPECT_EQ(run({"simulate"}).code, 1);
  EXPECT_EQ(run({"rnu"}).code, 2) << "a mistake is still one";
}

TEST(ClientOnly, ListsWhatItHas) {
  const std::string help = run({"help", "--all"}).out;
  for (const char* name : {"  run ", "  submit ", "  ps ", "  logs ", "  login ", "  cp ",
                           "  port-forward ", "  ssh ", "  top ", "  cost "})
    EXPECT_NE(help.find(name), std::string::npos) << name;
  for (const char* name : {"\n  up ", "\n  agent ", "\n  join ", "\n  store backup "})
    EXPECT_EQ(help.find(name), std::string::npos) << name;
  EXPECT_EQ(run({"version"}).out, std::string("billow ") + version() + " (client)\n");
}

TEST(ClientOnly, StartsNoHeadAndSaysToLogIn) {
  const Ran r = run({"run", "--", "true"});
  EXPECT_EQ(r.code, 69);
  EXPECT_NE(r.err.find("billow login https://HEAD:7070"), std::string::npos) << r.err;
  EXPECT_EQ(r.err.find("starting"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace billow::client::testing
