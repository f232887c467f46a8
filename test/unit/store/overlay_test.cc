// The overlay's order (lib/store/overlay.h), whatever keys begin with.
#include <gtest/gtest.h>

#include <map>

#include "lib/base/random.h"
#include "lib/store/overlay.h"

namespace cantle::store {
namespace {

const model::ExtentId kExtents[] = {{1}, {2}};

// What a half holds of an extent, against a map.
class Beside {
 public:
  explicit Beside(uint64_t seed) : random_(seed) {}

  void put(const std::string& key) {
    const auto& extent = kExtents[random_.below(2)];
    model::RecordView r;
    const std::string value = std::to_string(++last_);
    r.key = key;
    r.value = value;
    r.version = model::quorum_version({1}, {last_});
    overlay_.put(extent, r, true);
    wanted_[extent][key] = value;
  }
  // Every key of its own, what lies between them, and all in order.
  void check(const std::vector<std::string>& others) {
    for (const auto& extent : kExtents) {
      const auto& map = wanted_[extent];
      for (const auto& key : others) {
        const auto* entry = overlay_.find(extent, key).entry;
        const auto it = map.find(key);
        ASSERT_EQ(entry != nullptr, it != map.end()) << key;
        if (entry != nullptr) {
          EXPECT_EQ(value_of(*entry), it->second) << key;
        }
        overlay_.settle();
        Half::Walk walk(*overlay_.active(), extent);
        const auto* at = walk.seek(key);
        const auto next = map.lower_bound(key);
        ASSERT_EQ(at != nullptr, next != map.end()) << key;
        if (at != nullptr) {
          EXPECT_EQ(at->key(), next->first);
        }
      }
      Half::Walk walk(*overlay_.active(), extent);
      auto it = map.begin();
      for (const auto* e = walk.seek(""); e != nullptr; e = walk.next(), ++it) {
        ASSERT_NE(it, map.end());
        EXPECT_EQ(e->key(), it->first);
      }
      EXPECT_EQ(it, map.end());
    }
  }
  void settle() { overlay_.settle(); }

 private:
  static std::string value_of(const Entry& entry) {
    std::string buffer;
    return std::string(entry.value(buffer).value());
  }
  base::SeededRandom random_;
  Overlay overlay_;
  std::map<model::ExtentId, std::map<std::string, std::string>> wanted_;
  uint64_t last_ = 0;
};

// Of few letters, zeros among them, so that many begin alike and one is often the beginning of another.
std::string draw(base::Random& random, size_t most) {
  std::string key;
  for (size_t n = random.below(most + 1); n > 0; n--) key += "\0ab\xff"[random.below(4)];
  return key;
}

TEST(Overlay, finds_and_orders_keys_whatever_they_begin_with) {
  for (uint64_t seed = 1; seed <= 60; seed++) {
    base::SeededRandom random(seed);
    Beside beside(seed);
    // Less and less is common to them.
    std::string common = "user/0000000000" + draw(random, 6);
    std::vector<std::string> keys = {""};
    for (int round = 0; round < 6; round++) {
      for (size_t n = 1 + random.below(40); n > 0; n--) {
        keys.push_back(common + draw(random, 10));
        if (random.chance(0.7)) beside.put(keys.back());
      }
      if (random.chance(0.5)) beside.settle();
      keys.push_back(draw(random, 8));
      ASSERT_NO_FATAL_FAILURE(beside.check(keys)) << "seed " << seed;
      common.resize(random.below(common.size() + 1));
    }
  }
}

}  // namespace
}  // namespace cantle::store
