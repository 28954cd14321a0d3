// What the dashboard's run form says is the same on the command line and in a job file is the same:
// each line of tests/web/run_forms.json is read by the programs that people give it to.
#include <gtest/gtest.h>

#include <cstdio>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "client/frame/command.h"
#include "client/request/job_request.h"
#include "core/wire/codec.h"

namespace billow::client {
namespace {

Json forms() {
  const auto text = read_file(std::string(BILLOW_SOURCE_ROOT) + "/tests/web/run_forms.json");
  EXPECT_TRUE(text);
  auto parsed = parse_json(text.value_or("{}"));
  EXPECT_TRUE(parsed);
  return parsed.value_or(Json());
}

// The words that a shell makes of a line.
std::vector<std::string> words_of(const std::string& line) {
  std::string out;
  FILE* shell = ::popen(("printf '%s\\n' " + line).c_str(), "r");
  for (int c; shell && (c = std::fgetc(shell)) != EOF;)
    out += static_cast<char>(c);
  if (shell)
    ::pclose(shell);
  std::vector<std::string> words = split(out, '\n');
  words.pop_back();
  return words;
}

// What the head would get, without asking it for names.
JobSpec spec_of(JobRequest request) {
  const Status completed = complete(request);
  EXPECT_TRUE(completed) << completed.error().message;
  for (const AfterText& after : request.after)
    request.spec.after.push_back({JobId{std::stoull(after.job)}, after.kind});
  if (!request.reservation.empty())
    request.spec.reservation = ReservationId{std::stoull(request.reservation)};
  return request.spec;
}

TEST(RunForms, TheCommandLineIsTheSameJob) {
  CommandSpec command;
  command.options = {job_options(), batch_options()};
  command.operands = Operands::command;
  const Json all = forms();
  EXPECT_GE(all.size(), 45u);
  for (const auto& [path, form] : all.members()) {
    SCOPED_TRACE(path + ": " + std::string(form["cli"].str_or("")));
    std::vector<std::string> words = words_of(std::string(form["cli"].str_or("")));
    ASSERT_GE(words.size(), 4u);
    const auto parsed = parse(command, {words.begin() + 2, words.end()});
    ASSERT_TRUE(parsed) << parsed.error().message;
    JobRequest request;
    request.spec.argv = parsed->operands;
    const Status set = set_options(request, *parsed);
    ASSERT_TRUE(set) << set.error().message;
    EXPECT_EQ(wire::to_json_text(spec_of(request)),
              wire::to_json_text(*wire::from_json_text<JobSpec>(form["spec"].dump(), true)));
  }
}

TEST(RunForms, TheJobFileIsTheSameJob) {
  const Json all = forms();
  for (const auto& [path, form] : all.members()) {
    SCOPED_TRACE(path + ": " + std::string(form["toml"].str_or("")));
    const auto request = parse_job_file(form["toml"].str_or(""), "job.toml", "/tmp");
    ASSERT_TRUE(request) << request.error().message;
    EXPECT_EQ(wire::to_json_text(spec_of(*request)),
              wire::to_json_text(*wire::from_json_text<JobSpec>(form["spec"].dump(), true)));
  }
}

}  // namespace
}  // namespace billow::client
