// The routes of volumes: paths that some nodes have, declared by an admin, mounted into jobs by
// name.
#include <fmt/format.h>

#include "api/call.h"
#include "base/text.h"
#include "core/wire/codec.h"

namespace billow::api::volumes {
namespace {

struct VolumeBody {
  std::string name, path, pool;
  std::map<std::string, std::string> node_labels;
  std::vector<std::string> projects;
  bool read_only = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("path", s.path);
    v("pool", s.pool);
    v("node_labels", s.node_labels);
    v("projects", s.projects);
    v("read_only", s.read_only);
  }
};

// Everybody's, or of a project that the caller may see.
bool volume_visible(const Call& call, const Volume& volume) {
  if (volume.projects.empty() || call.may(Permission::volumes_change))
    return true;
  const auto& state = call.host.state();
  return std::any_of(volume.projects.begin(), volume.projects.end(), [&](const std::string& name) {
    const Project* project = state.project_by_name(name);
    return project && control::sees(state, call.principal, project->id);
  });
}

}  // namespace

void list(CallPtr call) {
  Json all = Json::array();
  const auto& state = call->host.state();
  for (const auto& [name, volume] : state.volumes) {
    if (!volume_visible(*call, volume))
      continue;
    Json labels = Json::object(), projects = Json::array();
    for (const auto& [key, value] : volume.node_labels)
      labels.set(key, value);
    for (const std::string& project : volume.projects)
      projects.push(project);
    all.push(Json::object({{"name", volume.name},
                           {"path", volume.path},
                           {"pool", volume.pool},
                           {"node_labels", std::move(labels)},
                           {"projects", std::move(projects)},
                           {"read_only", volume.read_only},
                           {"by", volume.by},
                           {"at", format_utc(volume.at)}}));
  }
  call->reply_durable(200, Json::object({{"volumes", std::move(all)}}));
}

void add(CallPtr call) {
  auto body = read_body<VolumeBody>(call);
  if (!body)
    return;
  Volume volume;
  volume.name = std::move(body->name);
  volume.path = std::move(body->path);
  volume.pool = std::move(body->pool);
  volume.node_labels = std::move(body->node_labels);
  volume.projects = std::move(body->projects);
  volume.read_only = body->read_only;
  call->execute(DeclareVolume{call->principal.user, std::move(volume)}, 201,
                [](const std::vector<Event>&) {
                  return Json::object({{"ok", true}});
                });
}

void remove(CallPtr call) {
  call->execute(RemoveVolume{call->parts[0]}, 200, [](const std::vector<Event>&) {
    return Json::object({{"ok", true}});
  });
}

}  // namespace billow::api::volumes
