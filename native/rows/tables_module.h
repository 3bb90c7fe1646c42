// The part of the Python module that native/rows/tables.cpp defines.
#pragma once

#include <nanobind/nanobind.h>

namespace esd::rows {

void bind_tables(nanobind::module_& m);

}  // namespace esd::rows
