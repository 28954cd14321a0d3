#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "net/address.h"
#include "pool/boot.h"
#include "pool/rest/provider.h"
#include "pool/rest/section.h"
#include "pool/rest/template.h"

namespace billow::pool::rest {
namespace {

using Need = Section::Need;
using NameSet = std::set<std::string>;

const NameSet machine_values = {
    "name",      "machine",          "instance", "instance.0",    "instance.1",  "instance.2",
    "zone",      "region",           "gpus",     "gpu_type",      "spot",        "bid",
    "user_data", "user_data_base64", "script",   "script_base64", "script_line", "token",
    "head_url"};

class Reader {
 public:
  Reader(const TomlNode& root, Problems& problems) : root_(&root, "", problems) {}

  Provider read() {
    identity();
    auth();
    limits();
    options();
    disk();
    errors();
    lookups();
    for (Section& s : root_.sections("object"))
      object(s);
    create();
    lists();
    machine();
    remove();
    for (Section& s : root_.sections("offers"))
      offers(s);
    account();
    return std::move(out_);
  }

 private:
  void identity();
  void auth();
  void limits();
  void options();
  void disk();
  void lookups();
  void create();
  void operation(Section& s);
  void lists();
  void machine();
  void remove();
  void errors();
  void object(Section& s);
  void offers(Section& s);
  void offer_sizes(Section& s, OfferCall& offer);
  void offer_places(Section& s, OfferCall& offer);
  void offer_joins(Section& s, OfferCall& offer);
  void account();
  Call call(Section& s, const NameSet& also);
  ListCall list_call(Section& s, const NameSet& also);
  Condition condition(Section s);
  AnswerRule rule(Section& s, bool with_kind);
  std::vector<AnswerRule> rules(Section& s, const char* key);
  void check_template(Section& s, const char* key, const std::string& text, const NameSet& also);
  void check_text(
      Section& s, const char* key, int line, const std::string& text, const NameSet& also);
  void check_body(Section& s, const TomlNode& body, const NameSet& also);

  Section root_;
  Provider out_;
  NameSet known_ = {"installation", "pool"};  // values that every call may use
};

void Reader::identity() {
  out_.name = root_.text("name", Need::required);
  if (const Status named = check_name("provider", out_.name); !named)
    root_.problem("name", named.error().message);
  out_.title = root_.text("title", Need::required);
  out_.console = root_.text("console");
  out_.address = root_.text("address", Need::required);
  const auto url = net::parse_url(out_.address);
  if (!url)
    root_.problem("address", url.error().message);
  else if (!url->endpoint.tls && !url->endpoint.address.is_loopback())
    root_.problem("address", "must be https: every request carries the credential");
  if (out_.address.ends_with('/'))
    root_.problem("address", "must not end with /: paths begin with one");
}

void Reader::auth() {
  Section s = root_.section("auth");
  if (!s.there())
    return root_.problem("auth", "is missing");
  Auth& auth = out_.auth;
  auth.kind = s.choice("kind", AuthKind::bearer);
  auth.key = s.text("key", Need::required);
  const bool two = auth.kind == AuthKind::oauth2 || auth.kind == AuthKind::hmac_sha256;
  auth.secret = s.text("secret", two ? Need::required : Need::optional);
  if (!two && !auth.secret.empty())
    s.problem("secret", fmt::format("has no meaning for {}", enum_name(auth.kind)));
  const bool named = auth.kind == AuthKind::header || auth.kind == AuthKind::hmac_sha256;
  auth.header = s.text("header", named ? Need::required : Need::optional);
  if (!auth.header.empty() && !net::valid_token(auth.header))
    s.problem("header", "is not the name of a header");
  auth.path = s.text("path", auth.kind == AuthKind::oauth2 ? Need::required : Need::optional);
}

void Reader::limits() {
  {
    Section s = root_.section("pacing");
    out_.pace.requests_per_s = s.number("requests_per_s", 5, 0.01, 1000);
    out_.pace.creates_per_s = s.number("creates_per_s", 0, 0, 1000);
  }
  {
    Section s = root_.section("names");
    out_.names.unique = s.flag("unique", false);
    out_.names.bytes_max = static_cast<std::size_t>(s.whole("bytes_max", 63, 32, 255));
  }
  {
    Section s = root_.section("boot");
    out_.boot.kind = s.choice("kind", BootKind::cloud_init);
    out_.boot.bytes_max =
        static_cast<std::size_t>(s.whole("bytes_max", 16 << 10, 1024, std::int64_t{64} << 20));
  }
  {
    Section s = root_.section("billing");
    out_.billing.step = seconds(s.whole("step_s", 1, 1, 86'400));
    out_.billing.minimum = seconds(s.whole("minimum_s", 0, 0, 86'400 * 31));
  }
  out_.list_lag = seconds(root_.whole("list_lag_s", 300, 0, 3600));
}

void Reader::disk() {
  Section s = root_.section("disk");
  if (!s.there())
    return;
  out_.disk.option = s.text("option", Need::required);
  out_.disk.gb_max = s.whole("gb_max", 0, boot_system_gib + 1, 1 << 20);
  const auto known = std::ranges::find(out_.options, out_.disk.option, &ProviderOption::name);
  if (known == out_.options.end())
    s.problem("option", fmt::format("\"{}\" is not in [options]", out_.disk.option));
  else if (!parse_int(known->fallback, 1, out_.disk.gb_max))
    s.problem("option", "its default is not a size up to gb_max");
}

void Reader::options() {
  Section s = root_.section("options");
  for (const auto& [name, node] : s.members()) {
    ProviderOption option{.name = name};
    if (!check_name("option", name))
      s.problem(name.c_str(), "is not a name for an option");
    if (node->kind == TomlNode::Kind::text) {
      option.fallback = node->text;
    } else {
      Section one = s.section(name.c_str());
      option.help = one.text("help", Need::required);
      option.fallback = one.text("default");
      option.required = one.flag("required", false);
    }
    known_.insert(variable_of(name));
    out_.options.push_back(std::move(option));
  }
}

void Reader::check_text(
    Section& s, const char* key, int line, const std::string& text, const NameSet& also) {
  const auto parsed = Template::parse(text);
  if (!parsed)
    return s.problem_at(line, key, parsed.error().message);
  NameSet used;
  parsed->names(used);
  for (const std::string& name : used) {
    if (known_.contains(name) || also.contains(name))
      continue;
    std::vector<std::string> candidates(known_.begin(), known_.end());
    candidates.insert(candidates.end(), also.begin(), also.end());
    const std::string near = nearest(name, candidates);
    s.problem_at(line, key,
                 fmt::format("{{{}}} has no value here{}", name,
                             near.empty() ? std::string() : fmt::format("; is it {{{}}}?", near)));
  }
}

void Reader::check_template(Section& s,
                            const char* key,
                            const std::string& text,
                            const NameSet& also) {
  check_text(s, key, s.line_of(key), text, also);
}

void Reader::check_body(Section& s, const TomlNode& body, const NameSet& also) {
  if (body.kind == TomlNode::Kind::text)
    check_text(s, "body", body.line, body.text, also);
  for (const TomlNode& item : body.items)
    check_body(s, item, also);
  for (const TomlNode& member : body.members)
    check_body(s, member, also);
}

Call Reader::call(Section& s, const NameSet& also) {
  Call out;
  const std::string method = s.text("method", Need::optional, "GET");
  if (const auto parsed = net::parse_method(method))
    out.method = *parsed;
  else
    s.problem("method", fmt::format("\"{}\" is not an HTTP method", method));
  out.path = s.text("path", Need::required);
  if (!out.path.empty() && !out.path.starts_with('/'))
    s.problem("path", "must begin with /");
  if (out.path.find('?') != std::string::npos)
    s.problem("path", "must not have a query: put it into `query`");
  check_template(s, "path", out.path, also);
  {
    Section query = s.section("query");
    for (const auto& [name, node] : query.members()) {
      out.query.emplace_back(name, scalar_text(node->json()));
      check_template(query, name.c_str(), out.query.back().second, also);
    }
  }
  if (const TomlNode* body = s.raw("body")) {
    out.body = body->json();
    check_body(s, *body, also);
    if (out.method == net::Method::get)
      s.problem("body", "a GET request has no body");
  }
  return out;
}

ListCall Reader::list_call(Section& s, const NameSet& also) {
  ListCall out;
  out.call = call(s, also);
  out.items = s.path("items", Need::required);
  Section p = s.section("paging");
  Paging& paging = out.paging;
  paging.kind = p.choice("kind", PagingKind::none);
  const bool by_parameter = paging.kind == PagingKind::cursor || paging.kind == PagingKind::page;
  const bool by_answer = paging.kind == PagingKind::cursor || paging.kind == PagingKind::next_link;
  paging.parameter = p.text("parameter", by_parameter ? Need::required : Need::optional);
  paging.next = p.path("next", by_answer ? Need::required : Need::optional);
  paging.size_parameter = p.text("size_parameter");
  paging.size = static_cast<int>(p.whole("size", 0, 1, 10'000));
  paging.first = static_cast<int>(p.whole("first", 1, 0, 1));
  if (paging.kind == PagingKind::page && paging.size == 0)
    p.problem("size", "is missing: a page that is shorter than this is the last");
  return out;
}

Condition Reader::condition(Section s) {
  Condition out;
  out.at = s.path("at", Need::required);
  out.is = s.texts("is");
  if (out.is.empty())
    s.problem("is", "is missing: the values for which this holds");
  return out;
}

AnswerRule Reader::rule(Section& s, bool with_kind) {
  AnswerRule out;
  out.status = static_cast<int>(s.whole("status", 0, 200, 599));
  out.code = s.text("code");
  out.text = lower(s.text("text"));
  if (out.status == 0 && out.code.empty() && out.text.empty())
    s.problem("", "needs a status, a code or a text to match");
  if (!with_kind)
    return out;
  if (!s.has("kind"))
    s.problem("kind", "is missing");
  out.kind = s.choice("kind", RefusalKind::settings);
  return out;
}

std::vector<AnswerRule> Reader::rules(Section& s, const char* key) {
  std::vector<AnswerRule> out;
  for (Section& one : s.sections(key))
    out.push_back(rule(one, false));
  return out;
}

void Reader::errors() {
  {
    Section s = root_.section("errors");
    if (!s.there())
      return root_.problem("errors", "is missing: where an error's code and text are");
    out_.errors.code = s.path("code");
    out_.errors.text = s.path("text", Need::required);
    out_.errors.ok = s.path_if("ok");
    out_.errors.errors = s.path_if("errors");
  }
  for (Section& s : root_.sections("error"))
    out_.errors.rules.push_back(rule(s, true));
  const auto& rules = out_.errors.rules;
  if (std::none_of(rules.begin(), rules.end(),
                   [](const AnswerRule& r) { return r.kind == RefusalKind::capacity; }))
    root_.problem("error", "no rule says what an answer without capacity looks like");
}

void Reader::lookups() {
  for (Section& s : root_.sections("lookup")) {
    Lookup lookup;
    lookup.name = s.text("name", Need::required);
    const NameSet also = {"region", "zone", "instance", "instance.0", "instance.1"};
    lookup.list = list_call(s, also);
    lookup.value = s.path("value", Need::required);
    lookup.where = s.path_if("where");
    lookup.where_is = s.text("is", lookup.where ? Need::required : Need::optional);
    check_template(s, "is", lookup.where_is, also);
    lookup.missing = s.text("missing", Need::required);
    known_.insert(lookup.name);
    out_.lookups.push_back(std::move(lookup));
  }
}

void Reader::object(Section& s) {
  ExtraObject object;
  object.name = s.text("name", Need::required);
  object.id = s.path("id");
  {
    Section one = s.section("create");
    if (one.there())
      object.create = call(one, machine_values);
  }
  {
    Section one = s.section("list");
    if (!one.there())
      s.problem("list", "is missing");
    object.list = list_call(one, {});
    object.list_id = one.path("id", Need::required);
    object.list_name = one.path("name", Need::required);
  }
  {
    Section one = s.section("delete");
    if (!one.there())
      s.problem("delete", "is missing");
    object.remove = call(one, {"id"});
  }
  if (object.create)
    known_.insert(object.name + "_id");
  out_.objects.push_back(std::move(object));
}

void Reader::operation(Section& s) {
  CreateCall::Operation operation;
  operation.call = call(s, {"operation"});
  operation.id = s.path("id", Need::required);
  operation.state = s.path("state", Need::required);
  operation.failed = s.texts("failed");
  operation.done = s.texts("done");
  if (operation.failed.empty() || operation.done.empty())
    s.problem("failed", "name the states in `failed` and in `done`");
  operation.code = s.path("code", Need::required);
  operation.text = s.path("text", Need::required);
  operation.wait = seconds(s.whole("wait_s", 10, 0, 60));
  out_.create.operation = std::move(operation);
}

void Reader::create() {
  Section s = root_.section("create");
  if (!s.there())
    return root_.problem("create", "is missing");
  out_.create.call = call(s, machine_values);
  out_.create.id = s.path_if("id");
  out_.create.leftover = s.path_if("leftover");
  if (out_.create.call.method == net::Method::get)
    s.problem("method", "creating a machine is not a GET request");
  NameSet used;
  (void)collect_names(out_.create.call.body, used);
  if (!used.contains("name"))
    s.problem("body", "has no {name}: a machine without it could not be found again");
  for (const ExtraObject& object : out_.objects)
    if (object.create)
      (void)collect_names(object.create->body, used);
  const bool boots = used.contains("user_data") || used.contains("user_data_base64") ||
                     used.contains("script") || used.contains("script_base64") ||
                     used.contains("script_line");
  if (!boots)
    s.problem("body", "has no {user_data} or {script}: the machine could not join");
  Section later = s.section("operation");
  if (later.there())
    operation(later);
}

void Reader::lists() {
  for (Section& s : root_.sections("list"))
    out_.lists.push_back(list_call(s, {}));
  if (out_.lists.empty())
    root_.problem("list", "is missing");
}

void Reader::machine() {
  MachineFields& m = out_.machine;
  {
    Section s = root_.section("machine");
    if (!s.there())
      return root_.problem("machine", "is missing: where id, name and state are");
    m.id = s.path("id", Need::required);
    m.name = s.path("name", Need::required);
    m.state = s.path("state", Need::required);
    m.region = s.path_if("region");
    m.reason = s.path_if("reason");
  }
  Section s = root_.section("states");
  const auto put = [&](const char* key, MachinePhase phase) {
    for (const std::string& state : s.texts(key))
      if (!m.phases.emplace(lower(state), phase).second)
        s.problem(key, fmt::format("\"{}\" is in two lists", state));
  };
  put("waiting", MachinePhase::waiting);
  put("here", MachinePhase::here);
  put("going", MachinePhase::going);
  put("gone", MachinePhase::gone);
  {
    Section dead = s.section("dead");
    for (const auto& [state, why] : dead.members()) {
      if (!m.phases.emplace(lower(state), MachinePhase::dead).second)
        dead.problem(state.c_str(), "is in two lists");
      m.dead_why[lower(state)] = dead.text(state.c_str(), Need::required);
    }
  }
  if (std::none_of(m.phases.begin(), m.phases.end(),
                   [](const auto& p) { return p.second == MachinePhase::here; }))
    root_.problem("states", "no state is in `here`");
  for (Section& one : root_.sections("dead")) {
    DeadRule rule;
    rule.when.at = one.path("at", Need::required);
    rule.when.is = one.texts("is");
    rule.reason = one.text("reason", Need::required);
    m.dead.push_back(std::move(rule));
  }
}

void Reader::remove() {
  Section s = root_.section("delete");
  if (!s.there())
    return root_.problem("delete", "is missing");
  out_.remove.call = call(s, {"id", "name", "machine"});
  out_.remove.gone = rules(s, "gone");
  out_.remove.not_yet = rules(s, "not_yet");
  NameSet used;
  (void)collect_names(out_.remove.call.body, used);
  (void)collect_names(Json(out_.remove.call.path), used);
  if (!used.contains("id"))
    s.problem("path", "neither path nor body has {id}: it would not say which machine to end");
}

void Reader::account() {
  Section s = root_.section("account");
  if (!s.there())
    return;
  AccountCall account;
  account.call = call(s, {});
  account.id = s.path_if("id");
  account.identity = s.path_if("identity");
  out_.account = std::move(account);
}

void Reader::offer_sizes(Section& s, OfferCall& offer) {
  for (const std::string& text : s.texts("instance")) {
    auto parsed = JsonPath::parse(text);
    if (!parsed)
      s.problem("instance", parsed.error().message);
    else
      offer.instance.push_back(std::move(*parsed));
  }
  if (offer.instance.empty())
    s.problem("instance", "is missing: where the name of the kind of machine is");
  offer.gpu = s.path("gpu", Need::required);
  offer.gpus = s.path_if("gpus");
  offer.gpus_max = s.path_if("gpus_max");
  offer.gpu_memory_gb = s.path_if("gpu_memory_gb");
  offer.gpu_memory_of_all = s.flag("gpu_memory_of_all", false);
  offer.cpus = s.path_if("cpus");
  offer.memory_gib = s.path_if("memory_gib");
  offer.memory_mib = s.path_if("memory_mib");
  for (const std::string& text : s.texts("counts")) {
    const auto count = parse_int(text, 1, 64);
    if (count)
      offer.counts.push_back(static_cast<int>(*count));
    else
      s.problem("counts", count.error().message);
  }
  const bool counted =
      offer.gpus || !offer.counts.empty() || (offer.gpu_memory_of_all && offer.gpu_memory_gb);
  if (!counted)
    s.problem("gpus", "is missing: the number of GPUs, or `counts` with `gpus_max`");
  offer.price = s.path_if("price");
  offer.spot_price = s.path_if("spot_price");
  offer.unit = s.choice("price_unit", PriceUnit::usd_per_hour);
  offer.hours_per_month = static_cast<int>(s.whole("hours_per_month", 730, 600, 750));
  offer.price_of_gpu = s.flag("price_of_gpu", false);
  offer.spot = s.flag("spot", false);
  Section names = s.section("gpu_names");
  for (const auto& [theirs, ours] : names.members())
    offer.gpu_names[lower(theirs)] = scalar_text(ours->json());
}

void Reader::offer_places(Section& s, OfferCall& offer) {
  offer.places = s.path_if("places");
  offer.place = s.path_if("place");
  if (s.has("place_when"))
    offer.place_when = condition(s.section("place_when"));
  else
    (void)s.raw("place_when");
  for (Section& one : s.sections("when"))
    offer.when.push_back(condition(std::move(one)));
}

void Reader::offer_joins(Section& s, OfferCall& offer) {
  for (Section& one : s.sections("availability")) {
    OfferCall::Availability availability;
    availability.list = list_call(one, {});
    availability.region = one.path("region", Need::required);
    availability.instance = one.path("instance", Need::required);
    availability.more_than_zero = one.path_if("more_than_zero");
    availability.spot = one.flag("spot", false);
    offer.availability.push_back(std::move(availability));
  }
  Section prices = s.section("prices");
  if (!prices.there())
    return;
  OfferCall::Prices out;
  out.list = list_call(prices, {});
  out.name = prices.path("name", Need::required);
  out.value = prices.path("value", Need::required);
  offer.prices = std::move(out);
}

void Reader::offers(Section& s) {
  OfferCall offer;
  offer.list = list_call(s, {});
  offer_sizes(s, offer);
  offer_places(s, offer);
  offer_joins(s, offer);
  out_.offers.push_back(std::move(offer));
}

}  // namespace

bool Condition::holds(const Json& item) const {
  const std::string value = scalar_text(at.first(item));
  return std::find(is.begin(), is.end(), value) != is.end();
}

std::string variable_of(std::string_view option) {
  std::string out(option);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

Result<Provider> read_provider(std::string_view text, const std::string& shown_as) {
  const TomlNode root = BILLOW_TRY(parse_toml(text, shown_as));
  Problems problems{.file = shown_as, .lines = {}};
  Provider provider = Reader(root, problems).read();
  if (!problems.lines.empty())
    return fail(Code::invalid, join(problems.lines, "\n"));
  return provider;
}

}  // namespace billow::pool::rest
