// `cloud head aws`: moves the head of this machine to a small instance that rented machines reach.
// The instance waits at the head's port for this program and the head's data; both go there over
// TLS with a certificate that is made for this alone. The head here is stopped only when everything
// else is ready, because two heads with one state would end each other's machines. Whatever fails
// takes back what it has created.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"
#include "client/frame/connect.h"
#include "client/frame/console.h"
#include "client/frame/local_heads.h"
#include "client/frame/values.h"
#include "head/certificates/authority.h"
#include "net/certs.h"
#include "net/http/blocking_client.h"
#include "pool/ec2/ec2_head.h"
#include "pool/head_boot.h"
#include "pool/program.h"
#include "process/spawn.h"
#include "server/down_command.h"
#include "store/store_copy.h"

namespace billow::client {
namespace {

using pool::ec2::HeadMachine;
using pool::ec2::HeadParts;
using pool::ec2::HeadPlace;
using pool::ec2::HeadSettings;

// Per hour and GiB-month in us-east-1, 2026-11; other regions differ by up to a third.
struct HeadType {
  const char* name;
  double usd_h;
};
#if defined(__aarch64__)
constexpr HeadType usual_type = {"t4g.small", 0.0168};
#else
constexpr HeadType usual_type = {"t3.small", 0.0208};
#endif
constexpr double address_usd_h = 0.005, disk_gib_month_usd = 0.08, hours_month = 730;
constexpr std::int64_t system_disk_gib = 16;
constexpr Duration boot_patience = minutes(10), start_patience = minutes(3);

std::string variable_of(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// "203.0.113.7" → "203.0.113.7/32".
Result<std::string> network_of(const std::string& text) {
  const auto slash = text.find('/');
  const std::string host = text.substr(0, slash);
  char bytes[16];
  const bool v4 = ::inet_pton(AF_INET, host.c_str(), bytes) == 1;
  const bool v6 = !v4 && ::inet_pton(AF_INET6, host.c_str(), bytes) == 1;
  const auto bits = slash == std::string::npos
                        ? Result<std::int64_t>(v4 ? 32 : 128)
                        : parse_int(text.substr(slash + 1), 0, v4 ? 32 : 128);
  if ((!v4 && !v6) || !bits)
    return fail(Code::invalid, fmt::format("--allow {} is not a network", text),
                "use a form like 203.0.113.7/32");
  return fmt::format("{}/{}", host, *bits);
}

struct Wanted {
  HeadSettings settings;
  pool::ec2::Wire::Options wire;
  std::string data_dir;
  bool has_data = false;  // a head has run in data_dir
};

Result<Wanted> read_wanted(const Parsed& p) {
  Wanted out;
  out.wire = {.endpoint = p.get("endpoint"), .profile = p.get("profile"), .variable = variable_of};
  pool::ec2::Wire wire(out.wire);
  out.settings.region = p.get("region", wire.credentials().region());
  if (out.settings.region.empty())
    return fail(Code::invalid, "the region is missing", "add it: --region us-east-1");
  for (const std::string& text : p.all("allow"))
    out.settings.allow.push_back(BILLOW_TRY(network_of(text)));
  const auto bytes = bytes_with_unit(p.get("disk", "20GB"));
  if (!bytes || *bytes < (std::uint64_t(10) << 30) || *bytes > (std::uint64_t(16) << 40))
    return fail(Code::invalid,
                fmt::format("--disk {} is not a size from 10GiB to 16TiB", p.get("disk")));
  out.settings.disk_gib = static_cast<std::int64_t>((*bytes + (1 << 30) - 1) >> 30);
  out.settings.instance = p.get("instance-type", usual_type.name);
  out.settings.instance_profile = p.get("instance-profile");
  out.settings.subnet = p.get("subnet");
  out.settings.image = p.get("image");
  out.data_dir = BILLOW_TRY(meant_data_directory(p.get("data")));
  out.has_data = head_ran_in(out.data_dir);
  if (out.has_data && file_exists(store_marker(out.data_dir)))
    return fail(Code::unsupported,
                fmt::format("the head of {} keeps its state in a database", out.data_dir),
                "start a second head on that database there: billow cloud head aws --show, and "
                "billow docs store");
  return out;
}

// A right that is missing comes with where to get it.
int report_aws(Error error) {
  if (error.message.find("UnauthorizedOperation") != std::string::npos && error.hint.empty())
    error.hint = "attach the policy of `billow cloud policy aws --head` to your user in IAM";
  return report(error);
}

// The head that is meant, of those that carry our tags; none: nothing exists.
Result<HeadParts> chosen(const std::vector<HeadParts>& found, const std::string& installation) {
  std::vector<std::string> names;
  for (const HeadParts& one : found) {
    if (one.installation == installation)
      return one;
    names.push_back(one.installation);
  }
  if (!installation.empty() || found.empty())
    return HeadParts{};
  if (found.size() == 1)
    return found.front();
  return fail(Code::conflict, "this region has several heads: " + join(names, ", "),
              "name one with --installation");
}

void print_parts(const HeadParts& parts) {
  print(fmt::format("head of installation {}\n", parts.installation));
  for (const auto& one : parts.instances)
    print(fmt::format("  machine         {} in {} ({})\n", one.id, one.zone, one.state));
  for (const auto& one : parts.addresses)
    print(fmt::format("  address         {}\n", one.ip));
  for (const auto& one : parts.groups)
    print(fmt::format("  security group  {}, open to {}\n", one.id,
                      one.allow.empty() ? "nobody" : join(one.allow, ", ")));
  for (const auto& one : parts.disks)
    print(fmt::format("  disk            {} in {} ({})\n", one.id, one.zone, one.state));
}

int remove_head(const Parsed& p, HeadMachine& machine, const HeadParts& parts) {
  if (parts.installation.empty()) {
    print("no Billow head found in this region\n");
    return 0;
  }
  const bool with_disk = p.has("delete-disk");
  print_parts(parts);
  if (!p.has("yes")) {
    say(fmt::format("nothing was changed; to end {}: add --yes",
                    with_disk ? "all of it, with the head's state"
                              : "it (the disk with the head's state stays unless you add "
                                "--delete-disk)"));
    return 0;
  }
  if (const Status gone = machine.remove(parts, with_disk); !gone)
    return report(Error(gone.error()).in("repeat this command"));
  print("the head's machine, address and security group have ended\n");
  for (const auto& one : parts.disks)
    if (!with_disk)
      print(fmt::format("disk {} stays: `billow cloud head aws` starts a machine with it again\n",
                        one.id));
  return 0;
}

void print_plan(const Wanted& wanted, const HeadPlace& place, const HeadParts& there) {
  const HeadSettings& s = wanted.settings;
  const bool known = s.instance == usual_type.name;
  const double month = ((known ? usual_type.usd_h : 0) + address_usd_h) * hours_month +
                       static_cast<double>(s.disk_gib + system_disk_gib) * disk_gib_month_usd;
  print(fmt::format(
      "A head on AWS, in {}:\n"
      "  machine         {} with Ubuntu ({}){}\n"
      "  address         a fixed one (Elastic IP), ${:.3f}/h\n"
      "  security group  opens TCP port {} to {}, and nothing else\n"
      "  disk            {}, which stays when the machine ends\n"
      "  credentials     {}\n"
      "  data            {}\n"
      "  in all          {}${:.2f} per month at the prices of us-east-1\n",
      place.zone, s.instance, place.image.id, known ? fmt::format(", ${}/h", usual_type.usd_h) : "",
      address_usd_h, s.port, join(s.allow, ", "),
      there.disks.empty() ? fmt::format("{} GiB, encrypted", s.disk_gib)
                          : "the one of the earlier head, " + there.disks.front().id,
      s.instance_profile.empty()
          ? "none: it cannot rent from AWS until it has some (--instance-profile)"
          : "instance profile " + s.instance_profile,
      !there.disks.empty() ? "those on the disk"
      : wanted.has_data    ? "those of the head in " + wanted.data_dir + ", which is stopped"
                           : "a new, empty head",
      known ? "about " : "the machine and about ", month));
}

// ---- sending

struct Delivery {
  net::CertAndKey authority, server;
  std::string word;
};

Result<Delivery> make_delivery(const std::string& ip) {
  Delivery out;
  out.authority = BILLOW_TRY(net::make_ca("billow head delivery", hours(24)));
  out.server = BILLOW_TRY(net::issue_cert(out.authority, {.names = {ip}, .life = hours(24)}));
  out.word = random_token();
  return out;
}

net::BlockingClient client_of(const std::string& ip, std::uint16_t port, std::string fingerprint) {
  net::Endpoint endpoint;
  endpoint.address.host = ip;
  endpoint.address.port = port;
  endpoint.tls = true;
  return net::BlockingClient(
      {.endpoint = std::move(endpoint), .tls = {.pinned_fingerprint = std::move(fingerprint)}});
}

using Pieces = std::function<Result<std::string>()>;

Status put(net::BlockingClient& to, const char* path, const std::string& word, Pieces pieces) {
  net::BlockingClient::Call call;
  call.method = net::Method::put;
  call.target = path;
  call.headers = {{"Authorization", "Bearer " + word}};
  call.body_source = std::move(pieces);
  call.timeout = hours(1);
  const auto answer = to.request(call);
  if (!answer)
    return pass(answer.error(), fmt::format("sending {}", path));
  if (answer->status != 200)
    return fail(Code::unavailable, fmt::format("{} was refused: {}", path, answer->body));
  return {};
}

Pieces pieces_of(const std::string& text) {
  return [&text, at = std::size_t(0)]() mutable -> Result<std::string> {
    std::string piece = text.substr(at, 1 << 20);
    at += piece.size();
    return piece;
  };
}

Pieces pieces_of(int fd) {
  return [fd]() -> Result<std::string> {
    std::string piece(1 << 20, '\0');
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got < 0)
      return fail_errno("the head's data", errno);
    piece.resize(static_cast<std::size_t>(got));
    return piece;
  };
}

Status run_billow(const std::vector<std::string>& words) {
  process::Spawn request;
  request.argv = {executable_dir() + "/billow"};
  request.argv.insert(request.argv.end(), words.begin(), words.end());
  request.out = STDERR_FILENO;
  request.err = process::inherited;
  request.group = process::Group::ours;
  auto child = BILLOW_TRY(process::spawn(request));
  if (!child.wait().ok())
    return fail(Code::unavailable, "`billow " + words.front() + "` failed");
  return {};
}

// Jobs on this machine would lose their head.
Status check_movable(const Wanted& wanted) {
  if (!head_lives_in(wanted.data_dir))
    return {};
  auto client = BILLOW_TRY(Client::create({.head = "", .data = wanted.data_dir}));
  const Json status = BILLOW_TRY(client.get("/v1/status"));
  const std::int64_t jobs =
      status["jobs"]["running"].int_or(0) + status["jobs"]["suspended"].int_or(0);
  if (jobs > 0)
    return fail(Code::conflict,
                fmt::format("{} job{} of this head would lose it", jobs, jobs == 1 ? "" : "s"),
                "wait until they have ended, or stop them: billow ps, billow stop JOB");
  if (const std::int64_t nodes = status["nodes"]["total"].int_or(0); nodes > 0)
    say(
        fmt::format("{} node{} of this head must join the new one (rented machines end by "
                    "themselves within 15 minutes)",
                    nodes, nodes == 1 ? "" : "s"));
  return {};
}

// The whole data directory of a stopped head, without what belongs to this machine.
Status send_state(net::BlockingClient& to, const std::string& word, const std::string& data_dir) {
  auto pipe = BILLOW_TRY(process::Pipe::create());
  process::Spawn request;
  request.argv = {"tar",
                  "-C",
                  data_dir,
                  "-c",
                  "--exclude=./agent",
                  "--exclude=./agent.log",
                  "--exclude=./ballast",
                  "--exclude=./lock",
                  "--exclude=./head.sock",
                  "--exclude=./head.json",
                  "."};
  request.out = pipe.write.get();
  request.err = process::inherited;
  auto child = BILLOW_TRY(process::spawn(request));
  pipe.write.reset();
  BILLOW_TRY_VOID(put(to, pool::head_state_path, word, pieces_of(pipe.read.get())));
  if (!child.wait().ok())
    return fail(Code::unavailable, "the head's data could not be read as a whole");
  return {};
}

bool patiently(Duration patience, const std::function<bool()>& done) {
  const SteadyTime until = system_clock().steady() + patience;
  while (!done()) {
    if (system_clock().steady() > until)
      return false;
    ::usleep(500'000);
  }
  return true;
}

// ---- the move

struct Credentials {
  std::string token, fingerprint;
};

// What everybody knows the head by, before and after.
Result<Credentials> credentials_of(const std::string& data_dir) {
  const head::Authority authority = BILLOW_TRY(head::Authority::open(data_dir + "/tls"));
  const std::string token = BILLOW_TRY(read_file(data_dir + "/token", 4096));
  return Credentials{std::string(trim(token)), BILLOW_TRY(authority.fingerprints())};
}

// A head that was moved before: its login is the one of its earlier address.
Result<Credentials> kept_login(const std::string& installation) {
  const Json contexts = BILLOW_TRY(read_contexts());
  for (const auto& [url, context] : contexts.members())
    if (context.is_object() && context["installation"].str_or("") == installation)
      return Credentials{std::string(context["token"].str_or("")),
                         std::string(context["fingerprint"].str_or(""))};
  return fail(Code::not_found, "you have no token of the head on that disk");
}

Status log_in(const std::string& url, const Credentials& known, const std::string& installation) {
  const Json contexts = BILLOW_TRY(read_contexts());
  Json kept = Json::object();
  for (const auto& [name, context] : contexts.members())
    if (!context.is_object() || context["installation"].str_or("") != installation)
      kept.set(name, context);
  kept.set(url, Json::object({{"token", known.token},
                              {"fingerprint", known.fingerprint},
                              {"ca", ""},
                              {"installation", installation}}));
  kept.set("current", url);
  return write_contexts(kept);
}

struct Move {
  Wanted wanted;
  HeadMachine machine;
  HeadPlace place;
  bool from_disk = false;  // the state is on an earlier head's disk
  Credentials known;
};

// Sends everything and returns when the new head answers.
Status hand_over(Move& move,
                 const std::string& ip,
                 const Delivery& delivery,
                 const pool::Program& program) {
  const std::uint16_t port = move.wanted.settings.port;
  auto to = client_of(ip, port, BILLOW_TRY(net::cert_fingerprint(delivery.authority.cert_pem)));
  say("waiting for the machine");
  if (!patiently(boot_patience, [&] {
        const auto answer = to.get("/");
        return answer && answer->status == 200;
      }))
    return fail(Code::timed_out, fmt::format("the machine does not answer at {}:{}", ip, port),
                "is your own address among those of --allow?");
  say(fmt::format("sending this program ({} MB)", program.archive.size() >> 20));
  BILLOW_TRY_VOID(put(to, pool::head_program_path, delivery.word, pieces_of(program.archive)));
  if (!move.from_disk) {
    BILLOW_TRY_VOID(check_movable(move.wanted));
    if (head_lives_in(move.wanted.data_dir))
      BILLOW_TRY_VOID(run_billow({"down", "--data", move.wanted.data_dir}));
    say("sending the head's data");
    BILLOW_TRY_VOID(send_state(to, delivery.word, move.wanted.data_dir));
  }
  say("waiting for the new head");
  net::BlockingClient::Call call;
  call.target = "/v1/status";
  call.headers = {{"Authorization", "Bearer " + move.known.token}};
  if (!patiently(start_patience, [&] {
        auto head = client_of(ip, port, move.known.fingerprint);
        const auto answer = head.request(call);
        return answer && answer->status == 200;
      }))
    return fail(Code::timed_out, fmt::format("the new head does not answer at {}:{}", ip, port));
  return {};
}

Status create(Move& move, HeadParts& made) {
  const HeadSettings& s = move.wanted.settings;
  HeadMachine& machine = move.machine;
  if (made.disks.empty())
    made.disks.push_back(BILLOW_TRY(machine.make_disk(move.place.zone)));
  const HeadParts::Address address = BILLOW_TRY(machine.make_address());
  made.addresses = {address};
  const std::string group = BILLOW_TRY(machine.make_group(move.place.vpc));
  made.groups = {{group, s.allow}};
  const pool::Program program = BILLOW_TRY(pool::pack_program(executable_dir()));
  const Delivery delivery = BILLOW_TRY(make_delivery(address.ip));
  std::string number = made.disks.front().id;  // in the device's name it has no dash
  std::erase(number, '-');
  const std::string script = pool::head_script(
      {.installation = s.installation,
       .public_url = fmt::format("https://{}:{}", address.ip, s.port),
       .port = s.port,
       .disk = fmt::format("/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{}", number),
       .program_sha256 = program.sha256,
       .state = !move.from_disk,
       .cert_pem = delivery.server.cert_pem,
       .key_pem = delivery.server.key_pem,
       .word_sha256 = sha256_hex(delivery.word)});
  const std::string id = BILLOW_TRY(machine.make_instance(move.place, group, script));
  made.instances = {{id, move.place.zone, "pending"}};
  say(fmt::format("created {} with the address {}", id, address.ip));
  BILLOW_TRY_VOID(machine.connect(id, made.disks.front(), address));
  return hand_over(move, address.ip, delivery, program);
}

// The data here would be the start of a second head with the same state.
std::string put_aside(const std::string& data_dir) {
  std::string to = data_dir + ".moved-to-aws";
  for (int n = 2; file_exists(to); ++n)
    to = fmt::format("{}.moved-to-aws-{}", data_dir, n);
  return ::rename(data_dir.c_str(), to.c_str()) == 0 ? to : "";
}

int report_moved(Move& move, const std::string& url) {
  const std::string& installation = move.wanted.settings.installation;
  if (const Status written = log_in(url, move.known, installation); !written)
    return report(written.error());
  print(fmt::format("the head runs at {}; commands here now use it (`billow logout` to undo)\n",
                    url));
  if (!move.from_disk) {
    const std::string aside = put_aside(move.wanted.data_dir);
    print(aside.empty()
              ? fmt::format("remove {}: a head started there would be a second one\n",
                            move.wanted.data_dir)
              : fmt::format("the data here are kept in {}; delete them when you like\n", aside));
  }
  print(
      fmt::format("others switch with: billow login {} (their tokens stay valid; fingerprint "
                  "{})\n"
                  "nodes join it with: billow join {} --token TOKEN\n",
                  url, move.known.fingerprint, url));
  if (move.wanted.settings.instance_profile.empty())
    print(
        "it has no AWS credentials: attach an instance profile with the policy of `billow cloud "
        "policy aws` to the machine before it rents machines\n");
  return 0;
}

int create_head(Move& move, HeadParts there) {
  const bool had_disk = !there.disks.empty();
  there.installation = move.wanted.settings.installation;
  HeadParts made = there;
  if (const Status done = create(move, made); !done) {
    (void)report_aws(done.error());
    say("taking back what was created");
    // What a lost answer left is in the list only.
    if (const auto found = move.machine.find(); found && !found->empty())
      made = found->front();
    made.installation = move.wanted.settings.installation;
    if (const Status gone = move.machine.remove(made, !had_disk); !gone)
      return report(Error(gone.error()).in("run `billow cloud head aws --remove --yes` later"));
    if (!move.from_disk && !head_lives_in(move.wanted.data_dir))
      say(
          fmt::format("the data are unchanged; start the head here again with `billow up --data "
                      "{}` and its options",
                      shell_quote(move.wanted.data_dir)));
    return exit_failed;
  }
  return report_moved(
      move, fmt::format("https://{}:{}", made.addresses.front().ip, move.wanted.settings.port));
}

// The port of a head that exists is opened to other networks.
int change_rules(const Parsed& p, HeadMachine& machine, const HeadParts& there) {
  print_parts(there);
  if (p.all("allow").empty() || there.groups.empty())
    return 0;
  if (!p.has("yes")) {
    say("this head exists; to open its port to the networks of --allow only: add --yes");
    return 0;
  }
  if (const Status set = machine.set_rules(there.groups.front()); !set)
    return report(set.error());
  print(fmt::format("the port is open to {}\n", join(p.all("allow"), ", ")));
  return 0;
}

// A head of its own for someone who has none: it is started once, so that it has tokens and keys.
Status ensure_data(Wanted& wanted) {
  if (!wanted.has_data) {
    BILLOW_TRY_VOID(run_billow({"up", "--background", "--no-agent", "--listen", "127.0.0.1:0",
                                "--data", wanted.data_dir}));
    wanted.has_data = true;
  }
  const std::string text = BILLOW_TRY(read_file(wanted.data_dir + "/installation", 4096));
  wanted.settings.installation = std::string(trim(text));
  return {};
}

std::string local_installation(const Wanted& wanted) {
  return std::string(trim(read_file(wanted.data_dir + "/installation", 4096).value_or("")));
}

int begin(const Parsed& p, Wanted wanted, const HeadParts& there) {
  if (wanted.settings.allow.empty())
    return report_usage({Code::invalid, "who may reach the head's port is not given",
                         "add your own address, --allow 203.0.113.7/32, and the networks of the "
                         "machines you rent; --allow 0.0.0.0/0 opens it to the world (TLS and "
                         "tokens still protect it)"});
  const bool from_disk = !there.disks.empty();
  if (from_disk && wanted.has_data && local_installation(wanted) == there.installation)
    return report({Code::conflict,
                   fmt::format("disk {} has the state of this head, and so has {}",
                               there.disks.front().id, wanted.data_dir),
                   "move away the older of the two: that directory, or the disk with billow cloud "
                   "head aws --remove --delete-disk --yes"});
  HeadMachine looking(wanted.wire, wanted.settings);
  const auto place = looking.place(from_disk ? there.disks.front().zone : "");
  if (!place)
    return report_aws(place.error());
  if (!from_disk)
    if (const Status movable = check_movable(wanted); !movable)
      return report(movable.error());
  print_plan(wanted, *place, there);
  if (!p.has("yes")) {
    say("nothing was created; to create it: add --yes");
    return 0;
  }
  Credentials known;
  if (from_disk) {
    wanted.settings.installation = there.installation;
    auto kept = kept_login(there.installation);
    if (!kept)
      return report({Code::not_found, kept.error().message,
                     "log in to it with one first, on the machine that created it"});
    known = std::move(*kept);
  } else {
    if (const Status ready = ensure_data(wanted); !ready)
      return report(ready.error());
    auto own = credentials_of(wanted.data_dir);
    if (!own)
      return report(own.error());
    known = std::move(*own);
  }
  Move move{wanted, HeadMachine(wanted.wire, wanted.settings), *place, from_disk, known};
  return create_head(move, there);
}

}  // namespace

int move_head_to_aws(const Parsed& p) {
  auto wanted = read_wanted(p);
  if (!wanted)
    return report_usage(wanted.error());
  HeadMachine machine(wanted->wire, wanted->settings);
  const auto who = machine.identity();
  if (!who) {
    const int code = report(who.error());
    say("without credentials, see the steps by hand: billow cloud head aws --show");
    return code;
  }
  const auto found = machine.find();
  if (!found)
    return report_aws(found.error());
  const auto there =
      chosen(*found, p.get("installation", wanted->has_data ? local_installation(*wanted) : ""));
  if (!there)
    return report(there.error());
  if (p.has("remove"))
    return remove_head(p, machine, *there);
  print(fmt::format("as {}\n", *who));
  if (!there->instances.empty())
    return change_rules(p, machine, *there);
  if (!there->addresses.empty() || !there->groups.empty())
    return report(
        {Code::conflict,
         fmt::format("parts of a head that was not finished exist ({})", there->installation),
         "remove them first: billow cloud head aws --remove --yes"});
  return begin(p, std::move(*wanted), *there);
}

}  // namespace billow::client
