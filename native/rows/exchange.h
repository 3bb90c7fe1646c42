// The part of the Python module that native/rows/exchange.cpp defines.
#pragma once

#include <nanobind/nanobind.h>

namespace esd::rows {

void bind_exchange(nanobind::module_& m);

}  // namespace esd::rows
