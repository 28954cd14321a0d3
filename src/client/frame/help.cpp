// Help for a command, the overview, and the reference in docs/cli.md: three views of the option
// table.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "client/frame/command.h"

namespace billow::client {
namespace {

constexpr std::size_t help_column_max = 28;
constexpr std::size_t text_columns = 80;

// In the order in which users need them; other groups come last.
constexpr std::string_view group_order[] = {
    "jobs",         "endpoints",       "machines", "head", "people and access",
    "reservations", "money and advice"};

std::string heading_of(const OptionSpec& option) {
  std::string text = option.letter ? fmt::format("-{}, --{}", option.letter, option.name)
                                   : fmt::format("    --{}", option.name);
  if (option.value)
    text += fmt::format(" {}", option.value);
  return text;
}

// Words of `text` in lines of at most `columns`, each but the first behind `indent` spaces.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent) {
  std::string out;
  std::size_t column = 0;
  for (const std::string& word : split(text, ' ')) {
    if (column > 0 && column + 1 + word.size() > columns) {
      out += "\n" + std::string(indent, ' ');
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

std::string usage_line(const CommandSpec& c) {
  return fmt::format("billow {} [options]{}{}", c.name, c.usage.empty() ? "" : " ", c.usage);
}

std::string indented(std::string_view lines) {
  std::string out;
  for (const std::string& line : split(lines, '\n'))
    out += line.empty() ? "\n" : "  " + line + "\n";
  return out;
}

std::size_t rank_of(std::string_view group) {
  return static_cast<std::size_t>(std::ranges::find(group_order, group) - std::begin(group_order));
}

std::vector<const char*> groups_of(const std::vector<CommandSpec>& commands) {
  std::vector<const char*> groups;
  for (const CommandSpec& c : commands)
    if (std::none_of(groups.begin(), groups.end(),
                     [&](const char* g) { return std::string_view(g) == c.group; }))
      groups.push_back(c.group);
  std::ranges::stable_sort(groups, {}, rank_of);
  return groups;
}

// A line that does not end a sentence continues in the next.
std::vector<std::string> paragraphs(std::string_view text) {
  std::vector<std::string> out;
  bool goes_on = false;
  for (const std::string& line : split(text, '\n')) {
    if (goes_on)
      out.back() += " " + line;
    else
      out.push_back(line);
    goes_on = !line.empty() && std::string_view(".:!").find(line.back()) == std::string_view::npos;
  }
  return out;
}

std::string escaped_cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|')
      out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string help_text(const CommandSpec& c) {
  std::string out = fmt::format("billow {}: {}\n\nusage: {}\n", c.name, c.summary, usage_line(c));
  if (!c.details.empty()) {
    out += '\n';
    for (const std::string& paragraph : paragraphs(c.details))
      out += wrapped(paragraph, text_columns, 0) + "\n";
  }
  out += "\nexample:\n" + indented(c.example) + "\noptions:\n";
  std::size_t width = 0;
  for (const OptionSpec* o : options_of(c))
    width = std::max(width, std::min(heading_of(*o).size(), help_column_max));
  for (const OptionSpec* o : options_of(c)) {
    const std::string heading = heading_of(*o);
    const bool own_line = heading.size() > width;
    out += "  " + heading;
    out += own_line ? "\n" + std::string(width + 4, ' ')
                    : std::string(width - heading.size() + 2, ' ');
    out += wrapped(o->help, text_columns - width - 4, width + 4) + "\n";
  }
  return out;
}

namespace {

// What a week's work needs; the other commands are listed by name.
constexpr std::string_view everyday[] = {
    "run",      "submit",  "shell",  "attach", "ps",    "logs", "describe",     "explain",
    "wait",     "suspend", "resume", "stop",   "rerun", "cp",   "port-forward", "ssh",
    "env save", "nodes",   "top",    "status", "cost",  "up",   "down",         "docs"};

std::string every_command(const std::vector<CommandSpec>& commands) {
  std::string out;
  std::size_t width = 0;
  for (const CommandSpec& c : commands)
    width = std::max(width, c.name.size());
  for (const char* group : groups_of(commands)) {
    if (std::string_view(group) == internal_group)
      continue;
    out += fmt::format("\n{}:\n", *group ? group : "other");
    for (const CommandSpec& c : commands)
      if (std::string_view(c.group) == group)
        out += fmt::format("  {:<{}}  {}\n", c.name, width,
                           wrapped(c.summary, text_columns - width - 4, width + 4));
  }
  return out;
}

std::string everyday_commands(const std::vector<CommandSpec>& commands) {
  constexpr std::size_t width = 17;
  std::string out = "\nevery day:\n";
  for (const std::string_view name : everyday)
    for (const CommandSpec& c : commands)
      if (c.name == name)
        out += fmt::format("  {:<{}}  {}\n", c.name, width,
                           wrapped(c.summary, text_columns - width - 4, width + 4));
  out += "\nmore (`billow help --all` says what each does):\n";
  for (const char* group : groups_of(commands)) {
    if (std::string_view(group) == internal_group)
      continue;
    std::string names;
    std::vector<std::string> listed;
    for (const CommandSpec& c : commands) {
      const std::string first = c.name.substr(0, c.name.find(' '));
      if (std::string_view(c.group) != group || c.alias_of ||
          std::ranges::find(listed, first) != listed.end() ||
          std::ranges::find(everyday, c.name) != std::end(everyday))
        continue;
      names += (names.empty() ? "" : ", ") + first;
      listed.push_back(first);
    }
    if (!names.empty())
      out += fmt::format("  {:<{}}  {}\n", *group ? group : "other", width,
                         wrapped(names, text_columns - width - 4, width + 4));
  }
  return out;
}

}  // namespace

std::string overview_text(const std::vector<CommandSpec>& commands,
                          std::string_view version,
                          Overview how_much) {
  std::string out = fmt::format(
      "billow {}: your own GPU cloud, in one binary\n\nusage: billow COMMAND [options]\n\n"
      "first steps:\n"
      "  $ billow run --gpus 1 -- python train.py  # starts Billow if need be\n"
      "  $ billow shell --gpus 1                   # a terminal on a GPU\n"
      "  $ billow ps; billow logs -f JOB           # what runs, and what it writes\n"
      "  $ billow up --background --sim 8xH100     # to try it all without a GPU\n"
      "  $ billow dashboard                        # the same in a browser\n",
      version);
  out += how_much == Overview::all ? every_command(commands) : everyday_commands(commands);
  out += "\nRun `billow COMMAND --help` for details, `billow docs` for the manual.\n";
  return out;
}

namespace {

constexpr std::size_t shared_options_min = 10;  // a longer list is printed once
constexpr std::size_t shared_commands_min = 3;  // if this many commands have it

using OptionList = std::span<const OptionSpec>;

std::string option_table(const std::vector<const OptionSpec*>& options) {
  std::string out = "\n| option | effect |\n|---|---|\n";
  for (const OptionSpec* o : options)
    out +=
        fmt::format("| `{}` | {} |\n", escaped_cell(trim(heading_of(*o))), escaped_cell(o->help));
  return out;
}

// The options of jobs, which run, submit, shell and others share. Empty where no list is shared.
OptionList shared_options(const std::vector<CommandSpec>& commands) {
  for (const CommandSpec& c : commands)
    for (const OptionList& list : c.options) {
      if (list.size() < shared_options_min)
        continue;
      const auto users = std::ranges::count_if(commands, [&](const CommandSpec& other) {
        return !other.alias_of && std::ranges::any_of(other.options, [&](const OptionList& theirs) {
          return theirs.data() == list.data();
        });
      });
      if (users >= static_cast<std::ptrdiff_t>(shared_commands_min))
        return list;
    }
  return {};
}

std::string command_section(const CommandSpec& c, const OptionList& shared) {
  std::string out =
      fmt::format("\n### billow {}\n\n{}. Usage: `{}`\n", c.name, c.summary, usage_line(c));
  if (!c.details.empty())
    out += "\n" + c.details + "\n";
  if (c.alias_of)
    return out;
  std::vector<const OptionSpec*> own;
  std::vector<std::string> also;
  for (const OptionList& list : c.options) {
    if (!shared.empty() && list.data() == shared.data()) {
      also.emplace_back("the [job options](#job-options)");
      continue;
    }
    for (const OptionSpec& o : list)
      own.push_back(&o);
  }
  if (c.prints_json)
    also.emplace_back("`--json`");
  if (c.talks_to_head)
    also.emplace_back("`--head`, `--data`");
  if (!own.empty())
    out += option_table(own);
  if (!also.empty())
    out += fmt::format("\n{}: {}.\n", own.empty() ? "Options" : "Also", join(also, ", "));
  return out + fmt::format("\n```sh\n{}\n```\n", c.example);
}

}  // namespace

std::string markdown(const std::vector<CommandSpec>& commands) {
  const OptionList shared = shared_options(commands);
  std::string out =
      "# Command line\n\n`billow help --markdown` generates this page; a test compares it with the "
      "program.\n\n"
      "Exit codes: `run`, `shell`, `attach` and `wait` return the job's exit code (128 + signal if "
      "a signal ended it, 124 for its time limit).\n"
      "Otherwise 0 is success, 1 means refused or failed, 2 a mistake in the command line, 69 that "
      "no head answers.\n"
      "\n## Common options\n"
      "\nCommands take these where their section lists them; every command takes `--help`.\n";
  const CommandSpec common{.name = "", .summary = "", .example = ""};
  std::vector<const OptionSpec*> listed = options_of(common);
  std::erase_if(listed, [](const OptionSpec* o) { return std::string_view(o->name) == "help"; });
  out += option_table(listed);
  if (!shared.empty()) {
    out += "\n## Job options\n\nEvery command that creates jobs takes these.\n";
    std::vector<const OptionSpec*> options;
    for (const OptionSpec& o : shared)
      options.push_back(&o);
    out += option_table(options);
  }
  for (const char* group : groups_of(commands)) {
    std::string title = *group ? group : "other";
    title[0] = static_cast<char>(title[0] >= 'a' && title[0] <= 'z' ? title[0] - 32 : title[0]);
    out += fmt::format("\n## {}\n", title);
    for (const CommandSpec& c : commands)
      if (std::string_view(c.group) == group)
        out += command_section(c, shared);
  }
  return out;
}

}  // namespace billow::client
