#include "cli/job_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "cli/console.h"
#include "cli/job_request.h"

namespace billow::cli {
namespace {

constexpr const char* looked_at_max = "200";

struct Candidate {
  std::uint64_t id = 0;
  bool runs = false;
};

// Of a page of jobs; elements of an array stand for the array.
std::vector<Candidate> candidates(const Json& page) {
  std::map<std::uint64_t, bool, std::greater<>> found;
  for (const Json& job : page["jobs"].items()) {
    const std::uint64_t array = job.at("array", "id").uint_or(0);
    found[array ? array : job["id"].uint_or(0)] |= job["state"].str_or("") == "running";
  }
  std::vector<Candidate> out;
  for (const auto& [id, runs] : found) out.push_back({id, runs});
  return out;
}

std::string numbers(const std::vector<Candidate>& all) {
  std::string text;
  for (std::size_t i = 0; i < all.size() && i < 5; ++i) text += fmt::format("{}{}", i ? ", " : "", all[i].id);
  return all.size() > 5 ? fmt::format("{} and {} more", text, all.size() - 5) : text;
}

}  // namespace

Status check_job_word(std::string_view word) {
  if (check_job_label(word)) return {};
  const bool number = !word.empty() && word.find_first_not_of("0123456789.-") == std::string_view::npos;
  if (number || !check_name("job", std::string(word))) return check_job_label(word);
  return {};
}

Result<std::string> job_of(Client& client, const std::string& word, NameUse use) {
  if (check_job_label(word)) return word;
  BILLOW_TRY_VOID(check_job_word(word));
  const Json status = BILLOW_TRY(client.get("/v1/status"));
  const std::string me(status.at("you", "user").str_or(""));
  const auto list = [&](const char* state) { return client.get(with_query("/v1/jobs", {{"name", word}, {"user", me}, {"state", state}, {"limit", looked_at_max}})); };
  std::vector<Candidate> alive = candidates(BILLOW_TRY(list("active")));
  if (alive.empty()) {
    const std::vector<Candidate> ended = candidates(BILLOW_TRY(list("all")));
    if (ended.empty()) return fail(Code::not_found, fmt::format("you have no job called {}", word), fmt::format("`billow ps -a` lists them; `billow ps -a --name {}` those of others too", word));
    return fmt::format("{}", ended.front().id);
  }
  if (alive.size() > 1 && use == NameUse::change)
    return fail(Code::conflict, fmt::format("{} of your jobs are called {}: {}", alive.size(), word, numbers(alive)), "say which one, by its number");
  std::stable_partition(alive.begin(), alive.end(), [](const Candidate& c) { return c.runs; });
  if (alive.size() > 1) say(fmt::format("{} of your jobs are called {} ({}); this is job {}", alive.size(), word, numbers(alive), alive.front().id));
  return fmt::format("{}", alive.front().id);
}

Result<std::vector<std::string>> jobs_of(Client& client, const std::vector<std::string>& words, NameUse use) {
  std::vector<std::string> out;
  for (const std::string& word : words) out.push_back(BILLOW_TRY(job_of(client, word, use)));
  return out;
}

}  // namespace billow::cli
