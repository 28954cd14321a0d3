#include "bench/advise/ibm.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "advise/calibration.h"
#include "advise/choice.h"
#include "advise/load/draws.h"
#include "advise/serving_row.h"
#include "base/file.h"
#include "base/text.h"
#include "bench/advise/pilot_model.h"

namespace billow::advise {
namespace {

using namespace pilot;

double number(const CsvRow& row, const char* column) {
  return std::strtod(row.at(column).c_str(), nullptr);
}

struct Benchmark {
  std::map<std::string, Llm> llms;
  std::map<std::string, Card> cards;
  std::vector<Point> points;
  std::map<const Llm*, std::map<const Card*, std::map<double, const Point*>>> measured;
};

// Architecture facts of the ten models that their feature table leaves out.
Llm read_llm(const CsvRow& r) {
  Llm m{.name = r.at("model"),
        .parameters = number(r, "model_n_parameters") * 1e9,
        .layers = number(r, "model_n_layers"),
        .flash = r.at("model_is_flash_attention") == "TRUE",
        .encoder_decoder = r.at("model_is_encoder_decoder") == "TRUE"};
  auto type = r.at("model_type");
  double heads = number(r, "model_n_heads"), width = 4096;
  if (type == "t5" || type == "mt5")
    width = m.name.ends_with("-xl") ? 2048 : 4096;
  else if (type == "gpt_neox" || type == "codegen")
    width = 6144;
  else if (type == "llama")
    width = heads * 128;
  m.kv_token_bytes = type == "gpt_bigcode" ? 2 * m.layers * 128 * 2
                                           : 2 * m.layers * width * 2;  // one shared head, or all
  // Embeddings take room but no arithmetic; a decoder of two stacks is the larger half, with its
  // cross-attention.
  double embedding = number(r, "model_vocabulary_size") * width;
  bool tied = type == "mpt" || type == "gpt_bigcode";
  double core = m.parameters - (tied ? 1 : 2) * embedding;
  m.decode_parameters = core * (m.encoder_decoder ? 0.57 : 1) + embedding;
  m.prefill_parameters = core * (m.encoder_decoder ? 0.43 : 1);
  return m;
}

Benchmark read_benchmark(const std::string& dir) {
  Benchmark b;
  auto table = [&](const char* name) {
    return *read_csv(*read_file(dir + "/" + name));
  };
  for (auto& r : table("llm_features.csv"))
    b.llms[r.at("model")] = read_llm(r);
  for (auto& r : table("gpu_features.csv")) {
    auto name = r.at("gpu");
    double fp16 = number(r, "gpu_tflops_tc_fp16"), mixed = number(r, "gpu_tflops_cuda_mixed");
    Card c{name,
           name.substr(4),
           static_cast<int>(number(r, "gpu_n_gpus")),
           number(r, "gpu_memory_capacity_gb") * 1.0737e9,
           number(r, "gpu_memory_bandwidth") * 1e9,
           std::max({fp16, mixed, 60.0}) * 1e12,
           0};
    if (c.type == "H100")
      c.flops /= 2;  // the table lists the sparse rate
    b.cards[name] = c;
  }
  for (auto& r : table("prices.csv"))
    if (b.cards.contains(r.at("GPU")))
      b.cards[r.at("GPU")].price = number(r, "price");
  for (auto& r : table("expected_predictions_LLM-Pilot.csv"))
    b.points.push_back({&b.llms.at(r.at("model")), &b.cards.at(r.at("gpu")), number(r, "num_users"),
                        std::max(0.05, number(r, "median_nttft")), number(r, "median_itl"),
                        number(r, "prediction_median_nttft"), number(r, "prediction_median_itl")});
  for (auto& p : b.points)
    b.measured[p.llm][p.card][p.users] = &p;
  return b;
}

// Users a pod carries by the measurements: up to the first load that misses a limit.
double carries(const std::map<double, const Point*>& loads) {
  double users = 0;
  for (auto& [load, p] : loads) {
    if (p->nttft > nttft_max || p->itl > itl_max)
      break;
    users = load;
  }
  return users;
}

using Outlooks = std::map<const Card*, Outlook>;
Outlooks outlooks(const Benchmark& b, const Model& model, const Llm* llm) {
  Outlooks out;
  for (auto& [card, loads] : b.measured.at(llm))
    out[card] = model.outlook(*llm, *card);
  return out;
}

double middle_deviation(std::vector<double> errors) {
  for (auto& e : errors)
    e = std::fabs(e);
  std::nth_element(errors.begin(), errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2),
                   errors.end());
  return 1.48 * errors[errors.size() / 2];
}

// How far predictions for models held out were off: what a chance is computed with.
struct Spreads {
  double itl = 0.1, users = 0.4;
};
Spreads spreads(const Benchmark& b, const std::map<const Llm*, Outlooks>& held_out) {
  std::vector<double> itl, users;
  for (auto& [llm, cards] : held_out)
    for (auto& [card, o] : cards) {
      auto& loads = b.measured.at(llm).at(card);
      for (std::size_t i = 0; i < grid.size(); ++i)
        if (auto it = loads.find(grid[i]); it != loads.end() && grid[i] >= 8)
          itl.push_back(o.log_itl[i] - std::log(it->second->itl));
      double limit = users_at_limit(loads);
      if (!llm->flash && limit < 400)
        users.push_back(o.log_users(*llm) - std::log(limit));
    }
  return {middle_deviation(itl), middle_deviation(users)};
}

struct Pick {
  const Card* card = nullptr;
  double pods = 0, cost = 0, chance = 0, users = 0;  // users of one pod
};
Pick pick(const Llm& llm, const Outlooks& cards, const Spreads& s, double chance_min) {
  std::vector<Pick> picks;
  std::vector<Choice> choices;
  for (auto& [card, o] : cards) {
    double chance = 1;
    for (std::size_t i = 0; i < grid.size(); ++i) {
      double itl = chance_below(o.log_itl[i], itl_rounded_max, s.itl),
             queue = chance_below(std::log(grid[i]), std::exp(o.log_users(llm)), s.users);
      chance = std::min(chance, itl * queue);  // a load is carried only if all lighter ones are
      double pods = std::ceil(users_all / grid[i]);
      picks.push_back({card, pods, pods * card->price, chance, grid[i]});
      choices.push_back({pods * card->price, chance});
    }
  }
  return picks[choose(choices, {.chance_min = chance_min})];
}

struct Score {
  double success = 0, overspend = 1, score = 0;
};
Score score(const Benchmark& b, const std::map<const Llm*, Pick>& picks) {
  double successes = 0, overspend = 0;
  for (auto& [llm, p] : picks) {
    double best = 1e300;
    for (auto& [card, loads] : b.measured.at(llm))
      if (double users = carries(loads); users > 0)
        best = std::min(best, std::ceil(users_all / users) * card->price);
    if (carries(b.measured.at(llm).at(p.card)) * p.pods >= users_all) {
      ++successes;
      overspend += p.cost / best - 1;
    }
  }
  Score s{successes / static_cast<double>(picks.size()), successes > 0 ? overspend / successes : 1};
  double frugal = std::max(0.0, 1 - s.overspend);
  s.score = s.success + frugal > 0 ? 2 * s.success * frugal / (s.success + frugal) : 0;
  return s;
}

// LLM-Pilot's own predictions, scored here: that its published score comes out says that ours is
// counted as theirs was.
std::map<const Llm*, Pick> published_picks(const Benchmark& b) {
  std::map<const Llm*, Pick> picks;
  for (auto& [llm, cards] : b.measured)
    for (auto& [card, loads] : cards) {
      double users = 0;
      for (auto& [load, p] : loads) {
        if (p->published_nttft > nttft_max || p->published_itl > itl_max)
          break;
        users = load;
      }
      if (!(users > 0))
        continue;
      double pods = std::ceil(users_all / users), cost = pods * card->price;
      auto& best = picks[llm];
      if (!best.card || cost < best.cost)
        best = {card, pods, cost, 0, users};
    }
  return picks;
}

constexpr double chances[] = {0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7};

// The chance to ask for, by how each would have done on the models the fit may see. Nine models
// make a rough measure, so no single winner is taken: chances are averaged, each weighed by how
// near it came to the best.
double best_chance(const Benchmark& b,
                   const std::map<const Llm*, Outlooks>& held_out,
                   const Spreads& s) {
  std::vector<double> scores;
  for (double chance : chances) {
    std::map<const Llm*, Pick> picks;
    for (auto& [llm, cards] : held_out)
      picks[llm] = pick(*llm, cards, s, chance);
    scores.push_back(score(b, picks).score);
  }
  double top = *std::max_element(scores.begin(), scores.end()), sum = 0, weights = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    double weight = std::exp((scores[i] - top) / 0.05);
    sum += weight * chances[i];
    weights += weight;
  }
  return sum / weights;
}

// The model of `billow advise` on this benchmark. As shipped it has never seen the server (TGI), so
// it uses the mean of the engines; by the benchmark's protocol it is fitted to the measurements of
// the nine other models first. Models without a shipped config are taken by their size.
class Product {
 public:
  std::map<const Llm*, Pick> picks(const Benchmark& b, bool fitted, double chance_min) {
    std::map<const Llm*, Pick> out;
    for (auto& [llm, cards] : b.measured) {
      const Calibration& calibration = fitted ? without(b, llm) : shipped_;
      std::vector<Pick> picks;
      std::vector<Choice> choices;
      for (auto& [card, loads] : cards)
        consider(calibration, *llm, *card, picks, choices);
      if (!choices.empty())
        out[llm] = picks[choose(choices, {.chance_min = chance_min, .extra_max = 0.1})];
    }
    return out;
  }

  // What somebody does who tests before buying: the candidate that `advise` chooses is load-tested
  // at the load it is planned for, and the question is asked again with that measurement, until the
  // choice has passed its test or no test is left. Then the cheapest that passed is bought; without
  // one, what `advise` chooses untested.
  struct Tested {
    Pick pick;
    int tests = 0;
  };
  Tested after_tests(
      const Benchmark& b, const Llm* llm, bool fitted, double chance_min, int tests_max) {
    const Calibration& before = fitted ? without(b, llm) : shipped_;
    std::vector<ServingRow> local;
    std::map<const Card*, double> passed, failed;  // users, the most and the fewest
    Tested out;
    for (;; ++out.tests) {
      const Calibration now = before.with_local(local);
      std::vector<Pick> picks;
      std::vector<Choice> choices;
      for (auto& [card, loads] : b.measured.at(llm)) {
        const std::size_t from = picks.size();
        consider(now, *llm, *card, picks, choices);
        for (std::size_t i = from; i < picks.size(); ++i)
          if (failed.contains(card) && picks[i].users >= failed[card])
            picks[i].chance = choices[i].chance = 0;
          else if (passed.contains(card) && picks[i].users <= passed[card])
            picks[i].chance = choices[i].chance = 1;
      }
      if (choices.empty())
        return out;
      const Pick chosen = picks[choose(choices, {.chance_min = chance_min, .extra_max = 0.1})];
      const bool known = passed.contains(chosen.card) && chosen.users <= passed[chosen.card];
      if (known || out.tests == tests_max) {
        out.pick = chosen;
        for (auto& p : picks)
          if (!known && p.chance == 1 && passed.contains(p.card) &&
              (out.pick.chance < 1 || p.cost < out.pick.cost))
            out.pick = p;
        return out;
      }
      const auto& loads = b.measured.at(llm).at(chosen.card);
      const auto measured = loads.find(chosen.users);
      if (measured == loads.end() || measured->second->nttft > nttft_max ||
          measured->second->itl > itl_max)
        failed[chosen.card] = chosen.users;
      else
        passed[chosen.card] = chosen.users;
      if (measured != loads.end()) {
        local.push_back(row_of(*llm, *chosen.card, chosen.users));
        local.back().ttft_ms = measured->second->nttft * input;
        local.back().tpot_ms = measured->second->itl;
      }
    }
  }

  // Whether a chance comes true: how many loads of all cards are given one between these, and how
  // many of them are carried.
  struct Promise {
    double given = 0, kept = 0;
  };
  Promise promise(const Benchmark& b, bool fitted, double from, double to) {
    Promise p;
    for (auto& [llm, cards] : b.measured)
      for (auto& [card, loads] : cards) {
        std::vector<Pick> picks;
        std::vector<Choice> choices;
        consider(fitted ? without(b, llm) : shipped_, *llm, *card, picks, choices);
        for (auto& pick : picks)
          if (loads.contains(pick.users) && pick.chance >= from && pick.chance < to) {
            ++p.given;
            p.kept += carries(loads) >= pick.users;
          }
      }
    return p;
  }

  // The median error between tokens, over all measured points.
  double itl_error(const Benchmark& b, bool fitted) {
    std::vector<double> errors;
    for (auto& p : b.points)
      if (auto now =
              (fitted ? without(b, p.llm) : shipped_).predict(row_of(*p.llm, *p.card, p.users)))
        errors.push_back(std::fabs(now->tpot_ms.value / p.itl - 1));
    std::sort(errors.begin(), errors.end());
    return errors.empty() ? 0 : errors[errors.size() / 2];
  }

 private:
  // The mean request of the benchmark.
  static constexpr double input = 115, output = 20;

  std::shared_ptr<const ModelShape> shape_of(const Llm& llm) {
    auto& shape = shapes_[llm.name];
    if (shape)
      return shape;
    const auto name = llm.name == "llama-7b"               ? "Llama-2-7b-hf"
                      : llm.name == "llama-13b"            ? "Llama-2-13b-hf"
                      : llm.name == "ibm/mpt-7b-instruct2" ? "mpt-7b-instruct"
                                                           : llm.name.c_str();
    auto found = shipped_model(name);
    if (!found)
      found = model_of_size(fmt::format("{:.1f}B", llm.parameters / 1e9));
    shape = std::make_shared<const ModelShape>(at_precision(std::move(*found), Precision::fp16));
    return shape;
  }

  ServingRow row_of(const Llm& llm, const Card& card, double users) {
    auto& gpu = gpus_[card.type];
    if (gpu.name.empty()) {
      gpu = **catalogue_.gpu(card.type);
      gpu.memory_mib = static_cast<std::int64_t>(card.memory / 1048576);
      gpu.bandwidth_gb_s = card.bandwidth / 1e9;
    }
    ServingRow row;
    row.shape = shape_of(llm);
    row.family = family_of(*row.shape);
    row.gpu = &gpu;
    row.engine = llm.flash ? "tgi" : "tgi-padded";  // it batches models without flash otherwise
    row.version = "0.9";                            // of 2023
    row.precision = "fp16";
    row.kv = Precision::fp16;
    row.parallelism = {.tensor = card.n};
    row.input = input;
    row.output = output;
    row.concurrency = users;
    return row;
  }

  const Calibration& without(const Benchmark& b, const Llm* held) {
    if (auto it = fitted_.find(held); it != fitted_.end())
      return it->second;
    std::vector<ServingRow> rows;
    for (auto& p : b.points) {
      if (p.llm == held)
        continue;
      rows.push_back(row_of(*p.llm, *p.card, p.users));
      rows.back().ttft_ms = p.nttft * input;
      rows.back().tpot_ms = p.itl;
    }
    return fitted_.emplace(held, *Calibration::fit(rows)).first->second;
  }

  void consider(const Calibration& calibration,
                const Llm& llm,
                const Card& card,
                std::vector<Pick>& picks,
                std::vector<Choice>& choices) {
    double chance = 1;
    for (double users : grid) {
      const auto now = calibration.predict(row_of(llm, card, users));
      if (!now)
        return;
      auto below = [](const Estimate& e, double limit) {
        const double spread = std::log(limit >= e.value ? e.high / e.value : e.value / e.low);
        return chance_below(std::log(e.value), limit, spread / 1.2816);
      };
      chance = std::min(
          chance, below(now->tpot_ms, itl_rounded_max) * below(now->ttft_ms, nttft_max * input));
      const double pods = std::ceil(users_all / users);
      picks.push_back({&card, pods, pods * card.price, chance, users});
      choices.push_back({pods * card.price, chance});
    }
  }

  Catalogue catalogue_ = Catalogue::embedded();
  Calibration shipped_ = Calibration::embedded();
  std::map<const Llm*, Calibration> fitted_;
  std::map<std::string, std::shared_ptr<const ModelShape>> shapes_;
  std::map<std::string, GpuSpec> gpus_;
};

std::string text_of(const Score& s) {
  return fmt::format("success {:.0f} %  overspend {:.1f} %  score {:.3f}", 100 * s.success,
                     100 * s.overspend, s.score);
}

void report_product(const Benchmark& b) {
  Product product;
  for (const bool fitted : {false, true}) {
    std::printf("LLM-Pilot recommendation benchmark, by the model of `billow advise` %s:\n",
                fitted ? "fitted to the nine other models" : "as shipped");
    const auto picks = product.picks(b, fitted, 0.9);
    for (auto& [llm, p] : picks) {
      const bool good = carries(b.measured.at(llm).at(p.card)) * p.pods >= users_all;
      std::printf("  %-24s %-9s × %-3.0f $%.2f/h  %s (chance %.2f)\n", llm->name.c_str(),
                  p.card->name.c_str(), p.pods, p.cost, good ? "carries it" : "FAILS", p.chance);
    }
    std::printf("  %s   (asked: ≥ 90 / ≤ 15)  median error between tokens %.1f %%\n",
                text_of(score(b, picks)).c_str(), 100 * product.itl_error(b, fitted));
    std::printf("  all loads by the chance given (how many, share that holds):");
    for (auto [from, to] :
         {std::pair{0.95, 1.1}, {0.9, 0.95}, {0.7, 0.9}, {0.5, 0.7}, {0.3, 0.5}, {0.0, 0.3}}) {
      const auto p = product.promise(b, fitted, from, to);
      std::printf("  ≥ %.2f: %.0f, %.0f %%", from, p.given, 100 * p.kept / std::max(1.0, p.given));
    }
    std::printf("\n  had another chance been asked:");
    for (double chance : {0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}) {
      const auto s = score(b, product.picks(b, fitted, chance));
      std::printf(" %.2f → %.0f/%.0f/%.2f", chance, 100 * s.success, 100 * s.overspend, s.score);
    }
    std::printf(
        "\n  with load tests of what it chooses (chance asked: success/overspend, tests):\n");
    for (int tests : {1, 2, 3, 5, 8}) {
      std::printf("    at most %d:", tests);
      for (double chance : {0.2, 0.3, 0.5, 0.7, 0.9}) {
        std::map<const Llm*, Pick> tested;
        double used = 0;
        for (auto& [llm, cards] : b.measured)
          if (const auto t = product.after_tests(b, llm, fitted, chance, tests); t.pick.card) {
            tested[llm] = t.pick;
            used += t.tests;
          }
        const auto s = score(b, tested);
        std::printf("  %.1f: %.0f/%.0f, %.1f", chance, 100 * s.success, 100 * s.overspend,
                    used / static_cast<double>(tested.size()));
      }
      std::printf("\n");
    }
  }
}

// How small the errors of a prediction would have to be: the measured times with normal errors of
// this size, judged by the chances they leave. First tokens err twice as much, as ours do.
void report_needed(const Benchmark& b) {
  std::printf("errors that the benchmark would need (chance asked: success/overspend):\n");
  constexpr double half = 0.6745;  // of a normal distribution lies within this many deviations
  for (double spread : {0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3}) {
    Draws random{1};
    std::printf("  median %2.0f %% between tokens:", 100 * (std::exp(half * spread) - 1));
    for (double chance_min : {0.3, 0.5, 0.7, 0.9}) {
      constexpr int times = 60;
      double success = 0, overspend = 0, successes = 0;
      for (int i = 0; i < times; ++i) {
        std::map<const Llm*, Pick> taken;
        for (auto& [llm, cards] : b.measured) {
          std::vector<Pick> picks;
          std::vector<Choice> choices;
          for (auto& [card, loads] : cards) {
            const double itl = spread * random.normal(), first = 2 * spread * random.normal();
            double chance = 1;
            for (auto& [users, p] : loads) {
              chance = std::min(
                  chance, chance_below(std::log(p->itl) + itl, itl_rounded_max, spread) *
                              chance_below(std::log(p->nttft) + first, nttft_max, 2 * spread));
              const double pods = std::ceil(users_all / users);
              picks.push_back({card, pods, pods * card->price, chance, users});
              choices.push_back({pods * card->price, chance});
            }
          }
          taken[llm] = picks[choose(choices, {.chance_min = chance_min, .extra_max = 0})];
        }
        const auto s = score(b, taken);
        success += s.success / times;
        overspend += s.overspend * s.success;
        successes += s.success;
      }
      std::printf("  %.1f: %.0f/%.0f", chance_min, 100 * success,
                  100 * overspend / std::max(1e-9, successes));
    }
    std::printf("\n");
  }
}

}  // namespace

void report_ibm(const std::string& dir) {
  if (!file_exists(dir + "/expected_predictions_LLM-Pilot.csv")) {
    std::printf("LLM-Pilot benchmark: no data, skipped\n");
    return;
  }
  auto b = read_benchmark(dir);
  report_product(b);
  report_needed(b);
  auto without = [&](const Llm* one, const Llm* other) {
    std::vector<Point> out;
    for (auto& p : b.points)
      if (p.llm != one && p.llm != other)
        out.push_back(p);
    return Model::fit(out);
  };
  // Each model from a fit without it; and, for what is chosen inside, each other model from a fit
  // without both.
  std::map<const Llm*, Outlooks> outer;
  std::map<const Llm*, std::map<const Llm*, Outlooks>> inner;
  for (auto& [name, one] : b.llms) {
    outer[&one] = outlooks(b, without(&one, nullptr), &one);
    for (auto& [other_name, other] : b.llms)
      if (name < other_name) {
        auto model = without(&one, &other);
        inner[&one][&other] = outlooks(b, model, &other);
        inner[&other][&one] = outlooks(b, model, &one);
      }
  }
  std::map<const Llm*, Pick> nested;
  std::map<double, std::map<const Llm*, Pick>> fixed;
  std::vector<double> itl_errors;
  std::printf(
      "LLM-Pilot recommendation benchmark, by a model fitted to its data alone that is not part of "
      "`billow advise` (each model unseen in its fit; spreads and the chance "
      "asked for from the other nine, each held out in turn):\n");
  for (auto& [name, llm] : b.llms) {
    auto s = spreads(b, inner[&llm]);
    double asked = best_chance(b, inner[&llm], s);
    auto& p = nested[&llm] = pick(llm, outer[&llm], s, asked);
    for (double chance : chances)
      fixed[chance][&llm] = pick(llm, outer[&llm], s, chance);
    double best = 1e300;
    for (auto& [card, loads] : b.measured[&llm]) {
      if (double users = carries(loads); users > 0)
        best = std::min(best, std::ceil(users_all / users) * card->price);
      for (std::size_t i = 0; i < grid.size(); ++i)
        if (loads.contains(grid[i]))
          itl_errors.push_back(
              std::fabs(std::exp(outer[&llm][card].log_itl[i]) / loads[grid[i]]->itl - 1));
    }
    bool good = carries(b.measured[&llm][p.card]) * p.pods >= users_all;
    std::printf("  %-24s %-9s × %-3.0f $%.2f/h  %s (cheapest $%.2f/h; chance %.2f, asked %.2f)\n",
                name.c_str(), p.card->name.c_str(), p.pods, p.cost, good ? "carries it" : "FAILS",
                best, p.chance, asked);
  }
  std::sort(itl_errors.begin(), itl_errors.end());
  std::printf(
      "  %s   (LLM-Pilot 80 / 19.9 / 0.80; asked: ≥ 90 / ≤ 15 / ≥ 0.85)  median error between "
      "tokens %.1f %%\n",
      text_of(score(b, nested)).c_str(), 100 * itl_errors[itl_errors.size() / 2]);
  std::printf("  LLM-Pilot's published predictions, scored by the same code: %s\n",
              text_of(score(b, published_picks(b))).c_str());
  std::printf("  had one chance been asked of all:");
  for (auto& [chance, picks] : fixed) {
    auto s = score(b, picks);
    std::printf(" %.2f → %.0f/%.0f/%.2f", chance, 100 * s.success, 100 * s.overspend, s.score);
  }
  std::printf("\n");
}

}  // namespace billow::advise
