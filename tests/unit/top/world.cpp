#include "world.h"

#include <fmt/format.h>

namespace billow::client::top {
namespace {

std::string cards(int count, const char* type, int mem_mib, int sick = -1) {
  std::string out;
  for (int i = 0; i < count; ++i)
    out += fmt::format(R"({}{{"index":{},"type":"{}","model":"NVIDIA {}","mem_mib":{},)"
                       R"("uuid":"GPU-{}","unhealthy":"{}"}})",
                       i ? "," : "", i, type, type, mem_mib, i,
                       i == sick ? "XID 79: fell off the bus" : "");
  return out;
}

std::string job(int id,
                const char* name,
                const char* user,
                const char* project,
                const char* state,
                int gpu_milli,
                const char* rest) {
  return fmt::format(R"({{"id":{0},"label":"{0}","name":"{1}","command":"python train.py",)"
                     R"("user":"{2}","project":"{3}","state":"{4}","gpu_milli":{5},"attempt":1,)"
                     R"("submitted":{6},"cost_nano":1500000000,"at":{7},{8}}})",
                     id, name, user, project, state, gpu_milli, world_now_ms - 600'000,
                     world_now_ms, rest);
}

std::string history(std::initializer_list<const char*> names) {
  std::string out = R"({"from_ms":0,"step_s":10,"points":60,"findings":[],"series":{)";
  bool first = true;
  for (const char* name : names) {
    out += fmt::format(R"({}"{}":[)", first ? "" : ",", name);
    for (int i = 0; i < 60; ++i)
      out += fmt::format("{}{}", i ? "," : "", i < 5 ? "null" : fmt::format("{}", 40 + i % 50));
    out += ']';
    first = false;
  }
  return out + "}}";
}

std::string answer_text(const Fetch& fetch, const std::string& role) {
  if (fetch.slot == "status")
    return fmt::format(R"({{"you":{{"user":"ana","role":"{}","scope":"full"}}}})", role);
  if (fetch.slot == "reservations")
    return R"({"reservations":[{"name":"demo","project":"vision","from":"2026-11-16T00:00:00Z",
      "until":"2026-11-16T22:37:05Z","places":[{"node":"rack1","gpus":[7]}]}]})";
  if (fetch.slot == "fleet" || fetch.slot == "spending")
    return history({"util_pct", "spend_usd_per_h", "idle_usd_per_h"});
  if (fetch.slot == "history")
    return fetch.path.find("/gpus/") != std::string::npos
               ? history({"util_pct", "mem_used_mib", "power_w", "temperature_c"})
               : history({"gpu_util_pct", "gpu_mem_mib", "gpu_power_w", "cpu_cores"});
  if (fetch.slot == "queue")
    return R"({"jobs":[{"id":14,"reason":"No GPU is free: all 8 are in use."}]})";
  if (fetch.slot == "why")
    return R"({"state":"queued","ahead":0,"reasons":[{"text":"No GPU is free: all 8 are in use."}],
      "earliest_start":"2026-11-16T20:37:05Z",
      "latest_start":"2026-11-16T21:07:05Z"})";
  if (fetch.slot == "endpoints")
    return R"({"endpoints":[{"name":"chat","project":"nlp","status":"serving","revision":3,"min":1,
      "max":4,"urls":["http://head:7071/f/chat/"],"url":"http://head:7071/f/chat/","cost_usd":1.25,
      "replicas":[{"job":12,"revision":3,"state":"running","node":"rack1"}],
      "figures":{"ready":2,"sleeping":1,"requests":1200,"failed":3,"first_byte_p50_us":42000,
      "first_byte_p99_us":1900000}}]})";
  if (fetch.slot == "budgets")
    return R"({"budgets":[{"scope":"project","of":"vision","period":"monthly","limit":"$500.00",
      "limit_nano_usd":500000000000,"spent":"$430.00","spent_nano_usd":430000000000,
      "spent_pct":86.0,"burn":"$8.32/h","burn_nano_usd_per_s":2311111,"forecast":"$910.00",
      "forecast_nano_usd":910000000000,"runs_out_at":"2026-11-17T04:00:00Z","stops":true,
      "capped":false}]})";
  if (fetch.slot == "cost")
    return R"({"lines":[{"project":"vision","charge_nano_usd":430000000000,
      "idle_nano_usd":12000000000,"gpu_hours":207.5},{"project":"nlp",
      "charge_nano_usd":51250000000,"idle_nano_usd":0,"gpu_hours":24.6}]})";
  if (fetch.slot == "spent")
    return R"({"lines":[{"job":"12","charge_nano_usd":4000000000,"gpu_hours":2.0,
      "idle_nano_usd":0}]})";
  return R"({"id":12,"label":"12","name":"train-llama","state":"running","user":"ana",
    "project":"vision","command":"python train.py","gpus":2,"gpu_milli":2000,"nodes":1,
    "submitted_at":"2026-11-16T19:27:05Z","started_at":"2026-11-16T19:27:05Z","ended_at":null,
    "ran_s":600,"cost":"$1.50","cost_nano_usd":1500000000,"rate":"$8.32/h","tasks":[]})";
}

}  // namespace

Json world_piece() {
  const std::string nodes = fmt::format(
      R"({{"id":1,"name":"rack1","state":"ready","cpu_milli":64000,"mem_mib":262144,"gpus":[{}]}},)"
      R"({{"id":2,"name":"rack2","state":"drained","reason":"new power supply",)"
      R"("cpu_milli":32000,"mem_mib":131072,"gpus":[{}]}},)"
      R"({{"id":3,"name":"rack3","state":"unreachable","cpu_milli":32000,)"
      R"("mem_mib":131072,"gpus":[{}]}})",
      cards(8, "H100", 81920, 3), cards(2, "A100-40", 40960), cards(2, "L4", 23034));
  const std::string running =
      fmt::format(R"("started":{0},"since":{0},"ran":0,"suspended":0,"rate_nano":2311111,)",
                  world_now_ms - 600'000);
  const std::string jobs =
      job(12, "train-llama", "ana", "vision", "running", 2000,
          (running + R"("reason":"","where":[[1,0,1]])").c_str()) +
      "," +
      job(13, "notebook", "ben", "nlp", "running", 1000,
          (running + R"("reason":"","where":[[1,2]])").c_str()) +
      "," + job(14, "patient", "ana", "vision", "queued", 8000, R"("reason":"","where":[])") + "," +
      job(15, "later", "ben", "nlp", "held", 0, R"("reason":"waits for another job","where":[])") +
      "," +
      job(16, "asleep", "ben", "nlp", "suspended", 1000,
          R"("reason":"suspended by ben","where":[[1]])") +
      "," +
      fmt::format(R"({{"id":20,"label":"20","name":"sweep","command":"sh","user":"ana",)"
                  R"("project":"vision","state":"running","reason":"3 of 10 done, 1 running",)"
                  R"("gpu_milli":1000,"attempt":0,"submitted":{},"where":[],"cost_nano":0,)"
                  R"("rate_nano":0,"at":0}})",
                  world_now_ms - 600'000);
  return json(fmt::format(
      R"({{"now":{},"nodes":[{}],"jobs":[{}],)"
      R"("gpus":[[1,0,1000,97,61440,640,71,100,[12]],[1,1,1000,93,61440,655,73,100,[12]],)"
      R"([1,2,1000,0,1024,70,31,100,[13]],[1,3,0,-1,-1,-1,-1,0,[],"XID 79"],[1,4,)"
      R"(500,40,8192,300,60,100,[]],)"
      R"([1,5,0,0,1,70,30,100,[]],[1,6,0,0,1,70,30,100,[]],[1,7,0,0,1,70,30,100,[]],)"
      R"([2,0,0,0,1,50,30,100,[]],[2,1,0,0,1,50,30,100,[]]],"hosts":[[1,32000,65536]],)"
      R"("summary":{{"gpus":12,"gpus_free_milli":0,"held":1,"queued":1,"running":2,"suspended":1,)"
      R"("spend_nano":4622222,"idle_nano":2311111,"idle_jobs":[13],"store":"ok"}}}})",
      world_now_ms, nodes, jobs));
}

void answer(State& state, const Effects& effects) {
  const std::string role = state.fleet.you.known ? state.fleet.you.role : "admin";
  for (const Effect& effect : effects) {
    if (const auto* fetch = std::get_if<Fetch>(&effect))
      answer(state,
             update(state, Fetched{fetch->slot, fetch->path, json(answer_text(*fetch, role))}));
    if (const auto* log = std::get_if<ReadLog>(&effect))
      answer(state,
             update(state, LogRead{log->generation,
                                   log->offset.empty()
                                       ? "loading\nstep 30/200 loss=0.91\nstep 31/200 loss=0.90\n"
                                       : "",
                                   "100",
                                   0,
                                   {}}));
  }
}

State world(Size size, const std::string& role) {
  State state;
  state.size = size;
  state.now_ms = world_now_ms;
  state.fleet.you = {true, "ana", role, "full"};
  (void)update(state, LiveBegins{});
  (void)update(state, LivePiece{world_piece()});
  for (int i = 0; i < 60; ++i)
    state.fleet.sample();
  answer(state, update(state, Tick{world_now_ms}));
  answer(state, update(state, Tick{world_now_ms}));
  return state;
}

void press(State& state, const std::string& keys) {
  for (const char c : keys)
    answer(state, update(state, Key{KeyName::letter, std::string(1, c)}));
  answer(state, update(state, Tick{state.now_ms}));
}
Effects press(State& state, KeyName key) {
  Effects out = update(state, Key{key});
  answer(state, update(state, Tick{state.now_ms}));
  return out;
}

std::vector<std::string> lines(const State& state) {
  const Screen screen = draw(state);
  std::vector<std::string> out;
  for (int row = 0; row < screen.canvas.size().rows; ++row)
    out.push_back(screen.canvas.line(row));
  return out;
}

std::string text(const State& state) {
  std::string out;
  for (const std::string& line : lines(state))
    out += line + "\n";
  return out;
}

}  // namespace billow::client::top
