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
#include "container/image_store.h"
#include "container/namespaces.h"
#include "container/pull_progress.h"
#include "container/signature.h"
#include "process/spawn.h"

namespace billow::container {
namespace {

constexpr std::size_t output_bytes_max = 16 << 20;
constexpr Duration note_every = milliseconds(500);
constexpr Duration store_lock_patience =
    seconds(2);  // other processes hold the store's lock only briefly

struct Ran {
  int code = 0;
  std::string out, err;
};

// Runs a program to its end. With `terminal`, it runs on a pseudo-terminal and its output goes
// there. `given`: a descriptor that it has too, under the same number; -1: none.
Result<Ran> run(const std::vector<std::string>& argv,
                const std::vector<std::string>& env,
                const std::function<void(std::string_view)>& terminal = {},
                int given = -1) {
  process::Spawn request{.argv = argv, .env = env, .on_parent_death = SIGKILL};
  if (given >= 0)
    request.fds = {{given, given}};
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
      return from.reset();  // a terminal ends with EIO
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

// Podman's error message: its last line, without the words that every error has.
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
    if (const auto at = last.find(noise); at < 4)
      last.erase(0, at + noise.size());
  return last.substr(0, 400);
}

std::string own_home() {
  const passwd* account = ::getpwuid(::getuid());
  return account && account->pw_dir ? account->pw_dir : "";
}
bool folder_exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// Whether podman can write its caches and locks there, in the deepest of these directories that
// exists.
bool is_usable_home(const std::string& home) {
  if (!folder_exists(home))
    return false;
  for (const char* below : {"/.local/share/containers", "/.local/share", "/.local"})
    if (folder_exists(home + below))
      return ::access((home + below).c_str(), W_OK | X_OK) == 0;
  return ::access(home.c_str(), W_OK | X_OK) == 0;
}

// The registry logins that the user made with podman or docker; empty: none.
std::string login_file(const std::string& home) {
  for (std::string file : {fmt::format("/run/user/{}/containers/auth.json", ::getuid()),
                           fmt::format("/run/containers/{}/auth.json", ::getuid()),
                           home + "/.config/containers/auth.json", home + "/.docker/config.json"})
    if (::access(file.c_str(), R_OK) == 0)
      return file;
  return {};
}

constexpr const char* site_registries = "/etc/containers/registries.conf";
constexpr const char* site_policy = "/etc/containers/policy.json";
constexpr const char* empty_home = "/home";  // in the store; see hide_home

class Podman {
 public:
  static Result<Podman> create(const ImageWish& wish) {
    const std::string& store = wish.store;
    Podman p;
    p.store_ = store;
    const std::string program = BILLOW_TRY(find_program("podman"));
    for (const char* name : {"", "/storage", "/run", "/tmp", "/xdg", "/scratch", empty_home})
      BILLOW_TRY_VOID(make_directories(store + name, 0700));
    // All options are explicit, so that no configuration of the node or the user changes the
    // result.
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
    p.env_ = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
              "TERM=xterm"};
    for (const char* name : {"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY",
                             "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"})
      if (const char* value = std::getenv(name))
        p.env_.push_back(fmt::format("{}={}", name, value));
    // Settings name programs that podman starts. The user's own podman, which knows where the
    // user's images are, keeps the settings of its store.
    p.env_.push_back("CONTAINERS_CONF=/dev/null");
    p.outside_ = p.env_;
    p.outside_.push_back("HOME=" + p.home_);
    // In the user's own home directory, files about registries could send podman elsewhere for an
    // image than its name says.
    p.env_.push_back("HOME=" + store + empty_home);
    // Podman refuses a file without these, although the options above say the same.
    const std::string storage = store + "/storage.conf";
    BILLOW_TRY_VOID(write_file_atomic(
        storage,
        fmt::format("[storage]\ndriver = \"overlay\"\nrunroot = {}\ngraphroot = {}\n",
                    Json(store + "/run").dump(), Json(store + "/storage").dump()),
        0600));
    p.env_.push_back("CONTAINERS_STORAGE_CONF=" + storage);
    if (::access(site_registries, R_OK) == 0)
      p.env_.push_back(fmt::format("CONTAINERS_REGISTRIES_CONF={}", site_registries));
    p.env_.push_back("_CONTAINERS_USERNS_CONFIGURED=done");
    p.env_.push_back(fmt::format("_CONTAINERS_ROOTLESS_UID={}", ::getuid()));
    p.env_.push_back(fmt::format("_CONTAINERS_ROOTLESS_GID={}", ::getgid()));
    p.env_.push_back("XDG_RUNTIME_DIR=" + store + "/xdg");
    p.logins_ = login_file(p.home_);
    if (!wish.login.secret.empty()) {
      p.login_ = BILLOW_TRY(login_in_memory(wish.login, wish.name));
      p.logins_ = fmt::format("/proc/self/fd/{}", p.login_.get());
    }
    if (!p.logins_.empty())
      p.env_.push_back("REGISTRY_AUTH_FILE=" + p.logins_);
    return p;
  }

  Result<Ran> inside(std::vector<std::string> args,
                     const std::function<void(std::string_view)>& terminal = {}) const {
    args.insert(args.begin(), argv_.begin(), argv_.end());
    return run(args, env_, terminal, login_.get());
  }
  // In the namespaces of the caller: a home directory that nobody else can write.
  Status hide_home() const { return mount_memory(store_ + empty_home, "mode=0700,size=64m"); }
  // Runs the user's own podman with the user's own store. Only before namespaces are entered.
  Result<Ran> own(std::vector<std::string> args) const {
    args.insert(args.begin(), argv_.front());
    return run(args, outside_);
  }
  const std::string& logins() const { return logins_; }
  bool user_has_store() const {
    return ::getuid() == 0
               ? folder_exists("/var/lib/containers/storage/overlay-images")
               : folder_exists(home_ + "/.local/share/containers/storage/overlay-images");
  }

  Result<Json> inspect(const std::string& name) const {
    const Ran ran = BILLOW_TRY(inside({"image", "inspect", "--", name}));
    if (ran.code != 0)
      return fail(Code::not_found, complaint(ran.err));
    const Json all = BILLOW_TRY(parse_json(ran.out));
    if (all.items().empty())
      return fail(Code::not_found, "no such image");
    return all.items().front();
  }

 private:
  std::string store_, home_, logins_;
  std::vector<std::string> argv_, env_, outside_;
  Fd login_;  // of a secret: `logins_` names it, under the same number in podman
};

std::vector<std::string> texts(const Json& list) {
  std::vector<std::string> out;
  for (const Json& item : list.items())
    out.emplace_back(item.str_or(""));
  return out;
}

// Uses the layers' short names (the file "link" of each), because mount options must fit in a page.
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
    return fail(Code::unsupported,
                fmt::format("podman stores the images in {} in a format this version does not know",
                            store));
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
    return fail(
        Code::unsupported,
        fmt::format("image {} is built for {}, but this node is {}", name, made_for, here),
        "ask for matching nodes with --node-label, or build the image for this architecture");
  return image;
}

// An image in the store of the user's own podman, with its current id; empty: there is none.
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
  // The site's rules about signatures, and not the user's.
  if (::access(site_policy, R_OK) == 0)
    args.insert(args.end(), {"--signature-policy", site_policy});
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
    return fail(Code::not_found, fmt::format("image {} does not exist: {}", name, why),
                "check its name and tag");
  // These come from the node's file system; a registry reports denied access in other words.
  for (const char* local :
       {"permission denied", "read-only file system", "no space left", "disk quota exceeded"})
    if (why.find(local) != std::string::npos && why.find("/v2/") == std::string::npos)
      return fail(
          Code::unavailable,
          fmt::format("image {} could not be stored on this node: {}", name, why),
          fmt::format("check that the job's user can write to {} and that the disk is not full",
                      wish.store));
  for (const char* denied : {"unauthorized", "denied", "invalid username/password"})
    if (why.find(denied) != std::string::npos)
      return fail(Code::forbidden,
                  fmt::format("image {} may not be pulled: {}{}", name,
                              refused_login(wish.login, wish.name), why),
                  login_hint(wish.login));
  return fail(Code::unavailable, fmt::format("image {} could not be pulled: {}", name, why),
              "check that the node can reach the registry");
}

// After a pull: removes other images until the store is within its limit. An image that exceeds the
// limit by itself is removed again.
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
        fmt::format("image {} takes {} MB, but this node keeps at most {} MB of images per user",
                    image.name, image.bytes / 1'000'000, wish.bytes_max / 1'000'000),
        "use a smaller image, or raise --images-max on this node");
  }
  std::uint64_t taken = disk_bytes(storage);
  if (taken <= wish.bytes_max)
    return {};
  const Ran ran = BILLOW_TRY(podman.inside({"images", "--quiet", "--no-trunc"}));
  std::vector<std::string> ids;
  for (const std::string& line : split(ran.out, '\n'))
    if (std::string id(trim(line)); !id.empty())
      ids.push_back(id.starts_with("sha256:") ? id.substr(7) : id);
  for (const std::string& id : least_recently_used_first(wish.store, ids)) {
    if (id == image.id || in_use(wish.store, id))
      continue;
    wish.note("removing old images");
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

// Finds, copies or pulls one image. The lock of the image is held while it is copied or pulled; the
// lock of the store only while images are looked up, marked or removed, so that a slow registry
// delays no other task. Never waits for another process that fetches the same image.
class ImageProvider {
 public:
  ImageProvider(const Podman& podman, const ImageWish& wish)
      : podman_(podman),
        wish_(wish),
        // An image in the user's own podman store wins over one fetched under the same name,
        // because the user may have rebuilt it.
        own_(may_be_own(wish) ? own_image(podman, wish.name) : OwnImage{}),
        name_(own_.name.empty() ? wish.name.qualified() : own_.name),
        mark_(sha256_hex(name_).substr(0, 16)) {}

  Result<std::optional<LocalImage>> provide() {
    const std::string archive = fmt::format("{}/tmp/own-{}.tar", wish_.store, mark_);
    if (own_is_newer()) {
      if (!BILLOW_TRY(lock_image()))
        return std::nullopt;
      BILLOW_TRY_VOID(save_own(archive));
      fresh_ = true;
    }
    BILLOW_TRY_VOID(enter_namespaces(Identity::as_root));
    BILLOW_TRY_VOID(podman_.hide_home());
    BILLOW_TRY_VOID(lock_control_groups());
    if (fresh_)
      BILLOW_TRY_VOID(load(archive));
    return find_or_pull();
  }

 private:
  // Users give the images in their own store any name.
  static bool may_be_own(const ImageWish& wish) {
    return wish.signed_by.empty() && (!wish.from_registry || wish.name.registry == "localhost");
  }
  bool own_is_newer() const {
    return !own_.id.empty() &&
           !file_exists(fmt::format("{}/storage/overlay-images/{}", wish_.store, own_.id));
  }
  Result<bool> lock_image() {
    if (!image_lock_)
      image_lock_ =
          BILLOW_TRY(try_lock(fmt::format("{}/bringing-{}", wish_.store, mark_), Duration{}));
    return static_cast<bool>(image_lock_);
  }
  Error copy_failed(const Ran& ran) const {
    return {Code::unavailable,
            fmt::format("image {} could not be copied from this node's podman: {}", name_,
                        complaint(ran.err))};
  }
  Status save_own(const std::string& archive) const {
    wish_.note(fmt::format("copying {} from this node's podman", name_));
    (void)::unlink(archive.c_str());  // left by a cancelled attempt
    // By its id, it comes without its name: a name in our store says where an image was pulled.
    const std::string& what = own_.name.starts_with("localhost/") ? own_.name : own_.id;
    const Ran ran = BILLOW_TRY(
        podman_.own({"save", "--format", "docker-archive", "--output", archive, "--", what}));
    if (ran.code != 0)
      return pass(copy_failed(ran));
    return {};
  }
  Status load(const std::string& archive) const {
    const Ran ran = BILLOW_TRY(podman_.inside({"load", "--input", archive}));
    (void)::unlink(archive.c_str());
    if (ran.code != 0)
      return pass(copy_failed(ran));
    return {};
  }
  Result<LocalImage> find() const {
    if (!own_.id.empty())
      if (auto found = local_image(podman_, wish_.store, own_.id))
        return found;
    return local_image(podman_, wish_.store, name_);
  }
  // An image that was just pulled may be removed by another process before it is marked as used;
  // it is pulled again then.
  Result<std::optional<LocalImage>> find_or_pull() {
    for (int round = 0; round < 3; ++round) {
      const Fd lock = BILLOW_TRY(try_lock(wish_.store + "/lock", store_lock_patience));
      if (!lock)
        return std::nullopt;
      auto found = find();
      if (found) {
        found->name = name_;
        if (fresh_)
          BILLOW_TRY_VOID(keep_within(podman_, wish_, *found));
        return taken(wish_, std::move(*found));
      }
      if (found.error().code != Code::not_found)
        return pass(found.error());
      if (wish_.name.registry == "localhost")
        return fail(Code::not_found, fmt::format("there is no image {} on this node", name_),
                    "build it there with podman as the job's user, or push it to a registry");
      if (!BILLOW_TRY(lock_image()))
        return std::nullopt;
      (void)::flock(lock.get(), LOCK_UN);
      BILLOW_TRY_VOID(pull(podman_, wish_, name_));
      fresh_ = true;
    }
    return fail(Code::unavailable,
                fmt::format("image {} was pulled three times, and each time removed to stay within "
                            "the image limit before its task could use it",
                            name_),
                "raise --images-max on this node");
  }

  const Podman& podman_;
  const ImageWish& wish_;
  OwnImage own_;
  std::string name_, mark_;
  Fd image_lock_;
  bool fresh_ = false;
};

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
  const Podman podman = BILLOW_TRY(Podman::create(wish));
  ImageWish exact = wish;
  if (!wish.signed_by.empty()) {
    wish.note(fmt::format("checking the signature of {}", wish.name.text()));
    auto digest = signed_digest(wish.name, wish.signed_by, podman.logins());
    if (!digest && digest.error().code == Code::forbidden && !wish.login.secret.empty())
      return fail(Code::forbidden, refused_login(wish.login, wish.name) + digest.error().message,
                  login_hint(wish.login));
    exact.name.digest = BILLOW_TRY(std::move(digest));
  }
  return ImageProvider(podman, exact).provide();
}

}  // namespace billow::container
