#include "pool_story.h"

#include <fmt/format.h>

#include <queue>
#include <set>

#include "base/crypto.h"
#include "core/control/decide/decide.h"
#include "provider.h"
#include "store/sim_journal.h"
#include "tests/unit/control/node_offer.h"
#include "world.h"

namespace billow::sim {
namespace {

class Story {
 public:
  explicit Story(std::uint64_t seed)
      : rng_(seed), provider_(rng_.next(), &now_ns_, [this](Duration in, std::function<void()> fn) {
          due_.push({now_ns_ + in.ns, order_++, std::move(fn)});
        }) {
    clock_.now_ns = &now_ns_;
    open();
    Pool p;
    p.name = "cloud";
    p.kind = "ec2";
    p.capabilities = PoolCapabilities{.sizes_to_demand = false,
                                      .several_nodes_at_once = true,
                                      .list_is_final = false,
                                      .from_offers = true,
                                      .bills_from_order = true,
                                      .list_lag = minutes(5)};
    p.machines_max = 4;
    p.idle = seconds(rng_.between(10, 300));
    names_itself_ = rng_.chance(0.5);
    // Some last longer than a machine is waited for that never joins (14 minutes).
    fault_steps_ = rng_.chance(0.1) ? 300 : 60;
    p.offers = {provider_.offer()};
    run(AddPool{p});
  }

  void tell(StoryFigures& figures) {
    for (int i = 0; i < fault_steps_; ++i)
      step(true);
    provider_.calm_down();
    for (const auto& [id, job] : std::map(state().jobs))
      run(StopJob{.job = id, .reason = "enough"});
    // Orders are still under way then, and machines that no list has shown.
    run(RemovePool{"cloud"});
    for (int i = 0; i < 400 && !state().pools.empty(); ++i)
      step(false);
    for (const auto& [external, i] : provider_.instances()) {
      ++figures_.machines;
      figures_.unjoined += i.joined ? 0 : 1;
      figures_.left += i.to ? 0 : 1;
      figures_.twins += i.doubled ? 1 : 0;
    }
    figures_.metered = provider_.meter();
    figures_.booked = state().money.books.totals({}, {INT64_MAX}).fleet;
    figures.add(figures_);
    if (!state().pools.empty())
      broken("the pool cannot be removed");
    for (const auto& [external, i] : provider_.instances())
      if (!i.to)
        broken(fmt::format("{} ({}) is forgotten and is billed for ever", i.name, external));
    if (figures_.booked != figures_.metered)
      broken(fmt::format("the books have {} nano-dollars, the provider's meter {}{}",
                         figures_.booked.value, figures_.metered.value, bills()));
  }

 private:
  const control::State& state() const { return engine_->state(); }

  // Both sides, line by line.
  std::string bills() {
    const auto at = [](WallTime t) {
      return static_cast<double>(t.ns - 1'790'000'000'000'000'000) / 1e9;
    };
    std::string out;
    for (const auto& [external, i] : provider_.instances())
      out +=
          fmt::format("\n  provider: {} {} from {} to {}", i.name, external, at(i.from), at(i.to));
    for (const MachineBill& bill : state().machine_bills)
      out += fmt::format("\n  books: {} from {} to {}: {}", bill.machine, at(bill.from),
                         at(bill.to), bill.reason);
    return out;
  }

  void open() {
    journal_ = std::make_unique<SimJournal>(disk_, rng_.next());
    JournalHooks hooks;
    hooks.on_durable = [this](Seq durable) {
      if (engine_)
        engine_->on_durable(durable);
    };
    journal_->set_hooks(std::move(hooks));
    auto restored = head::Engine::restore({.journal = journal_.get(),
                                           .clock = &clock_,
                                           .deliver = [](const control::Effect&) {},
                                           .observe = {}},
                                          {});
    if (!restored)
      broken(restored.error().message);
    engine_ = std::move(*restored);
    run(StartHead{.version = "1",
                  .epoch = journal_->epoch(),
                  .admin = "ana",
                  .admin_token_hash = sha256_hex("a"),
                  .node_token_hash = sha256_hex("n")});
    head::Pools::Options options;
    options.head_url = [] {
      return std::string("http://10.0.0.1:7070");
    };
    options.fingerprint = options.authority = [] {
      return std::string();
    };
    options.owner = state().users.begin()->first;
    options.credential = [](const Pool&) -> Result<std::string> {
      return std::string();
    };
    options.needed = [](NodeId) {
      return false;
    };
    options.make = [this](const Pool&,
                          const pool::Options&) -> Result<std::unique_ptr<pool::Pool>> {
      return provider_.pool();
    };
    options.lane = [this] {
      return provider_.lane();
    };
    pools_ = std::make_unique<head::Pools>(
        loop_, clock_, [this]() -> head::Engine& { return *engine_; }, std::move(options));
  }

  void run(const Command& command) {
    engine_->execute(command, {"head", ""}, [](Result<std::vector<Event>> done) {
      if (!done)
        broken(done.error().message);
    });
    write();
  }
  void write() {
    while (journal_->step())
      continue;
  }

  // Virtual time: what is due happens at its moment.
  void pass(Duration d) {
    const std::int64_t until = now_ns_ + d.ns;
    while (!due_.empty() && due_.top().at_ns <= until) {
      auto fn = std::move(const_cast<Due&>(due_.top()).fn);
      now_ns_ = std::max(now_ns_, due_.top().at_ns);
      due_.pop();
      fn();
      write();
    }
    now_ns_ = until;
    provider_.pass();
  }

  void crash() {
    ++figures_.heads;
    pools_.reset();
    journal_->crash();
    engine_.reset();
    pass(seconds(rng_.between(0, 60)));
    open();
    connected_.clear();
  }

  // Machines whose agents start, come back or fall silent.
  void agents(bool faults) {
    const WallTime now = provider_.now();
    for (auto& [external, i] : provider_.instances()) {
      if (i.to || (faults && rng_.chance(0.02))) {
        silent(i);
        continue;
      }
      if (!i.joins || i.joins > now || connected_.contains(external))
        continue;
      if (!tokens_.contains(external) && !join(i))
        continue;
      if (faults && rng_.chance(0.5))
        continue;  // later
      NodeOffer offer = control::node_offer(i.name, 8);
      if (names_itself_)
        offer.labels["provider-id"] = external;
      engine_->execute(AgentHello{std::move(offer), {}, tokens_.at(external)}, {"head", ""},
                       [this, id = external](const Result<std::vector<Event>>& done) {
                         if (done)
                           connected_.insert(id);
                       });
      write();
    }
  }
  bool join(SimProvider::Instance& i) {
    const auto token = state().token_by_hash.find(sha256_hex(i.token));
    if (token == state().token_by_hash.end())
      return false;  // it was given back meanwhile
    const std::string key = *public_key_of(make_signing_key());
    bool joined = false;
    engine_->execute(JoinNode{token->second, i.name, key}, {"head", ""},
                     [&](const Result<std::vector<Event>>& done) { joined = done.has_value(); });
    write();
    const auto made = state().token_by_hash.find(control::node_key_hash(key));
    if (!joined || made == state().token_by_hash.end())
      return false;
    tokens_[i.external] = made->second;
    i.joined = true;
    return true;
  }
  void silent(const SimProvider::Instance& i) {
    if (connected_.erase(i.external) == 0)
      return;
    for (const auto& [id, node] : std::map(state().nodes))
      if (node.offer.name == i.name)
        run(NodeSilent{id});
  }
  bool answers(const std::string& node) {
    return std::ranges::any_of(connected_, [&](const std::string& external) {
      return provider_.instances().at(external).name == node;
    });
  }

  void jobs(bool faults) {
    if (faults && rng_.chance(0.2)) {
      ++figures_.jobs;
      SubmitJob job;
      job.spec.argv = {"true"};
      job.spec.resources.gpus = static_cast<std::int32_t>(rng_.between(1, 8));
      job.spec.resources.share = {1000, 0};
      job.user = state().users.begin()->first;
      run(job);
    }
    if (!rng_.chance(0.12) || state().jobs.empty())
      return;
    const auto& [id, job] = *state().jobs.begin();
    if (job.state == JobState::running && !job.tasks.empty()) {
      const TaskId task = job.tasks.front();
      const NodeId node = state().find_task(task)->node;
      if (!answers(state().nodes.at(node).offer.name))
        return;
      run(AgentReport{node,
                      {.task = task,
                       .state = TaskState::ended,
                       .started_at = clock_.wall(),
                       .ended_at = clock_.wall()}});
    } else {
      run(StopJob{.job = id, .reason = "enough"});
    }
  }

  void measure() {
    const WallTime now = provider_.now();
    std::set<std::string> busy;
    for (const auto& [node, tasks] : state().tasks_on)
      if (const auto at = state().nodes.find(node); at != state().nodes.end())
        busy.insert(at->second.offer.name);
    for (auto& [external, i] : provider_.instances()) {
      const WallTime until = i.to ? i.to : now;
      figures_.idle_max = std::max(figures_.idle_max, until - i.used);
      if (busy.contains(i.name) && connected_.contains(external))
        i.used = until;
    }
  }

  void step(bool faults) {
    ++figures_.steps;
    pass(milliseconds(rng_.between(1, faults ? 20'000 : 5'000)));
    if (faults && rng_.chance(0.02)) {
      ++figures_.clock_steps;
      clock_.skew_ns += seconds(rng_.between(-6 * 3600, 6 * 3600)).ns;
    }
    if (faults && rng_.chance(0.03))
      crash();
    agents(faults);
    jobs(faults);
    // The timer of a real head looks ten times a second; after every answer is as good.
    for (int i = 0; i < 4; ++i) {
      pools_->look();
      write();
      pass(milliseconds(500));
    }
    measure();
  }

  struct Due {
    std::int64_t at_ns;
    std::uint64_t order;
    std::function<void()> fn;
    bool operator<(const Due& o) const {
      return at_ns != o.at_ns ? at_ns > o.at_ns : order > o.order;
    }
  };
  Rng rng_;
  std::int64_t now_ns_ = 0;
  std::priority_queue<Due> due_;
  std::uint64_t order_ = 0;
  net::Loop loop_;  // never runs
  SimProvider provider_;
  MachineClock clock_;
  SimDisk disk_;
  std::unique_ptr<SimJournal> journal_;
  std::unique_ptr<head::Engine> engine_;
  std::unique_ptr<head::Pools> pools_;
  std::map<std::string, TokenId> tokens_;  // of instances that have joined
  std::set<std::string> connected_;        // instances
  bool names_itself_ = false;              // agents know their instance
  int fault_steps_ = 0;
  StoryFigures figures_;
};

}  // namespace

void StoryFigures::add(const StoryFigures& other) {
  machines += other.machines;
  unjoined += other.unjoined;
  heads += other.heads;
  steps += other.steps;
  clock_steps += other.clock_steps;
  jobs += other.jobs;
  idle_max = std::max(idle_max, other.idle_max);
  metered += other.metered;
  booked += other.booked;
  left += other.left;
  twins += other.twins;
}

std::string tell_pool_story(std::uint64_t seed, StoryFigures& figures) {
  Story story(seed);
  try {
    story.tell(figures);
  } catch (const Failure& failure) {
    return fmt::format("story {}: {}\nagain: ./dev sim --story {}\n", seed, failure.what, seed);
  }
  return {};
}

}  // namespace billow::sim
