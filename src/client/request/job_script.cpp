#include "client/request/job_script.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/slurm.h"

namespace billow::client {
namespace {

constexpr std::size_t script_bytes_max = 16 << 20;
constexpr std::string_view marker = "#BILLOW";
constexpr std::string_view slurm_marker = "#SBATCH";

// Words as a shell separates them: blanks between, quotes and backslashes kept together.
Result<std::vector<std::string>> split_words(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else if (c == '\\' && quote == '"' && i + 1 < line.size())
        word += line[++i];
      else
        word += c;
      continue;
    }
    if (c == ' ' || c == '\t' || c == '\r') {
      if (std::exchange(inside, false))
        words.push_back(std::exchange(word, {}));
      continue;
    }
    if (c == '#' && !inside)
      break;  // a comment behind the options
    inside = true;
    if (c == '\'' || c == '"')
      quote = c;
    else if (c == '\\' && i + 1 < line.size())
      word += line[++i];
    else
      word += c;
  }
  if (quote != 0)
    return fail(Code::invalid, "a quotation mark is not closed");
  if (inside)
    words.push_back(std::move(word));
  return words;
}

// The words of a first line, which begins with "#!".
Result<std::vector<std::string>> interpreter_of(std::string_view line, const std::string& path) {
  auto words = split_words(line.substr(2));
  if (!words)
    return pass(std::move(words.error()), path + ":1");
  return words;
}

// Whether the word starts a program as it is: by its path, or found in PATH.
bool can_be_started(const std::string& word) {
  if (word.find('/') != std::string::npos)
    return ::access(word.c_str(), X_OK) == 0;
  const char* path = std::getenv("PATH");
  for (const std::string& directory : split(path ? path : "", ':'))
    if (!directory.empty() && ::access((directory + "/" + word).c_str(), X_OK) == 0)
      return true;
  return false;
}

constexpr std::size_t kept_bytes_max = 64 << 10;  // Linux allows twice as much in one argument

bool is_shell(const std::vector<std::string>& interpreter) {
  for (const std::string& word : interpreter) {
    const std::string name = word.substr(word.rfind('/') + 1);
    if (name == "env" || name.starts_with('-'))
      continue;
    return name == "sh" || name == "bash" || name == "dash" || name == "ksh" || name == "zsh";
  }
  return false;
}

// A shell gets the text of a script itself, as sbatch would keep it: changing the file must not
// change jobs that wait. Other interpreters read the file when the job starts.
bool is_kept(const std::vector<std::string>& interpreter, std::string_view text) {
  return is_shell(interpreter) && text.size() <= kept_bytes_max &&
         text.find('\0') == std::string_view::npos;
}

// The command of a script. A script of Slurm's has its variables: they are set in place of its
// first line, which names the interpreter, so that the numbers of lines in messages stay true.
void set_command(JobScript& script,
                 std::string_view text,
                 const std::vector<std::string>& words,
                 bool of_slurm) {
  std::vector<std::string>& argv = script.spec.argv;
  const bool kept = is_kept(argv, text);
  if (kept) {
    argv.emplace_back("-c");
    argv.push_back(of_slurm ? slurm_prelude(text) +
                                  std::string(text.substr(std::min(text.size(), text.find('\n'))))
                            : std::string(text));
  }
  argv.insert(argv.end(), words.begin(), words.end());
  // As in Slurm, the job is called like its script.
  std::string name = words.front().substr(words.front().rfind('/') + 1);
  name = name.substr(0, name.rfind('.'));
  if (kept && script.spec.name.empty() && check_name("name", name) &&
      !parse_int(name, 0, INT64_MAX))
    script.spec.name = name;
}

// Whether the line begins with the marker and a blank: "#BILLOWED" is a comment.
bool begins_with(std::string_view line, std::string_view what) {
  return line.starts_with(what) &&
         (line.size() == what.size() || line[what.size()] == ' ' || line[what.size()] == '\t');
}

Status set_words(JobRequest& request, const std::vector<std::string>& words) {
  CommandSpec command{.name = "submit"};
  command.options = {job_options(), batch_options()};
  command.operands = Operands::some;
  command.talks_to_head = false;
  const Parsed parsed = BILLOW_TRY(parse(command, words));
  if (!parsed.operands.empty())
    return fail(Code::invalid, fmt::format("\"{}\" is no option", parsed.operands.front()),
                "a #BILLOW line holds options only, for example: #BILLOW --gpus 1 --time 2h");
  return set_options(request, parsed);
}

// Slurm accepts names that commands here would take for numbers.
void mend_name(std::vector<std::string>& words) {
  for (std::size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i] == "--name" && parse_int(words[i + 1], 0, INT64_MAX))
      words[i + 1] = "job-" + words[i + 1];
}

Status take_slurm(JobScript& request,
                  const std::vector<SlurmLine>& lines,
                  const std::string& path,
                  std::string_view text) {
  SlurmScript script = BILLOW_TRY(translate_slurm(lines));
  std::erase(script.words, "--quiet");  // of the command line, not of the job
  request.wait = std::erase(script.words, "--wait") > 0;
  mend_name(script.words);
  BILLOW_TRY_VOID(set_words(request, script.words));
  for (const std::string& note : script.notes)
    request.notes.push_back(fmt::format("{}:{}", path, note));
  request.notes.push_back(
      fmt::format("{}: read as `billow submit {} {}`", path, shell_join(script.words), path));
  for (const std::string& note : slurm_remains(text, is_kept(request.spec.argv, text)))
    request.notes.push_back(fmt::format("warning: {}: {}", path, note));
  return {};
}

}  // namespace

Result<std::optional<JobScript>> parse_job_script(std::string_view text,
                                                  const std::vector<std::string>& words) {
  if (!text.starts_with("#!"))
    return std::nullopt;
  JobScript request;
  bool found = false;
  std::vector<SlurmLine> slurm;
  std::size_t number = 0;
  const auto at = [&](const Error& error) {
    return pass(Error(error), fmt::format("{}:{}", words.front(), number));
  };
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (number == 1) {
      request.spec.argv = BILLOW_TRY(interpreter_of(line, words.front()));
      continue;
    }
    const std::string_view trimmed = trim(line);
    if (!trimmed.empty() && !trimmed.starts_with('#'))
      break;  // the first command ends the options
    const bool own = begins_with(trimmed, marker);
    if (!own && !begins_with(trimmed, slurm_marker))
      continue;
    auto options = split_words(trimmed.substr(own ? marker.size() : slurm_marker.size()));
    if (!options)
      return at(options.error());
    if (!own) {
      slurm.push_back({number, std::move(*options)});
      continue;
    }
    found = true;
    if (const Status set = set_words(request, *options); !set)
      return at(set.error());
  }
  if ((!found && slurm.empty()) || request.spec.argv.empty())
    return std::nullopt;
  if (found && !slurm.empty())
    request.notes.push_back(
        fmt::format("{}: the #BILLOW lines are used; the #SBATCH lines are not", words.front()));
  else if (!found)
    if (const Status set = take_slurm(request, slurm, words.front(), text); !set)
      return pass(Error(set.error()), words.front());
  set_command(request, text, words, !found);
  return request;
}

Result<std::optional<JobScript>> read_job_script(const std::vector<std::string>& words,
                                                 bool quiet,
                                                 bool command) {
  if (words.empty() || !file_exists(words.front()))
    return std::nullopt;
  const auto text = read_file(words.front(), script_bytes_max);
  if (!text)
    return std::nullopt;  // a program: too large, or a directory
  if (command) {
    const auto unread = parse_job_script(*text, words);
    if (!quiet && unread && *unread && !(*unread)->notes.empty())
      say(fmt::format("note: after -- the #SBATCH lines of {} are not read; leave out the --",
                      words.front()));
    return std::nullopt;
  }
  auto script = BILLOW_TRY(parse_job_script(*text, words));
  if (script && !quiet)
    for (const std::string& note : script->notes)
      say(note);
  if (script || can_be_started(words.front()))
    return script;
  if (!text->starts_with("#!")) {
    if (words.front().find('/') != std::string::npos ||
        words.front().find('.') == std::string::npos)
      return script;
    return fail(Code::invalid,
                fmt::format("{} is in this directory, but its first line names no interpreter",
                            words.front()),
                fmt::format("begin it with #!/bin/sh, or write `sh {}`", words.front()));
  }
  // `billow submit job.sh`, as sbatch would take it: its interpreter runs it.
  script.emplace();
  script->spec.argv = BILLOW_TRY(interpreter_of(text->substr(0, text->find('\n')), words.front()));
  set_command(*script, *text, words, false);
  return script;
}

Status check_program(const JobRequest& request, bool quiet, bool command) {
  const std::string& program = request.spec.argv.front();
  const bool path = program.find('/') != std::string::npos;
  const bool script = program.ends_with(".sh") || program.ends_with(".py") ||
                      program.ends_with(".bash") || program.ends_with(".slurm") ||
                      program.ends_with(".sbatch");
  const Surroundings& around = request.spec.surroundings;
  if ((!path && !script) || file_exists(program) || can_be_started(program) ||
      !around.image.empty() || !around.environment.empty())
    return {};
  const bool elsewhere =
      program.starts_with('/') || request.cwd_given || !around.volumes.empty() || command;
  if (!elsewhere)
    return fail(Code::not_found, fmt::format("there is no file {} here", program),
                "check its name and the directory you are in; if only the nodes have it, write its "
                "absolute path, or put -- before the command");
  if (!quiet)
    say(
        fmt::format("warning: {} is not on this machine; the job fails if its node does not have "
                    "it either",
                    program));
  return {};
}

}  // namespace billow::client
