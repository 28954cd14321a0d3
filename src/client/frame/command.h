// What a command of `billow` is: a name, its options, an example and a function. One table of these
// is the single source of parsing, --help, shell completion and docs/cli.md, so the four cannot
// disagree.
//
// Options are constants; the parser of a command is built only when argv[1] has chosen it, because
// `billow run -- true` must not pay for the options of thirty other commands.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace billow::client {

// What a shell may offer for a value.
enum class Completes { nothing, file, directory, job, node, choice };

struct OptionSpec {
  const char* name;             // without dashes: "gpu-type"
  char letter = 0;              // 'q' for -q; 0: none
  const char* value = nullptr;  // "N", shown in help; null: a switch
  const char* help = "";
  bool repeats = false;
  Completes completes = Completes::nothing;
  const char* choices = nullptr;  // "bash,zsh,fish", for Completes::choice
};

// How words that are no options are read.
enum class Operands {
  none,
  some,             // options may come between them
  command,          // the first one ends the options: what follows belongs to the job
  command_or_file,  // the same, unless it is a job file: then options may follow
};

// A command line, taken apart. Options are by name; a switch has the value "".
class Parsed {
 public:
  bool has(std::string_view name) const { return values_.contains(name); }
  // The last one given, or the fallback.
  std::string get(std::string_view name, std::string_view fallback = {}) const;
  std::vector<std::string> all(std::string_view name) const;
  void add(std::string_view name, std::string value) {
    values_[std::string(name)].push_back(std::move(value));
    order_.emplace_back(name);
  }
  const std::vector<std::string>& order() const {
    return order_;
  }  // names as given, repeats included

  std::vector<std::string> operands;
  bool after_dashes = false;  // the operands came behind "--"
  bool help = false;

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
  std::vector<std::string> order_;
};

// The group of commands that Billow, ssh or mpirun start. `billow help` does not list them; the
// reference does.
inline constexpr const char* internal_group = "started by Billow itself";
inline constexpr const char* money_group = "money and advice";
inline constexpr const char* people_group = "people and access";

struct CommandSpec {
  std::string name;     // "run", or two words: "schedule add"
  std::string summary;  // one line, lower case, no full stop
  std::string example;  // lines of a shell session
  // Either `run` with the options below taken apart, or `run_args` with the words after the name as
  // they came.
  std::function<int(const Parsed&)> run;
  std::function<int(std::vector<std::string>)> run_args;
  std::string usage;    // of the operands: "[--] COMMAND [ARG…]"
  std::string details;  // paragraphs for --help
  std::vector<std::span<const OptionSpec>> options;
  Operands operands = Operands::none;
  Completes completes = Completes::nothing;  // what the operands are
  const char* choices = nullptr;
  const char* group = "";     // heading in `billow help`
  bool talks_to_head = true;  // takes --head and --data
  bool prints_json = true;    // takes --json
  const char* alias_of = nullptr;
};

// The command's own options and the common ones, in the order of --help.
std::vector<const OptionSpec*> options_of(const CommandSpec& command);

// Usage errors are Code::invalid, with the nearest known option as hint.
Result<Parsed> parse(const CommandSpec& command, const std::vector<std::string>& args);

std::string help_text(const CommandSpec& command);
// The commands that people use every day, and the names of the others; or all with their summaries.
enum class Overview { everyday, all };
std::string overview_text(const std::vector<CommandSpec>& commands,
                          std::string_view version,
                          Overview how_much);
std::string markdown(const std::vector<CommandSpec>& commands);  // docs/cli.md

// Manual pages (man.cpp).
struct ManPage {
  std::string file;  // "billow-run.1"
  std::string text;
};
std::string man_page(const CommandSpec& command, std::string_view version);
std::string man_overview(const std::vector<CommandSpec>& commands, std::string_view version);
std::vector<ManPage> man_pages(const std::vector<CommandSpec>& commands, std::string_view version);

// The command named by the first one or two words, and how many words that took. `help_wanted`
// prefixes ("schedule" alone) and unknown names are errors that say what there is.
struct Found {
  const CommandSpec* command = nullptr;
  std::size_t words = 0;
};
Result<Found> find_command(const std::vector<CommandSpec>& commands,
                           const std::vector<std::string>& args);

// bash, zsh or fish; built from the table.
Result<std::string> completion_script(const std::vector<CommandSpec>& commands,
                                      std::string_view shell);

}  // namespace billow::client
