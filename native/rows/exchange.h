// What native/rows/exchange.cpp adds to the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace esd::rows {

void bind_exchange(nanobind::module_& m);

}  // namespace esd::rows
