// Fetches the image or the environment of one task. A process that runs as the task's user writes
// into that user's store, so a malicious image or archive gains nothing but that user's rights.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/content/content_fetch.h"
#include "agent/isolate/users.h"
#include "base/clock.h"
#include "base/result.h"
#include "container/environment.h"
#include "container/podman.h"
#include "core/model/surroundings.h"

namespace billow::agent {

// Where a fetch runs, how long it may make no progress, how it is cancelled, and where its progress
// is reported.
struct FetchControl {
  std::vector<std::string> cgroups;  // of a FetchPlace
  Duration quiet_max;
  std::shared_ptr<std::atomic<bool>> cancelled;
  std::function<void(std::string)> note;
};

// What the node's policy asks of the image that is fetched.
struct ImageTerms {
  std::string signed_by;       // a public key in PEM; empty: signatures are not needed
  bool from_registry = false;  // as in container::ImageWish
};
struct ImageRequest {
  std::string image, store, key;
  UserRecord user;
  std::uint64_t bytes_max = 0;
  ImageTerms terms;
  GivenLogin login;  // for the image's registry
};
struct EnvironmentRequest {
  std::string name, digest, store, key;
  UserRecord user;
  ContentSource source;
  std::uint64_t bytes_max = 0;
};

// Both block. An empty optional: another process of the user holds the store's lock; try again.
Result<std::optional<container::LocalImage>> fetch_image(const ImageRequest& request,
                                                         const FetchControl& control);
Result<std::optional<container::Environment>> fetch_environment(const EnvironmentRequest& request,
                                                                const FetchControl& control);

}  // namespace billow::agent
