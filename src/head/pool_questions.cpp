// Questions of administrators to a pool's provider. They run on the pool's thread for lists.
#include <fmt/format.h>

#include <algorithm>

#include "head/pools.h"

namespace billow::head {
namespace {

Json account_document(const pool::Account& account) {
  Json problems = Json::array();
  for (const std::string& problem : account.problems)
    problems.push(problem);
  return Json::object({{"account", account.id},
                       {"identity", account.identity},
                       {"source", account.source},
                       {"problems", std::move(problems)}});
}

// Ends the machines only if asked to: a list of what would be ended comes first.
Result<Json> strays_document(pool::Pool& engine, const std::set<std::string>& known, bool end) {
  const std::vector<MachineSighting> listed = BILLOW_TRY(engine.nodes());
  Json machines = Json::array();
  for (const MachineSighting& machine : pool::strays_in(listed, known)) {
    Json document = Json::object(
        {{"name", machine.name}, {"external", machine.external}, {"note", machine.note}});
    if (end) {
      const Status released = engine.release(machine);
      document.set("ended", released.has_value());
      if (!released)
        document.set("error", released.error().message);
    }
    machines.push(std::move(document));
  }
  return Json::object({{"machines", std::move(machines)}, {"listed", listed.size()}});
}

Result<Json> answer_of(pool::Pool& engine,
                       pool::Question question,
                       const std::set<std::string>& known) {
  switch (question) {
    case pool::Question::account:
      return account_document(BILLOW_TRY(engine.account()));
    case pool::Question::strays:
    case pool::Question::end_strays:
      return strays_document(engine, known, question == pool::Question::end_strays);
    case pool::Question::offers:
      return Json::object();
  }
  return Json::object();
}

}  // namespace

void Pools::ask_provider(const std::string& name, pool::Question question, Answer answer) {
  const control::State& state = engine_().state();
  const auto pool = std::ranges::find_if(
      state.pools, [&](const auto& entry) { return entry.second.name == name; });
  if (pool == state.pools.end())
    return answer(fail(Code::not_found, fmt::format("no pool is named \"{}\"", name),
                       "see `billow pool list`"));
  Running* const r = running(pool->first, pool->second);
  if (!r)
    return answer(
        fail(Code::unavailable, fmt::format("pool {} cannot be used; see the head's log", name)));
  if (question == pool::Question::offers) {
    r->next_offers = {};
    look_again_soon();
    return answer(Json::object({{"ok", true}}));
  }
  if (question == pool::Question::account && pool->second.offers.empty())
    r->next_offers = {};  // what kept the provider from answering may be mended
  std::set<std::string> known;
  for (const auto& [machine, of] : state.machines)
    known.insert(machine);
  const Status queued = r->lists->submit(
      [engine = r->pool.get(), question, known, answer]() -> std::function<void()> {
        return [answer, said = answer_of(*engine, question, known)] {
          answer(said);
        };
      });
  if (!queued)
    answer(pass(queued.error()));
}

}  // namespace billow::head
