// What a project has by name and its jobs refer to: secrets, saved environments, volumes. Each has
// its own events; src/core/model/surroundings.h describes how jobs use them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace billow {

// Identified by project and name. The value arrives here already sealed with the installation's
// key, or it is in a secret backend and only its place is known here.
struct Secret {
  ProjectId project;
  std::string name;
  std::string sealed;
  std::string by;  // who set it
  WallTime at;
  std::string reference;  // "BACKEND:PATH#KEY": fetched when a job starts; then `sealed` is empty
  bool operator==(const Secret&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("project", s.project);
    v("name", s.name);
    v("sealed", s.sealed);
    v("by", s.by);
    v("at_ns", s.at);
    v("reference", s.reference);
  }
};

// A directory tree stored by content, or a root file system extracted from an image. Saving again
// under the same name replaces the content; jobs submitted before keep the old one.
struct SavedEnvironment {
  ProjectId project;
  std::string name;
  std::string digest;      // of its content
  std::string path;        // where it is mounted: where it was captured; "/" for a root file system
  std::string origin;      // for people: "/home/ana/venv on gpu-1", "docker.io/library/python:3.12"
  std::int64_t bytes = 0;  // unpacked
  std::int64_t stored_bytes = 0;
  std::map<std::string, std::string> variables;  // set for jobs in it; a job's own variables win
  bool shared = false;                           // other projects may use it, as PROJECT/NAME
  std::string by;
  WallTime at;
  bool published = false;  // by an admin: other projects may use it by its name alone
  bool operator==(const SavedEnvironment&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("project", s.project);
    v("name", s.name);
    v("digest", s.digest);
    v("path", s.path);
    v("origin", s.origin);
    v("bytes", s.bytes);
    v("stored_bytes", s.stored_bytes);
    v("variables", s.variables);
    v("shared", s.shared);
    v("by", s.by);
    v("at_ns", s.at);
    v("published", s.published);
  }
};

// A path that some nodes have: a local disk or a shared file system. Identified by its name.
struct Volume {
  std::string name;
  std::string path;                                // on those nodes
  std::string pool;                                // only on nodes of this pool; empty: of any
  std::map<std::string, std::string> node_labels;  // only on nodes with these
  std::vector<std::string> projects;               // whose jobs may use it; empty: all
  bool read_only = false;
  std::string by;
  WallTime at;
  bool operator==(const Volume&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("path", s.path);
    v("pool", s.pool);
    v("node_labels", s.node_labels);
    v("projects", s.projects);
    v("read_only", s.read_only);
    v("by", s.by);
    v("at_ns", s.at);
  }
};

// ---- events
struct SecretSet {
  static constexpr const char* kind = "secret_set";
  Secret secret;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("secret", s.secret);
  }
};
struct SecretRemoved {
  static constexpr const char* kind = "secret_removed";
  ProjectId project;
  std::string name;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("project", s.project);
    v("name", s.name);
  }
};
// Values that are sealed with another key from now on. They are the same values, so neither who set
// them nor when changes.
struct ResealedSecret {
  ProjectId project;
  std::string name;
  std::string sealed;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("project", s.project);
    v("name", s.name);
    v("sealed", s.sealed);
  }
};
struct ResealedPool {
  PoolId pool;
  std::string sealed;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("pool", s.pool);
    v("sealed", s.sealed);
  }
};
struct SecretsResealed {
  static constexpr const char* kind = "secrets_resealed";
  std::vector<ResealedSecret> secrets;
  std::vector<ResealedPool> pools;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("secrets", s.secrets);
    v("pools", s.pools);
  }
};
struct EnvironmentSaved {
  static constexpr const char* kind = "environment_saved";
  SavedEnvironment environment;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("environment", s.environment);
  }
};
struct SavedEnvironmentRemoved {
  static constexpr const char* kind = "saved_environment_removed";
  ProjectId project;
  std::string name;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("project", s.project);
    v("name", s.name);
  }
};
struct VolumeDeclared {
  static constexpr const char* kind = "volume_declared";
  Volume volume;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("volume", s.volume);
  }
};
struct VolumeRemoved {
  static constexpr const char* kind = "volume_removed";
  std::string name;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
  }
};

// ---- commands; `project` by name, empty: the user's default
struct SetSecret {
  std::string project;
  UserId user;
  std::string name;
  std::string sealed;
  std::string reference = {};  // instead of a value
};
// `was` and what replaces it, in the same order. A value that has changed meanwhile stays.
struct ResealSecrets {
  std::vector<ResealedSecret> was, secrets;
  std::vector<ResealedPool> pools_were, pools;
};
struct RemoveSecret {
  std::string project;
  UserId user;
  std::string name;
};
struct SaveEnvironment {
  std::string project;
  UserId user;
  SavedEnvironment environment;
  bool by_admin = false;  // of the installation: may publish it, and replace a published one
};
struct RemoveEnvironment {
  std::string project;
  UserId user;
  std::string name;
  bool by_admin = false;
};
struct DeclareVolume {
  UserId user;
  Volume volume;
};
struct RemoveVolume {
  std::string name;
};

// Limits, beside the values.
namespace limits {
inline constexpr std::size_t secrets_max = 10'000;
inline constexpr std::size_t secret_bytes_max = 64 << 10;
inline constexpr std::size_t saved_environments_max = 10'000;
inline constexpr std::size_t volumes_max = 1000;
inline constexpr std::size_t surroundings_max =
    64;  // volumes, secrets, inputs or outputs of one job, of each kind
}  // namespace limits

}  // namespace billow
