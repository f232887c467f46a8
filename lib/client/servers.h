// Servers: which servers live, and how they are reached, as the coordination service has it.
//
// Use
//   CoordServers servers(loop, *session, coord::Layout(cluster));
//   servers.refresh([&] { if (const auto* s = servers.find({"p1"})) connect(s->address()); });
//
// Invariants
//   * What was learnt once stays known when the coordination service cannot be reached, and when a server's entry is
//     gone (`live` is false then): reads and writes go on without it.
// Threads: the loop's. Ownership: does not own the session; destroy it first.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/coord/coord.h"
#include "lib/coord/layout.h"
#include "lib/io/address.h"
#include "lib/io/timer.h"

namespace cantle::client {

struct ServerEntry {
  model::ServerId id;
  coord::Active active;
  bool live = true;

  // The Unix socket when it is on this host, else TCP.
  base::Result<io::Address> address() const;
};

class Servers {
 public:
  virtual ~Servers() = default;
  virtual const ServerEntry* find(const model::ServerId& id) const = 0;  // null: never heard of
  virtual std::vector<ServerEntry> all() const = 0;                      // by id
  // Asks anew; `done` also when nothing could be learnt. Soon after the last time it is done at once.
  virtual void refresh(std::function<void()> done) = 0;
};

constexpr base::Duration kServersRefreshMin = std::chrono::milliseconds(100);

class CoordServers final : public Servers {
 public:
  CoordServers(io::Loop& loop, coord::Session& session, coord::Layout layout);
  ~CoordServers() override;

  const ServerEntry* find(const model::ServerId& id) const override;
  std::vector<ServerEntry> all() const override;
  void refresh(std::function<void()> done) override;

 private:
  struct Round;
  void begin();
  void read(const std::string& name);
  void finish();

  io::Loop& loop_;
  coord::Session& session_;
  coord::Layout layout_;
  std::map<model::ServerId, ServerEntry> known_, next_;
  std::vector<std::function<void()>> waiting_;
  size_t reads_left_ = 0;
  bool running_ = false, stale_ = true, failed_ = false;
  base::Instant last_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::client
