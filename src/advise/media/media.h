// Models that are not language models: image generation and speech recognition. Their speed is not
// computed step by step, as for language models, but taken from published rates of whole cards
// (data/media.txt, each with its source) and scaled by a card's datasheet. What was published
// differs: tuned submissions to a benchmark, or plain runs one image at a time; the answer says
// which.
//
// Invariants: a card with a published rate gets it; another gets one scaled by its tensor rate and
// bandwidth, with the interval that leaving each published card out shows; a model without
// published rates is refused, never guessed.
#pragma once

#include "advise/recommend.h"

namespace billow::advise {

struct MediaRate {
  std::string gpu;
  int gpus = 1;
  double offline = 0, server = 0;  // per second, of all GPUs; server 0: not measured
  std::string entry;
};

struct MediaModel {
  std::string name, counted;  // "stable-diffusion-xl", "image"
  std::vector<std::string> aliases;
  double parameters = 0;
  double tensor_weight = 1,
         bandwidth_weight = 0;  // rate ~ tensor rate and bandwidth to these powers
  int bits = 16;                // of the tensor rate it runs at where a card has it
  std::string source, caveat;   // who published the rates, and how other runs differ from them
  std::vector<MediaRate> rates;
  double memory_bytes() const;  // on one GPU
};
const std::vector<MediaModel>& media_models();
// By name or another name, in any case, with or without an organisation.
const MediaModel* media_model(std::string_view name);

struct MediaEstimate {
  double per_s = 0, low = 0, high = 0;  // of one GPU, under load
  Kind kind = Kind::extrapolated;       // measured: published for this card
  std::string basis;
};
// Nothing if the card lacks the memory or its rates are unknown.
std::optional<MediaEstimate> media_rate(const MediaModel& model, const GpuSpec& gpu);
// How far the scaled rate of each published card is off if the others alone are known, as
// log(published / scaled).
std::vector<double> media_errors(const MediaModel& model, const Catalogue& catalogue);

struct MediaRequest {
  const MediaModel* model = nullptr;
  double rps = 1;
  Request offers;  // its filters, its time and whether spot prices count
};
struct MediaCandidate {
  const GpuSpec* gpu = nullptr;
  int gpus = 0;
  MediaEstimate rate;
  Offered offer;
  double usd_month = 0;
  std::optional<double> usd_per_thousand;  // at the requested load
};
struct MediaAdvice {
  std::vector<MediaCandidate> ranked;  // cheapest first, one per GPU
};
Result<MediaAdvice> recommend_media(const MediaRequest& request, const Catalogue& catalogue);
Json media_json(const MediaRequest& request, const MediaAdvice& advice);
std::string media_text(const MediaRequest& request, const MediaAdvice& advice);

}  // namespace billow::advise
