// History: what clients asked and what they were told. The promises are checked against it.
//
// Every write has a number, and every value begins with its write's number ("17:…"), so a record found
// anywhere names the write that it came from.
//
// What each answer promises:
//   ok           durable at the level asked for, under the version told
//   unknown      it may be there, now or later, or never; under the version told, if one was
//   refused      it is nowhere and never will be
//   pending      nobody said anything: as unknown
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/client_messages.h"
#include "test/sim/scheduler.h"

namespace cantle::sim {

enum class Told : uint8_t { pending, ok, unknown, refused };

struct Write {
  uint64_t number = 0;
  std::string table;
  std::vector<std::string> keys;  // several: a batch
  bool del = false;
  model::Level level = model::Level::majority;
  Instant asked, ended;
  Told told = Told::pending;
  model::Version version;  // none: not known
  std::string by;          // host that was asked
};

class History {
 public:
  Write& begin(std::string table, std::vector<std::string> keys, bool del, model::Level level, std::string by,
               Instant now);
  // The value of write `number` for a record of it.
  static std::string value(uint64_t number, size_t padding);
  void end(uint64_t number, const base::Result<model::WriteReply>& result, Instant now);

  const Write& write(uint64_t number) const { return writes_.at(number - 1); }
  const std::vector<Write>& writes() const { return writes_; }
  // Why this record cannot be there; empty: it may.
  std::string refute(const std::string& table, std::string_view key, bool deleted, const model::Version& version,
                     std::string_view value) const;
  // The newest version of the key that was acknowledged at majority or above by `now`; none if there is none.
  model::Version acknowledged(const std::string& table, const std::string& key) const;
  // Writes acknowledged at majority or above, of keys as above.
  using Key = std::pair<std::string, std::string>;
  const std::map<Key, model::Version>& acknowledged() const { return acknowledged_; }
  // The same for level one: who acknowledged it too.
  struct AckedOne {
    model::Version version;
    std::string by;
  };
  const std::map<Key, std::vector<AckedOne>>& acknowledged_one() const { return one_; }

 private:
  std::vector<Write> writes_;
  std::map<Key, std::vector<uint64_t>> by_key_;
  std::map<Key, model::Version> acknowledged_;
  std::map<Key, std::vector<AckedOne>> one_;
};

}  // namespace cantle::sim
