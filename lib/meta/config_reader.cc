#include "lib/meta/config_reader.h"

#include "lib/meta/hint.h"

namespace cantle::meta {

ConfigReader::ConfigReader(Host& host, std::string path) : host_(host), path_(std::move(path)) {}
ConfigReader::~ConfigReader() { *alive_ = false; }

void ConfigReader::read(Done done) {
  next_.push_back(std::move(done));
  if (!busy_) begin();
}

void ConfigReader::begin() {
  busy_ = true;
  hinted_ = false;
  running_.swap(next_);
  asked_.reset();
  if (running_.empty()) return get();
  asked_ = host_.timers().now();
  host_.session().sync(path_, [this, alive = std::weak_ptr(alive_)](base::Result<base::Nothing> synced) {
    if (!alive.lock()) return;
    if (!synced) return finish(base::fail(std::move(synced).error()));
    get();
  });
}

void ConfigReader::get() {
  auto watch = hint_watch(armed_, alive_, [this] {
    hinted_ = true;
    if (!busy_) begin();
  });
  host_.session().get(path_, std::move(watch), [this, alive = std::weak_ptr(alive_)](base::Result<coord::Node> node) {
    if (alive.lock()) got(std::move(node));
  });
}

void ConfigReader::got(base::Result<coord::Node> node) {
  if (!node) {
    armed_ = false;  // whether the watch is there is not known; one too many does no harm
    if (node.error().code == base::Code::not_found) return finish(proto::ConfigAnswer(std::nullopt));
    return finish(base::fail(std::move(node).error()));
  }
  auto config = model::parse_table_config(node->value);
  if (!config) return finish(base::fail(base::Code::faulted, path_ + ": " + config.error().text));
  finish(proto::ConfigAnswer(proto::VersionedConfig{std::move(*config), node->stat.version}));
}

void ConfigReader::finish(const proto::ConfigAnswer& answer) {
  const std::weak_ptr<bool> alive = alive_;
  auto waiting = std::move(running_);
  running_.clear();
  if (on_read_) on_read_(answer, asked_);
  for (auto& done : waiting) {
    if (!alive.lock()) return;
    done(answer);
  }
  if (!alive.lock()) return;
  busy_ = false;
  if (!next_.empty() || hinted_) begin();
}

}  // namespace cantle::meta
