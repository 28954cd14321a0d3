// A simulated head: the real Engine and AgentLinks on a SimJournal, and connections that can be
// slow, late, doubled and cut.
#pragma once

#include "head/agent_links.h"
#include "head/engine.h"
#include "head/pools.h"
#include "world.h"

namespace billow::sim {

// One connection. Frames keep their order within a direction. A cut is noticed by each side in its
// own time, and what was under way when it happened may still arrive, late.
struct Conn final : head::AgentLink, std::enable_shared_from_this<Conn> {
  World& world;
  SimNode* agent;
  SimHead* head;  // null once that head is gone
  bool agent_open = true, head_open = true, cut = false;
  std::int64_t late_ns = 0;  // what is under way is held up until then
  std::int64_t to_agent_ns = 0, to_head_ns = 0;

  Conn(World& w, SimNode* a, SimHead* h) : world(w), agent(a), head(h) {}
  wire::agent_v1::ToAgent with_secrets(wire::agent_v1::ToAgent message) const;
  bool send(const wire::agent_v1::ToAgent& message, std::string_view blob) override;
  bool open() const override { return head_open; }
  void close(std::string_view why) override;
  std::string peer() const override;

  void send_to_head(const wire::agent_v1::FromAgent& message);
  void close_by_agent();
  void cut_wire();
  void head_gone(Duration notice);
  bool sound() const;  // what one side sends would reach the other, and both know each other

 private:
  std::int64_t arrival(std::int64_t& last);
  void to_agent(std::string frame);
  void to_head(std::string frame);
};

class SimHead {
 public:
  explicit SimHead(World& world);
  ~SimHead();

  bool start();  // false: the journal could not be replayed
  void crash();  // and everything it held in memory with it
  void every_second();
  void on_frame(const std::shared_ptr<Conn>& conn, std::string_view frame);
  void on_closed(const std::shared_ptr<Conn>& conn);
  // Decides and journals, as the API would; `done` may never come.
  void execute(const Command& command, head::Engine::Done done);
  Status accepting_work() const;
  // The journal alone makes the state that lives here: from its newest snapshot on and, if `whole`,
  // from its beginning.
  void check_replay(bool whole);
  // Both at once, so that the image is written and read once: it is compared with what the snapshot
  // before it makes, and saved.
  void check_replay_and_save();
  void check_state();
  void save_snapshot();

  World& world;
  bool alive = true;
  bool dying = false;  // crashed in the middle of something: nothing more leaves
  bool deposed = false;
  std::map<std::string, std::string>
      secrets;  // as the journal has them, what is sealed for the value itself
  SimJournal journal;
  std::unique_ptr<head::Engine> engine;
  std::unique_ptr<head::AgentLinks> sessions;
  std::unique_ptr<net::Loop> loop;     // never runs
  std::unique_ptr<head::Pools> pools;  // of long runs
  std::vector<std::weak_ptr<Conn>> conns;

 private:
  void pump();
  void start_pools();
  void check();
  void maybe_crash(const char* where);
  void save(Snapshot snapshot);
  void check_index(const control::State& imaged) const;
  void check_replay_of(const std::string& live, bool whole) const;
  Result<control::State> read_snapshot(const Snapshot& snapshot) const;
  void check_replayed(const control::State& state,
                      const std::string& live,
                      bool from_snapshot) const;
  bool idle() const;  // the journal's writer has nothing to do
  void look_back();

  bool pumping_ = false;
  Seq checked_ = 0;
  int unchecked_ = 0;  // changes since the state was checked
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace billow::sim
