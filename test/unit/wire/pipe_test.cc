// Messages of quorum tables as bytes: all of each comes back, what is not one is refused, and a block goes on uncopied.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "lib/base/random.h"
#include "lib/model/pipe.h"
#include "lib/model/quorum.h"
#include "lib/model/record.h"
#include "lib/wire/block.h"
#include "lib/wire/codec.h"
#include "lib/wire/frame.h"
#include "lib/wire/pipe_block.h"

namespace cantle::wire {
namespace {

using base::Code;

base::SeededRandom g_random(7);

// Puts something else than the default into every field, so that one that is lost on the way is missed.
struct Filler {
  uint64_t next = 3;
  void operator()(const char*, bool& v) { v = true; }
  void operator()(const char*, std::string& v) { v = "text" + std::to_string(next++); }
  void operator()(const char*, model::ServerId& v) { v.name = "p" + std::to_string(next++); }
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) void operator()(const char*, T& v) {
    v = std::numeric_limits<T>::max() - static_cast<T>(next++);
  }
  template <class Tag, class Int>
  void operator()(const char* name, model::Number<Tag, Int>& v) {
    (*this)(name, v.value);
  }
  template <class Tag>
  void operator()(const char*, model::Id128<Tag>& v) {
    v = model::Id128<Tag>::draw(g_random);
  }
  template <class T>
  void operator()(const char* name, std::vector<T>& v) {
    v.resize(3);
    for (auto& item : v) (*this)(name, item);
  }
  template <codec::Fields T>
  void operator()(const char*, T& v) {
    v.each_field(*this);
  }
};
template <class T>
T filled() {
  T message;
  message.each_field(Filler{});
  return message;
}

// As maps of fields, so that each has a name in what is said of a difference.
template <class T>
std::map<std::string, std::string> fields_of(const T& message) {
  std::map<std::string, std::string> out;
  message.each_field([&](const char* name, const auto& field) { out[name] = base::escape(encode(field)); });
  return out;
}

template <class T>
class PipeMessages : public testing::Test {};
using Messages = testing::Types<model::PipeOpen, model::PipeOpenReply, model::PipeCut, model::PipeBlock,
                                model::PipeCommit, model::PipeAck, model::QuorumBeacon, model::QuorumBeaconReply,
                                model::QuorumSuspect, model::QuorumSuspectReply, model::QuorumRelease>;
TYPED_TEST_SUITE(PipeMessages, Messages);

TYPED_TEST(PipeMessages, all_of_it_comes_back) {
  const auto message = filled<TypeParam>();
  const auto back = decode<TypeParam>(encode(message));
  ASSERT_TRUE(back) << to_string(back.error());
  EXPECT_EQ(fields_of(*back), fields_of(message));
  for (const auto& [name, bytes] : fields_of(message))
    EXPECT_NE(bytes, fields_of(TypeParam{})[name]) << name << " was not filled in";
  const auto empty = decode<TypeParam>(encode(TypeParam{}));
  ASSERT_TRUE(empty) << to_string(empty.error());
  EXPECT_EQ(fields_of(*empty), fields_of(TypeParam{}));
}

// A newer version may say more, an older one less.
TYPED_TEST(PipeMessages, unknown_fields_are_passed_over_and_missing_ones_keep_their_default) {
  const auto message = filled<TypeParam>();
  std::string more;
  Writer w(more);
  w.map(fields_of(message).size() + 1);
  w.str("from a later version");
  w.map(1), w.str("a"), w.array(2), w.nil(), w.real(0.5);
  std::string first;
  message.each_field([&](const char* name, const auto& field) {
    w.str(name);
    put(w, field);
    if (first.empty()) first = name;
  });
  const auto before = unknown_fields();
  const auto back = decode<TypeParam>(more);
  ASSERT_TRUE(back) << to_string(back.error());
  EXPECT_EQ(fields_of(*back), fields_of(message));
  EXPECT_EQ(unknown_fields(), before + 1);
  const auto less = decode<TypeParam>("");
  ASSERT_TRUE(less);
  EXPECT_EQ(fields_of(*less), fields_of(TypeParam{}));
}

TYPED_TEST(PipeMessages, what_is_not_one_is_refused) {
  const auto bytes = encode(filled<TypeParam>());
  for (size_t size = 1; size < bytes.size(); ++size) {
    const auto cut = decode<TypeParam>(std::string_view(bytes).substr(0, size));
    ASSERT_FALSE(cut) << size << " bytes of " << bytes.size();
    EXPECT_EQ(cut.error().code, Code::malformed);
  }
  EXPECT_EQ(decode<TypeParam>(bytes + '\x01').error().code, Code::malformed);
  EXPECT_EQ(decode<TypeParam>("\x91\x01").error().code, Code::malformed) << "an array";
  TypeParam{}.each_field([](const char* name, const auto&) {
    std::string wrong;
    Writer w(wrong);
    w.map(1), w.str(name), w.real(1.5);
    const auto r = decode<TypeParam>(wrong);
    ASSERT_FALSE(r) << name;
    EXPECT_EQ(r.error().code, Code::malformed);
    EXPECT_NE(r.error().text.find(name), std::string::npos) << r.error().text;
  });
}

// --- limits ----------------------------------------------------------------------------------------

template <class T, class List>
void holds_the_limit(List T::*list, size_t most) {
  T message;
  (message.*list).resize(most);
  const auto bytes = encode(message);
  EXPECT_LT(bytes.size(), kFrameMax) << "what is allowed fits into a frame";
  const auto full = decode<T>(bytes);
  ASSERT_TRUE(full) << to_string(full.error());
  EXPECT_EQ(((*full).*list).size(), most);
  (message.*list).emplace_back();
  const auto over = decode<T>(encode(message));
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, Code::malformed);
  EXPECT_NE(over.error().text.find(std::to_string(most)), std::string::npos) << over.error().text;
}

TEST(Pipe, a_list_over_its_limit_is_refused) {
  holds_the_limit(&model::PipeBlock::route, model::kRouteMax);
  holds_the_limit(&model::PipeOpenReply::epochs, model::kEpochStartsMax);
  holds_the_limit(&model::QuorumBeacon::released, model::kBeaconPartitionsMax);
  holds_the_limit(&model::QuorumBeaconReply::refused, model::kBeaconPartitionsMax);
  holds_the_limit(&model::Government::voters, model::kVotersMax);
}

// The values above are small in MessagePack. These are as large as they get.
TEST(Pipe, the_longest_lists_of_the_largest_values_fit_into_a_frame) {
  auto beacon = filled<model::QuorumBeacon>();
  beacon.released.assign(model::kBeaconPartitionsMax, beacon.released.front());
  EXPECT_LT(encode(beacon).size(), kFrameMax);
  auto answer = filled<model::QuorumBeaconReply>();
  answer.refused.assign(model::kBeaconPartitionsMax, answer.refused.front());
  EXPECT_LT(encode(answer).size(), kFrameMax);
  auto reply = filled<model::PipeOpenReply>();
  reply.epochs.assign(model::kEpochStartsMax, reply.epochs.front());
  EXPECT_LT(encode(reply).size(), kFrameMax);
}

// --- pipe.block, without copying -------------------------------------------------------------------

struct Sealed {
  std::string header, payload;
  std::string block() const { return header + payload; }
};
Sealed sealed(size_t value_size, model::BlockKind kind = model::BlockKind::data) {
  Sealed out;
  if (model::is_log_block(kind)) {
    const std::string value(value_size, 'v');
    append_record(out.payload, {model::Op::put, "k", value, model::Version::make(1, 2, {3}, {4})});
  }
  model::BlockHeader h;
  h.kind = kind;
  h.partition = model::PartitionId::draw(g_random);
  if (model::is_log_block(kind)) h.first = {8}, h.records = 1, h.prev_lsn = {7};
  h.epoch = {4};
  seal_block(h, out.payload);
  out.header.resize(kBlockHeaderSize);
  encode_header(h, out.header.data());
  return out;
}
model::PipeBlock without_block() {
  auto message = filled<model::PipeBlock>();
  message.block.clear();
  return message;
}
bool inside(std::string_view part, const std::string& whole) {
  return part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size();
}

TEST(Pipe, a_block_is_encoded_around_its_bytes_as_the_codec_would) {
  for (const size_t size : {size_t{0}, size_t{100}, size_t{1000}, size_t{100000}}) {
    const auto bytes = sealed(size);
    auto message = without_block();
    const auto around = encode_pipe_block(message, bytes.header, bytes.payload);
    EXPECT_EQ(encode_pipe_block(message, bytes.block()), around) << "header and payload lie together";
    message.block = bytes.block();
    EXPECT_EQ(around, encode(message)) << size;
  }
}

TEST(Pipe, a_block_is_read_without_being_copied_and_goes_on_with_another_route) {
  const auto bytes = sealed(300);
  auto message = without_block();
  const auto params = encode_pipe_block(message, bytes.header, bytes.payload);
  auto in = decode_pipe_block(params);
  ASSERT_TRUE(in) << to_string(in.error());
  EXPECT_TRUE(inside(in->block, params) && inside(in->payload, params));
  EXPECT_EQ(in->block, bytes.block());
  EXPECT_EQ(in->payload, bytes.payload);
  EXPECT_EQ(in->header.first.value, 8u);
  EXPECT_TRUE(in->message.block.empty());
  EXPECT_EQ(fields_of(in->message), fields_of(message));

  const auto to = in->message.route.front();
  in->message.route.erase(in->message.route.begin());
  in->message.envelope.to_assignment = to.assignment;
  const auto on = encode_pipe_block(in->message, in->block);
  const auto whole = decode<model::PipeBlock>(on);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->block, bytes.block());
  EXPECT_EQ(whole->envelope.to_assignment, to.assignment);
  EXPECT_EQ(whole->route.size(), message.route.size() - 1);
  EXPECT_EQ(whole->envelope.incarnation, message.envelope.incarnation) << "the leader's";
}

TEST(Pipe, fields_of_a_block_message_come_in_any_order_and_others_are_passed_over) {
  const auto bytes = sealed(10);
  std::string params;
  Writer w(params);
  w.map(3);
  w.str("block"), w.bin(bytes.block());
  w.str("colour"), w.array(1), w.nil();
  w.str("epoch"), w.uint(9);
  const auto in = decode_pipe_block(params);
  ASSERT_TRUE(in) << to_string(in.error());
  EXPECT_EQ(in->message.epoch.value, 9u);
  EXPECT_EQ(in->block, bytes.block());
}

TEST(Pipe, what_is_no_block_is_refused) {
  const auto bytes = sealed(300);
  const auto refused = [](std::string_view header, std::string_view payload) {
    const auto r = decode_pipe_block(encode_pipe_block(without_block(), header, payload));
    EXPECT_FALSE(r);
    return r ? std::string() : std::string(r.error().code == Code::malformed ? "malformed: " : "") + r.error().text;
  };
  EXPECT_NE(refused("", "").find("malformed: "), std::string::npos);
  EXPECT_NE(refused(bytes.header, "").find("0 bytes behind"), std::string::npos);
  EXPECT_NE(refused(bytes.header, bytes.payload + "x").find("malformed: "), std::string::npos);
  EXPECT_NE(refused(bytes.header.substr(1), bytes.payload).find("field block"), std::string::npos);
  auto flipped = bytes.header;
  flipped[20] = static_cast<char>(flipped[20] ^ 1);
  EXPECT_NE(refused(flipped, bytes.payload).find("checksum"), std::string::npos);
  EXPECT_NE(refused(sealed(0, model::BlockKind::seal).header, "").find("no block of a log"), std::string::npos);
  EXPECT_FALSE(decode_pipe_block("")) << "a message without a block";
  auto message = without_block();
  message.route.resize(model::kRouteMax + 1);
  EXPECT_FALSE(decode_pipe_block(encode_pipe_block(message, bytes.header, bytes.payload)));
}

// The checksum of the bytes is for who takes them: a forwarder does not wait for it.
TEST(Pipe, the_largest_block_fits_into_a_frame) {
  std::string payload(model::kBlockMax, 'x');
  model::BlockHeader h;
  h.first = {1}, h.records = 1;
  seal_block(h, payload);
  std::string header(kBlockHeaderSize, '\0');
  encode_header(h, header.data());
  auto message = without_block();
  message.route.assign(model::kRouteMax, message.route.front());
  const auto params = encode_pipe_block(message, header, payload);
  std::string frame;
  append_notification(frame, "pipe.block", params);
  EXPECT_LT(frame.size(), kFrameMax);
  EXPECT_TRUE(decode_pipe_block(params));
}

}  // namespace
}  // namespace cantle::wire
