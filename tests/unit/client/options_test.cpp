#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>

#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/table.h"

namespace billow::client {
namespace {

const CommandSpec& command(std::string_view name) {
  static const CommandTable table = all_commands();
  for (const CommandSpec& c : table)
    if (c.name == name)
      return c;
  throw std::runtime_error("no command " + std::string(name));
}

TEST(Options, AreReadInEveryUsualForm) {
  const auto p = parse(command("submit"), {"--gpus", "2", "--mem=4G", "-n", "x", "-lk=v", "--label",
                                           "a=b", "--spot", "python", "--gpus", "9"});
  ASSERT_TRUE(p) << p.error().message;
  EXPECT_EQ(p->get("gpus"), "2");
  EXPECT_EQ(p->get("mem"), "4G");
  EXPECT_EQ(p->get("name"), "x");
  EXPECT_EQ(p->all("label"), (std::vector<std::string>{"k=v", "a=b"}));
  EXPECT_TRUE(p->has("spot"));
  EXPECT_EQ(p->operands, (std::vector<std::string>{"python", "--gpus", "9"}))
      << "what follows the command belongs to it";
}

TEST(Options, DashesEndThem) {
  const auto p = parse(command("run"), {"--gpus", "1", "--", "--odd", "-x"});
  ASSERT_TRUE(p);
  EXPECT_TRUE(p->after_dashes);
  EXPECT_EQ(p->operands, (std::vector<std::string>{"--odd", "-x"}));
}

TEST(Options, MayFollowAJobFile) {
  const auto p = parse(command("submit"), {"job.toml", "--gpus", "2"});
  ASSERT_TRUE(p);
  EXPECT_EQ(p->operands, (std::vector<std::string>{"job.toml"}));
  EXPECT_EQ(p->get("gpus"), "2");
}

TEST(Options, UnknownOnesNameTheNearest) {
  const auto p = parse(command("run"), {"--gpu-tpye", "H100", "--", "true"});
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error().message, "run has no option --gpu-tpye");
  EXPECT_EQ(p.error().hint, "did you mean --gpu-type?");
}

TEST(Options, MistakesAreRefused) {
  EXPECT_FALSE(parse(command("run"), {"--gpus"})) << "a value is missing";
  EXPECT_FALSE(parse(command("run"), {"--spot=yes", "--", "true"})) << "a switch takes no value";
  EXPECT_FALSE(parse(command("run"), {"--gpus", "1", "--gpus", "2", "--", "true"}))
      << "given twice";
  EXPECT_FALSE(parse(command("ps"), {"extra"})) << "takes no argument";
  EXPECT_FALSE(parse(command("ps"), {"-Z"}));
}

TEST(Options, JoinedSwitchesWork) {
  const auto p = parse(command("ps"), {"-aq"});
  ASSERT_TRUE(p);
  EXPECT_TRUE(p->has("all"));
  EXPECT_TRUE(p->has("quiet"));
}

TEST(Commands, AreFoundByOneOrTwoWords) {
  const CommandTable table = all_commands();
  EXPECT_EQ(find_command(table, {"schedule", "add", "x"})->words, 2u);
  EXPECT_EQ(find_command(table, {"run"})->command->name, "run");
  const auto typo = find_command(table, {"sumbit"});
  ASSERT_FALSE(typo);
  EXPECT_EQ(typo.error().hint, "did you mean `billow submit`?");
  EXPECT_EQ(find_command(table, {"rnu"}).error().hint, "did you mean `billow run`?");
  const auto half = find_command(table, {"schedule"});
  ASSERT_FALSE(half);
  EXPECT_NE(half.error().message.find("add, list, rm"), std::string::npos);
  EXPECT_EQ(find_command(table, {"token", "revok"}).error().hint,
            "did you mean `billow token revoke`?");
}

TEST(Commands, AllHaveASummaryAnExampleAndHelp) {
  std::set<std::string> names;
  for (const CommandSpec& c : all_commands()) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name << " is there twice";
    EXPECT_FALSE(c.summary.empty()) << c.name;
    EXPECT_TRUE(c.example.starts_with("billow ") || c.example.starts_with("$ ")) << c.name;
    EXPECT_TRUE(c.run || c.run_args) << c.name;
    const std::string help = help_text(c);
    EXPECT_NE(help.find("example:"), std::string::npos) << c.name;
    EXPECT_NE(help.find("usage: billow " + c.name), std::string::npos) << c.name;
  }
}

TEST(Commands, TheOverviewFitsATerminalAndBeginsWithWhatIsNeededFirst) {
  const std::string text = overview_text(all_commands(), "1", Overview::all);
  for (const std::string& line : split(text, '\n'))
    EXPECT_LE(display_width(line), 80u) << line;
  std::size_t last = 0;
  for (const char* heading : {"\nfirst steps:", "\njobs:", "\nendpoints:", "\nhead:",
                              "\nmoney and advice:", "\nother:"}) {
    const std::size_t at = text.find(heading);
    ASSERT_NE(at, std::string::npos) << heading;
    EXPECT_GE(at, last) << heading;
    last = at;
  }
}

TEST(Commands, TheShortOverviewFitsTwoScreensAndLeavesNoCommandOut) {
  const std::string text = overview_text(all_commands(), "1", Overview::everyday);
  const auto lines = split(text, '\n');
  EXPECT_LE(lines.size(), 60u);
  for (const std::string& line : lines)
    EXPECT_LE(display_width(line), 80u) << line;
  for (const CommandSpec& c : all_commands()) {
    if (c.alias_of || std::string_view(c.group) == internal_group)
      continue;
    EXPECT_NE(text.find(c.name.substr(0, c.name.find(' '))), std::string::npos) << c.name;
  }
}

TEST(Commands, NoOptionIsThereTwice) {
  for (const CommandSpec& c : all_commands()) {
    std::set<std::string> seen;
    for (const OptionSpec* o : options_of(c)) {
      EXPECT_TRUE(seen.insert(o->name).second) << c.name << " --" << o->name;
      if (!o->letter)
        continue;
      EXPECT_TRUE(seen.insert(std::string(1, o->letter)).second) << c.name << " -" << o->letter;
    }
  }
}

TEST(Completion, MentionsEveryCommandAndOption) {
  const CommandTable table = all_commands();
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = completion_script(table, shell);
    ASSERT_TRUE(script);
    for (const CommandSpec& c : table) {
      const auto space = c.name.find(' ');
      EXPECT_NE(script->find(c.name.substr(space == std::string::npos ? 0 : space + 1)),
                std::string::npos)
          << shell << " " << c.name;
      for (const OptionSpec* o : options_of(c))
        EXPECT_NE(script->find(o->name), std::string::npos)
            << shell << " " << c.name << " " << o->name;
    }
  }
  EXPECT_FALSE(completion_script(table, "tcsh"));
}

TEST(Options, AnyWordsParseOrAreRefused) {
  rc::check([](const std::vector<std::string>& words) {
    for (const char* name : {"run", "submit", "ps", "stop", "token create"})
      (void)parse(command(name), words);
  });
  rc::check([] {
    const auto words = *rc::gen::container<std::vector<std::string>>(
        rc::gen::element<std::string>("--gpus", "-g", "--label", "k=v", "--", "-", "--spot", "--x",
                                      "", "-fq", "--mem=", "12", "a.toml"));
    for (const char* name : {"run", "submit", "ps", "stop"}) {
      const auto p = parse(command(name), words);
      if (!p)
        RC_ASSERT(!p.error().message.empty());
    }
  });
}

}  // namespace
}  // namespace billow::client
