#include "container/podman.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pty.h>
#include <pwd.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/clock.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "container/namespaces.h"
#include "container/store.h"
#include "process/spawn.h"

namespace billow::container {
namespace {

constexpr std::size_t output_bytes_max = 16 << 20;
constexpr Duration note_every = milliseconds(500);
constexpr Duration lock_patience =
    seconds(2);  // for what others do under the store's lock: a look, a mark

struct Ran {
  int code = 0;
  std::string out, err;
};

// Runs it to its end. With `terminal`, what it draws goes there instead.
Result<Ran> run(const std::vector<std::string>& argv,
                const std::vector<std::string>& env,
                const std::function<void(std::string_view)>& terminal = {}) {
  process::Spawn request{.argv = argv, .env = env, .on_parent_death = SIGKILL};
  Fd a, b, theirs_a, theirs_b;
  if (terminal) {
    winsize size{};
    size.ws_row = 60;
    size.ws_col = 220;  // podman prints no figures on a narrow one
    int master = -1, slave = -1;
    if (::openpty(&master, &slave, nullptr, nullptr, &size) != 0)
      return fail_errno("openpty", errno);
    a = Fd(master);
    theirs_a = Fd(slave);
    ::fcntl(master, F_SETFD, FD_CLOEXEC);
    request.terminal = slave;
  } else {
    process::Pipe out = BILLOW_TRY(process::Pipe::create()),
                  err = BILLOW_TRY(process::Pipe::create());
    a = std::move(out.read);
    b = std::move(err.read);
    theirs_a = std::move(out.write);
    theirs_b = std::move(err.write);
    request.out = theirs_a.get();
    request.err = theirs_b.get();
    request.group = process::Group::ours;
  }
  process::Child child = BILLOW_TRY(process::spawn(request));
  theirs_a.reset();
  theirs_b.reset();
  Ran ran;
  const auto drain = [&](Fd& from, std::string& into) {
    char buffer[65536];
    const ssize_t n = ::read(from.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR)
      return;
    if (n <= 0)
      return from.reset();  // of a terminal also EIO
    if (into.size() < output_bytes_max)
      into.append(buffer, static_cast<std::size_t>(n));
    if (terminal)
      terminal({buffer, static_cast<std::size_t>(n)});
  };
  while (a || b) {
    pollfd fds[2] = {{a.get(), POLLIN, 0}, {b.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0 && errno != EINTR)
      break;
    if (a && fds[0].revents)
      drain(a, ran.out);
    if (b && fds[1].revents)
      drain(b, ran.err);
  }
  ran.code = child.wait().code();
  return ran;
}

// What podman says went wrong: its last line, without what is said at every error.
std::string complaint(std::string_view printed) {
  std::string last;
  for (const std::string& line : split(printed, '\n')) {
    const auto text = trim(line);
    if (text.starts_with("Error: ") || last.empty())
      last = text;
  }
  if (last.starts_with("Error: "))
    last.erase(0, 7);
  for (const std::string_view noise : {"initializing source ", "reading manifest "})
    if (const auto at = last.find(noise); at != std::string::npos && at < 4)
      last.erase(0, at + noise.size());
  return last.substr(0, 400);
}

std::string own_home() {
  const passwd* account = ::getpwuid(::getuid());
  return account && account->pw_dir ? account->pw_dir : "";
}
bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// Whether podman can keep there what it keeps beside its store: caches and locks, in the nearest of
// these that exists.
bool is_usable_home(const std::string& home) {
  if (!is_directory(home))
    return false;
  for (const char* below : {"/.local/share/containers", "/.local/share", "/.local"})
    if (is_directory(home + below))
      return ::access((home + below).c_str(), W_OK | X_OK) == 0;
  return ::access(home.c_str(), W_OK | X_OK) == 0;
}

class Podman {
 public:
  static Result<Podman> create(const std::string& store) {
    Podman p;
    p.store_ = store;
    const std::string program = BILLOW_TRY(find_program("podman"));
    for (const char* name : {"", "/storage", "/run", "/tmp", "/xdg", "/scratch"})
      BILLOW_TRY_VOID(make_directories(store + name, 0700));
    // Said in full, so that no configuration of the machine or the user changes what a job gets.
    p.argv_ = {program,
               "--root",
               store + "/storage",
               "--runroot",
               store + "/run",
               "--tmpdir",
               store + "/tmp",
               "--runtime",
               "runc",
               "--cgroup-manager",
               "cgroupfs",
               "--events-backend",
               "none",
               "--storage-driver",
               "overlay",
               "--storage-opt",
               "ignore_chown_errors=true"};
    p.home_ = own_home();
    if (!is_usable_home(p.home_))
      p.home_ = store;
    p.env_ = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
              "HOME=" + p.home_, "LANG=C.UTF-8", "TERM=xterm"};
    for (const char* name : {"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY",
                             "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"})
      if (const char* value = std::getenv(name))
        p.env_.push_back(fmt::format("{}={}", name, value));
    p.outside_ = p.env_;
    p.env_.push_back("_CONTAINERS_USERNS_CONFIGURED=done");
    p.env_.push_back(fmt::format("_CONTAINERS_ROOTLESS_UID={}", ::getuid()));
    p.env_.push_back(fmt::format("_CONTAINERS_ROOTLESS_GID={}", ::getgid()));
    p.env_.push_back("XDG_RUNTIME_DIR=" + store + "/xdg");
    // What the user logged in to with podman, or with docker, counts here too.
    for (const std::string& file :
         {fmt::format("/run/user/{}/containers/auth.json", ::getuid()),
          fmt::format("/run/containers/{}/auth.json", ::getuid()),
          p.home_ + "/.config/containers/auth.json", p.home_ + "/.docker/config.json"})
      if (::access(file.c_str(), R_OK) == 0) {
        p.env_.push_back("REGISTRY_AUTH_FILE=" + file);
        break;
      }
    return p;
  }

  Result<Ran> inside(std::vector<std::string> args,
                     const std::function<void(std::string_view)>& terminal = {}) const {
    args.insert(args.begin(), argv_.begin(), argv_.end());
    return run(args, env_, terminal);
  }
  // As the user itself calls it, with its own store. Only before namespaces are entered.
  Result<Ran> own(std::vector<std::string> args) const {
    args.insert(args.begin(), argv_.front());
    return run(args, outside_);
  }
  bool user_has_store() const {
    return ::getuid() == 0
               ? is_directory("/var/lib/containers/storage/overlay-images")
               : is_directory(home_ + "/.local/share/containers/storage/overlay-images");
  }

  Result<Json> inspect(const std::string& name) const {
    const Ran ran = BILLOW_TRY(inside({"image", "inspect", "--", name}));
    if (ran.code != 0)
      return fail(Code::not_found, complaint(ran.err));
    const Json all = BILLOW_TRY(parse_json(ran.out));
    if (all.items().empty())
      return fail(Code::not_found, "there is no such image");
    return all.items().front();
  }

 private:
  std::string store_, home_;
  std::vector<std::string> argv_, env_, outside_;
};

std::vector<std::string> texts(const Json& list) {
  std::vector<std::string> out;
  for (const Json& item : list.items())
    out.emplace_back(item.str_or(""));
  return out;
}

// The layers by their short names, which lie beside each: a mount takes one page of options.
Result<std::vector<std::string>> layers_of(const std::string& store, const Json& image) {
  const Json& data = image.at("GraphDriver", "Data");
  std::vector<std::string> out;
  for (const char* part : {"UpperDir", "LowerDir"})
    for (const std::string& path : split(data[part].str_or(""), ':')) {
      if (path.empty())
        continue;
      const auto slash = path.rfind('/');
      const std::string link =
          std::string(trim(BILLOW_TRY(read_file(path.substr(0, slash) + "/link", 256))));
      out.push_back("l/" + link);
    }
  if (out.empty())
    return fail(
        Code::unsupported,
        fmt::format("podman keeps images in {} in a way this version does not know", store));
  return out;
}

Result<LocalImage> local_image(const Podman& podman,
                               const std::string& store,
                               const std::string& name) {
  const Json found = BILLOW_TRY(podman.inspect(name));
  LocalImage image;
  image.id = found["Id"].str_or("");
  image.digest = found["Digest"].str_or("");
  image.name = name;
  image.bytes = found["Size"].int_or(0);
  image.layers = BILLOW_TRY(layers_of(store, found));
  const Json& config = found["Config"];
  image.config = {.env = texts(config["Env"]),
                  .entrypoint = texts(config["Entrypoint"]),
                  .command = texts(config["Cmd"]),
                  .directory = std::string(config["WorkingDir"].str_or("")),
                  .user = std::string(config["User"].str_or(""))};
  const std::string_view made_for = found["Architecture"].str_or("");
#if defined(__x86_64__)
  constexpr std::string_view here = "amd64";
#else
  constexpr std::string_view here = "arm64";
#endif
  if (!made_for.empty() && made_for != here)
    return fail(Code::unsupported,
                fmt::format("image {} is for {}, and this node is {}", name, made_for, here),
                "ask for nodes of its kind with --node-label, or build it for this one");
  return image;
}

// An image the user built or pulled with its own podman, with the number of what it is now; empty:
// there is none.
struct OwnImage {
  std::string name, id;
};
OwnImage own_image(const Podman& podman, const ImageName& wanted) {
  if (!podman.user_has_store())
    return {};
  std::vector<std::string> names = {wanted.qualified()};
  if (wanted.registry.empty())
    names.insert(names.begin(), "localhost/" + wanted.text());
  for (const std::string& name : names) {
    const auto ran = podman.own({"image", "inspect", "--format", "{{.Id}}", "--", name});
    if (ran && ran->code == 0)
      return {name, std::string(trim(ran->out))};
  }
  return {};
}

Status pull(const Podman& podman, const ImageWish& wish, const std::string& name) {
  PullProgress progress;
  SteadyTime said;
  wish.note(fmt::format("pulling {}", name));
  std::vector<std::string> args = {"pull"};
  if (wish.name.on_loopback())
    args.push_back("--tls-verify=false");
  args.insert(args.end(), {"--", name});
  const Ran ran = BILLOW_TRY(podman.inside(args, [&](std::string_view printed) {
    const SteadyTime now = system_clock().steady();
    if (!progress.take(printed) || now < said + note_every)
      return;
    said = now;
    wish.note(progress.text(name));
  }));
  if (ran.code == 0)
    return {};
  const std::string why = complaint(ran.out);
  if (why.find("manifest unknown") != std::string::npos ||
      why.find("not found") != std::string::npos || why.find("name unknown") != std::string::npos)
    return fail(Code::not_found, fmt::format("there is no image {}: {}", name, why),
                "check its name and tag");
  // Of this machine, not of the registry, which speaks of access that is denied.
  for (const char* local :
       {"permission denied", "read-only file system", "no space left", "disk quota exceeded"})
    if (why.find(local) != std::string::npos && why.find("/v2/") == std::string::npos)
      return fail(Code::unavailable,
                  fmt::format("image {} could not be kept on this node: {}", name, why),
                  fmt::format("can the job's user write to {}, and is there room?", wish.store));
  if (why.find("unauthorized") != std::string::npos || why.find("denied") != std::string::npos)
    return fail(Code::forbidden, fmt::format("image {} may not be pulled: {}", name, why),
                "log in on the node as the job's user: podman login");
  return fail(Code::unavailable, fmt::format("image {} could not be pulled: {}", name, why),
              "can the node reach the registry?");
}

// After something came: others go until all together take no more than they may. One that is larger
// than that by itself goes again.
Status keep_within(const Podman& podman, const ImageWish& wish, const LocalImage& image) {
  if (wish.bytes_max == 0)
    return {};
  const std::string storage = wish.store + "/storage";
  const auto remove = [&](const std::string& id) {
    (void)podman.inside({"rmi", "--force", "--", id});
  };
  if (image.bytes > 0 && static_cast<std::uint64_t>(image.bytes) > wish.bytes_max) {
    remove(image.id);
    return fail(
        Code::too_large,
        fmt::format(
            "image {} takes {} MB, and this node keeps at most {} MB of images for each user",
            image.name, image.bytes / 1'000'000, wish.bytes_max / 1'000'000),
        "use a smaller one, or raise --images-max where the node joins");
  }
  std::uint64_t taken = disk_bytes(storage);
  if (taken <= wish.bytes_max)
    return {};
  const Ran ran = BILLOW_TRY(podman.inside({"images", "--quiet", "--no-trunc"}));
  std::vector<std::string> ids;
  for (const std::string& line : split(ran.out, '\n'))
    if (std::string id(trim(line)); !id.empty())
      ids.push_back(id.starts_with("sha256:") ? id.substr(7) : id);
  for (const std::string& id : longest_unused_first(wish.store, ids)) {
    if (id == image.id || in_use(wish.store, id))
      continue;
    wish.note("making room for the image");
    remove(id);
    taken = disk_bytes(storage);
    if (taken <= wish.bytes_max)
      break;
  }
  return {};
}

Result<LocalImage> taken(const ImageWish& wish, LocalImage image) {
  touch_image(wish.store, image.id);
  if (!wish.key.empty())
    BILLOW_TRY_VOID(mark_in_use(wish.store, wish.key, image.id));
  return image;
}

}  // namespace

std::string layers_dir(const std::string& store) {
  return store + "/storage/overlay";
}

Result<std::string> find_program(const std::string& name) {
  for (const char* dir :
       {"/usr/local/sbin/", "/usr/local/bin/", "/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"})
    if (::access((dir + name).c_str(), X_OK) == 0)
      return dir + name;
  return fail(Code::unsupported, fmt::format("{} is not installed on this node", name),
              "install it there: apt install podman runc, or dnf install podman runc");
}

Result<std::optional<LocalImage>> provide_image(const ImageWish& wish) {
  BILLOW_TRY(find_program("runc"));
  const Podman podman = BILLOW_TRY(Podman::create(wish.store));
  // An image of the user's own wins over one that was brought under the same name, since it may
  // have been built again.
  const OwnImage mine = own_image(podman, wish.name);
  const std::string name = mine.name.empty() ? wish.name.qualified() : mine.name;
  const std::string mark = sha256_hex(name).substr(0, 16),
                    archive = fmt::format("{}/tmp/own-{}.tar", wish.store, mark);
  Fd bringing;  // held by whoever brings this very image, for as long as that takes; nobody waits
                // for it here
  const auto may_bring = [&]() -> Result<bool> {
    if (!bringing)
      bringing = BILLOW_TRY(try_lock(fmt::format("{}/bringing-{}", wish.store, mark), Duration{}));
    return static_cast<bool>(bringing);
  };
  bool fresh = false;
  if (!mine.id.empty() &&
      !file_exists(fmt::format("{}/storage/overlay-images/{}", wish.store, mine.id))) {
    if (!BILLOW_TRY(may_bring()))
      return std::nullopt;
    wish.note(fmt::format("copying {} from this node's podman", name));
    (void)::unlink(archive.c_str());  // of one that was given up
    const Ran ran = BILLOW_TRY(
        podman.own({"save", "--format", "docker-archive", "--output", archive, "--", mine.name}));
    if (ran.code != 0)
      return fail(Code::unavailable,
                  fmt::format("image {} could not be copied from this node's podman: {}", name,
                              complaint(ran.err)));
    fresh = true;
  }
  BILLOW_TRY_VOID(enter_namespaces(Identity::as_root));
  BILLOW_TRY_VOID(lock_control_groups());
  if (fresh) {
    const Ran ran = BILLOW_TRY(podman.inside({"load", "--input", archive}));
    (void)::unlink(archive.c_str());
    if (ran.code != 0)
      return fail(Code::unavailable,
                  fmt::format("image {} could not be copied from this node's podman: {}", name,
                              complaint(ran.err)));
  }
  // Brought without the store's lock, so that a slow server holds up nobody; looked for and marked
  // under it, so that nobody who makes room comes between. One that went again meanwhile, before
  // anybody knew that it is wanted, is brought once more.
  for (int round = 0; round < 3; ++round) {
    const Fd lock = BILLOW_TRY(try_lock(wish.store + "/lock", lock_patience));
    if (!lock)
      return std::nullopt;
    auto found = mine.id.empty() ? local_image(podman, wish.store, name)
                                 : local_image(podman, wish.store, mine.id);
    if (!found && !mine.id.empty())
      found = local_image(podman, wish.store, name);
    if (found) {
      found->name = name;
      if (fresh)
        BILLOW_TRY_VOID(keep_within(podman, wish, *found));
      return taken(wish, std::move(*found));
    }
    if (found.error().code != Code::not_found)
      return pass(found.error());
    if (wish.name.registry == "localhost")
      return fail(Code::not_found, fmt::format("there is no image {} on this node", name),
                  "build it there with podman as the job's user, or push it to a registry");
    if (!BILLOW_TRY(may_bring()))
      return std::nullopt;
    (void)::flock(lock.get(), LOCK_UN);
    BILLOW_TRY_VOID(pull(podman, wish, name));
    fresh = true;
  }
  return fail(
      Code::unavailable,
      fmt::format("image {} was brought and went again before its task could have it", name),
      "this node keeps too little of images for what runs here: see --images-max");
}

// ---- progress
// ---------------------------------------------------------------------------------------------------------

namespace {

// "12.3MiB" → bytes; -1 where it is none.
std::int64_t size_of(std::string_view text) {
  std::size_t digits = 0;
  while (digits < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[digits])) || text[digits] == '.'))
    ++digits;
  if (digits == 0)
    return -1;
  const double number = std::atof(std::string(text.substr(0, digits)).c_str());
  const std::string_view unit = trim(text.substr(digits));
  double scale = 1;
  if (unit.starts_with("Ki"))
    scale = 1024;
  else if (unit.starts_with("Mi"))
    scale = 1024.0 * 1024;
  else if (unit.starts_with("Gi"))
    scale = 1024.0 * 1024 * 1024;
  else if (unit.starts_with("Ti"))
    scale = 1024.0 * 1024 * 1024 * 1024;
  else if (unit.starts_with("k") || unit.starts_with("K"))
    scale = 1e3;
  else if (unit.starts_with("M"))
    scale = 1e6;
  else if (unit.starts_with("G"))
    scale = 1e9;
  else if (!unit.starts_with("b") && !unit.starts_with("B"))
    return -1;
  return static_cast<std::int64_t>(number * scale);
}

std::string grouped(std::int64_t n) {
  std::string digits = std::to_string(n), out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0)
      out += ',';
    out += digits[i];
  }
  return out;
}

}  // namespace

// "Copying blob 3f4e…  [====>----] 12.3MiB / 45.6MiB" and "Copying blob 3f4e… done".
void PullProgress::line(std::string_view text) {
  const auto begin = text.find("Copying blob ");
  if (begin == std::string_view::npos)
    return;
  std::string_view rest = text.substr(begin + 13);
  std::string name(rest.substr(0, rest.find_first_of(" [")));
  if (name.starts_with("sha256:"))
    name.erase(0, 7);
  name.resize(std::min<std::size_t>(name.size(), 12));
  auto layer =
      std::find_if(layers_.begin(), layers_.end(), [&](const Layer& l) { return l.name == name; });
  if (layer == layers_.end())
    layer = layers_.insert(layers_.end(), Layer{name, 0, 0});
  if (const auto slash = rest.find(" / "); slash != std::string_view::npos) {
    auto from = slash;
    while (from > 0 && rest[from - 1] != ' ')
      --from;
    const std::int64_t done = size_of(rest.substr(from, slash - from)),
                       total = size_of(rest.substr(slash + 3));
    if (done >= 0 && total > 0 && (layer->done != done || layer->total != total)) {
      layer->done = done;
      layer->total = total;
      changed_ = true;
    }
  } else if (rest.find("done") != std::string_view::npos && layer->done != layer->total) {
    layer->done = layer->total;
    changed_ = true;
  }
}

bool PullProgress::take(std::string_view text) {
  changed_ = false;
  partial_ += text;
  std::size_t from = 0;
  for (std::size_t at = partial_.find_first_of("\r\n"); at != std::string::npos;
       at = partial_.find_first_of("\r\n", from)) {
    line(std::string_view(partial_).substr(from, at - from));
    from = at + 1;
  }
  partial_.erase(0, from);
  if (partial_.size() > 65536)
    partial_.clear();
  return changed_;
}

std::int64_t PullProgress::done_bytes() const {
  std::int64_t sum = 0;
  for (const Layer& l : layers_)
    sum += l.done;
  return sum;
}
std::int64_t PullProgress::total_bytes() const {
  std::int64_t sum = 0;
  for (const Layer& l : layers_)
    sum += l.total;
  return sum;
}
std::string PullProgress::text(const std::string& image) const {
  if (total_bytes() == 0)
    return fmt::format("pulling {}", image);
  return fmt::format("pulling {}: {} of {} MB", image, grouped(done_bytes() / 1'000'000),
                     grouped(total_bytes() / 1'000'000));
}

}  // namespace billow::container
