#include "client/request/job_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "client/frame/console.h"
#include "client/request/job_request.h"
#include "net/http/http.h"

namespace billow::client {
namespace {

constexpr const char* looked_at_max = "1000";

struct Candidate {
  std::uint64_t id = 0;
  bool runs = false;
  std::string lines;  // which `submit --lines` it came with
};

// Of a page of jobs; elements of an array stand for the array.
std::vector<Candidate> candidates(const Json& page) {
  std::map<std::uint64_t, Candidate, std::greater<>> found;
  for (const Json& job : page["jobs"].items()) {
    const std::uint64_t array = job.at("array", "id").uint_or(0),
                        id = array ? array : job["id"].uint_or(0);
    Candidate& one = found[id];
    one.id = id;
    one.runs |= job["state"].str_or("") == "running";
    one.lines = job.at("labels", lines_label).str_or("");
  }
  std::vector<Candidate> out;
  for (auto& [id, one] : found)
    out.push_back(std::move(one));
  return out;
}

std::string numbers(const std::vector<Candidate>& all) {
  std::string text;
  for (std::size_t i = 0; i < all.size() && i < 5; ++i)
    text += fmt::format("{}{}", i ? ", " : "", all[i].id);
  return all.size() > 5 ? fmt::format("{} and {} more", text, all.size() - 5) : text;
}

}  // namespace

namespace {

Result<std::vector<Candidate>> named(Client& client, const std::string& word, const char* state) {
  const Json status = BILLOW_TRY(client.get("/v1/status"));
  return candidates(BILLOW_TRY(
      client.get(with_query("/v1/jobs", {{"name", word},
                                         {"user", std::string(status.at("you", "user").str_or(""))},
                                         {"state", state},
                                         {"limit", looked_at_max}}))));
}

std::unexpected<Error> nobody_called(const std::string& word) {
  // "3_5" and "sweep_5": Slurm's way to name an element.
  if (const auto line = word.rfind('_');
      line != std::string::npos && line > 0 && parse_int(word.substr(line + 1), 0, INT64_MAX))
    return fail(Code::not_found, fmt::format("you have no job called {}", word),
                fmt::format("an element of an array is written {}.{}", word.substr(0, line),
                            word.substr(line + 1)));
  return fail(
      Code::not_found, fmt::format("you have no job called {}", word),
      fmt::format("`billow ps -a` lists your jobs, `billow ps -a --name {}` also those of others",
                  word));
}

}  // namespace

// "sweep.3": the element 3 of the newest array called sweep that has one; a rerun may consist of
// other elements. Empty: not of this form.
static Result<std::string> element_called(Client& client, const std::string& word) {
  const auto dot = word.rfind('.');
  if (dot == std::string::npos || dot == 0 || !parse_int(word.substr(dot + 1), 0, INT64_MAX))
    return std::string();
  const std::string name = word.substr(0, dot);
  const std::vector<Candidate> arrays = BILLOW_TRY(named(client, name, "all"));
  std::vector<Candidate> with_element;
  constexpr std::size_t tried_max = 10;
  for (std::size_t i = 0; i < arrays.size() && i < tried_max; ++i)
    if (client.get(path_of_job(fmt::format("{}{}", arrays[i].id, word.substr(dot)))))
      with_element.push_back(arrays[i]);
  if (with_element.empty())
    return arrays.empty() ? nobody_called(word)
                          : fail(Code::not_found,
                                 fmt::format("array {} has no element {}", arrays.front().id,
                                             word.substr(dot + 1)),
                                 fmt::format("`billow ps -a --array {}` lists its elements",
                                             arrays.front().id));
  if (with_element.size() > 1)
    say(fmt::format("{} arrays called {} have this element ({}); this is {}{}, the newest",
                    with_element.size(), name, numbers(with_element), with_element.front().id,
                    word.substr(dot)));
  return fmt::format("{}{}", with_element.front().id, word.substr(dot));
}

// Says which of several jobs was taken.
static void say_which(const std::string& word,
                      const std::vector<Candidate>& all,
                      const Candidate& taken) {
  if (all.size() < 2)
    return;
  say(fmt::format("{} of your jobs are called {} ({}); this is job {}{}", all.size(), word,
                  numbers(all), taken.id, taken.id == all.front().id ? ", the newest" : ""));
}

Result<std::string> job_of(Client& client, const std::string& word, NameUse use) {
  if (check_job_label(word))
    return word;
  BILLOW_TRY_VOID(check_job_word(word));
  std::vector<Candidate> alive = BILLOW_TRY(named(client, word, "active"));
  if (alive.empty()) {
    const std::vector<Candidate> ended = BILLOW_TRY(named(client, word, "all"));
    if (ended.empty()) {
      const auto element = element_called(client, word);
      if (!element || !element->empty())
        return element;
      if (client.get("/v1/nodes/" + net::percent_encode(word)))
        return fail(Code::not_found, fmt::format("{} is a node, not a job", word),
                    fmt::format("see it with: billow nodes {}", word));
      return nobody_called(word);
    }
    say_which(word, ended, ended.front());
    return fmt::format("{}", ended.front().id);
  }
  if (alive.size() > 1 && use == NameUse::change)
    return fail(
        Code::conflict,
        fmt::format("{} of your jobs are called {}: {}", alive.size(), word, numbers(alive)),
        "say which one, by its number");
  const auto running = std::ranges::find_if(alive, [](const Candidate& one) { return one.runs; });
  const Candidate& taken = running == alive.end() ? alive.front() : *running;
  // Those that have ended count too: after a rerun the name alone does not say which one is meant.
  if (use == NameUse::look)
    say_which(word, BILLOW_TRY(named(client, word, "all")), taken);
  return fmt::format("{}", taken.id);
}

Result<std::vector<std::string>> all_jobs_of(Client& client, const std::string& word) {
  if (check_job_label(word))
    return std::vector<std::string>{word};
  BILLOW_TRY_VOID(check_job_word(word));
  const std::vector<Candidate> alive = BILLOW_TRY(named(client, word, "active")),
                               all = BILLOW_TRY(named(client, word, "all"));
  if (alive.empty() && all.empty())
    return nobody_called(word);
  const Candidate& newest = alive.empty() ? all.front() : alive.front();
  std::set<std::uint64_t> ids = {newest.id};
  for (const Candidate& one : alive)
    ids.insert(one.id);
  for (const Candidate& one : all)
    if (!newest.lines.empty() && one.lines == newest.lines)
      ids.insert(one.id);
  std::vector<std::string> out;
  for (const std::uint64_t id : ids)
    out.push_back(fmt::format("{}", id));
  return out;
}

Result<std::vector<std::string>> jobs_of(Client& client,
                                         const std::vector<std::string>& words,
                                         NameUse use) {
  std::vector<std::string> out;
  for (const std::string& word : words)
    out.push_back(BILLOW_TRY(job_of(client, word, use)));
  return out;
}

Result<std::vector<std::string>> job_operands(const Parsed& parsed, std::string_view command) {
  if (parsed.operands.empty())
    return fail(Code::invalid, fmt::format("{} needs a job", command),
                fmt::format("for example: billow {} 12; see `billow ps`", command));
  for (const std::string& job : parsed.operands)
    BILLOW_TRY_VOID(check_job_word(job));
  return parsed.operands;
}

}  // namespace billow::client
