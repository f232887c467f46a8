#include "test/sim/history.h"

#include <algorithm>
#include <cstdlib>

namespace cantle::sim {

Write& History::begin(std::string table, std::vector<std::string> keys, bool del, model::Level level, std::string by,
                      Instant now) {
  Write w;
  w.number = writes_.size() + 1;
  w.table = std::move(table);
  w.keys = std::move(keys);
  w.del = del;
  w.level = level;
  w.by = std::move(by);
  w.asked = now;
  for (const auto& key : w.keys) by_key_[{w.table, key}].push_back(w.number);
  return writes_.emplace_back(std::move(w));
}

std::string History::value(uint64_t number, size_t padding) {
  return std::to_string(number) + ":" + std::string(padding, '.');
}

void History::end(uint64_t number, const base::Result<model::WriteReply>& result, Instant now) {
  Write& w = writes_.at(number - 1);
  w.ended = now;
  if (!result) {
    const bool unknown = result.error().code == base::Code::outcome_unknown;
    // One repeated after an unknown outcome was perhaps done the first time, whatever the repeat is told.
    if (w.told != Told::unknown) w.told = unknown ? Told::unknown : Told::refused;
    if (unknown && !result.error().detail.empty())
      if (auto raw = base::from_hex(result.error().detail))
        if (auto v = model::Version::from_bytes(*raw)) w.version = *v;
    return;
  }
  w.told = Told::ok;
  w.version = result->version;
  for (const auto& key : w.keys) {
    if (w.level == model::Level::one) {
      one_[{w.table, key}].push_back({w.version, w.by});
    } else {
      auto& newest = acknowledged_[{w.table, key}];
      newest = std::max(newest, w.version);
    }
  }
}

std::string History::refute(const std::string& table, std::string_view key, bool deleted, const model::Version& version,
                            std::string_view value) const {
  const auto it = by_key_.find({table, std::string(key)});
  if (it == by_key_.end()) return "nobody wrote key " + std::string(key);
  if (deleted) {
    for (const uint64_t number : it->second) {
      const Write& w = write(number);
      if (w.del && w.told != Told::refused && (w.version.none() || w.version == version)) return "";
    }
    return "nobody deleted key " + std::string(key) + " at " + to_string(version);
  }
  const uint64_t number = std::strtoull(std::string(value.substr(0, 20)).c_str(), nullptr, 10);
  if (number == 0 || number > writes_.size()) return "nobody wrote value " + std::string(value.substr(0, 20));
  const Write& w = write(number);
  const std::string which = "write " + std::to_string(number) + " of key " + std::string(key);
  if (w.table != table || std::find(w.keys.begin(), w.keys.end(), key) == w.keys.end())
    return which + " stands under another key";
  if (w.del) return which + " was a delete";
  if (w.told == Told::refused) return which + " was refused, and is there";
  if (!w.version.none() && w.version != version)
    return which + " was told version " + to_string(w.version) + ", has " + to_string(version);
  return "";
}

model::Version History::acknowledged(const std::string& table, const std::string& key) const {
  const auto it = acknowledged_.find({table, key});
  return it == acknowledged_.end() ? model::Version{} : it->second;
}

}  // namespace cantle::sim
