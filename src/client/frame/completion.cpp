// Shell completion, written from the option table. The scripts hold the words; job numbers and node
// names are asked of the head when somebody presses Tab.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "client/frame/command.h"

namespace billow::client {
namespace {

std::vector<std::string> first_words(const std::vector<CommandSpec>& commands) {
  std::vector<std::string> words;
  for (const CommandSpec& c : commands) {
    const std::string word = c.name.substr(0, c.name.find(' '));
    if (std::find(words.begin(), words.end(), word) == words.end())
      words.push_back(word);
  }
  return words;
}

// "schedule" → add list rm
std::map<std::string, std::vector<std::string>> second_words(
    const std::vector<CommandSpec>& commands) {
  std::map<std::string, std::vector<std::string>> words;
  for (const CommandSpec& c : commands)
    if (const auto space = c.name.find(' '); space != std::string::npos)
      words[c.name.substr(0, space)].push_back(c.name.substr(space + 1));
  return words;
}

std::string flags(const CommandSpec& command) {
  std::string out;
  for (const OptionSpec* o : options_of(command)) {
    out += fmt::format("{}--{}", out.empty() ? "" : " ", o->name);
    if (o->letter)
      out += fmt::format(" -{}", o->letter);
  }
  return out;
}

std::string spaced(const char* choices) {
  std::string out = choices ? choices : "";
  std::replace(out.begin(), out.end(), ',', ' ');
  return out;
}

// What bash should offer, as a statement.
std::string bash_offer(Completes completes, const char* choices) {
  switch (completes) {
    case Completes::nothing:
      return "return";
    case Completes::file:
      return "COMPREPLY=($(compgen -f -- \"$cur\")); return";
    case Completes::directory:
      return "COMPREPLY=($(compgen -d -- \"$cur\")); return";
    case Completes::job:
      return "COMPREPLY=($(compgen -W \"$(billow ps -q 2>/dev/null)\" -- \"$cur\")); return";
    case Completes::node:
      return "COMPREPLY=($(compgen -W \"$(_billow_nodes)\" -- \"$cur\")); return";
    case Completes::choice:
      return fmt::format("COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return", spaced(choices));
  }
  return "return";
}

constexpr const char* nodes_function =
    "_billow_nodes() { billow nodes 2>/dev/null | awk 'NR > 1 { print $1 }'; }\n";

std::string bash_script(const std::vector<CommandSpec>& commands) {
  std::string out = "# bash completion for billow; made by `billow completion bash`\n";
  out += nodes_function;
  out +=
      "_billow() {\n  local cur prev cmd\n  cur=${COMP_WORDS[COMP_CWORD]}\n  "
      "prev=${COMP_WORDS[COMP_CWORD-1]}\n  cmd=${COMP_WORDS[1]}\n  COMPREPLY=()\n";
  out += fmt::format(
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return; "
      "fi\n",
      join(first_words(commands), " "));
  out += "  case $cmd in\n";
  for (const auto& [word, seconds] : second_words(commands))
    out += fmt::format(
        "    {}) if [ \"$COMP_CWORD\" -eq 2 ]; then COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); "
        "return; fi; cmd=\"$cmd ${{COMP_WORDS[2]}}\" ;;\n",
        word, join(seconds, " "));
  out += "  esac\n  case $cmd in\n";
  for (const CommandSpec& c : commands) {
    out += fmt::format("    \"{}\")\n", c.name);
    std::string values;
    for (const OptionSpec* o : options_of(c)) {
      if (!o->value)
        continue;
      values += fmt::format("        --{}{}) {} ;;\n", o->name,
                            o->letter ? fmt::format("|-{}", o->letter) : "",
                            bash_offer(o->completes, o->choices));
    }
    if (!values.empty())
      out += "      case $prev in\n" + values + "      esac\n";
    out += fmt::format(
        "      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return; "
        "fi\n",
        flags(c));
    out += fmt::format("      {} ;;\n", c.operands == Operands::command
                                            ? "COMPREPLY=($(compgen -c -f -- \"$cur\")); return"
                                            : bash_offer(c.completes, c.choices));
  }
  return out + "  esac\n}\ncomplete -o bashdefault -F _billow billow\n";
}

std::string single_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

std::string zsh_action(Completes completes, const char* choices) {
  switch (completes) {
    case Completes::nothing:
      return "";
    case Completes::file:
      return "_files";
    case Completes::directory:
      return "_files -/";
    case Completes::job:
      return "_billow_jobs";
    case Completes::node:
      return "_billow_node_names";
    case Completes::choice:
      return fmt::format("({})", spaced(choices));
  }
  return "";
}

std::string zsh_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':')
      out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_script(const std::vector<CommandSpec>& commands) {
  std::string out =
      "#compdef billow\n# zsh completion for billow; made by `billow completion zsh`\n";
  out += nodes_function;
  out +=
      "_billow_jobs() { local -a jobs; jobs=(${(f)\"$(billow ps -q 2>/dev/null)\"}); compadd -a "
      "jobs }\n";
  out +=
      "_billow_node_names() { local -a names; names=(${(f)\"$(_billow_nodes)\"}); compadd -a names "
      "}\n";
  out += "_billow() {\n  local cmd=$words[2]\n  if (( CURRENT == 2 )); then\n    local -a all=(\n";
  for (const CommandSpec& c : commands) {
    const bool two = c.name.find(' ') != std::string::npos;
    if (!two)
      out += fmt::format("      {}\n", single_quoted(c.name + ":" + zsh_escaped(c.summary)));
  }
  for (const auto& [word, seconds] : second_words(commands))
    out +=
        fmt::format("      {}\n", single_quoted(fmt::format("{}:{}", word, join(seconds, ", "))));
  out += "    )\n    _describe command all\n    return\n  fi\n  case $cmd in\n";
  for (const auto& [word, seconds] : second_words(commands))
    out += fmt::format(
        "    {}) if (( CURRENT == 3 )); then compadd {}; return; fi; cmd=\"$cmd $words[3]\"; shift "
        "words; (( CURRENT-- )) ;;\n",
        word, join(seconds, " "));
  out += "  esac\n  shift words; (( CURRENT-- ))\n  case $cmd in\n";
  for (const CommandSpec& c : commands) {
    out += fmt::format("    \"{}\") _arguments -s", c.name);
    for (const OptionSpec* o : options_of(c)) {
      const std::string tail = fmt::format(
          "[{}]{}", zsh_escaped(o->help),
          o->value
              ? fmt::format(":{}:{}", zsh_escaped(o->value), zsh_action(o->completes, o->choices))
              : "");
      out += " " + single_quoted(fmt::format("{}--{}{}", o->repeats ? "*" : "", o->name, tail));
      if (o->letter)
        out += " " + single_quoted(fmt::format("{}-{}{}", o->repeats ? "*" : "", o->letter, tail));
    }
    const bool command = c.operands == Operands::command || c.operands == Operands::command_or_file;
    out +=
        command ? " '*::command:_normal'"
        : c.operands == Operands::some
            ? fmt::format(" {}", single_quoted("*:operand:" + zsh_action(c.completes, c.choices)))
            : "";
    out += " ;;\n";
  }
  return out +
         "  esac\n}\nif [ \"$funcstack[1]\" = _billow ]; then _billow \"$@\"; else compdef _billow "
         "billow; fi\n";
}

std::string fish_arguments(Completes completes, const char* choices) {
  switch (completes) {
    case Completes::nothing:
      return " -f";
    case Completes::file:
      return " -F";
    case Completes::directory:
      return " -f -a '(__fish_complete_directories)'";
    case Completes::job:
      return " -f -a '(billow ps -q 2>/dev/null)'";
    case Completes::node:
      return " -f -a '(billow nodes 2>/dev/null | awk \"NR > 1 { print \\$1 }\")'";
    case Completes::choice:
      return fmt::format(" -f -a '{}'", spaced(choices));
  }
  return "";
}

std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\')
      out += '\\';
    out += c;
  }
  return out + "'";
}

std::string fish_script(const std::vector<CommandSpec>& commands) {
  std::string out = "# fish completion for billow; made by `billow completion fish`\n";
  const auto seconds = second_words(commands);
  for (const CommandSpec& c : commands)
    if (c.name.find(' ') == std::string::npos)
      out += fmt::format("complete -c billow -f -n __fish_use_subcommand -a {} -d {}\n", c.name,
                         fish_quoted(c.summary));
  for (const auto& [word, list] : seconds) {
    out += fmt::format("complete -c billow -f -n __fish_use_subcommand -a {} -d {}\n", word,
                       fish_quoted(join(list, ", ")));
    out += fmt::format(
        "complete -c billow -f -n '__fish_seen_subcommand_from {}; and not "
        "__fish_seen_subcommand_from {}' -a {}\n",
        word, join(list, " "), fish_quoted(join(list, " ")));
  }
  for (const CommandSpec& c : commands) {
    const auto space = c.name.find(' ');
    const std::string when =
        space == std::string::npos
            ? fmt::format("__fish_seen_subcommand_from {}", c.name)
            : fmt::format("__fish_seen_subcommand_from {}; and __fish_seen_subcommand_from {}",
                          c.name.substr(0, space), c.name.substr(space + 1));
    for (const OptionSpec* o : options_of(c)) {
      out += fmt::format("complete -c billow -n {} -l {}", fish_quoted(when), o->name);
      if (o->letter)
        out += fmt::format(" -s {}", o->letter);
      if (o->value)
        out += " -r" + fish_arguments(o->completes, o->choices);
      out += fmt::format(" -d {}\n", fish_quoted(o->help));
    }
    if (c.operands == Operands::some && c.completes != Completes::nothing)
      out += fmt::format("complete -c billow -n {}{}\n", fish_quoted(when),
                         fish_arguments(c.completes, c.choices));
  }
  return out;
}

}  // namespace

Result<std::string> completion_script(const std::vector<CommandSpec>& commands,
                                      std::string_view shell) {
  if (shell == "bash")
    return bash_script(commands);
  if (shell == "zsh")
    return zsh_script(commands);
  if (shell == "fish")
    return fish_script(commands);
  return fail(Code::invalid, fmt::format("there is no completion for \"{}\"", shell),
              "there is one for bash, zsh and fish");
}

}  // namespace billow::client
