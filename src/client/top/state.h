// The whole state of `billow top`, what can happen to it, and what it asks the outside to do. It
// reads no clock and no descriptor: update(state, event) and draw(state) are all of the program
// except for its terminal and its connections.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "client/top/canvas.h"
#include "client/top/fleet.h"
#include "client/top/keys.h"
#include "client/top/log_pane.h"

namespace billow::client::top {

enum class Tab { gpus, jobs, queue, endpoints, money };
inline constexpr int tab_count = 5;

// What a row, a page or an action is about.
struct Subject {
  enum class Kind { none, gpu, node, job, endpoint, account };
  Kind kind = Kind::none;
  std::string name = {};  // of the node, the endpoint or the account; a job's label
  std::uint64_t id = 0;   // of a job
  int card = -1;
  bool operator==(const Subject&) const = default;
};

struct ListState {
  Subject at;              // the item under the cursor
  int index = 0, top = 0;  // where it was last, and the first row shown
  int sort = 0, show = 0;
  bool reverse = false;
  std::string filter;
};

struct Page {
  enum class Kind { describe, log, watch };
  Kind kind = Kind::describe;
  Subject about;
  int top = 0;  // first line shown
};

struct Action {
  enum class Kind { stop, suspend, resume, drain, undrain };
  Kind kind = Kind::stop;
  std::string what;  // "job 12", "GPU 3 of box"
  std::string path, body;
  std::string question;
};

// A document that is asked for again and again while something on the screen needs it.
struct Asked {
  std::string path;  // asked for last
  std::int64_t asked_ms = 0;
  bool in_flight = false;
  std::string answered;  // the path that `answer` is of
  Json answer;
  std::string trouble;
};

struct LogState {
  Subject about;
  std::uint64_t generation = 0;  // answers to an earlier reader are dropped
  int rank = 0, ranks = 1;
  LogLines lines;
  std::string offset, trouble;
  std::uint64_t skipped_bytes = 0;  // deleted by the size limit of logs
  bool in_flight = false, begun = false, from_tail = true;
  std::int64_t asked_ms = 0;
  bool follow = true, wrap = true;
  int top = 0, match = -1;  // first line shown if it does not follow; the line that was found
  std::string search;
};

struct State {
  bool utf8 = true;
  bool watching = false;  // billow watch: there is no list below the page
  Fleet fleet;
  Size size;
  std::int64_t now_ms = 0, sampled_ms = 0;
  Tab tab = Tab::gpus;
  ListState lists[tab_count];
  std::optional<bool> by_node;  // one row per node; not chosen: in large fleets
  bool pane = true;             // charts of the row under the cursor, where the screen has rows
  std::vector<Page> pages;      // the last one is shown
  bool help = false;
  enum class Typing { none, filter, search } typing = Typing::none;
  std::string typed;
  std::optional<Action> question;
  bool acting = false;  // the head has not answered yet
  std::string message;
  bool message_bad = false;
  std::int64_t message_ms = 0;
  std::optional<std::int64_t> away_ms;  // since when the head does not answer
  std::map<std::string, Asked> asked;
  LogState log;

  ListState& list() { return lists[static_cast<int>(tab)]; }
  const ListState& list() const { return lists[static_cast<int>(tab)]; }
  const Page* page() const { return pages.empty() ? nullptr : &pages.back(); }
  bool folded() const;  // one row per node
  // The answer in a slot if it is of this path, else null.
  const Json& answer(const std::string& slot, const std::string& path) const;
};

// ---- events
struct Resize {
  Size size;
};
struct Tick {
  std::int64_t now_ms = 0;
};
struct LiveBegins {};
struct LivePiece {
  Json piece;
};
struct HeadAway {};
struct Fetched {
  std::string slot, path;
  Result<Json> answer;
};
struct Acted {
  Action action;
  Result<Json> answer;
};
struct LogRead {
  std::uint64_t generation = 0;
  std::string bytes, resume_at;
  std::uint64_t skipped_bytes = 0;
  Status status;
};
using Event = std::variant<Key,
                           Mouse,
                           Paste,
                           Resize,
                           Tick,
                           LiveBegins,
                           LivePiece,
                           HeadAway,
                           Fetched,
                           Acted,
                           LogRead>;

// ---- effects
struct Quit {};
struct PauseProgram {};  // Ctrl-Z
struct Fetch {
  std::string slot, path;
};
struct Act {
  Action action;
};
struct ReadLog {
  std::uint64_t generation = 0;
  std::string job, rank, offset;  // no offset: the last part
};
using Effect = std::variant<Quit, PauseProgram, Fetch, Act, ReadLog>;
using Effects = std::vector<Effect>;

Effects update(State& state, const Event& event);

// ---- the screen
struct Hit {
  enum class Kind { row, tab, title };
  Kind kind = Kind::row;
  int row = 0, col = 0, width = 0;
  int number = 0;  // of the row in its list, the tab, or the order of the column
};
struct Screen {
  Canvas canvas;
  std::vector<Hit> hits;
};
Screen draw(const State& state);

// Where things stand on a list's screen.
struct Geometry {
  int titles = 2, body = 3, body_rows = 0, pane = 0, pane_rows = 0, status = 0, foot = 0;
};
Geometry geometry(const State& state);

// ---- shared by the parts of update and draw
// The job that an action on the present row or page is about, or why there is none.
Result<Subject> job_of_cursor(const State& state);
Subject cursor(const State& state);  // of the page, else of the list
// How many rows of the screen a log has, and its first line.
int log_rows(const State& state);
int log_top(const State& state, int rows);
std::vector<std::string> describe_lines(const State& state, const Subject& about);
int describe_rows(const State& state);
std::string detail_path(const Subject& about);  // empty: there is no document to ask for
std::string history_path(const Subject& about);
std::string explain_path(const Subject& about);
inline constexpr const char* spending_path = "/v1/history/fleet?span_s=3600&points=300";
std::string spent_path(const Subject& account);

}  // namespace billow::client::top
