#include "test/sim/client.h"

#include "test/sim/partd.h"
#include "test/sim/pusher.h"

namespace cantle::sim {

using base::Code;
using model::Level;

namespace {
constexpr Duration kCallTimeout = 8s;
constexpr int kScanAnswersMax = 40;
}  // namespace

Client::Client(Cluster& cluster, History& history, const std::string& host, const Load& load)
    : cluster_(cluster), history_(history), load_(load), process_(cluster.scheduler, host, "client") {}

std::string Client::key(size_t n) {
  // Spread over the keyspace, and not in the order of their numbers.
  std::string k(1, static_cast<char>('a' + (n * 7) % 26));
  return k + std::to_string(n);
}

void Client::start() { plan(); }

void Client::plan() {
  process_.after(cluster_.scheduler.between(load_.think_min, load_.think_max), [this] {
    if (stopped_) return;
    act();
    plan();
  });
}

std::string Client::any_host() {
  auto it = cluster_.hosts.begin();
  std::advance(it, static_cast<std::ptrdiff_t>(random().below(cluster_.hosts.size())));
  return it->first;
}

void Client::violation(const std::string& text) {
  if (cluster_.watchers.violation) cluster_.watchers.violation(text);
}

void Client::act() {
  const auto& table = load_.tables[random().below(load_.tables.size())];
  if (random().chance(load_.scan)) {
    auto scan = std::make_shared<Scan>();
    scan->table = table;
    scan->reverse = random().chance(0.4);
    ++waiting_;
    return scan_more(std::move(scan));
  }
  if (random().chance(load_.read))
    return get(any_host(), table, any_key(), random().chance(0.3) ? Level::one : Level::majority);
  write();
}

void Client::write() {
  const auto& table = load_.tables[random().below(load_.tables.size())];
  const Level level = random().chance(load_.level_one)   ? Level::one
                      : random().chance(load_.level_all) ? Level::all
                                                         : Level::majority;
  const auto to = any_host();
  const size_t padding = random().chance(load_.big) ? random().below(20000) : random().below(60);
  if (random().chance(load_.del)) {
    const auto k = any_key();
    model::DeleteRequest del;
    del.table = table;
    del.key = k;
    del.level = level;
    const auto number = history_.begin(table, {k}, true, level, to, cluster_.scheduler.now()).number;
    return send_write(number, del, to, 1, nullptr);
  }
  if (!random().chance(load_.batch)) {
    put(to, table, any_key(), level, nullptr, padding);
    return;
  }
  std::set<std::string> keys;
  for (size_t n = 1 + random().below(4); n > 0; --n) keys.insert(any_key());
  model::BatchRequest batch;
  batch.table = table;
  batch.level = level;
  const auto number =
      history_.begin(table, {keys.begin(), keys.end()}, false, level, to, cluster_.scheduler.now()).number;
  for (const auto& k : keys) batch.ops.push_back({model::Op::put, k, History::value(number, padding % 100)});
  send_write(number, batch, to, 1, nullptr);
}

uint64_t Client::put(const std::string& to, const std::string& table, const std::string& key, Level level,
                     WriteDone done, size_t padding) {
  model::PutRequest put;
  put.table = table;
  put.key = key;
  put.level = level;
  const auto number = history_.begin(table, {key}, false, level, to, cluster_.scheduler.now()).number;
  put.value = History::value(number, padding);
  send_write(number, put, to, done ? 0 : 1, std::move(done));
  return number;
}

void Client::send_write(uint64_t number, std::any message, const std::string& to, int repeats, WriteDone done) {
  ++waiting_;
  cluster_.network.call(
      process_, to + "/partd", message, kCallTimeout, [this, number, message, repeats, done](Network::Answer r) {
        --waiting_;
        base::Result<model::WriteReply> result =
            r ? base::Result<model::WriteReply>(std::any_cast<model::WriteReply>(*r)) : base::fail(r.error());
        // Unknown by the network itself: no version is known.
        if (!result && result.error().detail == kLinkError)
          result = base::fail(result.error().code, result.error().text);
        history_.end(number, result, cluster_.scheduler.now());
        cluster_.scheduler.note("told", number, result ? 0 : static_cast<int>(result.error().code));
        if (cluster_.watchers.told) cluster_.watchers.told(history_.write(number));
        if (done) return done(result);
        const bool unknown =
            !result && result.error().code == Code::outcome_unknown && !history_.write(number).version.none();
        if (!unknown || repeats == 0 || stopped_ || !random().chance(0.5)) return;
        // The same write once more, under the version it was told.
        std::any again = message;
        const auto version = history_.write(number).version;
        if (auto* p = std::any_cast<model::PutRequest>(&again)) p->version = version;
        if (auto* d = std::any_cast<model::DeleteRequest>(&again)) d->version = version;
        if (auto* b = std::any_cast<model::BatchRequest>(&again)) b->version = version;
        send_write(number, std::move(again), any_host(), repeats - 1, nullptr);
      });
}

void Client::get(const std::string& to, const std::string& table, const std::string& key, Level level, GetDone done) {
  model::GetRequest get;
  get.table = table;
  get.key = key;
  get.level = level;
  const auto least = level == Level::one ? model::Version{} : history_.acknowledged(table, key);
  ++waiting_;
  cluster_.network.call(process_, to + "/partd", get, kCallTimeout, [this, table, key, least, done](Network::Answer r) {
    --waiting_;
    base::Result<model::GetReply> result =
        r ? base::Result<model::GetReply>(std::any_cast<model::GetReply>(*r)) : base::fail(r.error());
    if (result) {
      if (const auto why = history_.refute(table, key, false, result->version, result->value); !why.empty())
        violation("read: " + why);
      if (result->version < least && everybody_has_the_map(table, key))
        violation("read at majority of " + key + " gave " + to_string(result->version) + " after " + to_string(least) +
                  " was acknowledged");
    } else if (result.error().code == Code::not_found && !least.none()) {
      // A delete is newer than what was acknowledged, or something is wrong: the answer carries the tombstone's
      // version.
      const auto raw = base::from_hex(result.error().detail);
      const auto version = raw ? model::Version::from_bytes(*raw) : base::fail(Code::invalid, "");
      if ((!version || *version < least) && everybody_has_the_map(table, key))
        violation("read at majority of " + key + " found nothing after " + to_string(least) + " was acknowledged");
    }
    if (done) done(result);
  });
}

// A server that is cut off from its maps answers from before a split or a move that it has not heard of; push tables do
// not promise more. What a majority read promises holds where every server has the key's present entry.
bool Client::everybody_has_the_map(const std::string& table, const std::string& key) const {
  const MapPtr map = cluster_.maps.current(table);
  const model::Partition* p = map && !map->dropped ? map->find(key) : nullptr;
  if (!p) return false;
  for (const auto& [name, host] : cluster_.hosts) {
    if (!host->partd.alive() || !host->partd_node || !host->partd_node->machine()) continue;
    const MapPtr installed = host->partd_node->machine()->installed(table);
    if (installed && installed->txnseq < p->min_txnseq) return false;
  }
  return true;
}

void Client::scan_more(std::shared_ptr<Scan> scan) {
  model::ScanRequest ask;
  ask.table = scan->table;
  ask.reverse = scan->reverse;
  ask.cursor = scan->cursor;
  ask.level = scan->level;
  ask.limit = 1 + static_cast<uint32_t>(random().below(8));
  cluster_.network.call(process_, any_host() + "/partd", ask, kCallTimeout, [this, scan](Network::Answer r) {
    if (!r) {
      if (++scan->failures > 3 || stopped_) {
        --waiting_;
        return;
      }
      process_.after(50ms, [this, scan] { scan_more(scan); });
      return;
    }
    const auto answer = std::any_cast<model::ScanReply>(std::move(*r));
    for (const auto& record : answer.records) {
      const bool in_order = scan->last.empty() || (scan->reverse ? record.key < scan->last : record.key > scan->last);
      if (!in_order) violation("scan gave " + record.key + " after " + scan->last);
      scan->last = record.key;
      if (const auto why = history_.refute(scan->table, record.key, false, record.version, record.value); !why.empty())
        violation("scan: " + why);
    }
    scan->cursor = answer.cursor;
    if (answer.cursor.empty() || ++scan->answers > kScanAnswersMax || stopped_) {
      --waiting_;
      return;
    }
    scan_more(scan);
  });
}

}  // namespace cantle::sim
