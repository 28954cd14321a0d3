// How a model serves on a card in the LLM-Pilot measurements, from what is known before it is ever
// run: a mechanism with a few constants, and beside it a plain regression of the load at which
// first tokens come too late. The mechanism knows why; the regression forgives it where a server
// was tuned oddly. Their average errs less than either.
//
// The mechanism. A step costs what the host needs to launch it or what the card needs to do it,
// whichever is longer (a power mean): the launch goes with the layers; the card reads the weights,
// and for each sequence its cache, its share of arriving prompts and a constant; ranks exchange
// once a layer. The cache holds only so many requests; beyond them users queue, and wait in
// proportion. Constants have wide priors with a physical mean and are fitted on the other models'
// measurements with a robust loss.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

namespace billow::advise::pilot {

struct Llm {
  std::string name;
  double parameters = 0, layers = 0, kv_token_bytes = 0;
  double decode_parameters = 0,
         prefill_parameters = 0;  // that a generated and a prompt token pass through
  bool flash = false, encoder_decoder = false;
};
struct Card {
  std::string name, type;  // "2 x A100", "A100"
  int n = 1;
  double memory = 0, bandwidth = 0, flops = 0, price = 0;  // of one GPU; the price is of all
};
struct Point {
  const Llm* llm = nullptr;
  const Card* card = nullptr;
  double users = 0, nttft = 0, itl = 0;
  double published_nttft = 0, published_itl = 0;  // as LLM-Pilot predicted them
};

inline constexpr std::array<double, 8> grid = {1, 2, 4, 8, 16, 32, 64, 128};
inline constexpr double users_all = 200, nttft_max = 100;
inline constexpr double itl_max = 50,
                        itl_rounded_max = 50.5;  // measured medians are whole milliseconds

struct Outlook {  // of one model on one card
  std::array<double, grid.size()> log_itl{};
  double log_users_mechanism = 0;  // at which nttft reaches its limit
  double log_users_regression = 0;
  double log_users(const Llm& llm) const {
    return llm.flash ? log_users_mechanism : (log_users_mechanism + log_users_regression) / 2;
  }
};

// The measured load at which nttft reaches its limit, between the loads measured; beyond them by
// the last slope.
double users_at_limit(const std::map<double, const Point*>& loads);

class Model {
 public:
  static Model fit(const std::vector<Point>& points);
  Outlook outlook(const Llm& llm, const Card& card) const;

 private:
  std::vector<double> constants_;
  std::vector<double> regression_;
};

}  // namespace billow::advise::pilot
