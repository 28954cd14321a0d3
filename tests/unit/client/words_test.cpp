// What newcomers type, and what they read: hints for other programs' words, negative amounts,
// events in words.
#include <gtest/gtest.h>

#include "base/formats/utc.h"
#include "base/relative_time.h"
#include "client/fleet/event_line.h"
#include "client/frame/commands.h"
#include "client/frame/table.h"
#include "client/request/job_names.h"
#include "client/request/job_request.h"
#include "core/model/event.h"

namespace billow::client {
namespace {

const CommandTable& table() {
  static const CommandTable all = all_commands();
  return all;
}
const CommandSpec& command(std::string_view name) {
  for (const CommandSpec& c : table())
    if (c.name == name)
      return c;
  throw std::runtime_error("no command " + std::string(name));
}
std::string hint_for(const std::vector<std::string>& words) {
  const auto found = find_command(table(), words);
  return found ? "(found)" : found.error().hint;
}

TEST(Words, OfOtherProgramsLeadToOurs) {
  EXPECT_EQ(hint_for({"kill", "12"}), "use `billow stop`");
  EXPECT_EQ(hint_for({"jobs"}), "use `billow ps`");
  EXPECT_EQ(hint_for({"list"}), "use `billow ps`");
  EXPECT_EQ(hint_for({"squeue"}), "use `billow ps`");
  EXPECT_EQ(hint_for({"sbatch"}), "use `billow submit job.sh`: #SBATCH lines are translated");
  EXPECT_EQ(hint_for({"sumbit"}), "did you mean `billow submit`?")
      << "a slip of the finger still finds the nearest";
}

TEST(Words, NoSynonymHidesACommand) {
  for (const char* word : {"kill", "jobs", "list", "queue", "exec", "start", "history"})
    for (const CommandSpec& c : table())
      EXPECT_NE(c.name.substr(0, c.name.find(' ')), word);
}

TEST(Words, OptionsOfOtherProgramsLeadToOurs) {
  const auto up = parse(command("up"), {"--port", "8080"});
  ASSERT_FALSE(up);
  EXPECT_TRUE(up.error().hint.starts_with("use --listen ADDR: address of the API"))
      << up.error().hint;
  const auto run = parse(command("run"), {"--memory", "4G", "--", "true"});
  ASSERT_FALSE(run);
  EXPECT_TRUE(run.error().hint.starts_with("use --mem ")) << run.error().hint;
}

TEST(Words, AnOptionIsAcceptedByItsOldName) {
  for (const char* name : {"--life", "--expires"}) {
    const auto p = parse(command("token create"), {"ci", name, "30d"});
    ASSERT_TRUE(p) << p.error().message;
    EXPECT_EQ(p->get("expires"), "30d");
  }
  EXPECT_EQ(help_text(command("token create")).find("--life"), std::string::npos);
  EXPECT_FALSE(parse(command("token rotate"), {"3", "--life", "30d"})) << "it never had that name";
}

TEST(Words, ANegativeAmountIsAnAmount) {
  const auto p = parse(command("budget set"), {"--project", "default", "-5"});
  ASSERT_TRUE(p) << p.error().message;
  EXPECT_EQ(p->operands, std::vector<std::string>{"-5"});
  EXPECT_FALSE(parse(command("ps"), {"-5"})) << "where nothing is taken, it is still a mistake";
}

TEST(JobWords, AreNumbersOrNames) {
  for (const char* good : {"12", "12.3", "train", "train-2", "my.job", "2026-11-15"})
    EXPECT_TRUE(check_job_word(good)) << good;
  for (const char* bad : {"", "-1", "0", "12.", "a b", "a/b", "1.2.3"})
    EXPECT_FALSE(check_job_word(bad)) << bad;
}

Json event(const char* kind, Json body) {
  return Json::object({{"seq", 7},
                       {"at", "2026-11-15T16:28:33Z"},
                       {"kind", kind},
                       {"actor", "user:ana"},
                       {"event", std::move(body)}});
}

TEST(Events, APresetIsNotCalledASecret) {
  EventNames names;
  names.projects[1] = "vision";
  const auto set = [&](int project, const char* name) {
    return event_text(
        event("secret_set",
              Json::object({{"secret", Json::object({{"project", project}, {"name", name}})}})),
        names);
  };
  EXPECT_EQ(set(0, "preset.1.train"), "preset train of project vision was saved");
  EXPECT_EQ(set(1, "preset.1.train"), "secret preset.1.train of project vision was set");
  EXPECT_EQ(set(0, "ghcr"), "secret ghcr was set");
  EXPECT_EQ(
      event_text(event("secret_removed", Json::object({{"project", 0}, {"name", "preset.1.a.b"}})),
                 names),
      "preset a.b of project vision was removed");
}

TEST(Events, AreOneLineInWords) {
  EventNames names;
  names.nodes[1] = "box1";
  const WallTime at = utc_or_zero("2026-11-15T16:28:33Z"), now = at + minutes(5);
  const Json task = Json::object({{"id", 40},
                                  {"node", 1},
                                  {"rate", 1'000'000},
                                  {"gpus", Json(Json::Array{Json::object(), Json::object()})}});
  EXPECT_EQ(event_line(event("job_placed",
                             Json::object({{"job", 12}, {"tasks", Json(Json::Array{task})}})),
                       names, now),
            "     7        5 min ago, " + clock_or_date(at, now) +
                "  ana         job 12 placed on box1, 2 GPUs at $3.60/h per GPU");
  EXPECT_EQ(event_text(event("task_started", Json::object({{"task", 40}})), names),
            "job 12 on box1 started")
      << "the task is known from its placing";
  EXPECT_EQ(event_text(event("task_started", Json::object({{"task", 41}})), names),
            "task 41 started");
  EXPECT_EQ(event_text(event("job_ended", Json::object({{"job", 12},
                                                        {"state", "failed"},
                                                        {"exit", Json::object({{"code", 3}})},
                                                        {"reason", "it gave up"}})),
                       names),
            "job 12 failed, exit code 3: it gave up");
  EXPECT_EQ(event_text(event("node_unreachable", Json::object({{"node", 2}})), names),
            "node 2 does not answer");
  EXPECT_EQ(
      event_text(event("jobs_submitted",
                       Json::object(
                           {{"first", 3},
                            {"spec",
                             Json::object({{"name", "x"},
                                           {"argv", Json(Json::Array{"sh", "-c", "echo hi"})}})}})),
                 names),
      "job 3 (x) submitted: sh -c 'echo hi'");
}

TEST(Events, NameTheirJobAsTheHeadDoes) {
  EventNames names;
  Json ended = event(
      "task_ended",
      Json::object({{"task", 41}, {"exit", Json::object({{"code", 3}})}, {"cost", 20'000'000}}));
  ended.set("job", "2.3");
  ended.set("job_name", "sweep");
  EXPECT_EQ(event_text(ended, names), "job 2.3 (sweep) ended, exit code 3; cost $0.02");
  Json placed =
      event("job_placed",
            Json::object({{"job", 6},
                          {"tasks", Json(Json::Array{Json::object({{"id", 41}, {"node", 1}})})}}));
  placed.set("job", "2.3");
  EXPECT_EQ(event_text(placed, names), "job 2.3 placed on node 1");
}

TEST(Events, ThatRepeatThemselvesAreShort) {
  EventNames names;
  EXPECT_EQ(event_text(event("job_ended", Json::object({{"job", 1},
                                                        {"state", "failed"},
                                                        {"exit", Json::object({{"code", 3}})},
                                                        {"reason", "exit code 3"}})),
                       names),
            "job 1 failed: exit code 3");
}

TEST(Events, EveryKindHasASentence) {
  EventKinds::each([]<class Kind>() { EXPECT_TRUE(has_sentence(Kind::kind)) << Kind::kind; });
}

TEST(Events, OfAKindWithoutASentenceStillReadAsWords) {
  EventNames names;
  names.projects[1] = "vision";
  EXPECT_EQ(
      event_text(
          event("project_praised",
                Json::object({{"project", 1}, {"key", "team"}, {"value", "a"}, {"at_ns", 5}})),
          names),
      "project praised: vision, team, a");
  const std::string text = event_text(
      event("something_new", Json::object({{"deep", Json::object({{"er", Json::object()}})},
                                           {"list", Json(Json::Array{1, 2})},
                                           {"on", true}})),
      names);
  EXPECT_EQ(text, "something new: 2 list, on true");
  EXPECT_EQ(text.find('{'), std::string::npos);
}

TEST(Events, WithControlCharactersStayOnTheirLine) {
  EventNames names;
  EXPECT_EQ(
      event_text(event("job_ended",
                       Json::object({{"job", 1}, {"state", "stopped"}, {"reason", "a\nb\x1b[2J"}})),
                 names)
          .find_first_of("\n\x1b"),
      std::string::npos);
}

}  // namespace
}  // namespace billow::client
