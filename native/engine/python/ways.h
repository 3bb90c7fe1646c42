// The ways to synchronise as Python chooses them, and what else Python has of them.
#pragma once

#include <nanobind/nanobind.h>

#include "engine/sync/sync.h"

namespace esd {

void bind_ways(nanobind::module_& module);

// The way of an engine that is given none.
const Way& default_way();

}  // namespace esd
