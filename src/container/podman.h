// Images for jobs. Podman fetches them into the store of the job's user, running as that user.
//
// Podman runs in a user namespace that maps one user only, so it needs neither root nor ranges of
// subordinate uids: every file of an image belongs to the job's user. Podman fetches, verifies and
// unpacks; it starts nothing.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "container/plan.h"
#include "container/registry_login.h"
#include "core/model/image_name.h"

namespace billow::container {

struct ImageWish {
  std::string store;
  ImageName name;
  std::string key = {};  // of the task that will use it; the image is kept until that task ends
  // Disk limit for all images in the store; 0: none. The least recently used are removed first,
  // never one that a task uses.
  std::uint64_t bytes_max = 0;
  // A public key in PEM: only an image with a signature of this key is used, never one of the
  // user's own podman. Empty: any image.
  std::string signed_by = {};
  // Only an image that was pulled from the registry of its name, never one of the user's own podman
  // unless the name says so (localhost/…). For names that a policy judges.
  bool from_registry = false;
  RegistryLogin login = {};               // empty: the logins of the user on this node
  std::function<void(std::string)> note;  // receives progress texts
};
// Returns the image and fetches it if necessary. Enters namespaces, so it needs a process for
// itself. An empty optional: another process fetches it or holds the store; try again.
Result<std::optional<LocalImage>> provide_image(const ImageWish& wish);

// The directory to which a LocalImage's layers are relative.
std::string layers_dir(const std::string& store);
// Finds a program in the usual directories; the error says how to install it.
Result<std::string> find_program(const std::string& name);

}  // namespace billow::container
