// Image and speech models: published rates, and how they scale to other cards.
#include "advise/media/media.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "advise/ask.h"
#include "tests/unit/advise/embedded.h"

namespace billow::advise {
namespace {

TEST(Media, APublishedCardHasItsPublishedRate) {
  const MediaModel* sdxl = media_model("stabilityai/Stable-Diffusion-XL-Base-1.0");
  ASSERT_NE(sdxl, nullptr);
  EXPECT_EQ(sdxl, media_model("sdxl"));
  const auto h200 = media_rate(*sdxl, **catalogue().gpu("H200"));
  ASSERT_TRUE(h200);
  EXPECT_EQ(h200->kind, Kind::measured);
  EXPECT_NEAR(h200->per_s, 18.4 / 8, 0.02) << "entries 5.1-0014 and 5.1-0079, server scenario";
  EXPECT_LT(h200->low, 18.37 / 8);
  EXPECT_GT(h200->high, 18.42 / 8);
  const MediaModel* whisper = media_model("whisper");
  ASSERT_NE(whisper, nullptr);
  EXPECT_NEAR(media_rate(*whisper, **catalogue().gpu("L4"))->per_s, 22.0151 / 4, 0.01);
}

TEST(Media, EveryRateIsOfAKnownCardAndNamesItsEntry) {
  ASSERT_EQ(media_models().size(), 3u);
  for (auto& m : media_models()) {
    EXPECT_GE(m.rates.size(), 5u) << m.name;
    for (auto& r : m.rates) {
      ASSERT_TRUE(catalogue().gpu(r.gpu)) << r.gpu;
      EXPECT_EQ((*catalogue().gpu(r.gpu))->name, r.gpu) << "an alias would never be found";
      EXPECT_GT(r.offline, 0);
      EXPECT_FALSE(r.entry.empty());
      EXPECT_TRUE(!m.source.starts_with("MLPerf") || r.entry.starts_with("5.1-")) << r.entry;
    }
  }
}

// The law that scales to other cards is judged on cards it did not see.
TEST(Media, ACardLeftOutIsPredictedWithinAThirdAtTheMedian) {
  for (auto& m : media_models()) {
    auto errors = media_errors(m, catalogue());
    ASSERT_GE(errors.size(), 5u) << m.name;
    for (double& e : errors)
      e = std::fabs(std::exp(e) - 1);
    std::sort(errors.begin(), errors.end());
    EXPECT_LT(errors[errors.size() / 2], 0.33) << m.name;
    EXPECT_LT(errors.back(), 0.6) << m.name;
  }
}

TEST(Media, AnUnpublishedCardIsExtrapolatedAndWider) {
  const MediaModel& sdxl = *media_model("sdxl");
  const auto a100 = media_rate(sdxl, **catalogue().gpu("A100-80GB-SXM"));
  ASSERT_TRUE(a100);
  EXPECT_EQ(a100->kind, Kind::extrapolated);
  EXPECT_GT(a100->high / a100->low, 1.2);
  EXPECT_LT(a100->per_s, media_rate(sdxl, **catalogue().gpu("H100"))->per_s);
  EXPECT_FALSE(media_rate(sdxl, **catalogue().gpu("RTX-3070"))) << "8 GB do not hold it";
}

TEST(Media, TwiceTheLoadCostsAboutTwiceAndUnknownModelsAreRefused) {
  MediaRequest r{.model = media_model("sdxl"), .rps = 20, .offers = {}};
  const auto once = recommend_media(r, catalogue());
  ASSERT_TRUE(once) << once.error().message;
  r.rps = 40;
  const auto twice = recommend_media(r, catalogue());
  ASSERT_TRUE(twice);
  EXPECT_NEAR(twice->ranked[0].usd_month / once->ranked[0].usd_month, 2, 0.5);
  EXPECT_GE(once->ranked[0].gpus * once->ranked[0].rate.high, 20);
  EXPECT_EQ(media_model("flux.1-schnell"), nullptr) << "no published rate: never guessed";
}

TEST(Media, PlainRunsSayThatTheyAreNotTuned) {
  const MediaModel* flux = media_model("black-forest-labs/FLUX.1-dev");
  ASSERT_NE(flux, nullptr);
  const auto h100 = media_rate(*flux, **catalogue().gpu("H100"));
  ASSERT_TRUE(h100);
  EXPECT_EQ(h100->kind, Kind::measured);
  EXPECT_NEAR(1 / h100->per_s, 6.71, 0.02) << "the median of three published runs";
  EXPECT_FALSE(media_rate(*flux, **catalogue().gpu("L4"))) << "24 GB do not hold 35.7 GiB";
  const MediaRequest r{.model = flux, .rps = 2, .offers = {}};
  const auto advice = recommend_media(r, catalogue());
  ASSERT_TRUE(advice) << advice.error().message;
  EXPECT_NE(media_text(r, *advice).find("plain PyTorch, one image at a time"), std::string::npos);
  EXPECT_EQ(media_text(r, *advice).find("MLPerf"), std::string::npos);
  const MediaRequest sdxl{.model = media_model("sdxl"), .rps = 2, .offers = {}};
  EXPECT_NE(media_text(sdxl, *recommend_media(sdxl, catalogue())).find("tuned submissions"),
            std::string::npos);
}

}  // namespace
}  // namespace billow::advise
