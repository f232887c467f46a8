// What a METADATA transaction changes in the coordination service, as one multi: TableConfig at its version,
// and the region nodes that follow it (coordination.md, "Layout"). Pure.
//
// Region numbers come from METADATA itself (next_region): the transaction that uses one is already a
// compare-and-swap, so a second round to a sequential znode would hand out nothing that it does not. The
// nameprefixqueue node shows the next number for whoever looks there.
//
// A region of a quorum table comes with its first government (epoch 1, nobody leads, the map's assignments vote) and a
// directory for votes, in the same multi: they are there if and only if the region is, and are never made again. A
// government made anew would begin at an epoch that was (S36). A split's children have a region before they have a
// government: that comes with FINALIZE_SPLIT, at an epoch above the parent's.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/coord/coord.h"
#include "lib/coord/layout.h"
#include "lib/model/metadata.h"
#include "lib/model/operation.h"
#include "lib/model/table_config.h"

namespace cantle::meta {

// The region node that `file` implies for this number; nullopt: none.
std::optional<coord::RegionNode> region_node(const model::Metadata& file, model::Region region);
// Those of a whole file.
std::map<model::Region, coord::RegionNode> region_nodes(const model::Metadata& file);
// Those that differ once `after` follows `before` (null: nothing). A child that is gone is `aborted`. Costs what
// changed.
std::map<model::Region, coord::RegionNode> changed_region_nodes(const model::Metadata* before,
                                                                const model::Metadata& after);

// Of a new region of a quorum table; nullopt: `file` has no such partition, or is of a push table.
std::optional<model::Government> first_government(const model::Metadata& file, model::Region region,
                                                  std::string writer);
// The governments that the operations rest on have the versions still that they name. Of an operation whose partition
// is not there: nothing, as it fails by itself.
std::vector<coord::Op> government_checks(const coord::Layout& layout, const std::string& distribution,
                                         const model::Metadata& before, std::span<const model::Operation> operations);
// Appends what makes the region's node, with what belongs to it, or, if it is `there`, sets it.
void append_region(std::vector<coord::Op>& ops, const coord::Layout& layout, const std::string& distribution,
                   const model::Metadata& file, model::Region region, const coord::RegionNode& node, bool there,
                   const std::string& writer);

// Its first government, and the directory for votes; of a partition that `file` has, in a quorum table.
void append_government(std::vector<coord::Op>& ops, const coord::Layout& layout, const std::string& distribution,
                       const model::Metadata& file, model::Region region, const std::string& writer);

// More region nodes than this do not go into the multi of a transaction: TableConfig says `regions_behind`.
constexpr size_t kRegionsAtOnce = 200;

struct SwapOps {
  std::vector<coord::Op> ops;  // the first one is TableConfig
  bool regions_behind = false;
};
// Of a transaction that leads from `before` (null: creation, TableConfig is created) to `after`. `absent`: region nodes
// that are known not to be there, though they should; `present`: the other way round.
SwapOps swap_ops(const coord::Layout& layout, const std::string& distribution, model::TableConfig to, int32_t version,
                 const model::Metadata* before, const model::Metadata& after,
                 const std::map<model::Region, bool>& known_present);

}  // namespace cantle::meta
