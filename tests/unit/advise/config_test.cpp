// Real configs of many architectures: the count of parameters against what their authors publish,
// and the cache per token worked out by hand.
#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "advise/memory.h"
#include "base/text.h"

namespace billow::advise {
namespace {

struct Known {
  const char* name;
  double billions, kv_kib_per_token;  // of BF16, inside every window
};

TEST(KnownModels, HaveTheirPublishedSizeAndCache) {
  const Known table[] = {
      {"databricks/dbrx-instruct", 131.6, 160},
      {"google/flan-t5-xxl", 11.14, 2 * 24 * 64 * 64 * 2 * 2 / 1024.0},
      {"ibm-ai-platform/Bamba-9B-v1", 9.78, 3 * 2 * 8 * 128 * 2 / 1024.0},
      {"tiiuae/Falcon-H1-7B-Instruct", 7.59, 44 * 2 * 2 * 128 * 2 / 1024.0},
      {"ibm-granite/granite-4.0-h-small", 32.2, 4 * 2 * 8 * 128 * 2 / 1024.0},
      {"ai21labs/Jamba-v0.1", 51.6, 4 * 2 * 8 * 128 * 2 / 1024.0},
      {"MiniMaxAI/MiniMax-Text-01", 456, 10 * 2 * 8 * 128 * 2 / 1024.0},
      {"google/gemma-2-9b", 9.24, 42 * 2 * 8 * 256 * 2 / 1024.0},
      {"google/gemma-3-27b-it", 27.0, 62 * 2 * 16 * 128 * 2 / 1024.0},
      {"meta-llama/Llama-3.1-70B", 70.55, 320},
      {"meta-llama/Llama-2-13b-hf", 13.02, 800},
      {"microsoft/phi-4", 14.66, 200},
      {"deepseek-ai/DeepSeek-V3", 671, 61 * 576 * 2 / 1024.0},
  };
  for (auto& known : table) {
    auto s = find_model(known.name, "");
    ASSERT_TRUE(s) << known.name << ": " << s.error().message;
    EXPECT_NEAR(s->parameters() / 1e9, known.billions, known.billions * 0.015) << known.name;
    EXPECT_NEAR(kv_per_token(*s, Precision::bf16).bytes / 1024, known.kv_kib_per_token, 0.01)
        << known.name;
  }
}

TEST(KnownModels, EveryShippedNameIsReadAndWeighsWhatIsPublished) {
  std::set<std::string> seen;
  for (auto& model : shipped_models()) {
    EXPECT_TRUE(seen.insert(model.name).second) << model.name << " is listed twice";
    auto s = find_model(model.name, "");
    ASSERT_TRUE(s) << model.name << ": " << s.error().message;
    // The smallest have a few million in convolutions and positions, which are not counted.
    EXPECT_NEAR(s->parameters() / 1e9, model.billions, std::max(0.003, model.billions * 0.02))
        << model.name;
    EXPECT_TRUE(s->notes.empty() || s->encoder_decoder) << model.name << ": " << s->notes.front();
  }
  EXPECT_GE(seen.size(), 200u);
}

TEST(KnownModels, AreFoundInAnyCaseWithoutOrganisationAndQuantized) {
  EXPECT_EQ(find_model("llama-3.1-70b", "")->name, "meta-llama/Llama-3.1-70B");
  auto awq = find_model("Qwen/Qwen2.5-72B-Instruct-AWQ", "");
  ASSERT_TRUE(awq);
  EXPECT_EQ(awq->native, Precision::int4);
  EXPECT_NEAR(awq->parameters() / 1e9, 72.7, 1);
  for (const char* untuned : {"Llama-3.3-70B", "Qwen2-VL-7B", "dbrx"}) {
    const auto tuned = find_model(untuned, "");
    ASSERT_TRUE(tuned) << untuned;
    EXPECT_TRUE(lower(tuned->name).find(lower(untuned)) != std::string::npos) << tuned->name;
    EXPECT_EQ(tuned->notes.size(), 1u) << "it says what it took";
  }
  EXPECT_TRUE(find_model("llama-3.1-70b", "")->notes.empty());
  auto none = find_model("nobody/nothing-8x9", "");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("names Billow knows"), std::string::npos);
}

TEST(Sizes, HaveTheShapeOfModelsOfThatSize) {
  struct Row {
    const char* size;
    double kib;
  };
  for (auto& row : {Row{"13B", 800}, {"14B", 200}, {"70B", 320}, {"72B", 320}, {"8B", 128}}) {
    auto s = model_of_size(row.size);
    ASSERT_TRUE(s) << row.size;
    EXPECT_EQ(kv_per_token(*s, Precision::bf16).bytes / 1024, row.kib) << row.size;
  }
  for (double billions = 0.01; billions < 15000; billions *= 1.37) {
    auto s = model_of_size(fmt::format("{:.3f}B", billions));
    ASSERT_TRUE(s) << billions;
    EXPECT_NEAR(s->parameters() / 1e9, billions, billions * 0.06) << billions;
    for (auto& tensor : s->layers.front().tensors)
      EXPECT_GT(tensor.parameters, 0) << billions;
  }
}

// As published: fields that the library fills in are missing.
TEST(ImplicitFields, AreTheLibrarysDefaults) {
  auto gemma = read_model_config(
      R"({"architectures":["Gemma3ForConditionalGeneration"],"model_type":"gemma3","text_config":{
    "head_dim":128,"hidden_size":5376,"intermediate_size":21504,"model_type":"gemma3_text",
    "num_attention_heads":32,"num_hidden_layers":62,"num_key_value_heads":16,
    "sliding_window":1024},"vision_config":{"hidden_size":1152,"intermediate_size":4304,
    "num_hidden_layers":27}})");
  ASSERT_TRUE(gemma) << gemma.error().message;
  EXPECT_EQ(gemma->vocabulary, 262208);
  EXPECT_TRUE(gemma->tied_embeddings);
  auto kv = kv_per_token(*gemma, Precision::bf16);
  EXPECT_EQ(kv.bytes_far / kv.bytes, 10.0 / 62);  // every sixth layer sees all tokens

  auto llava = read_model_config(
      R"({"model_type":"llava","text_config":{"model_type":"llama","vocab_size":32064,
    "max_position_embeddings":4096},"vision_config":{"hidden_size":1024,
    "intermediate_size":4096,"num_hidden_layers":24}})");
  ASSERT_TRUE(llava) << llava.error().message;
  EXPECT_NEAR(llava->parameters() / 1e9, 6.74, 0.02);

  auto vl = find_model("Qwen/Qwen2-VL-7B-Instruct", "");
  ASSERT_TRUE(vl);
  EXPECT_NEAR(vl->vision_parameters / 1e9, 0.68, 0.05);
  EXPECT_NEAR(weight_parts(*vl).total() / 1e9, 16.6, 0.2);
  // The same fields without a vision part are an incomplete config, not a Llama-2-7B.
  EXPECT_FALSE(read_model_config(R"({"model_type":"llama","vocab_size":32064})"));
}

TEST(ImplicitFields, EmbeddingsAreTiedWhereTheLibraryTiesThem) {
  auto tied = [](const char* type) {
    return read_model_config(
               fmt::format(R"({{"model_type":"{}","hidden_size":1024,"num_hidden_layers":4,
    "num_attention_heads":8,"vocab_size":32000}})",
                           type))
        ->tied_embeddings;
  };
  for (auto type : {"gemma", "bloom", "gpt2", "falcon", "opt", "mpt"})
    EXPECT_TRUE(tied(type)) << type;
  for (auto type : {"mixtral", "qwen2", "gpt_neox", "phi3"})
    EXPECT_FALSE(tied(type)) << type;
}

}  // namespace
}  // namespace billow::advise
