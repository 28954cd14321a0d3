// `./dev bench advise`: every figure the advisor claims, made anew from the data. Predictions are
// judged on splits the fit did not see: the calibration is refitted for each.
#include <chrono>
#include <cstdio>
#include <cstring>

#include "advise/calibration.h"
#include "advise/recommend.h"
#include "bench/advise/ibm.h"
#include "bench/advise/latency.h"
#include "bench/advise/mlperf.h"
#include "bench/advise/portfolio.h"
#include "bench/advise/questions.h"

using namespace billow;
using namespace billow::advise;

namespace {

void report_speed() {
  using clock = std::chrono::steady_clock;
  double worst = 0, sum = 0;
  int n = 0;
  for (auto model : {"7B", "13B", "70B", "405B", "1B"}) {
    auto start = clock::now();
    Request request;
    request.model = *model_of_size(model);
    request.users = 100;
    request.tokens_per_s_min = 10;
    auto r = recommend(request, Catalogue::embedded(), Calibration::embedded());
    double ms = std::chrono::duration<double, std::milli>(clock::now() - start).count();
    worst = std::max(worst, ms);
    sum += ms;
    ++n;
    if (!r)
      std::printf("  %s: %s\n", model, r.error().message.c_str());
  }
  std::printf(
      "an answer, the catalogue read and scanned whole: mean %.0f ms, worst %.0f ms (asked: < "
      "100)\n",
      sum / n, worst);
}

}  // namespace

int main(int argc, char** argv) {
  std::string data = "../shared/data", facts = "bench/advise/mlperf_v5.1.csv", only;
  for (int i = 1; i + 1 < argc; ++i) {
    if (!std::strcmp(argv[i], "--data"))
      data = argv[i + 1];
    if (!std::strcmp(argv[i], "--mlperf"))
      facts = argv[i + 1];
    if (!std::strcmp(argv[i], "--only"))
      only =
          argv[i + 1];  // speed, questions, mlperf, steady, portfolio, pilot, latency, models, gpus
  }
  auto wanted = [&](const char* part) {
    return only.empty() || only == part;
  };
  if (wanted("speed"))
    report_speed();
  if (wanted("questions"))
    report_questions();
  if (wanted("mlperf"))
    report_mlperf(facts);
  if (wanted("steady"))
    report_steady(data + "/advisor/trtllm/perf_overview.csv");
  if (wanted("portfolio"))
    report_portfolio(data);
  if (wanted("pilot"))
    report_ibm(data + "/advisor/ibm_llmpilot");
  for (const char* part : {"models", "gpus"})
    if (only == part)
      report_latency(data, part);
  if (wanted("latency"))
    report_latency(data, "");
}
