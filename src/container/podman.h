// Images for jobs: brought and kept by podman, in a store of the job's user, as that user and with
// nothing more than it has.
//
// Everything podman does here happens in a user namespace with one user in it, so that it needs
// neither root nor ranges of other people's numbers: every file of an image belongs to the job's
// user. Podman brings, checks and unpacks; it starts nothing.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "container/plan.h"
#include "core/model/image_name.h"

namespace billow::container {

struct ImageWish {
  std::string store;
  ImageName name;
  std::string key =
      {};  // of the task that is to run in it: until it has ended, the image is not taken away
  std::uint64_t bytes_max = 0;  // of all images of the store, on the disk; 0: no limit. The longest
                                // unused go first, none that a task uses
  std::function<void(std::string)> note;  // what is waited for, now and then
};
// The image, brought if it is not here. Enters namespaces: for a process of its own. None: another
// process is at it; nobody waits for it here, ask again.
Result<std::optional<LocalImage>> provide_image(const ImageWish& wish);

// The directory to which a LocalImage's layers are relative.
std::string layers_dir(const std::string& store);
// Where a program is, by the usual directories; an error says how to install it.
Result<std::string> find_program(const std::string& name);

// How far a pull has come, from what podman draws on a terminal.
class PullProgress {
 public:
  // What was printed. True where a figure changed.
  bool take(std::string_view text);
  std::int64_t done_bytes() const;
  std::int64_t total_bytes() const;                  // of the layers begun so far
  std::string text(const std::string& image) const;  // "pulling docker.io/x: 312 of 1,900 MB"

 private:
  struct Layer {
    std::string name;
    std::int64_t done = 0, total = 0;
  };
  void line(std::string_view text);
  std::string partial_;
  std::vector<Layer> layers_;
  bool changed_ = false;
};

}  // namespace billow::container
