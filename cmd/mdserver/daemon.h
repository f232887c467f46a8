// Daemon: a metadata server, put together: data directory, coordination service, service, sockets.
//
// Start: the id file says who this is; the cluster's uuid must be the one in /<cluster>/format (exit status 78
// otherwise). At the very first start the coordination service is waited for; later ones go on without it, and
// answer lookups for those who take what is stale.
#pragma once

#include <memory>
#include <string>

#include "cmd/mdserver/config.h"
#include "cmd/mdserver/reserve.h"
#include "cmd/mdserver/world.h"
#include "lib/coord/registration.h"
#include "lib/daemon/sockets.h"
#include "lib/daemon/supervisor.h"
#include "lib/io/timer.h"
#include "lib/meta/service.h"
#include "lib/rpc/server.h"
#include "lib/store/data_dir.h"

namespace cantle::mdserver {

class Daemon {
 public:
  explicit Daemon(Config config);
  ~Daemon();
  // Serves until told to stop.
  base::Status run();

 private:
  base::Status open_disk();
  base::Status open_identity(const model::ClusterUuid& cluster);
  base::Status begin(const model::ClusterUuid& cluster);
  void read_format();
  void format_read(const coord::Format& format);
  void register_self();
  void write_info();
  void on_event(coord::Event event);
  void check_ready();
  void chores();
  std::string status_line() const;
  model::MdStatusReply status() const;
  void fail(base::Error error);

  Config config_;
  io::Loop loop_;
  std::unique_ptr<coord::Session> session_;
  coord::Layout layout_;
  store::RealDisk disk_;
  std::unique_ptr<store::FileLock> lock_;
  std::unique_ptr<store::DataDir> dir_;
  std::string instance_;
  model::ClusterUuid cluster_;
  bool format_checked_ = false;

  std::unique_ptr<store::ThreadExecutor> executor_;
  std::unique_ptr<store::Index> index_;
  std::unique_ptr<meta::FileStore> files_;
  std::unique_ptr<World> world_;
  std::unique_ptr<meta::Service> service_;
  std::unique_ptr<rpc::Server> server_;
  daemon::Listening listening_;
  base::SystemRandom random_;
  coord::LoopTimers timers_;
  std::unique_ptr<coord::Registration> registration_;
  std::unique_ptr<daemon::Supervisor> life_;
  Reserve reserve_;
  io::Timer timer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::mdserver
