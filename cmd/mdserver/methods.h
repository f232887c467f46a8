// The methods of a metadata server on its sockets (design/interface.md): decodes, asks the service, encodes.
#pragma once

#include <functional>

#include "lib/meta/service.h"
#include "lib/rpc/server.h"

namespace cantle::mdserver {

void serve_methods(rpc::Server& server, meta::Service& service, std::function<model::MdStatusReply()> status);

}  // namespace cantle::mdserver
