// Reconciles the machines in the state with the engines they come from. It takes no input and is
// idempotent: it looks at the state, lists the engine's machines, orders missing ones, deletes
// released ones, and ends those that were never ordered. Each pool has its own threads, because an
// engine's tools may be slow: one for lists and questions, and one for each machine that is being
// ordered or ended. None of them waits for another.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "head/engine.h"
#include "net/loop.h"
#include "pool/node_facts.h"
#include "pool/pool.h"
#include "pool/program.h"

namespace billow::head {

class Pools {
 public:
  // Requests of one kind to one provider.
  struct Lane {
    virtual ~Lane() = default;  // what has not been delivered is dropped
    // `work` may block; what it returns runs on the loop.
    virtual Status submit(std::function<std::function<void()>()> work) = 0;
  };
  struct Options {
    pool::Options engine;
    std::function<std::string()> head_url;     // for pools that name none
    std::function<std::string()> fingerprint;  // of the head's authority; empty: none
    UserId owner;                              // whose credentials its machines get
    std::function<std::string()> authority;    // its certificate, PEM
    std::string program_dir;                   // where this program and its companions are
    std::function<Result<std::string>(const Pool&)> credential;  // the pool's API key, in clear
    std::function<bool(NodeId)> needed;  // something is still to be fetched from the node
    // Speaks to a pool's provider; empty: as its kind says.
    std::function<Result<std::unique_ptr<pool::Pool>>(const Pool&, const pool::Options&)> make = {};
    // Carries out one kind of request to a provider; empty: on threads of its own.
    std::function<std::unique_ptr<Lane>()> lane = {};
  };
  using Answer = std::function<void(Result<Json>)>;
  Pools(net::Loop& loop, const Clock& clock, std::function<Engine&()> engine, Options options);
  // Waits for requests that are under way, not for all that were planned: the next head looks again
  // at what exists.
  ~Pools();
  void look();  // on a timer
  // Something happened that may need a machine or have ended one: look soon instead of at the next
  // turn of the timer.
  void heard(const Event& event);
  // A question to the provider, answered when its thread is free (pool_questions.cpp).
  void ask_provider(const std::string& pool, pool::Question question, Answer answer);
  // Why the provider does not list its machines; empty: it does.
  std::string trouble(PoolId id) const;
  // Where the provider's machines are, for people; empty: not known.
  std::string place(PoolId id) const;
  // That a machine is being deleted and its provider lists nothing, or that its tasks have not
  // ended yet; empty: neither.
  std::string ending(const Machine& machine) const;
  // Completes what a node says of itself by what its provider knows.
  void complete(NodeOffer& offer);
  // The agent of a machine that is waited for was refused: its note says why, until it has joined.
  void note_refused(const std::string& machine, const std::string& why);
  // Why its provider takes this node away, in the provider's words; empty: not known.
  std::string why_leaving(const std::string& node);
  // What machines fetch from this head; null: it could not be read.
  std::shared_ptr<const pool::Program> program();

 private:
  static constexpr std::size_t ask_at_once_max = 8;
  pool::NodeFacts facts_of(const std::string& node);  // nothing: no pool knows it
  struct Lacking {
    SteadyTime since;
    int lists = 0;
  };
  // A machine's name and external name: a provider may have two machines of one name.
  using Sought = std::pair<std::string, std::string>;
  // What its provider was asked, to end a machine.
  struct Ending {
    bool under_way = false;
    SteadyTime since;     // first request without effect; zero: it agreed
    SteadyTime answered;  // last
    SteadyTime agreed;    // first
    SteadyTime said;      // that the machine still runs; last
    std::string error;
  };
  struct Running {
    std::unique_ptr<pool::Pool> pool;
    std::unique_ptr<Lane> lists, orders, releases;
    bool listing = false, attaching = false, extending = false;
    std::size_t ending = 0;  // machines, at present
    bool busy() const {
      return listing || !in_flight.empty() || ending > 0 || attaching || extending;
    }
    SteadyTime next_look, next_order;
    SteadyTime list_asked;  // the newest
    SteadyTime ordered_at;  // when the last order was answered, or this head started
    std::map<std::string, SteadyTime>
        asked;  // machines that the engine accepted since this head started
    std::set<std::string>
        tried;  // machines it was asked for: it may have created one without saying so
    std::map<std::string, SteadyTime> emptying;  // released, and tasks still run there: since when
    std::set<std::string> given_back;  // without an id: a list was asked for, which may tell it
    std::map<Sought, Ending> endings;
    std::set<std::string> in_flight;                // they are being ordered
    std::set<std::string> extended;                 // the engine was asked to make them end later
    std::map<std::string, SteadyTime> attempted;    // when the last order of a machine was answered
    std::map<std::string, std::string> unanswered;  // machines whose last order had no answer: why
    std::map<std::string, std::string> refused;     // machines whose agent was refused last: why
    std::set<std::string> absent;              // not in a list that was made after the last attempt
    std::map<std::string, SteadyTime> strays;  // by external name: when they were listed first
    SteadyTime unlisted_since, unlisted_said;  // while the provider does not list its machines
    std::string list_error, order_error, release_error, attach_error;
    SteadyTime next_offers;
    std::map<std::string, Lacking> lacking;           // machines that the newest lists lack
    std::map<std::string, SteadyTime> missing_since;  // the same of pools that rent no offers
    std::map<std::string, SteadyTime> shown;  // machines that do not end: by which list last
  };
  struct Asked;
  struct Demand {
    std::vector<pool::Order> wanted;
    bool needs_list = false;  // before more can be ordered
    bool moving = false;      // a machine is coming or going, or may be gone
  };
  void inherit();
  Running* running(PoolId id, const Pool& settings);
  bool may_answer(const Node& node, PoolId pool, const std::string& machine) const;
  bool is_held(const std::string& disk) const;
  bool still_busy(PoolId pool, const std::string& machine) const;
  bool must_wait(PoolId id, Running& running, const std::string& machine);
  Duration time_to_empty(PoolId pool, const std::string& machine) const;
  bool answers(PoolId pool, const std::string& machine) const;
  Demand demand_of(PoolId id, const Pool& settings, const Running& running);
  void begin(PoolId id);
  void begin_order(PoolId id, const Pool& settings, Running& running, pool::Order order);
  void issue_token(PoolId id, const Pool& settings, const std::shared_ptr<Asked>& asked);
  void create(PoolId id, const std::shared_ptr<Asked>& asked);
  void created(PoolId id, const Asked& asked, const pool::Ordered& made);
  void list(PoolId id, Running& running);
  void listed(PoolId id,
              const Result<std::vector<MachineSighting>>& found,
              WallTime began,
              SteadyTime steady);
  void stop_watching(PoolId id);
  void note_unlisted(PoolId id, Running& running);
  void add_ended(PoolId id,
                 const Running& running,
                 SteadyTime asked,
                 std::vector<MachineSighting>& listed) const;
  static bool rents(const Pool& settings);
  void attach_caches(PoolId id, Running& running, const std::vector<MachineSighting>& listed);
  void extend(PoolId id, Running& running, const std::vector<MachineSighting>& listed);
  void release_known(PoolId id, Running& running);
  void release_listed(PoolId id,
                      Running& running,
                      const std::vector<MachineSighting>& listed,
                      SteadyTime asked);
  bool can_end_unlisted(const Running& running, const Machine& machine) const;
  void end_machines(PoolId id, Running& running, std::vector<MachineSighting> machines);
  void end_machine(PoolId id, const MachineSighting& machine);
  void ended(PoolId id, const MachineSighting& machine, const Status& done);
  using Ended = std::pair<const Sought, Ending>;
  static const Ended* ending_of(const Running& running,
                                const std::string& name,
                                const std::string& external);
  std::string why_not_ended(const Ending& ending) const;
  void note_not_ended(PoolId id, Running& running);
  std::map<std::string, Duration> ended_for(PoolId id, const Running& running) const;
  std::vector<MachineSighting> strays(Running& running, std::vector<MachineSighting> found) const;
  void forget_ended(Running& running);
  std::string name_of(PoolId id) const;
  static void note_error(const std::string& pool, std::string& last, const std::string& error);
  static void note_unanswered(const std::string& pool, Running& running);
  void report_refusal(const std::string& pool, const Asked& asked, const pool::Refusal& refusal);
  void refresh_offers(PoolId id, Running& running);
  void note_missing(PoolId id,
                    Running& running,
                    const std::set<std::string>& there,
                    SteadyTime began);
  void add_undecided(PoolId id, Running& running, std::vector<MachineSighting>& listed);
  void add_unanswered(PoolId id, Running& running, std::vector<MachineSighting>& listed) const;
  bool may_exist(const Running& running, const Machine& machine) const;
  std::string join_secret(const Machine& machine);
  void look_again_soon();

  net::Loop& loop_;
  const Clock& clock_;
  std::function<Engine&()> engine_;
  Options options_;
  std::atomic<bool> ending_ = false;  // threads begin no more requests
  std::map<PoolId, std::unique_ptr<Running>> running_;
  SteadyTime planned_at_;
  Duration plan_took_;
  SteadyTime began_;
  bool looked_ = false;
  std::set<std::string> inherited_;  // machines that an earlier head may have ordered
  net::Timer nudge_;
  bool nudged_ = false;
  std::shared_ptr<const pool::Program> program_;
  std::map<std::string, std::string> secrets_;  // join tokens of machines that may be asked again
};

}  // namespace billow::head
