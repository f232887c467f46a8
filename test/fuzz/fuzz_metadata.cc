// METADATA as bytes: single nodes, whole maps, and files made of nodes.
//
// What holds whatever comes: it is refused, or it was validated and has this one encoding. The first byte says what
// the rest is; a file is a row of nodes, each with its length in four bytes, the last one its root.
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "lib/base/check.h"
#include "lib/model/validate.h"
#include "lib/wire/metadata_codec.h"
#include "lib/wire/metadata_nodes.h"

namespace {

using namespace cantle;

void check_valid(const model::Metadata& map, std::string_view encoded_whole) {
  CHECK(model::validate(map));
  CHECK(wire::encode_whole_map(map) == encoded_whole);
}

void whole_map(std::string_view bytes) {
  const auto file = wire::decode_whole_map(bytes);
  if (!file) return;
  check_valid(*file->map, bytes);
  const auto again = wire::encode_file(*file->map);
  CHECK(again.hash() == file->hash());
}

void file(std::string_view bytes) {
  std::map<wire::NodeHash, std::string> nodes;
  wire::NodeHash root{};
  while (bytes.size() > 4) {
    uint32_t size = 0;
    std::memcpy(&size, bytes.data(), 4);
    const auto node = bytes.substr(4, size);
    bytes.remove_prefix(4 + node.size());
    root = wire::hash_of_node(node);
    nodes.insert_or_assign(root, std::string(node));
  }
  const wire::NodeLookup lookup = [&](const wire::NodeHash& hash) {
    const auto it = nodes.find(hash);
    return it == nodes.end() ? nullptr : &it->second;
  };
  const auto missing = wire::missing_nodes(root, lookup);
  const auto decoded = wire::decode_metadata(root, lookup);
  if (!decoded) return;
  CHECK(missing && missing->empty());
  CHECK(decoded->tree->root == root);
  CHECK(wire::encode_file(*decoded->map).tree->root == root);
  check_valid(*decoded->map, wire::encode_whole_map(*decoded->map));
}

void node(std::string_view bytes) {
  if (const auto head = wire::decode_root_head(bytes)) CHECK(head->prev_hash.empty() || head->prev_hash.size() == 32);
  (void)wire::children_of_node(bytes);
  (void)wire::nodes::decode_leaf(bytes);
  (void)wire::nodes::decode_inner(bytes);
  (void)wire::nodes::decode_root(bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'f': file(bytes); break;
    case 'w': whole_map(bytes); break;
    default: node(bytes);
  }
  return 0;
}
