#include "agent/node/reclaim_watch.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/text.h"

namespace billow::agent {
namespace {

constexpr Duration answer_timeout = seconds(2);  // the address is link-local
constexpr std::size_t answer_bytes_max = 256 << 10;

bool good(const Result<net::Response>& answer) {
  return answer && answer->status == 200;
}

}  // namespace

std::optional<std::string> aws_notice(int status, std::string_view instance_action) {
  if (status != 200)
    return std::nullopt;  // 404: nothing is planned
  const auto json = parse_json(instance_action);
  if (!json || !(*json)["action"].is_string())
    return std::nullopt;
  return fmt::format("AWS takes it back ({} at {})", (*json)["action"].str_or(""),
                     (*json)["time"].str_or("an unknown time"));
}

std::optional<std::string> gcp_notice(std::string_view preempted,
                                      std::string_view maintenance_event) {
  if (trim(preempted) == "TRUE")
    return "GCP preempts it";
  // Live migration is harmless. Only machines that cannot migrate are ended, such as those with
  // GPUs.
  if (trim(maintenance_event) == "TERMINATE_ON_HOST_MAINTENANCE")
    return "GCP ends it for maintenance of its host";
  return std::nullopt;
}

std::optional<std::string> azure_notice(const Json& events, std::string_view own_name) {
  for (const Json& event : events["Events"].items()) {
    const std::string_view type = event["EventType"].str_or("");
    if (type != "Preempt" && type != "Terminate" && type != "Reboot" && type != "Redeploy")
      continue;  // a freeze is temporary
    bool ours = own_name.empty();
    for (const Json& resource : event["Resources"].items())
      ours = ours || resource.str_or("") == own_name;
    if (ours)
      return fmt::format(
          "Azure takes it back ({}, not before {})", type,
          event["NotBefore"].str_or("").empty() ? "now" : event["NotBefore"].str_or(""));
  }
  return std::nullopt;
}

Result<std::unique_ptr<ReclaimWatch>> ReclaimWatch::create(
    net::Loop& loop, Options options, std::function<void(std::string)> on_notice) {
  auto watch = std::unique_ptr<ReclaimWatch>(
      new ReclaimWatch(loop, std::move(options), std::move(on_notice)));
  watch->endpoint_ = BILLOW_TRY(net::parse_endpoint(watch->options_.metadata_url));
  watch->client_ = BILLOW_TRY(net::HttpClient::create(loop, {.connect_timeout = answer_timeout}));
  ReclaimWatch* raw = watch.get();
  watch->timer_ = loop.every(watch->options_.every, [raw] { raw->look(); });
  raw->look();
  return watch;
}

void ReclaimWatch::ask(net::Method method,
                       std::string target,
                       net::Headers headers,
                       Answer answer) {
  net::ClientRequest request;
  request.endpoint = endpoint_;
  request.method = method;
  request.target = std::move(target);
  request.headers = std::move(headers);
  request.timeout = answer_timeout;
  request.body_bytes_max = answer_bytes_max;
  client_->fetch(std::move(request), [answer = std::move(answer)](Result<net::Response> response) {
    answer(response);
  });
}

void ReclaimWatch::done(std::optional<std::string> reason) {
  busy_ = false;
  if (!reason)
    return;
  timer_.cancel();
  on_notice_(std::move(*reason));
}

void ReclaimWatch::look() {
  if (busy_)
    return;
  busy_ = true;
  if (!options_.cloud)
    return recognize();
  switch (*options_.cloud) {
    case Cloud::aws:
      return look_aws();
    case Cloud::gcp:
      return look_gcp();
    case Cloud::azure:
      return look_azure();
  }
}

void ReclaimWatch::recognized(Cloud cloud) {
  options_.cloud = cloud;
  log_info("watching the reclaim notices of {}", enum_name(cloud));
  busy_ = false;
  look();
}

// Each cloud answers only requests in its own form, so asking the wrong one is harmless.
void ReclaimWatch::recognize() {
  ask(net::Method::put, "/latest/api/token", {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}},
      [this](const Result<net::Response>& aws) {
        if (good(aws) && !aws->body.empty()) {
          aws_token_ = trim(aws->body);
          return recognized(Cloud::aws);
        }
        ask(net::Method::get, "/computeMetadata/v1/instance/preempted",
            {{"Metadata-Flavor", "Google"}}, [this](const Result<net::Response>& gcp) {
              if (good(gcp) && gcp->headers.get("Metadata-Flavor") == "Google")
                return recognized(Cloud::gcp);
              ask(net::Method::get, "/metadata/scheduledevents?api-version=2020-07-01",
                  {{"Metadata", "true"}}, [this](const Result<net::Response>& azure) {
                    if (good(azure) && parse_json(azure->body))
                      return recognized(Cloud::azure);
                    if (!std::exchange(told_unknown_, true))
                      log_warn(
                          "no cloud metadata answers at {}: a reclaim of this machine will not be "
                          "noticed in advance",
                          options_.metadata_url);
                    done({});
                  });
            });
      });
}

// Version 2 of the AWS metadata service requires a token first, which protects it from web pages
// and careless proxies.
void ReclaimWatch::look_aws() {
  if (aws_token_.empty()) {
    return ask(net::Method::put, "/latest/api/token",
               {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}},
               [this](const Result<net::Response>& answer) {
                 if (!good(answer))
                   return done({});
                 aws_token_ = trim(answer->body);
                 look_aws();
               });
  }
  ask(net::Method::get, "/latest/meta-data/spot/instance-action",
      {{"X-aws-ec2-metadata-token", aws_token_}}, [this](const Result<net::Response>& answer) {
        if (answer && answer->status == 401)
          aws_token_.clear();  // tokens expire after six hours
        done(answer ? aws_notice(answer->status, answer->body) : std::nullopt);
      });
}

void ReclaimWatch::look_gcp() {
  ask(net::Method::get, "/computeMetadata/v1/instance/preempted", {{"Metadata-Flavor", "Google"}},
      [this](const Result<net::Response>& first) {
        const std::string preempted = good(first) ? first->body : "";
        ask(net::Method::get, "/computeMetadata/v1/instance/maintenance-event",
            {{"Metadata-Flavor", "Google"}},
            [this, preempted](const Result<net::Response>& second) {
              done(gcp_notice(preempted,
                              good(second) ? std::string_view(second->body) : std::string_view()));
            });
      });
}

void ReclaimWatch::look_azure() {
  if (azure_name_.empty()) {
    return ask(net::Method::get,
               "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
               {{"Metadata", "true"}}, [this](const Result<net::Response>& answer) {
                 if (!good(answer) || trim(answer->body).empty())
                   return done({});  // without a name, another machine's event would count as ours
                 azure_name_ = trim(answer->body);
                 look_azure();
               });
  }
  ask(net::Method::get, "/metadata/scheduledevents?api-version=2020-07-01", {{"Metadata", "true"}},
      [this](const Result<net::Response>& answer) {
        if (!good(answer))
          return done({});
        const auto json = parse_json(answer->body);
        done(json ? azure_notice(*json, azure_name_) : std::nullopt);
      });
}

}  // namespace billow::agent
