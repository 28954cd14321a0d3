// top and watch. Without a terminal, or with --once, one picture is printed and that is all.
#include <unistd.h>

#include <cstdlib>

#include <fmt/format.h>

#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/values.h"
#include "client/request/job_names.h"
#include "client/top/shell.h"

namespace billow::client {
namespace {

constexpr OptionSpec top_options[] = {
    {"tab", 0, "TAB", "first tab: gpus (default), jobs, queue, endpoints or money", false,
     Completes::choice, "gpus,jobs,queue,endpoints,money"},
    {"once", 0, nullptr, "print once and exit"}};
constexpr OptionSpec watch_options[] = {{"once", 0, nullptr, "print once and exit"}};
constexpr const char* tab_names = "gpus,jobs,queue,endpoints,money";
constexpr int once_columns = 100, once_rows_max = 2000;

// UTF-8 unless the locale names something else. Without a locale the rest of this program writes
// UTF-8 too. The console of Linux has no braille.
bool terminal_has_utf8() {
  const char* term = std::getenv("TERM");
  if (term && std::string_view(term) == "linux")
    return false;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (!value || !*value)
      continue;
    const std::string locale = lower(value);
    if (locale == "c" || locale == "posix")
      return false;
    return locale.find('.') == std::string::npos || locale.find("utf-8") != std::string::npos ||
           locale.find("utf8") != std::string::npos;
  }
  return true;
}

bool on_a_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO) &&
         !(term && std::string_view(term) == "dumb");
}

// A screen with as many rows as its list needs, without the lines for keys.
std::string picture(top::State& state, int rows) {
  (void)top::update(state, top::Resize{{rows, state.size.cols}});
  const top::Screen screen = top::draw(state);
  std::string out;
  for (int row = 0; row + 1 < screen.canvas.size().rows; ++row) {
    const std::string line = row == 1 && state.pages.empty() ? "" : screen.canvas.line(row);
    if (!line.empty() || (!out.empty() && !out.ends_with("\n\n")))
      out += line + "\n";
  }
  while (out.ends_with("\n\n"))
    out.pop_back();
  return out;
}

int print_once(top::State state, const top::ShellOptions& options) {
  const Look look = look_at(STDOUT_FILENO);
  state.size = {24, look.columns ? static_cast<int>(look.columns) : once_columns};
  state.pane = false;
  const bool both = !state.watching && state.tab == top::Tab::gpus;
  auto seen = top::look_once(std::move(state), options);
  if (!seen)
    return report(seen.error());
  if (seen->watching) {
    print(picture(*seen, 30));
    return 0;
  }
  const auto rows_for = [&](std::size_t rows) {
    return static_cast<int>(std::min<std::size_t>(rows, once_rows_max)) + 6;
  };
  std::size_t cards = 1;
  for (const auto& [id, node] : seen->fleet.nodes)
    cards += std::max<std::size_t>(1, node.cards.size());
  print(picture(*seen, rows_for(both ? cards : cards + seen->fleet.jobs.size())));
  if (!both)
    return 0;
  // The jobs follow, without the header again.
  seen->tab = top::Tab::jobs;
  const std::string jobs = picture(*seen, rows_for(seen->fleet.jobs.size() + 1));
  const auto header = jobs.find('\n');
  print("\n" + std::string(trim(jobs.substr(header == std::string::npos ? 0 : header + 1))) + "\n");
  return 0;
}

// `farewell` is for the person who has left the screen.
int show(const Parsed& parsed, top::State state, const std::function<void()>& farewell = {}) {
  const top::ShellOptions options{connect_options(parsed), look_at(STDOUT_FILENO).colours};
  if (parsed.has("once") || !on_a_terminal())
    return print_once(std::move(state), options);
  const auto code = top::run_shell(std::move(state), options);
  const int exit_code = code ? *code : report(code.error());
  if (code && farewell)
    farewell();
  // A thread may wait for the head's next sign of life; the program does not.
  std::_Exit(exit_code);
}

top::State first_state() {
  top::State state;
  state.utf8 = terminal_has_utf8();
  state.now_ms = now().ns / 1'000'000;
  return state;
}

int cmd_top(const Parsed& parsed) {
  const auto tab = choice_option(parsed, "tab", "gpus", tab_names);
  if (!tab)
    return report_usage(tab.error());
  top::State state = first_state();
  const auto names = split(tab_names, ',');
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == *tab)
      state.tab = static_cast<top::Tab>(i);
  return show(parsed, std::move(state));
}

int cmd_watch(const Parsed& parsed) {
  const auto words = job_operands(parsed, "watch");
  if (!words)
    return report_usage(words.error());
  if (words->size() != 1)
    return report_usage({Code::invalid, "watch accepts one job", "for example: billow watch 12"});
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  const auto label = job_of(*client, words->front(), NameUse::look);
  if (!label)
    return report(label.error());
  const auto document = client->get(path_of_job(*label));
  if (!document)
    return report(document.error());
  top::State state = first_state();
  state.watching = true;
  state.pages.push_back({top::Page::Kind::watch,
                         {top::Subject::Kind::job, std::string((*document)["label"].str_or(*label)),
                          (*document)["id"].uint_or(0)}});
  return show(parsed, std::move(state), [&] {
    const auto job = client->get(path_of_job(*label));
    if (job && !(*job)["final"].bool_or(false))
      say(fmt::format("no longer watching; job {0} continues (`billow stop {0}` would end it)",
                      *label));
  });
}

}  // namespace

void add_top_commands(CommandTable& table) {
  table.push_back(
      {.name = "top",
       .summary = "watch GPUs, jobs, queue, endpoints and spending live",
       .example = "billow top\nbillow top --tab queue\nbillow top --once",
       .run = cmd_top,
       .details = "Keys: 1 to 5 or Tab choose a tab, arrows move the cursor, Enter describes the "
                  "row, l shows the job's log, w watches the job, s stops, z suspends and r "
                  "resumes it, d drains a GPU (D its node), / filters, o sorts, ? shows all keys, "
                  "q quits. Each change asks for confirmation. The mouse works on tabs, titles and "
                  "rows. NO_COLOR and a locale without UTF-8 (LC_ALL=C) are respected. Without a "
                  "terminal the screen is printed once.",
       .options = {top_options},
       .group = "machines",
       .prints_json = false});
  table.push_back(
      {.name = "watch",
       .summary = "watch one job: state, progress, GPU charts, cost and log",
       .example = "billow watch 12\nbillow watch train --once",
       .run = cmd_watch,
       .usage = "JOB",
       .details = "Progress comes from an array's elements, from a progress bar or counter in the "
                  "job's log (\"15%|###\", \"step 30/200\"), or from the time limit. Keys: "
                  "l log, Enter describe, s stop, z suspend, r resume, q quit.",
       .options = {watch_options},
       .operands = Operands::some,
       .completes = Completes::job,
       .group = "jobs",
       .prints_json = false});
}

}  // namespace billow::client
