#include "herd/storage/safetensors.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstring>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensor_bytes.h"

namespace herd {
namespace {

// A file from a header and data, as an attacker would write it.
std::string raw(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + data;
}

TEST(Safetensors, GivesBackEveryTypeAndShape) {
  TemporaryFolder folder;
  std::vector<TensorEntry> tensors;
  for (const auto& type : all_tensor_types()) {
    tensors.push_back({"matrix of " + std::string(type.name), std::string(type.name), {4, 3}});
    tensors.push_back({"empty " + std::string(type.name), std::string(type.name), {0, 7}});
  }
  tensors.push_back({"scalar \"\xC3\xA9\"", "F64", {}});
  SafetensorsWriter writer(folder / "x.safetensors", tensors, {{"who", "herd"}});
  std::map<std::string, std::string> bytes;
  char next = 1;
  for (const auto& entry : writer.entries()) {
    bytes[entry.name].assign(static_cast<size_t>(entry.end - entry.begin), next++);
    const auto data = std::as_bytes(std::span(bytes[entry.name]));
    writer.append(data.first(data.size() / 2));
    writer.append(data.subspan(data.size() / 2));
  }
  writer.commit();

  const SafetensorsFile file(folder / "x.safetensors");
  EXPECT_EQ(file.metadata().at("who"), "herd");
  EXPECT_EQ(file.tensors().size(), tensors.size());
  for (const auto& tensor : tensors) {
    const auto* found = file.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->type, tensor.type);
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_EQ(bytes_of(file, *found), bytes[tensor.name]);
    const int bits = find_tensor_type(tensor.type)->bits;
    EXPECT_EQ(file.offset(*found) % std::max(1, bits / 8), 0) << tensor.name << " is aligned";
  }
  EXPECT_EQ(file.find("absent"), nullptr);
}

// Bytes as other programs write them: {"a":{"dtype":"F32","shape":[1],...}} with the float 1.0.
TEST(Safetensors, ReadsAFileOfAnotherProgram) {
  TemporaryFolder folder;
  write_text(folder / "x",
             raw(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  )",
                 std::string("\0\0\x80\x3F", 4)));
  const SafetensorsFile file(folder / "x");
  float value = 0;
  file.read(*file.find("a"), 0, std::as_writable_bytes(std::span(&value, 1)));
  EXPECT_EQ(value, 1.0f);
  write_text(folder / "none", raw("{}", ""));
  EXPECT_TRUE(SafetensorsFile(folder / "none").tensors().empty());
}

TEST(Safetensors, RefusesEachBrokenRule) {
  const std::string a = R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  const struct {
    std::string file, words;
  } cases[] = {
      {"", "at least 8 bytes"},
      {raw("{" + a + "}", "xx").substr(0, 20), "bytes follow"},
      {std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}", 10), "header of 18446744073709551615"},
      {raw("", ""), "begin with {"},
      {raw(" {}", ""), "begin with {"},
      {raw("{", ""), "not JSON"},
      {raw("{} x", ""), "not JSON"},
      {raw("{\"\xFF\":1}", ""), "not JSON"},
      {raw("{" + a + "," + a + "}", "xx"), "stands twice"},
      {raw(R"({"a":{"dtype":"U8","dtype":"I8","shape":[2],"data_offsets":[0,2]}})", "xx"), "stands twice"},
      {raw("{" + a + "}", "x"), "ends at byte 2 of the data, which has 1"},
      {raw("{" + a + "}", "xxx"), "take 2 bytes, the file holds 3"},
      {raw("{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})", "xxxx"), "follow each other"},
      {raw("{" + a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "xxx"), "follow each other"},
      {raw("{" + a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "xx"), "follow each other"},
      {raw(R"({"a":{"dtype":"U9","shape":[2],"data_offsets":[0,2]}})", "xx"), "unknown dtype \"U9\""},
      {raw(R"({"a":{"dtype":8,"shape":[2],"data_offsets":[0,2]}})", "xx"), "dtype must be text"},
      {raw(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,2]}})", "xx"), "take 24 bits"},
      {raw(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", "xx"), "take 12 bits"},
      {raw(R"({"a":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}})", "xx"), "whole numbers"},
      {raw(R"({"a":{"dtype":"U8","shape":[2.0],"data_offsets":[0,2]}})", "xx"), "whole numbers"},
      {raw(R"({"a":{"dtype":"U8","shape":2,"data_offsets":[0,2]}})", "xx"), "must be a list"},
      {raw(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", "xx"), "begin <= end"},
      {raw(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0]}})", "xx"), "begin <= end"},
      {raw(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", ""), "too many elements"},
      {raw(R"({"a":{"dtype":"U8","shape":[1e400],"data_offsets":[0,0]}})", ""), "not JSON"},
      {raw(R"({"a":{"dtype":"U8","shape":[2]}})", "xx"), "must have dtype"},
      {raw(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"more":1}})", "xx"), "nothing else"},
      {raw(R"({"a":[[[[1]]]]})", ""), "nested deeper"},
      {raw(R"({"__metadata__":{"a":1}})", ""), "text to text"},
      {raw(R"({"__metadata__":"a"})", ""), "text to text"}};
  TemporaryFolder folder;
  for (const auto& one : cases) {
    write_text(folder / "bad.safetensors", one.file);
    EXPECT_ERROR(SafetensorsFile(folder / "bad.safetensors"), Code::kCorruptFile, "bad.safetensors", one.words, "fix:");
  }
  EXPECT_ERROR(SafetensorsFile(folder / "no"), Code::kStorage, "No such file");
  EXPECT_ERROR(SafetensorsFile(folder.path()), Code::kStorage, "must be a file");
}

// Of this thread, which other programs add nothing to.
double seconds_of_processor() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Seconds of the processor that a header of so many empty tensors takes to parse.
double seconds_to_parse(int num_tensors) {
  std::string header = "{";
  for (int i = 0; i < num_tensors; ++i) {
    header += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) + R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  }
  const std::string file = raw(header + "}", "");
  std::vector<TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  const double begin = seconds_of_processor();
  parse_safetensors(std::as_bytes(std::span(file)), "x", tensors, metadata);
  EXPECT_EQ(tensors.size(), static_cast<size_t>(num_tensors));
  return seconds_of_processor() - begin;
}

// Thirty times the tensors take about thirty times as long, not nine hundred times.
TEST(Safetensors, TheTimeToOpenAFileGrowsWithItsTensors) {
  const double few = std::min({seconds_to_parse(2000), seconds_to_parse(2000), seconds_to_parse(2000)});
  EXPECT_LT(seconds_to_parse(60'000), 150 * few);
}

TEST(Safetensors, TheWriterRefusesWhatNoReaderWouldTake) {
  TemporaryFolder folder;
  const auto write = [&](std::vector<TensorEntry> tensors) { SafetensorsWriter(folder / "x", std::move(tensors)); };
  EXPECT_ERROR(write({{"a", "F32", {1}}, {"a", "F32", {1}}}), Code::kBadConfig, "both be named \"a\"");
  EXPECT_ERROR(write({{"__metadata__", "F32", {1}}}), Code::kBadConfig, "__metadata__");
  EXPECT_ERROR(write({{"a", "F33", {1}}}), Code::kBadConfig, "F33");
  EXPECT_ERROR(write({{"a", "F4", {3}}}), Code::kBadConfig, "whole number of bytes");
  EXPECT_ERROR(write({{"a", "F32", {-1}}}), Code::kBadConfig, "negative");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace herd
