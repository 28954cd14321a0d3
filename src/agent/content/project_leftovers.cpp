#include "agent/content/project_leftovers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>

#include "agent/content/project_cache.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "container/environment.h"
#include "container/image_store.h"
#include "core/model/surroundings.h"

namespace billow::agent {
namespace {

constexpr const char* objects_noted = "objects";
constexpr std::size_t note_bytes_max = 16 << 20;

std::string notes_dir(const std::string& data_dir) {
  return data_dir + "/residue";
}
std::string note_path(const std::string& data_dir, const std::string& project) {
  return notes_dir(data_dir) + "/" + sha256_hex(project).substr(0, 40);
}

// The project's name and what its jobs fetched: "tree DIGEST", "environment DIGEST", "objects".
struct Note {
  std::string project;
  std::set<std::string> things;
};
Result<Note> read_note(const std::string& path) {
  const std::string text = BILLOW_TRY(read_file(path, note_bytes_max));
  Note note;
  for (const std::string& line : split(text, '\n')) {
    if (line.empty())
      continue;
    if (note.project.empty())
      note.project = line;
    else
      note.things.insert(line);
  }
  if (note.project.empty())
    return fail(Code::invalid, path + " names no project");
  return note;
}
std::vector<Note> all_notes(const std::string& data_dir) {
  std::vector<Note> notes;
  for (const std::string& name : container::names_in(notes_dir(data_dir)))
    if (auto note = read_note(notes_dir(data_dir) + "/" + name))
      notes.push_back(std::move(*note));
  return notes;
}

// Removes it from the store of every user.
Status remove_environment(const std::string& work_dir, const std::string& digest) {
  if (!files::parse_digest(digest))
    return {};  // not a name that we wrote
  const std::string stores = work_dir + "/boxes";
  for (const std::string& user : container::names_in(stores)) {
    const std::string store = stores + "/" + user, path = container::environment_dir(store, digest);
    if (!file_exists(path))
      continue;
    if (container::in_use(store, digest))
      return fail(Code::conflict, fmt::format("environment {} is in use", digest.substr(0, 12)));
    container::remove_from_store(store, "env",
                                 [&](const std::string& name) { return name == digest; });
    if (file_exists(path))
      return fail(Code::conflict, fmt::format("environment {} cannot be removed", path));
  }
  return {};
}

}  // namespace

Status note_leftovers(const std::string& data_dir, const wire::agent_v1::Start& start) {
  const auto project = start.env.find("BILLOW_PROJECT");
  if (project == start.env.end() || project->second.find('\n') != std::string::npos)
    return {};
  std::set<std::string> things;
  if (const auto tree = start.env.find(surroundings::files); tree != start.env.end())
    things.insert("tree " + tree->second);
  if (!start.surroundings.environment_digest.empty())
    things.insert("environment " + start.surroundings.environment_digest);
  if (!start.surroundings.inputs.empty())
    things.insert(objects_noted);
  // Every job has its project's cache directory, so the project is recorded even if nothing is
  // fetched.
  const std::string path = note_path(data_dir, project->second);
  auto known = read_note(path);
  if (known && std::ranges::includes(known->things, things))
    return {};
  if (known)
    things.insert(known->things.begin(), known->things.end());
  std::string text = project->second + "\n";
  for (const std::string& thing : things)
    text += thing + "\n";
  BILLOW_TRY_VOID(make_directories(notes_dir(data_dir), 0700));
  return write_file_atomic(path, text, 0600);
}

std::vector<std::string> leftover_projects(const std::string& data_dir) {
  std::vector<std::string> projects;
  for (const Note& note : all_notes(data_dir))
    projects.push_back(note.project);
  return projects;
}

Status remove_leftovers(const CachePlaces& places, const std::vector<std::string>& projects) {
  std::set<std::string> leave, others;
  std::vector<Note> going;
  for (Note& note : all_notes(places.data_dir)) {
    const bool goes = std::ranges::find(projects, note.project) != projects.end();
    (goes ? leave : others).insert(note.things.begin(), note.things.end());
    if (goes)
      going.push_back(std::move(note));
  }
  if (going.empty())
    return {};
  std::vector<Sha256> trees;
  // What is in use now: tried again in the next round, and no reason to keep anything else. Users
  // write into their own stores what they use.
  std::set<std::string> kept;
  Status trouble;
  for (const std::string& thing : leave) {
    if (others.contains(thing) && thing != objects_noted)
      continue;
    if (thing.starts_with("tree ")) {
      if (const auto digest = files::parse_digest(thing.substr(5)))
        trees.push_back(*digest);
    } else if (thing.starts_with("environment ")) {
      if (Status gone = remove_environment(places.work_dir, thing.substr(12)); !gone) {
        kept.insert(thing);
        trouble = std::move(gone);
      }
    } else if (thing == objects_noted) {
      // It is not recorded which project fetched which object, so all unused ones are removed.
      places.objects.forget_unused();
    }
  }
  BILLOW_TRY_VOID(places.store.forget(trees));
  const OwnPlace work = BILLOW_TRY(OwnPlace::at(places.work_dir));
  for (const Note& note : going) {
    const std::string cache = BILLOW_TRY(project_cache(work, places.data_dir, note.project));
    BILLOW_TRY_VOID(remove_tree(cache));
    if (std::ranges::any_of(note.things,
                            [&](const std::string& thing) { return kept.contains(thing); }))
      continue;
    if (::unlink(note_path(places.data_dir, note.project).c_str()) != 0 && errno != ENOENT)
      return fail_errno(note_path(places.data_dir, note.project), errno);
    log_info("project {} may no longer use this node: removed its data from the caches",
             note.project);
  }
  return trouble;
}

LeftoverWatch::LeftoverWatch(net::Loop& loop, CachePlaces places, Options options)
    : places_(std::move(places)),
      options_(std::move(options)),
      workers_(std::make_unique<net::Workers>(
          loop, net::Workers::Options{.threads = 1, .queue_max = 4})) {
  timer_ = loop.every(options_.every, [this] { look(); });
}

LeftoverWatch::~LeftoverWatch() {
  workers_.reset();
}

void LeftoverWatch::look() {
  if (looking_)
    return;  // the last round still waits for the head or removes files
  const std::string node = options_.node();
  if (node.empty())
    return;
  looking_ = true;
  const auto work = [places = places_, head = options_.head(), node]() -> Status {
    const std::vector<std::string> projects = leftover_projects(places.data_dir);
    if (projects.empty())
      return {};
    Json names = Json::array();
    for (const std::string& project : projects)
      names.push(project);
    const std::string answer =
        BILLOW_TRY(ask_head(head, net::Method::post, "/v1/files/residency",
                            Json::object({{"node", node}, {"projects", std::move(names)}}).dump()));
    const Json said = BILLOW_TRY(parse_json(answer));
    std::vector<std::string> leave;
    for (const Json& project : said["leave"].items())
      leave.emplace_back(project.str_or(""));
    return leave.empty() ? Status{} : remove_leftovers(places, leave);
  };
  const Status queued = workers_->submit(work, [this](const Status& done) {
    looking_ = false;
    // A head that is unreachable or older is asked again later without a warning.
    if (!done && done.error().code != Code::unavailable && done.error().code != Code::not_found)
      log_warn("could not remove leftover project data: {}", done.error().message);
  });
  if (!queued)
    looking_ = false;
}

}  // namespace billow::agent
