#include "agent/isolate/tree_removal.h"

#include <dirent.h>
#include <fmt/format.h>
#include <stdio.h>

#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "base/crypto.h"
#include "base/file.h"
#include "base/files/remove_tree.h"
#include "base/log.h"

namespace billow::agent {
namespace {

constexpr std::string_view gone_prefix = "gone.";
// A directory with millions of files does not keep the next one waiting.
constexpr std::size_t threads = 2;
constexpr std::size_t waiting_max = 1 << 16;

}  // namespace

TreeRemoval::TreeRemoval(net::Loop& loop, Remove remove)
    : remove_(remove ? std::move(remove)
                     : [](const std::string& path) { return remove_tree_of_user(path); }),
      waiting_(std::make_shared<Waiting>()),
      workers_(std::make_unique<net::Workers>(
          loop, net::Workers::Options{.threads = threads, .queue_max = waiting_max})) {}

Status TreeRemoval::remove(const std::string& path) {
  const std::string gone =
      fmt::format("{}/{}{}", path.substr(0, path.rfind('/')), gone_prefix, hex(random_bytes(8)));
  if (::rename(path.c_str(), gone.c_str()) == 0)
    later(gone);
  else if (errno != ENOENT)
    return fail_errno("rename " + path, errno);
  return {};
}

void TreeRemoval::remove_left(const std::string& directory) {
  DIR* dir = ::opendir(directory.c_str());
  if (!dir)
    return;
  std::vector<std::string> names;
  while (const dirent* item = ::readdir(dir))
    if (std::string_view(item->d_name).starts_with(gone_prefix))
      names.emplace_back(item->d_name);
  ::closedir(dir);
  for (const std::string& name : names)
    later(directory + "/" + name);
}

// What does not fit into the queue is removed with the next one, or by the next agent.
void TreeRemoval::later(const std::string& path) {
  waiting_->lock()->push_back(path);
  if (!workers_) {
    (void)remove_next(*waiting_, remove_);
    return;
  }
  (void)workers_->submit([waiting = waiting_, remove = remove_]() -> std::function<void()> {
    (void)remove_next(*waiting, remove);
    return {};
  });
}

bool TreeRemoval::remove_next(Waiting& waiting, const Remove& remove) {
  std::string next;
  {
    auto paths = waiting.lock();
    if (paths->empty())
      return false;
    next = std::move(paths->front());
    paths->pop_front();
  }
  if (const Status removed = remove(next); !removed)
    log_warn("{}", removed.error().message);
  return true;
}

void TreeRemoval::finish() {
  while (remove_next(*waiting_, remove_)) {}
  workers_.reset();  // waits for what is being removed
}

}  // namespace billow::agent
