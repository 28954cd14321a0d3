// What Enter shows about a GPU, a node, a job, an endpoint or a budget, as lines.
#include <algorithm>

#include <fmt/format.h>

#include "base/relative_time.h"
#include "base/text.h"
#include "client/endpoints/endpoints.h"
#include "client/frame/explanation.h"
#include "client/frame/when.h"
#include "client/request/job_list.h"
#include "client/top/state.h"
#include "client/top/words.h"

namespace billow::client::top {
namespace {

constexpr std::size_t jobs_listed_max = 50;

std::string fact(std::string_view name, std::string_view value) {
  return fmt::format("{:>13}  {}", name, value);
}

void add_lines(std::vector<std::string>& out, std::string_view text) {
  for (const std::string& line : split(text, '\n'))
    out.push_back(line);
  while (!out.empty() && trim(out.back()).empty())
    out.pop_back();
}

// What stands there while the document has not come, or why it does not come.
std::string waiting_for(const State& state, const std::string& slot) {
  const auto asked = state.asked.find(slot);
  return asked != state.asked.end() && !asked->second.trouble.empty() ? asked->second.trouble
                                                                      : "asking the head …";
}

std::vector<std::string> describe_job(const State& state, const Subject& about) {
  const Json& document = state.answer("detail", detail_path(about));
  if (!document.is_object())
    return {waiting_for(state, "detail")};
  const WallTime now{state.now_ms * 1'000'000};
  std::vector<std::string> out;
  add_lines(
      out, describe_text(document, now,
                         Look{.columns = static_cast<std::size_t>(std::max(20, state.size.cols))}));
  if (const Json& why = state.answer("why", explain_path(about)); why.is_object()) {
    out.emplace_back();
    out.push_back(explanation_sentence(about.name, why, now));
    add_lines(out, explanation_text(why, now));
  }
  for (const Json& finding : state.answer("history", history_path(about))["findings"].items()) {
    out.emplace_back();
    out.emplace_back(finding["text"].str_or(""));
    if (const auto hint = finding["hint"].str_or(""); !hint.empty())
      out.push_back(fmt::format("  {}", hint));
  }
  return out;
}

void add_jobs_of(const State& state,
                 const std::vector<std::uint64_t>& ids,
                 std::vector<std::string>& out) {
  for (const std::uint64_t id : ids)
    if (const JobEntry* job = state.fleet.job(id))
      out.push_back(
          fact("job", fmt::format("{} {}, {} ({}), {} for {}, {}", job->label, job->name, job->user,
                                  job->project, job->state, lasting(job->spent_ms(state.now_ms)),
                                  per_hour(job->rate_nano))));
}

std::vector<std::string> describe_gpu(const State& state, const Subject& about) {
  const NodeEntry* node = state.fleet.node_by_name(about.name);
  if (!node || about.card < 0 || about.card >= std::ssize(node->cards))
    return {"this GPU has left the fleet"};
  const auto index = static_cast<std::size_t>(about.card);
  const Card& card = node->cards[index];
  std::vector<std::string> out = {
      fact("GPU", fmt::format("{} of {}", about.card, node->name)),
      fact("type", fmt::format("{} ({})", card.type, card.model)), fact("UUID", card.uuid),
      fact("state", state.fleet.word_of(*node, index, state.now_ms).text)};
  if (!card.fault.empty())
    out.push_back(fact("fault", card.fault));
  out.push_back(fact("use", card.util < 0 ? "not known" : fmt::format("{} %", card.util)));
  out.push_back(fact("memory", card.mem < 0 ? fmt::format("{} in all", mebibytes(card.mem_mib))
                                            : fmt::format("{} of {}", gibibytes(card.mem),
                                                          gibibytes(card.mem_mib))));
  if (card.watts >= 0)
    out.push_back(fact("power", fmt::format("{} W", card.watts)));
  if (card.celsius > 0)
    out.push_back(fact("temperature", fmt::format("{} °C", card.celsius)));
  if (card.score >= 0)
    out.push_back(fact("health", fmt::format("{} of 100", card.score)));
  out.push_back(fact("given out", fmt::format("{} %", card.milli / 10)));
  add_jobs_of(state, card.jobs, out);
  for (const HeldCards& held : state.fleet.reservations)
    if (held.node == node->name && std::ranges::find(held.gpus, about.card) != held.gpus.end())
      out.push_back(
          fact("reservation", fmt::format("{} for {}, ends {}", held.name, held.project,
                                          relative_time({held.until_ms * 1'000'000},
                                                        {state.now_ms * 1'000'000}, Zone::local))));
  return out;
}

std::vector<std::string> describe_node(const State& state, const Subject& about) {
  const NodeEntry* node = state.fleet.node_by_name(about.name);
  if (!node)
    return {"this node has left the fleet"};
  std::vector<std::string> out = {fact("node", node->name), fact("state", node->state)};
  if (!node->reason.empty())
    out.push_back(fact("reason", node->reason));
  out.push_back(fact(
      "CPUs",
      fmt::format("{:g}{}", static_cast<double>(node->cpu_milli) / 1000,
                  node->cpu_used < 0 ? ""
                                     : fmt::format(", {:.1f} in use",
                                                   static_cast<double>(node->cpu_used) / 1000))));
  out.push_back(fact("memory", node->mem_used < 0
                                   ? gibibytes(node->mem_mib)
                                   : fmt::format("{} of {}", gibibytes(node->mem_used),
                                                 gibibytes(node->mem_mib))));
  const Json& document = state.answer("detail", detail_path(about));
  if (document.is_object()) {
    std::string labels;
    for (const auto& [key, value] : document["labels"].members())
      labels += fmt::format("{}{}={}", labels.empty() ? "" : ", ", key, value.str_or(""));
    out.push_back(fact("labels", labels));
    out.push_back(fact(
        "agent", fmt::format("{}, joined {}", document["version"].str_or("?"),
                             time_text(document["joined_at"], {state.now_ms * 1'000'000}, "?"))));
  }
  for (std::size_t i = 0; i < node->cards.size(); ++i) {
    const Card& card = node->cards[i];
    out.push_back(fact(
        fmt::format("GPU {}", i),
        fmt::format("{}, {}, {}", card.type, card.util < 0 ? "-" : fmt::format("{}%", card.util),
                    state.fleet.word_of(*node, i, state.now_ms).text)));
  }
  std::vector<std::uint64_t> ids;
  for (const auto& [id, job] : state.fleet.jobs)
    if (std::ranges::any_of(job.where, [&](const auto& w) { return w.first == node->id; }))
      ids.push_back(id);
  add_jobs_of(state, ids, out);
  return out;
}

std::vector<std::string> describe_account(const State& state, const Subject& about) {
  std::vector<std::string> out;
  const WallTime now{state.now_ms * 1'000'000};
  for (const Json& b : state.fleet.budgets) {
    if (fmt::format("{} {} {}", b["scope"].str_or("?"), b["of"].str_or("?"),
                    b["period"].str_or("?")) != about.name)
      continue;
    out.push_back(
        fact("budget", fmt::format("{} {}", b["limit"].str_or("?"), b["period"].str_or("?"))));
    out.push_back(fact("charged", fmt::format("{} ({:.0f} %)", b["spent"].str_or("?"),
                                              b["spent_pct"].double_or(0))));
    out.push_back(fact("now", b["burn"].str_or("?")));
    out.push_back(fact("forecast", b["forecast"].str_or("?")));
    out.push_back(fact("runs out", time_text(b["runs_out_at"], now, "not at this pace")));
    out.push_back(fact("at the limit", b["stops"].bool_or(true) ? "jobs are suspended, then stopped"
                                                                : "only a warning"));
  }
  const std::string path = spent_path(about);
  if (path.empty())
    return out;
  const Json& spent = state.answer("spent", path);
  if (!spent.is_object()) {
    out.push_back(waiting_for(state, "spent"));
    return out;
  }
  std::vector<const Json*> lines;
  for (const Json& line : spent["lines"].items())
    lines.push_back(&line);
  std::ranges::stable_sort(lines, std::greater{},
                           [](const Json* line) { return (*line)["charge_nano_usd"].int_or(0); });
  out.emplace_back();
  out.push_back(
      fmt::format("{} this month, the most expensive first", plural(std::ssize(lines), "job")));
  for (std::size_t i = 0; i < std::min(lines.size(), jobs_listed_max); ++i) {
    const Json& line = *lines[i];
    const std::string job = line["job"].is_string() ? std::string(line["job"].str_or(""))
                                                    : fmt::format("{}", line["job"].uint_or(0));
    out.push_back(fmt::format(
        "{:>12}  job {}  {:.1f} GPU-hours, idle {}", usd(line["charge_nano_usd"].int_or(0)), job,
        line["gpu_hours"].double_or(0), usd(line["idle_nano_usd"].int_or(0))));
  }
  if (lines.size() > jobs_listed_max)
    out.push_back(fmt::format("and {} more; `billow cost --by job` lists all",
                              lines.size() - jobs_listed_max));
  return out;
}

}  // namespace

std::vector<std::string> describe_lines(const State& state, const Subject& about) {
  std::vector<std::string> out;
  switch (about.kind) {
    case Subject::Kind::gpu:
      out = describe_gpu(state, about);
      break;
    case Subject::Kind::node:
      out = describe_node(state, about);
      break;
    case Subject::Kind::job:
      out = describe_job(state, about);
      break;
    case Subject::Kind::endpoint: {
      const auto found = state.fleet.endpoints.find(about.name);
      if (found == state.fleet.endpoints.end())
        return {"this endpoint was deleted"};
      add_lines(out, endpoint_text(found->second.document));
      break;
    }
    case Subject::Kind::account:
      out = describe_account(state, about);
      break;
    case Subject::Kind::none:
      break;
  }
  // Long lines go on in the next row.
  std::vector<std::string> rows;
  for (const std::string& line : out)
    for (std::string& part : rows_of_line(line, state.size.cols))
      rows.push_back(std::move(part));
  return rows;
}

}  // namespace billow::client::top
