#include "client/request/job_script.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "base/text.h"

namespace billow::client {
namespace {

constexpr std::size_t script_bytes_max = 16 << 20;
constexpr std::string_view marker = "#BILLOW";

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

// Whether the line begins with the marker and a blank: "#BILLOWED" is a comment.
bool has_options(std::string_view line) {
  return line.starts_with(marker) && (line.size() == marker.size() || line[marker.size()] == ' ' ||
                                      line[marker.size()] == '\t');
}

// The name of a file, such as job.sh, that no shell would take for a program of PATH.
bool is_plain_name(const std::string& word) {
  if (word.find('/') != std::string::npos || word.find('.') == std::string::npos)
    return false;
  const char* path = std::getenv("PATH");
  return std::ranges::none_of(split(path ? path : "", ':'), [&](const std::string& directory) {
    return ::access((directory + "/" + word).c_str(), X_OK) == 0;
  });
}

Status take_options(JobRequest& request,
                    std::string_view line,
                    const std::string& path,
                    std::size_t number) {
  const auto at = [&](const Error& error) {
    return pass(Error(error), fmt::format("{}:{}", path, number));
  };
  const auto words = split_words(line.substr(marker.size()));
  if (!words)
    return at(words.error());
  CommandSpec command{.name = "submit"};
  command.options = {job_options(), batch_options()};
  command.operands = Operands::some;
  command.talks_to_head = false;
  const auto parsed = parse(command, *words);
  if (!parsed)
    return at(parsed.error());
  if (!parsed->operands.empty())
    return at({Code::invalid, fmt::format("\"{}\" is no option", parsed->operands.front()),
               "a #BILLOW line holds options only, for example: #BILLOW --gpus 1 --time 2h"});
  if (const Status set = set_options(request, *parsed); !set)
    return at(set.error());
  return {};
}

}  // namespace

Result<std::optional<JobRequest>> parse_job_script(std::string_view text,
                                                   const std::vector<std::string>& words) {
  if (!text.starts_with("#!"))
    return std::nullopt;
  JobRequest request;
  bool found = false;
  std::size_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (number == 1) {
      request.spec.argv = BILLOW_TRY(split_words(std::string_view(line).substr(2)));
      continue;
    }
    const std::string_view trimmed = trim(line);
    if (!trimmed.empty() && !trimmed.starts_with('#'))
      break;  // the first command ends the options
    if (!has_options(trimmed))
      continue;
    found = true;
    BILLOW_TRY_VOID(take_options(request, trimmed, words.front(), number));
  }
  if (!found || request.spec.argv.empty())
    return std::nullopt;
  request.spec.argv.insert(request.spec.argv.end(), words.begin(), words.end());
  return request;
}

Result<std::optional<JobRequest>> read_job_script(const std::vector<std::string>& words) {
  if (words.empty() || !file_exists(words.front()))
    return std::nullopt;
  const auto text = read_file(words.front(), script_bytes_max);
  if (!text)
    return std::nullopt;  // a program: too large, or a directory
  auto request = BILLOW_TRY(parse_job_script(*text, words));
  if (request || !is_plain_name(words.front()))
    return request;
  // A shell would not find it either; but `sbatch job.sh` does.
  if (!text->starts_with("#!"))
    return fail(Code::invalid,
                fmt::format("{} is in this directory, but its first line names no interpreter",
                            words.front()),
                fmt::format("begin it with #!/bin/sh, or write `sh {}`", words.front()));
  JobRequest script;
  script.spec.argv =
      BILLOW_TRY(split_words(std::string_view(*text).substr(2, text->find('\n') - 2)));
  script.spec.argv.insert(script.spec.argv.end(), words.begin(), words.end());
  return script;
}

}  // namespace billow::client
