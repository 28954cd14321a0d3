#include "head/notifier.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "core/control/decide/decide.h"
#include "core/control/decide/installation_secrets.h"
#include "core/control/money.h"
#include "core/wire/codec.h"
#include "net/guard.h"
#include "process/spawn.h"

namespace billow::head {
namespace {

constexpr std::size_t queue_max =
    10'000;  // a receiver that is away for days is told from the journal, not from memory

struct Teller {
  const control::State& state;
  ledger::Notice out;
  bool at_start = false;  // it came with the start of a head

  std::string project_of(JobId id) const {
    const Job* job = state.find_job(id);
    return job ? state.projects.at(job->project).name : "";
  }
  bool tell(const char* kind, std::string project, std::string text, Json data = Json::object()) {
    out.kind = kind;
    out.project = std::move(project);
    out.text = std::move(text);
    out.data = std::move(data);
    return true;
  }
  bool operator()(const BudgetWarned& e) {
    if (e.text.empty())
      return false;
    const char* kind = e.action == BudgetAction::suspend ? "budget.suspended"
                       : e.action == BudgetAction::stop  ? "budget.stopped"
                                                         : "budget.warned";
    std::string project;
    if (e.budget.scope == BudgetScope::project)
      if (const auto p = state.projects.find(ProjectId(e.budget.of)); p != state.projects.end())
        project = p->second.name;
    return tell(kind, std::move(project), e.text,
                Json::object({{"pct", e.pct},
                              {"scope", enum_name(e.budget.scope)},
                              {"period", enum_name(e.budget.period)}}));
  }
  bool operator()(const JobHeld& e) {
    return tell("budget.held", project_of(e.job),
                fmt::format("job {} is held: {}", e.job.value, e.reason),
                Json::object({{"job", e.job.value}}));
  }
  bool operator()(const IdleWarned& e) {
    if (e.action != IdleAction::warn)
      return false;
    return tell(e.state == IdleState::hung ? "idle.hung" : "idle.warned", project_of(e.job),
                fmt::format("job {}: {}", e.job.value, e.text),
                Json::object({{"job", e.job.value}}));
  }
  bool operator()(const IdleActed& e) {
    return tell(e.action == IdleAction::suspend ? "idle.suspended" : "idle.stopped",
                project_of(e.job), fmt::format("job {}: {}", e.job.value, e.text),
                Json::object({{"job", e.job.value}}));
  }
  bool operator()(const KeptAlive& e) {
    return tell("idle.kept_alive", project_of(e.job),
                fmt::format("job {} is kept alive for {}{}{}", e.job.value,
                            format_duration(e.lasts), e.reason.empty() ? "" : ": ", e.reason),
                Json::object({{"job", e.job.value}}));
  }
  bool operator()(const JobEnded& e) {
    if (e.state != JobState::failed && e.state != JobState::lost)
      return false;
    return tell("job.failed", "",
                fmt::format("job {} {}: {}", e.job.value, enum_name(e.state),
                            e.reason.empty() ? e.exit.text() : e.reason),
                Json::object({{"job", e.job.value}, {"exit_code", e.exit.shell_code()}}));
  }
  bool operator()(const NodeUnreachable& e) {
    // A head that begins has heard of nobody yet.
    if (at_start)
      return false;
    const auto of = state.nodes.find(e.node);
    const std::string note =
        of == state.nodes.end() ? std::string() : control::silent_note(state, of->second);
    return tell(
        "node.unreachable", "",
        fmt::format("node {} does not answer{}{}", node(e.node), note.empty() ? "" : ": ", note),
        Json::object({{"node", node(e.node)}}));
  }
  bool operator()(const NodeReleased& e) {
    return tell("node.released", "",
                fmt::format("node {} is being released: {}", node(e.node), e.reason),
                Json::object({{"node", node(e.node)}}));
  }
  bool operator()(const NodeOfferChanged& e) {
    for (const NodeGpu& gpu : e.offer.gpus)
      if (!gpu.unhealthy.empty())
        return tell("node.unhealthy", "",
                    fmt::format("GPU {} of node {}: {}", gpu.index, e.offer.name, gpu.unhealthy),
                    Json::object({{"node", e.offer.name}, {"gpu", gpu.index}}));
    return false;
  }
  std::string node(NodeId id) const {
    const auto found = state.nodes.find(id);
    return found == state.nodes.end() ? fmt::format("{}", id.value) : found->second.offer.name;
  }
  template <class Other>
  bool operator()(const Other&) {
    return false;
  }
};

bool wanted(const Webhook& hook, const std::string& kind) {
  if (hook.kinds.empty())
    return true;
  const std::string family = kind.substr(0, kind.find('.'));
  return std::find(hook.kinds.begin(), hook.kinds.end(), family) != hook.kinds.end();
}

}  // namespace

std::optional<ledger::Notice> notice_of(const control::State& state, const Event& event) {
  Teller teller{state, {}, event.request_id == "start"};
  if (!visit(teller, event.body))
    return std::nullopt;
  teller.out.seq = event.seq;
  teller.out.at = event.at;
  return std::move(teller.out);
}

Result<std::unique_ptr<Notifier>> Notifier::create(net::Loop& loop, Options options) {
  auto out = std::unique_ptr<Notifier>(new Notifier(loop, std::move(options)));
  out->founders_ = BILLOW_TRY(net::HttpClient::create(loop, {}));
  out->others_ = BILLOW_TRY(net::HttpClient::create(
      loop, {.check_address = net::only_outwards(out->options_.webhook_hosts)}));
  return out;
}

Notifier::~Notifier() {
  *here_ = false;
}

void Notifier::catch_up() {
  const control::State& state = options_.engine().state();
  if (state.money.webhooks.empty())
    return;
  Seq from = UINT64_MAX;
  for (const auto& [id, hook] : state.money.webhooks)
    from = std::min(from, hook.delivered);
  // What retention has removed cannot be told any more; the audit trail is still there.
  const Seq first = options_.journal->next_seq() - options_.journal->records();
  for (const auto& [id, hook] : state.money.webhooks)
    if (hook.delivered + 1 < first)
      log_warn(
          "webhook {}: events {} to {} were removed from the journal (--keep-events) before they "
          "were delivered; of these it gets only audit events",
          id, hook.delivered + 1, first - 1);
  for (Seq at = from;;) {
    const auto next = options_.journal->read(at, 10'000, [&](const Record& record) {
      auto event = control::decode_event(record.seq, record.at, record.kind, record.payload);
      if (!event)
        return true;
      if (auto notice = notice_of(state, *event))
        for (const auto& [id, hook] : state.money.webhooks)
          if (record.seq > hook.delivered && wanted(hook, notice->kind) &&
              queues_[id].notices.size() < queue_max)
            queues_[id].notices.push_back(*notice);
      return true;
    });
    if (!next || *next == at)
      break;
    at = *next;
  }
  for (const auto& [id, queue] : queues_)
    if (!queue.notices.empty())
      log_info("webhook {}: {} earlier notices are being sent", id, queue.notices.size());
  for (auto& [id, queue] : queues_)
    send(id);
}

void Notifier::on_event(const Event&, std::optional<ledger::Notice> notice) {
  if (!notice)
    return;
  run_command(*notice);
  for (const auto& [id, hook] : options_.engine().state().money.webhooks) {
    if (notice->seq <= hook.delivered || !wanted(hook, notice->kind))
      continue;
    Queue& queue = queues_[id];
    if (queue.notices.size() >= queue_max)
      continue;
    queue.notices.push_back(*notice);
    send(id);
  }
}

void Notifier::tell(ledger::Notice notice) {
  run_command(notice);
  for (const auto& [id, hook] : options_.engine().state().money.webhooks) {
    if (!wanted(hook, notice.kind))
      continue;
    Queue& queue = queues_[id];
    if (queue.notices.size() >= queue_max)
      continue;
    // In the order of the queue and never ahead of an event, so that settling it passes over none.
    notice.seq = queue.notices.empty() ? hook.delivered : queue.notices.back().seq;
    queue.notices.push_back(notice);
    send(id);
  }
}

Result<ledger::WebhookKeys> Notifier::keys(std::uint64_t webhook) const {
  const auto& secrets = options_.engine().state().secrets;
  const std::string record = control::webhook_keys_record(webhook);
  const auto replaced = secrets.find({ProjectId{}, record});
  if (replaced == secrets.end()) {
    const std::string first = hmac_sha256_hex(options_.key, fmt::format("webhook {}", webhook));
    return ledger::WebhookKeys{.key = "whsec_" + first.substr(0, 48), .old = {}, .old_until = {}};
  }
  return ledger::webhook_keys_of(
      BILLOW_TRY(options_.keeper->opened(record, replaced->second.sealed)));
}

std::string Notifier::secret(std::uint64_t webhook) const {
  auto found = keys(webhook);
  return found ? std::move(found->key) : std::string();
}

std::size_t Notifier::waiting(std::uint64_t webhook) const {
  const auto found = queues_.find(webhook);
  return found == queues_.end() ? 0 : found->second.notices.size();
}

std::shared_ptr<net::HttpClient::Call> Notifier::post(const Webhook& webhook,
                                                      const ledger::Notice& notice,
                                                      std::function<void(Result<int>)> done) {
  const auto path = webhook.url.find('/', webhook.url.find("://") + 3);
  auto endpoint = net::parse_endpoint(webhook.url.substr(0, path));
  const auto signing = keys(webhook.id);
  if (!endpoint || !signing) {
    loop_.post(
        [done, error = endpoint ? signing.error() : endpoint.error()] { done(pass(error)); });
    return nullptr;
  }
  const WallTime now = options_.clock->wall();
  const ledger::WebhookMessage message =
      ledger::sign(notice, sha256_hex(options_.key).substr(0, 16), signing->in_force(now), now);
  net::ClientRequest request;
  request.endpoint = *endpoint;
  request.method = net::Method::post;
  request.target = path == std::string::npos ? "/" : webhook.url.substr(path);
  for (const auto& [name, value] : message.headers)
    request.headers.set(name, value);
  request.body = message.body;
  request.timeout = seconds(20);
  net::HttpClient& client =
      control::is_founder(options_.engine().state(), webhook.by) ? *founders_ : *others_;
  return client.fetch(std::move(request), [done, here = here_](Result<net::Response> response) {
    if (!*here)
      return;
    if (!response)
      return done(pass(response.error()));
    done(response->status);
  });
}

void Notifier::send(std::uint64_t id) {
  Queue& queue = queues_[id];
  const auto& hooks = options_.engine().state().money.webhooks;
  const auto hook = hooks.find(id);
  if (hook == hooks.end()) {
    queue.notices.clear();
    return;
  }
  if (queue.sending || queue.notices.empty())
    return;
  queue.sending = true;
  queue.call = post(hook->second, queue.notices.front(), [this, id](Result<int> status) {
    if (!status)
      log_warn("webhook {}: {}", id, status.error().message);
    else if (*status >= 300)
      log_warn("webhook {} answered {}", id, *status);
    finished(id, status && ledger::delivered_or_refused(*status));
  });
}

void Notifier::finished(std::uint64_t id, bool settled) {
  Queue& queue = queues_[id];
  queue.sending = false;
  queue.call.reset();
  std::optional<Duration> wait = Duration{};
  if (!settled)
    wait = ledger::retry_after(++queue.failures);
  if (!wait)
    log_error("webhook {}: giving up on notice {} after {} tries", id, queue.notices.front().seq,
              queue.failures);
  if (settled || !wait) {
    const Seq through = queue.notices.front().seq;
    queue.notices.pop_front();
    queue.failures = 0;
    options_.engine().execute(DeliveredWebhook{id, through}, {"head", ""}, {});
    return send(id);
  }
  queue.again = loop_.after(*wait, [this, id] { send(id); });
}

void Notifier::test(std::uint64_t id, std::function<void(Result<int>)> done) {
  const auto& hooks = options_.engine().state().money.webhooks;
  const auto hook = hooks.find(id);
  if (hook == hooks.end())
    return done(fail(Code::not_found, fmt::format("there is no webhook {}", id)));
  ledger::Notice notice;
  notice.kind = "test";
  notice.at = options_.clock->wall();
  notice.seq = static_cast<Seq>(notice.at.ns);  // an id of its own each time
  notice.text = "this is a test notice from Billow";
  queues_[id];
  auto call = std::make_shared<std::shared_ptr<net::HttpClient::Call>>();
  *call = post(hook->second, notice, [done = std::move(done), call](Result<int> status) {
    done(std::move(status));
    call->reset();
  });
}

// The head does not wait for the command: a script that hangs blocks nothing.
void Notifier::run_command(const ledger::Notice& notice) {
  if (options_.command.empty())
    return;
  const Json body = Json::object({{"kind", notice.kind},
                                  {"seq", notice.seq},
                                  {"at", format_utc(notice.at)},
                                  {"project", notice.project},
                                  {"text", notice.text},
                                  {"data", notice.data}});
  auto pipe = process::Pipe::create();
  if (!pipe)
    return;
  process::Spawn request;
  request.argv = {"/bin/sh", "-c", options_.command};
  request.in = pipe->read.get();
  request.out = request.err = process::inherited;
  request.group = process::Group::session;
  request.detached = true;
  if (const auto started = process::spawn(request); !started)
    return log_warn("the command for notices could not be started: {}", started.error().message);
  const std::string text = body.dump() + "\n";
  // A pipe holds this much without a reader.
  (void)!::write(pipe->write.get(), text.data(), std::min<std::size_t>(text.size(), 4096));
}

}  // namespace billow::head
