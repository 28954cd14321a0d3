#include "bench/advise/ibm.h"

#include <cmath>
#include <cstdio>

#include "advise/efficiency.h"
#include "advise/serving_row.h"
#include "base/file.h"
#include "base/text.h"

namespace billow::advise {
namespace {

// Architecture facts of the ten models that their feature table leaves out: bytes of KV cache per token in half precision.
double kv_bytes_token(const std::string& type, const std::string& name, double layers, double heads) {
  if (type == "gpt_bigcode") return 2 * layers * 128 * 2;                       // one shared head
  double width = 4096;
  if (type == "t5" || type == "mt5") width = name.ends_with("-xl") ? 2048 : 4096;
  else if (type == "gpt_neox" || type == "codegen") width = 6144;
  else if (type == "llama") width = heads * 128;
  return 2 * layers * width * 2;
}

struct Llm {
  std::string name, type;
  double parameters = 0, layers = 0, kv = 0;
  bool flash = false, encoder_decoder = false;
};
struct Card {
  std::string name, type;               // "2 x A100", "A100"
  double n = 1, memory = 0, bandwidth = 0, tflops = 0, price = 0;
};
struct Point {
  const Llm* llm;
  const Card* card;
  double users, nttft, itl;
};

// How many requests the cache holds. Paged kernels: free tokens over a request's. Padded kernels hold every sequence at the
// longest of the batch: `padded` requests in 40,000 free tokens, in proportion below and growing with a power above.
struct Tokens { double flash, padded, power, usable; };

double room(const Llm& m, const Card& c, const Tokens& tokens) {
  double free = c.memory * tokens.usable * c.n - 2 * m.parameters - 2e9 * c.n;
  double held = std::max(1.0, free / m.kv);
  return std::max(1.0, m.flash ? held / tokens.flash : tokens.padded * std::max(held / 40e3, std::pow(held / 40e3, tokens.power)));
}

std::vector<Effect> effects(const Llm& m, const Card& c) {
  return {{"all", 20}, {"gpu=" + c.type, 0.2}, {std::string("flash=") + (m.flash ? "1" : "0"), 0.3}, {std::string("kind=") + (m.encoder_decoder ? "encdec" : "dec"), 0.2}, {fmt::format("n={}", c.n), 0.15}};
}

// What a batch adds to a step is cache traffic and the prefill of those who arrive; the data cannot tell them apart well. Two
// readings, one with the cache as a term of its own and one with it beside the weights, are averaged.
enum class Reading { apart, beside };

Sample itl_sample(const Llm& m, const Card& c, double users, const Tokens& tokens, Reading reading) {
  double batch = std::min(users, room(m, c, tokens)), bandwidth = c.bandwidth * 1e9 * c.n;
  double weights_ms = 2 * m.parameters / bandwidth * 1e3, cache_ms = batch * m.kv * (m.flash ? 300 : 800) / bandwidth * 1e3;
  double prefill_ms = batch * 2 * m.parameters * 10 / (c.tflops * 1e12 * c.n) * 1e3, exchange_ms = (c.n > 1 ? m.layers * 0.05 * c.n : 0) + 1e-6;
  Sample s{{m.layers * 0.1, weights_ms, prefill_ms, batch * 0.2, exchange_ms}, effects(m, c), {}, 0};
  if (reading == Reading::apart) s.terms.push_back(cache_ms + 1e-6);
  else s.terms[1] += cache_ms;
  return s;
}

Sample nttft_sample(const Llm& m, const Card& c, double users, double itl, const Tokens& tokens) {
  double space = room(m, c, tokens), batch = std::min(users, space);
  double queue = std::max(0.0, users / space - 1) * itl * 0.2;
  return {{0.3, itl * 0.01, batch * itl * 0.004, queue + 1e-6}, {{"all", 20}, {"gpu=" + c.type, 0.15}, {std::string("flash=") + (m.flash ? "1" : "0"), 0.4}, {std::string("kind=") + (m.encoder_decoder ? "encdec" : "dec"), 0.2}}, {}, 0};
}

struct Models {
  EfficiencyModel itl, itl_beside, nttft; Tokens tokens; double error = 0, itl_spread = 0.1, nttft_spread = 0.3;
  double between(const Llm& m, const Card& c, double users) const {
    return std::sqrt(itl.predict(itl_sample(m, c, users, tokens, Reading::apart)) * itl_beside.predict(itl_sample(m, c, users, tokens, Reading::beside)));
  }
};

// Fitted on the models given, the cache a request takes chosen by the same data.
Models fit(const std::vector<Point>& points) {
  Models best;
  best.error = 1e300;
  for (auto [flash, usable] : {std::pair{330.0, 0.9}, {450.0, 0.9}, {250.0, 0.86}, {330.0, 0.86}, {330.0, 0.82}})
    for (auto [padded, power] : {std::pair{7.0, 1.5}, {10.0, 1.5}, {7.0, 2.0}, {10.0, 2.0}, {7.0, 2.5}}) {
      Models m{.tokens = {flash, padded, power, usable}};
      std::vector<Sample> itl, beside, nttft;
      for (auto& p : points) {
        itl.push_back(itl_sample(*p.llm, *p.card, p.users, m.tokens, Reading::apart));
        beside.push_back(itl_sample(*p.llm, *p.card, p.users, m.tokens, Reading::beside));
        itl.back().measured = beside.back().measured = p.itl;
        nttft.push_back(nttft_sample(*p.llm, *p.card, p.users, p.itl, m.tokens));
        nttft.back().measured = std::max(0.05, p.nttft);
      }
      m.itl = EfficiencyModel::fit(itl, {.noise = 0.15});
      m.itl_beside = EfficiencyModel::fit(beside, {.noise = 0.15});
      m.nttft = EfficiencyModel::fit(nttft, {.noise = 0.3});
      std::vector<double> a, b;
      for (std::size_t i = 0; i < points.size(); ++i) {
        a.push_back(std::fabs(std::log(m.between(*points[i].llm, *points[i].card, points[i].users) / points[i].itl)));
        b.push_back(std::fabs(std::log(m.nttft.predict(nttft[i]) / nttft[i].measured)));
        m.error += std::min(0.5, a.back()) + 0.5 * std::min(1.0, b.back());
      }
      // The middle error times 1.48 is a standard deviation; half as much again for a model that was not seen.
      std::nth_element(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(a.size() / 2), a.end());
      std::nth_element(b.begin(), b.begin() + static_cast<std::ptrdiff_t>(b.size() / 2), b.end());
      m.itl_spread = 1.48 * 1.5 * a[a.size() / 2];
      m.nttft_spread = 1.48 * 1.5 * b[b.size() / 2];
      if (m.error < best.error) best = std::move(m);
    }
  return best;
}

constexpr double users_all = 200, nttft_max = 100, itl_max = 50;
constexpr double chance_min = 0.4;   // of meeting both limits, below which a choice is not made
constexpr double grid[] = {1, 2, 4, 8, 16, 32, 64, 128};

double number(const CsvRow& row, const char* column) { return std::strtod(row.at(column).c_str(), nullptr); }

}  // namespace

void report_ibm(const std::string& dir) {
  auto table = [&](const char* name) { return *read_csv(*read_file(dir + "/" + name)); };
  if (!file_exists(dir + "/expected_predictions_LLM-Pilot.csv")) {
    std::printf("LLM-Pilot benchmark: no data, skipped\n");
    return;
  }
  std::map<std::string, Llm> llms;
  for (auto& r : table("llm_features.csv")) {
    Llm m{r.at("model"), r.at("model_type"), number(r, "model_n_parameters") * 1e9, number(r, "model_n_layers"), 0, r.at("model_is_flash_attention") == "TRUE", r.at("model_is_encoder_decoder") == "TRUE"};
    m.kv = kv_bytes_token(m.type, m.name, m.layers, number(r, "model_n_heads"));
    llms[m.name] = m;
  }
  std::map<std::string, Card> cards;
  for (auto& r : table("gpu_features.csv")) {
    auto name = r.at("gpu");
    double fp16 = number(r, "gpu_tflops_tc_fp16"), mixed = number(r, "gpu_tflops_cuda_mixed");
    cards[name] = {name, name.substr(4), number(r, "gpu_n_gpus"), number(r, "gpu_memory_capacity_gb") * 1.0737e9, number(r, "gpu_memory_bandwidth"), std::max({fp16, mixed, 60.0}), 0};
    if (cards[name].type == "H100") cards[name].tflops /= 2;  // the table lists the sparse rate
  }
  for (auto& r : table("prices.csv"))
    if (cards.contains(r.at("GPU"))) cards[r.at("GPU")].price = number(r, "price");
  std::vector<Point> points;
  for (auto& r : table("expected_predictions_LLM-Pilot.csv"))
    points.push_back({&llms.at(r.at("model")), &cards.at(r.at("gpu")), number(r, "num_users"), number(r, "median_nttft"), number(r, "median_itl")});

  int success = 0;
  double overspend = 0;
  std::vector<double> itl_errors;
  std::printf("LLM-Pilot recommendation benchmark (each model unseen in its fit):\n");
  for (auto& [name, llm] : llms) {
    std::vector<Point> others;
    for (auto& p : points)
      if (p.llm != &llm) others.push_back(p);
    auto model = fit(others);
    std::map<const Card*, std::map<double, const Point*>> measured;
    for (auto& p : points)
      if (p.llm == &llm) measured[p.card][p.users] = &p;
    double best_cost = 1e300, chosen_cost = 1e300, chosen_pods = 0;
    const Card* chosen = nullptr;
    std::map<const Card*, double> truth;
    for (auto& [card, loads] : measured) {
      double carries = 0;
      bool going = true;
      for (double u : grid) {
        if (auto it = loads.find(u); it != loads.end()) {
          if (it->second->nttft <= nttft_max && it->second->itl <= itl_max && going) carries = u;
          else going = false;
          double itl = model.between(llm, *card, u);
          itl_errors.push_back(std::fabs(itl / it->second->itl - 1));
        }
      }
      // Each load of a pod has a chance of meeting both limits; the cheapest choice with a fair chance wins.
      for (double u : grid) {
        double itl = model.between(llm, *card, u), nttft = model.nttft.predict(nttft_sample(llm, *card, u, itl, model.tokens));
        auto below = [](double value, double limit, double spread) { return 0.5 * std::erfc(-std::log(limit / value) / spread / std::sqrt(2.0)); };
        double chance = below(itl, itl_max, model.itl_spread) * below(nttft, nttft_max, model.nttft_spread);
        double pods = std::ceil(users_all / u), cost = pods * card->price;
        if (chance >= chance_min && cost < chosen_cost) chosen_cost = cost, chosen = card, chosen_pods = pods;
      }
      truth[card] = carries;
      if (carries > 0) best_cost = std::min(best_cost, std::ceil(users_all / carries) * card->price);
    }
    bool good = chosen && truth[chosen] * chosen_pods >= users_all;
    if (good) ++success, overspend += chosen_cost / best_cost - 1;
    std::printf("  %-24s %-9s × %-3.0f $%.2f/h  %s (cheapest $%.2f/h)\n", name.c_str(), chosen ? chosen->name.c_str() : "none", chosen_pods, chosen_cost, good ? "carries it" : "FAILS", best_cost);
  }
  double s = static_cast<double>(success) / static_cast<double>(llms.size()), o = success ? overspend / success : 1, frugal = std::max(0.0, 1 - o);
  std::sort(itl_errors.begin(), itl_errors.end());
  std::printf("  success %.0f %%  overspend %.1f %%  score %.3f   (LLM-Pilot 80 / 19.9 / 0.80; asked: ≥ 90 / ≤ 15 / ≥ 0.85)  median error between tokens %.1f %%\n", 100 * s, 100 * o,
              s + frugal > 0 ? 2 * s * frugal / (s + frugal) : 0, 100 * itl_errors[itl_errors.size() / 2]);
}

}  // namespace billow::advise
