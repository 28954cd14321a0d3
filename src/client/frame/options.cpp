// Parsing by the option table. The grammar is the usual one: --name value, --name=value, -x value,
// -xVALUE, switches that may be joined (-qf), and "--" after which nothing is an option.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "client/frame/command.h"
#include "client/frame/slurm.h"

namespace billow::client {
namespace {

constexpr OptionSpec help_option[] = {{"help", 'h', nullptr, "show this help"}};
constexpr OptionSpec head_option_table[] = {
    {"head", 0, "URL", "head to use: http://host:port, https://… or unix:/path (BILLOW_HEAD)"},
    {"data", 0, "DIR", "data directory of the local head (BILLOW_DATA)", false,
     Completes::directory},
};
constexpr OptionSpec json_option_table[] = {{"json", 0, nullptr, "print JSON"}};

// Names from other programs, and what they are called here.
struct Synonym {
  std::string_view typed, ours;
};
constexpr Synonym command_synonyms[] = {
    {"kill", "stop"},       {"rm", "stop"},
    {"jobs", "ps"},         {"list", "ps"},
    {"ls", "ps"},           {"queue", "ps"},
    {"history", "ps -a"},   {"exec", "ssh"},
    {"start", "up"},        {"serve", "up"},
    {"server", "up"},       {"shutdown", "down"},
    {"tail", "logs -f"},    {"why", "explain"},
    {"log", "logs"},        {"notices", "events"},
    {"info", "status"},     {"whoami", "status"},
    {"usage", "cost"},      {"spend", "cost"},
    {"ui", "dashboard"},    {"forward", "port-forward"},
    {"undeploy", "delete"}, {"recommend", "advise"},
    {"advice", "advise"},   {"advisor", "advise"},
};
constexpr Synonym option_synonyms[] = {
    {"port", "listen"},       {"bind", "listen"},   {"host", "listen"},   {"address", "listen"},
    {"gpu", "gpus"},          {"num-gpus", "gpus"}, {"cpu", "cpus"},      {"memory", "mem"},
    {"ram", "mem"},           {"timeout", "time"},  {"walltime", "time"}, {"workdir", "cwd"},
    {"output-dir", "output"}, {"gpus", "max-gpus"},
};

// Options that had another name in an earlier version. They are accepted and no longer shown.
struct Renamed {
  std::string_view command, was, now;
};
constexpr Renamed renamed_options[] = {
    {"token create", "life", "expires"},
    {"auth add", "life", "expires"},
};

struct OptionTable {
  const CommandSpec& command;
  std::vector<const OptionSpec*> options;

  const OptionSpec* by_name(std::string_view name) const {
    for (const Renamed& r : renamed_options)
      if (name == r.was && command.name == r.command)
        name = r.now;
    for (const OptionSpec* o : options)
      if (name == o->name)
        return o;
    return nullptr;
  }
  const OptionSpec* by_letter(char letter) const {
    for (const OptionSpec* o : options)
      if (letter == o->letter)
        return o;
    return nullptr;
  }
  // What Slurm's option of that name is called here, if the command describes a job.
  std::string from_slurm(std::string_view typed, std::string_view value) const {
    const auto meaning =
        by_name("gpus") && by_name("nodes") ? slurm_option(typed, value) : std::nullopt;
    if (!meaning)
      return {};
    const std::string slurm = fmt::format("Slurm's {}", typed);
    if (meaning->words.empty())
      return fmt::format("{}: {}", slurm, meaning->note);
    if (!by_name(std::string_view(meaning->words.front()).substr(2)))
      return fmt::format("`billow {}` starts one job and shows it; use `billow submit {} …`",
                         command.name, shell_join(meaning->words));
    return fmt::format("{}: use {}{}", slurm, shell_join(meaning->words),
                       meaning->note.empty() ? "" : fmt::format(" ({})", meaning->note));
  }
  std::unexpected<Error> unknown(std::string_view typed, std::string_view value = {}) const {
    std::vector<std::string> names;
    for (const OptionSpec* o : options)
      names.emplace_back(o->name);
    const std::string_view word = typed.substr(std::min<std::size_t>(2, typed.size()));
    for (const Synonym& s : option_synonyms)
      if (word == s.typed)
        if (const OptionSpec* o = by_name(s.ours))
          return fail(Code::invalid, fmt::format("{} has no option {}", command.name, typed),
                      fmt::format("use --{}{}{}: {}", o->name, o->value ? " " : "",
                                  o->value ? o->value : "", o->help));
    if (std::string hint = from_slurm(typed, value); !hint.empty())
      return fail(Code::invalid, fmt::format("{} has no option {}", command.name, typed),
                  std::move(hint));
    const std::string near = nearest(word, names);
    return fail(Code::invalid, fmt::format("{} has no option {}", command.name, typed),
                near.empty() ? fmt::format("see `billow {} --help`", command.name)
                             : fmt::format("did you mean --{}?", near));
  }
};

struct Words {
  const std::vector<std::string>& args;
  std::size_t at = 0;
  bool more() const { return at < args.size(); }
  const std::string& next() { return args[at++]; }
  // The next word where it can be the value of an unknown option.
  std::string_view value() const {
    return more() && !args[at].starts_with('-') ? std::string_view(args[at]) : std::string_view();
  }
};

Status take_value(const OptionSpec& option, std::string_view shown, Words& words, Parsed& parsed) {
  if (!words.more())
    return fail(Code::invalid, fmt::format("{} needs a value: {} {}", shown, shown, option.value));
  parsed.add(option.name, words.next());
  return {};
}

Status take_long(const OptionTable& table, const std::string& word, Words& words, Parsed& parsed) {
  const auto equals = word.find('=');
  const std::string typed = word.substr(0, equals);
  const OptionSpec* option = table.by_name(std::string_view(typed).substr(2));
  if (!option)
    return table.unknown(typed, equals != std::string::npos
                                    ? std::string_view(word).substr(equals + 1)
                                : slurm_takes_value(typed) ? words.value()
                                                           : std::string_view());
  if (!option->value) {
    if (equals != std::string::npos)
      return fail(Code::invalid, fmt::format("{} takes no value", typed));
    parsed.add(option->name, "");
    return {};
  }
  if (equals == std::string::npos)
    return take_value(*option, typed, words, parsed);
  parsed.add(option->name, word.substr(equals + 1));
  return {};
}

Status take_letters(const OptionTable& table,
                    const std::string& word,
                    Words& words,
                    Parsed& parsed) {
  for (std::size_t i = 1; i < word.size(); ++i) {
    const std::string shown = std::string("-") + word[i];
    const OptionSpec* option = table.by_letter(word[i]);
    if (!option)
      return table.unknown(shown, i + 1 < word.size()        ? std::string_view(word).substr(i + 1)
                                  : slurm_takes_value(shown) ? words.value()
                                                             : std::string_view());
    if (!option->value) {
      parsed.add(option->name, "");
      continue;
    }
    if (i + 1 == word.size())
      return take_value(*option, shown, words, parsed);
    parsed.add(option->name, word.substr(i + 1));
    return {};
  }
  return {};
}

// "-5" is an amount that is too small, not an unknown switch.
bool is_negative(std::string_view word) {
  return word.size() > 1 &&
         ((word[1] >= '0' && word[1] <= '9') || (word[1] == '$' || word[1] == '.'));
}

bool ends_options(Operands operands, std::string_view word) {
  switch (operands) {
    case Operands::none:
    case Operands::some:
      return false;
    case Operands::command:
      return true;
    case Operands::command_or_file:
      return !word.ends_with(".toml");
  }
  return false;
}

}  // namespace

std::vector<const OptionSpec*> options_of(const CommandSpec& command) {
  std::vector<const OptionSpec*> all;
  const auto add = [&](std::span<const OptionSpec> options) {
    for (const OptionSpec& o : options)
      all.push_back(&o);
  };
  for (const auto& options : command.options)
    add(options);
  if (command.prints_json)
    add(json_option_table);
  if (command.talks_to_head)
    add(head_option_table);
  add(help_option);
  return all;
}

std::string Parsed::get(std::string_view name, std::string_view fallback) const {
  const auto found = values_.find(name);
  return std::string(found == values_.end() ? fallback : std::string_view(found->second.back()));
}

std::vector<std::string> Parsed::all(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>{} : found->second;
}

Result<Parsed> parse(const CommandSpec& command, const std::vector<std::string>& args) {
  Parsed parsed;
  const OptionTable table{command, options_of(command)};
  Words words{args};
  while (words.more()) {
    const std::string& word = words.next();
    if (word == "--") {
      parsed.after_dashes = true;
      while (words.more())
        parsed.operands.push_back(words.next());
    } else if (word.starts_with("--")) {
      BILLOW_TRY_VOID(take_long(table, word, words, parsed));
    } else if (word.size() > 1 && word[0] == '-' &&
               !(command.operands == Operands::some && is_negative(word) &&
                 !table.by_letter(word[1]))) {
      BILLOW_TRY_VOID(take_letters(table, word, words, parsed));
    } else {
      parsed.operands.push_back(word);
      if (ends_options(command.operands, word))
        while (words.more())
          parsed.operands.push_back(words.next());
    }
  }
  parsed.help = parsed.has("help");
  if (parsed.help)
    return parsed;
  for (const OptionSpec* o : table.options)
    if (o->value && !o->repeats && parsed.all(o->name).size() > 1)
      return fail(Code::invalid,
                  fmt::format("--{} was given more than once: {}", o->name,
                              join(parsed.all(o->name), ", ")),
                  "omit one of them");
  if (command.operands == Operands::none && !parsed.operands.empty())
    return fail(Code::invalid,
                fmt::format("{} takes no argument \"{}\"", command.name, parsed.operands.front()),
                fmt::format("see `billow {} --help`", command.name));
  return parsed;
}

// `billow node list`: what the subcommands are, and the command that a plural may stand for.
static std::string subcommands_hint(const std::vector<CommandSpec>& commands,
                                    const std::string& first,
                                    const std::vector<std::string>& seconds,
                                    bool named) {
  const bool plural = std::any_of(commands.begin(), commands.end(),
                                  [&](const CommandSpec& c) { return c.name == first + "s"; });
  const std::string see = fmt::format("see `billow {} {} --help`", first, seconds.front());
  if (named)
    return see;
  return fmt::format("{} has: {}{}", first, join(seconds, ", "),
                     plural ? fmt::format("; see also `billow {}s`", first) : "");
}

Result<Found> find_command(const std::vector<CommandSpec>& commands,
                           const std::vector<std::string>& args) {
  const std::string first = args.empty() ? "help" : args[0];
  for (const CommandSpec& c : commands) {  // of two words first: `reserve list` is not `reserve`
    if (args.size() > 1 && c.name.size() == first.size() + 1 + args[1].size() &&
        c.name.starts_with(first) && c.name.ends_with(args[1]) && c.name[first.size()] == ' ')
      return Found{&c, 2};
  }
  for (const CommandSpec& c : commands)
    if (c.name == first)
      return Found{&c, args.empty() ? 0u : 1u};
  std::vector<std::string> seconds;
  for (const CommandSpec& c : commands)
    if (c.name.starts_with(first + " "))
      seconds.push_back(c.name.substr(first.size() + 1));
  if (!seconds.empty()) {
    const bool asks =
        args.size() < 2 || args[1] == "--help" || args[1] == "-h" || args[1] == "help";
    const std::string near = asks ? "" : nearest(args[1], seconds);
    return fail(Code::invalid,
                asks ? fmt::format("{} needs a subcommand: {}", first, join(seconds, ", "))
                     : fmt::format("there is no command \"{} {}\"", first, args[1]),
                near.empty() ? subcommands_hint(commands, first, seconds, asks)
                             : fmt::format("did you mean `billow {} {}`?", first, near));
  }
  std::vector<std::string> names;
  for (const CommandSpec& c : commands)
    names.push_back(c.name.substr(0, c.name.find(' ')));
  for (const Synonym& s : command_synonyms)
    if (s.typed == first &&
        std::find(names.begin(), names.end(), s.ours.substr(0, s.ours.find(' '))) != names.end())
      return fail(Code::invalid, fmt::format("there is no command \"{}\"", first),
                  fmt::format("use `billow {}`", s.ours));
  if (std::string slurm = slurm_command(args); !slurm.empty())
    return fail(Code::invalid, fmt::format("there is no command \"{}\"", first), std::move(slurm));
  const std::string near = nearest(first, names);
  return fail(Code::invalid, fmt::format("there is no command \"{}\"", first),
              near.empty() ? "see `billow help`" : fmt::format("did you mean `billow {}`?", near));
}

}  // namespace billow::client
