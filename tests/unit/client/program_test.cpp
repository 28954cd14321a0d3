// The program without any head: what it says about itself and about mistakes.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/file.h"
#include "child.h"
#include "client/frame/commands.h"

namespace billow::client::testing {
namespace {

struct Ran {
  int code;
  std::string out, err;
};
Ran run(std::vector<std::string> args,
        std::map<std::string, std::string> env = {{"BILLOW_DATA", "/nonexistent/billow"}}) {
  Child child(BILLOW_PROGRAM, std::move(args), env);
  const int code = child.wait();
  return {code, child.out, child.err};
}

TEST(Program, ReferenceInDocsIsCurrent) {
  const auto committed = read_file(std::string(BILLOW_SOURCE_ROOT) + "/docs/cli.md");
  ASSERT_TRUE(committed) << committed.error().message;
  EXPECT_EQ(run({"help", "--markdown"}).out, *committed)
      << "write it again: build/bin/billow help --markdown > docs/cli.md";
}

TEST(Program, TheSchemasOfAJobAreCurrent) {
  const auto committed = read_file(std::string(BILLOW_SOURCE_ROOT) + "/src/api/job_schemas.json");
  ASSERT_TRUE(committed) << committed.error().message;
  EXPECT_EQ(run({"help", "--job-schemas"}).out, *committed)
      << "write it again: build/bin/billow help --job-schemas > src/api/job_schemas.json";
}

TEST(Program, PackagedCompletionIsCurrent) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto committed =
        read_file(std::string(BILLOW_SOURCE_ROOT) + "/packaging/completion/billow." + shell);
    ASSERT_TRUE(committed) << committed.error().message;
    EXPECT_EQ(run({"completion", shell}).out, *committed)
        << "write it again: build/bin/billow completion " << shell
        << " > packaging/completion/billow." << shell;
  }
}

TEST(Program, SaysItsVersion) {
  EXPECT_EQ(run({"--version"}).out, std::string("billow ") + version() + "\n");
  EXPECT_EQ(run({"version", "--json"}).out, std::string("{\"version\":\"") + version() + "\"}\n");
}

TEST(Program, MistakesAreUsageErrors) {
  for (const auto& args :
       std::vector<std::vector<std::string>>{{"rnu"},
                                             {"run"},
                                             {"run", "--gpus"},
                                             {"run", "--gpus", "x", "--", "true"},
                                             {"logs"},
                                             {"logs", "a b"},
                                             {"wait", "-1"},
                                             {"schedule"},
                                             {"token", "create"},
                                             {"completion", "tcsh"},
                                             {"ps", "--limit", "0"},
                                             {"submit", "/no/such.toml"}}) {
    const Ran r = run(args);
    EXPECT_EQ(r.code, 2) << args[0] << ": " << r.err;
    EXPECT_TRUE(r.err.starts_with("billow: ")) << r.err;
    EXPECT_EQ(r.out, "");
  }
}

TEST(Program, EveryCommandHasHelp) {
  for (const CommandSpec& c : all_commands()) {
    std::vector<std::string> args = {c.name.substr(0, c.name.find(' '))};
    if (const auto space = c.name.find(' '); space != std::string::npos)
      args.push_back(c.name.substr(space + 1));
    args.push_back("--help");
    const Ran r = run(args);
    EXPECT_EQ(r.code, 0) << c.name;
    EXPECT_NE(r.out.find("example:"), std::string::npos) << c.name;
  }
}

TEST(Program, AGroupSaysWhatItHas) {
  const Ran r = run({"schedule", "--help"});
  EXPECT_EQ(r.code, 0);
  for (const char* name : {"schedule add", "schedule list", "schedule rm"})
    EXPECT_NE(r.out.find(name), std::string::npos);
}

TEST(Program, NoHeadIsExitCode69WithWhatToDo) {
  const Ran r = run({"ps"});
  EXPECT_EQ(r.code, 69);
  EXPECT_EQ(r.err,
            "billow: no head is running here (looked in /nonexistent/billow)\nhint: start one with "
            "`billow up`, or choose one with --head or BILLOW_HEAD\n");
}

TEST(Program, OptionsOfTheHeadMayComeFirst) {
  const Ran r = run({"--data", "/nonexistent/elsewhere", "ps"});
  EXPECT_NE(r.err.find("/nonexistent/elsewhere"), std::string::npos);
}

TEST(Program, ANamedHeadWithoutATokenIsRefusedBeforeItIsAsked) {
  const Ran r = run({"ps"}, {{"BILLOW_HEAD", "http://127.0.0.1:1"}});
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("BILLOW_TOKEN"), std::string::npos);
}

TEST(Program, AContextFileOthersCanReadIsRefused) {
  char name[] = "/tmp/billow-cli-test-XXXXXX";
  const std::string dir = ::mkdtemp(name);
  ASSERT_TRUE(make_directories(dir + "/billow"));
  ASSERT_TRUE(write_file_atomic(dir + "/billow/contexts.json",
                                R"({"http://127.0.0.1:1":{"token":"t"}})", 0644));
  const std::map<std::string, std::string> env = {{"BILLOW_HEAD", "http://127.0.0.1:1"},
                                                  {"XDG_CONFIG_HOME", dir}};
  EXPECT_NE(run({"ps"}, env).err.find("chmod 600"), std::string::npos);
  ASSERT_TRUE(write_file_atomic(dir + "/billow/contexts.json",
                                R"({"http://127.0.0.1:1":{"token":"t"}})", 0600));
  EXPECT_EQ(run({"ps"}, env).code, 69);
  (void)remove_tree(dir);
}

}  // namespace
}  // namespace billow::client::testing
