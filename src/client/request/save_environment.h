// The end of every way to save an environment: what was packed into a staging directory goes to the
// head, under its name.
#pragma once

#include <memory>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "client/frame/client.h"
#include "client/frame/terminal.h"
#include "files/image.h"

namespace billow::client {

// Beside the user's other caches, and gone with this object, also by Ctrl-C.
class Staging {
 public:
  static Result<std::unique_ptr<Staging>> create();
  ~Staging() { (void)remove_tree(path); }
  const std::string base, path;

 private:
  Staging(std::string b, std::string p) : base(std::move(b)), path(std::move(p)) {}
  // What is being written may come anew while it is removed.
  OnInterrupt left_{"the environment was not saved", [this] {
                      for (int i = 0; i < 10 && !remove_tree(path); ++i) {}
                    }};
};

int finish_save(const Parsed& parsed,
                Client& client,
                const std::string& name,
                const std::string& staged,
                const files::WrittenImage& written,
                const std::string& place,
                const std::string& origin,
                const Json& variables);

}  // namespace billow::client
